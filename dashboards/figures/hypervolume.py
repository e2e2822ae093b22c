"""Hypervolume of the front after each trial: what more trials brought, and whether more would help.

Hypervolume is the share of a fixed box that the front dominates; the box is recorded with the sweep, so that
sweeps can be compared. Trials count in the order in which they were proposed.
"""

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._common import FigureInfo, header, new_figure
from dashboards.figures._theme import LIGHT, Theme
from dashboards.text import number
from sweeper.pareto import FrontArchive
from sweeper.records import Point


@dataclass(frozen=True, slots=True, kw_only=True)
class HypervolumeInfo(FigureInfo):
    """Numbers of the hypervolume figure: one entry per trial that has points."""

    trials: tuple[str, ...]
    values: tuple[float, ...]


def info(data: SweepData) -> HypervolumeInfo:
    """Compute the hypervolume of the front after each trial."""
    archive = FrontArchive(data.result.objectives)
    points: dict[str, list[Point]] = {id_: [] for id_ in data.trials}
    for point in data.points:
        points[point.trial].append(point)
    by_trial = {id_: found for id_, found in points.items() if found}
    values = []
    for found in by_trial.values():
        archive.add(found)
        values.append(archive.hypervolume(data.result.box))
    return HypervolumeInfo(**header(data, "hypervolume over trials"), trials=tuple(by_trial), values=tuple(values))


def plot(info: HypervolumeInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the hypervolume over trials; marks show the trials that enlarged it."""
    count = len(info.trials)
    figure = new_figure(
        info,
        theme,
        empty=not count,
        height=340,
        showlegend=False,
        xaxis={"title": {"text": "trials"}, "range": [0.5, max(count, 2) + 0.5], "tickformat": "d"},
        yaxis={"title": {"text": "hypervolume (share of the box)"}, "rangemode": "tozero"},
    )
    if not count:
        return figure
    before = (0.0, *info.values)
    figure.add_trace(
        go.Scatter(
            x=list(range(1, count + 1)),
            y=list(info.values),
            mode="lines+markers",
            line={"shape": "hv", "width": 2, "color": theme.blue},
            marker={"size": [7 if now > last else 0 for now, last in zip(info.values, before, strict=False)]},
            text=[
                f"after <b>{escape(trial)}</b><br>hypervolume {number(now, 4)}<br>gain {number(now - last)}"
                for trial, now, last in zip(info.trials, info.values, before, strict=False)
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    return figure
