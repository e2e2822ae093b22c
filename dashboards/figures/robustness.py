"""One front per radius: clean and certified accuracy against epsilon, as figure 4 of Bethune et al.

Every curve picks its own models: the best certified accuracy at one radius and at another are reached by
different points of the sweep. Certified accuracy falls with the radius, so the curves never cross unless a
certificate is wrong.

References:
    Bethune et al. (2024), DP-SGD without clipping, https://arxiv.org/abs/2305.16202
"""

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._common import (
    FigureInfo,
    Rows,
    Step,
    curve_line,
    epsilon_axis,
    header,
    label,
    new_figure,
    staircase,
    value_axis,
)
from dashboards.figures._theme import LIGHT, Theme
from dashboards.text import radius_of, show
from sweeper.objectives import radius
from sweeper.records import Direction


@dataclass(frozen=True, slots=True)
class Curve:
    """The staircase of one radius; radius 0 is clean accuracy."""

    name: str
    radius: float
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustnessInfo(FigureInfo):
    """Numbers of the robustness figure: clean first, then every radius in ascending order."""

    curves: tuple[Curve, ...]
    right_end: float


def info(data: SweepData) -> RobustnessInfo:
    """Compute one front per radius over all points, not only over the points of the joint front."""
    names = (data.utility, *data.certificates)
    curves = [Curve(name, float(radius(name) or 0), staircase(data.points, name, Direction.MAXIMIZE)) for name in names]
    return RobustnessInfo(
        **header(data, "one front per certified radius"),
        curves=tuple(curve for curve in curves if curve.steps),
        right_end=max((p.values["epsilon"] for p in data.points if finite(p, "epsilon")), default=1.0),
    )


def rows(info: RobustnessInfo) -> Rows:
    """The numbers of the figure: one row per step of each curve."""
    return [
        {
            "name": curve.name,
            "radius": curve.radius,
            "epsilon": step.epsilon,
            "value": step.value,
            "trial": step.trial,
            "epoch": step.epoch,
        }
        for curve in info.curves
        for step in curve.steps
    ]


def plot(info: RobustnessInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the robustness figure."""
    epsilons = [step.epsilon for curve in info.curves for step in curve.steps]
    figure = new_figure(
        info,
        theme,
        empty=not epsilons,
        height=460,
        xaxis=epsilon_axis(info.epsilon_title, [*epsilons, *([info.right_end] if epsilons else [])]),
        yaxis={
            **value_axis(info.curves[0].name if info.curves else "accuracy"),
            "title": {"text": label(info.curves[0].name if info.curves else "accuracy")},
        },
    )
    for i, curve in enumerate(info.curves):
        figure.add_trace(_curve(curve, info.right_end, theme, i))
    return figure


def _curve(curve: Curve, right_end: float, theme: Theme, index: int) -> go.Scatter:
    text = radius_of(curve.name)
    texts = [
        f"{escape(step.trial)}, epoch {step.epoch}<br>epsilon {show('epsilon', step.epsilon)}: "
        f"{label(curve.name)} {show(curve.name, step.value)}"
        for step in curve.steps
    ]
    legend = "clean" if text is None else f"radius {escape(text)}"
    return curve_line(curve.steps, right_end, theme, index, name=legend, texts=texts)
