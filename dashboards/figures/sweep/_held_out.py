"""What figures of released curves share: the points that have some, a line with its band, and its rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureInfo, Table, omitted
from dashboards.figures._common import DASHES
from dashboards.figures._theme import Theme
from dashboards.text import show
from sweeper.records import Point, ReleasedCurves

MOST_LINES = 4
_OPACITY = 0.16

Outline = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Line:
    """One curve of one point.

    Attributes:
        point: whose.
        name: in the legend.
        x, y: the curve.
        below: the lower end of the band, as x and y.
        above: the upper end.
    """

    point: Point
    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    below: Outline
    above: Outline


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesInfo(FigureInfo):
    """The curves of points of the front, smallest epsilon first."""

    lines: tuple[Line, ...]
    confidence: float


def with_curves(data: SweepData, wanted: Callable[[ReleasedCurves], bool]) -> list[Point]:
    """The points of the front that have curves of a kind, smallest epsilon first."""
    return [point for point in data.front_points if point.curves is not None and wanted(point.curves)]


def drawn(points: Sequence[Point]) -> list[Point]:
    """A few of them, spread over the front with both ends."""
    if len(points) <= MOST_LINES:
        return list(points)
    last = len(points) - 1
    return [points[round(i * last / (MOST_LINES - 1))] for i in range(MOST_LINES)]


def left_out(points: Sequence[Point]) -> str:
    """Say how many points are drawn."""
    return omitted(MOST_LINES, len(points), "points of the front with curves")


def confidence(points: Sequence[Point]) -> float:
    """The confidence of the bands, 0 without any."""
    return next((point.curves.confidence for point in points if point.curves is not None), 0.0)


def legend(point: Point, words: str) -> str:
    """A point in the legend: its epsilon, and what its curve comes to."""
    return f"epsilon {show('epsilon', point.values['epsilon'])}: {words}"


def rows(info: LinesInfo, x: str, y: str, *, corners: bool = False) -> Table:
    """One row per mark of each line, with the ends of the band: its ``corners`` where it is wide in ``x`` too."""
    return [
        {
            "trial": line.point.trial,
            "epoch": line.point.epoch,
            "epsilon": line.point.values["epsilon"],
            x: line.x[i],
            y: line.y[i],
            **{f"{x}_of_{side}": ends[0][i] for side, ends in _ends(line) if corners},
            **{f"{y}_{side}": ends[1][i] for side, ends in _ends(line)},
        }
        for line in info.lines
        for i in range(len(line.x))
    ]


def add(
    figure: go.Figure, lines: Sequence[Line], theme: Theme, *, marked: bool = False, corner: str = "top right"
) -> None:
    """Draw the bands, the lines on top of them, and their names in a corner where no curve goes."""
    y, x = corner.split()
    place = {"x": 0.99 if x == "right" else 0.01, "y": 0.99 if y == "top" else 0.02}
    figure.update_layout(legend={"orientation": "v", "xanchor": x, "yanchor": y, "bgcolor": "rgba(0,0,0,0)", **place})
    for index, line in enumerate(lines):
        (x_low, y_low), (x_high, y_high) = line.below, line.above
        figure.add_trace(
            go.Scatter(
                x=[*x_high, *reversed(x_low)],
                y=[*y_high, *reversed(y_low)],
                mode="lines",
                fill="toself",
                fillcolor=theme.hue(index),
                opacity=_OPACITY,
                line={"width": 0},
                hoverinfo="skip",
                showlegend=False,
                legendgroup=line.point.name,
            )
        )
    for index, line in enumerate(lines):
        style = {"width": 2, "color": theme.hue(index), "dash": DASHES[index % len(DASHES)]}
        mode = "lines+markers" if marked else "lines"
        more = {"mode": mode, "line": style, "name": line.name, "legendgroup": line.point.name}
        figure.add_trace(go.Scatter(x=line.x, y=line.y, hovertemplate="%{x:.3g}, %{y:.3g}<extra></extra>", **more))


def _ends(line: Line) -> tuple[tuple[str, Outline], tuple[str, Outline]]:
    return ("low", line.below), ("high", line.above)
