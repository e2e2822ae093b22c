"""What figures of several staircases share: the end of their axis, their frame and lines, and their rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go

from dashboards.data import finite
from dashboards.figures._base import FigureInfo
from dashboards.figures._common import Step, curve_line, epsilon_axis, new_figure, reached
from dashboards.figures._theme import Theme
from sweeper.records import Point


@dataclass(frozen=True, slots=True)
class Staircase:
    """One staircase as it is drawn: its name in the legend, what its values are, and words before each step's text."""

    legend: str
    value: str
    steps: tuple[Step, ...]
    before: str = ""


def last_epsilon(points: Iterable[Point]) -> float:
    """The largest finite epsilon of the points, 1 without any."""
    return max((point.values["epsilon"] for point in points if finite(point, "epsilon")), default=1.0)


def step_row(step: Step, value: str) -> dict[str, Any]:
    """A step as a row of a table, its value under the name given."""
    return {
        "epsilon": step.epsilon,
        value: step.value,
        "trial": step.trial,
        "epoch": step.epoch,
        "made_from": step.made_from,
    }


def draw(
    info: FigureInfo, theme: Theme, curves: Sequence[Staircase], right_end: float, *, height: int, yaxis: dict[str, Any]
) -> go.Figure:
    """Draw staircases over one epsilon axis, told apart by colour, dash and mark."""
    epsilons = [step.epsilon for stairs in curves for step in stairs.steps]
    axis = epsilon_axis(info.epsilon_title, [*epsilons, *([right_end] if epsilons else [])])
    figure = new_figure(info, theme, empty=not epsilons, height=height, xaxis=axis, yaxis=yaxis)
    for i, stairs in enumerate(curves):
        texts = [_text(stairs, step) for step in stairs.steps]
        figure.add_trace(curve_line(stairs.steps, right_end, theme, i, name=stairs.legend, texts=texts))
    return figure


def _text(stairs: Staircase, step: Step) -> str:
    where = f"{stairs.before}{escape(step.trial)}, epoch {escape(step.moment)}"
    return f"{where}<br>{reached(step.epsilon, stairs.value, step.value)}"
