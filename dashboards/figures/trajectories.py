"""Trajectories: the way of every trial through the plane of epsilon and utility, and how it ended.

Epsilon grows with the epochs, so a trial walks from left to right; a good trial hugs the front. As figure 14
of Bethune et al. (2024), https://arxiv.org/abs/2305.16202.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._common import (
    FigureInfo,
    Step,
    epsilon_axis,
    header,
    label,
    new_figure,
    staircase,
    value_axis,
)
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.front import step_line
from dashboards.text import show
from sweeper.records import TrialStatus

DRAWN_TRIALS = 400
_SYMBOLS = {
    TrialStatus.COMPLETED: "circle",
    TrialStatus.STOPPED: "square",
    TrialStatus.FAILED: "x",
    TrialStatus.INTERRUPTED: "diamond",
    TrialStatus.RUNNING: "triangle-right",
}


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One trial's points in the order of their epochs."""

    trial: str
    status: TrialStatus
    reason: str
    epochs: tuple[int, ...]
    epsilons: tuple[float, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoriesInfo(FigureInfo):
    """Numbers of the trajectories figure.

    Attributes:
        utility: name on the vertical axis.
        trajectories: trials with at least one point, by id; the last `DRAWN_TRIALS` of them.
        trials_total: trials with at least one point, drawn or not.
        steps: the staircase of the front, for comparison.
    """

    utility: str
    trajectories: tuple[Trajectory, ...]
    trials_total: int
    steps: tuple[Step, ...]


def info(data: SweepData) -> TrajectoriesInfo:
    """Compute the trajectories."""
    points: dict[str, list[tuple[int, float, float]]] = {}
    for point in data.points:
        if finite(point, "epsilon", data.utility):
            row = (point.epoch, point.values["epsilon"], point.values[data.utility])
            points.setdefault(point.trial, []).append(row)
    trajectories = []
    for id_ in sorted(points):
        epochs, epsilons, values = zip(*sorted(points[id_]), strict=True)
        trial = data.trials[id_]
        trajectories.append(Trajectory(id_, TrialStatus(trial.status), trial.reason, epochs, epsilons, values))
    return TrajectoriesInfo(
        **header(data, "trajectories of the trials"),
        utility=data.utility,
        trajectories=tuple(trajectories[-DRAWN_TRIALS:]),
        trials_total=len(trajectories),
        steps=staircase(data.front_points, data.utility, data.direction(data.utility)),
    )


def plot(info: TrajectoriesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the trajectories, one colour and end mark for each way a trial can end."""
    epsilons = [epsilon for t in info.trajectories for epsilon in t.epsilons]
    figure = new_figure(
        info,
        theme,
        empty=not epsilons,
        height=460,
        xaxis=epsilon_axis(info.epsilon_title, epsilons),
        yaxis=value_axis(info.utility),
    )
    colors = {
        TrialStatus.COMPLETED: theme.blue,
        TrialStatus.STOPPED: theme.orange,
        TrialStatus.FAILED: theme.red,
        TrialStatus.INTERRUPTED: theme.purple,
        TrialStatus.RUNNING: theme.green,
    }
    for status, color in colors.items():
        chosen = [t for t in info.trajectories if t.status is status]
        if chosen:
            figure.add_trace(_paths(chosen, color, info.utility, status.value))
            figure.add_trace(_ends(chosen, color, info.utility))
    if epsilons:
        figure.add_trace(step_line(info.steps, max(epsilons), theme.ink, name="front"))
    return figure


def _paths(trajectories: Iterable[Trajectory], color: str, utility: str, status: str) -> go.Scatter:
    x: list[float | None] = []
    y: list[float | None] = []
    texts: list[str] = []
    for t in trajectories:
        x += [*t.epsilons, None]
        y += [*t.values, None]
        for epoch, epsilon, value in zip(t.epochs, t.epsilons, t.values, strict=True):
            texts.append(_text(t, epoch, epsilon, value, utility))
        texts.append("")
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": color, "width": 1.2},
        opacity=0.55,
        text=texts,
        hovertemplate="%{text}<extra></extra>",
        legendgroup=status,
        showlegend=False,
        name=status,
    )


def _ends(trajectories: list[Trajectory], color: str, utility: str) -> go.Scatter:
    status = trajectories[0].status
    return go.Scatter(
        x=[t.epsilons[-1] for t in trajectories],
        y=[t.values[-1] for t in trajectories],
        mode="markers",
        marker={"symbol": _SYMBOLS[status], "size": 8, "color": color},
        text=[
            _text(t, t.epochs[-1], t.epsilons[-1], t.values[-1], utility)
            + f"<br>{status.value}{': ' + escape(t.reason) if t.reason else ''}"
            for t in trajectories
        ],
        hovertemplate="%{text}<extra></extra>",
        legendgroup=status.value,
        name=status.value,
    )


def _text(t: Trajectory, epoch: int, epsilon: float, value: float, utility: str) -> str:
    return (
        f"<b>{escape(t.trial)}</b>, epoch {epoch}<br>epsilon {show('epsilon', epsilon)}: "
        f"{label(utility)} {show(utility, value)}"
    )
