"""What figures of released curves share: the points that have some, a line with its band, and its rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureInfo, Table, omitted
from dashboards.figures._common import DASHES, header, new_figure
from dashboards.figures._theme import Theme
from dashboards.text import show_epsilon
from sweeper.privacy.pricing import OWN
from sweeper.records import Point, ReleasedCurves

T = TypeVar("T")
Part: TypeAlias = Callable[[ReleasedCurves], T | None]

MOST_LINES = 4
_OPACITY = 0.16

Outline = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class HeldOutCurve:
    """One curve of one point."""

    point: Point
    name: str  # in the legend
    x: tuple[float, ...]
    y: tuple[float, ...]
    below: Outline  # the lower end of the band, as x and y
    above: Outline  # the upper end


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesInfo(FigureInfo):
    """The curves of points of the front, smallest epsilon first."""

    lines: tuple[HeldOutCurve, ...]
    confidence: float
    radius_unit: str = ""  # of what is drawn over radii


def collected(data: SweepData, title: str, of: Part[T], line: Callable[[Point, T], HeldOutCurve]) -> LinesInfo:
    """Collect the lines of a few points of the front, spread over it with both ends; ``of`` takes a part of curves."""
    found = _with(data, of)
    last, shown = len(found) - 1, found
    if len(found) > MOST_LINES:
        shown = [found[round(i * last / (MOST_LINES - 1))] for i in range(MOST_LINES)]
    confidence = next((point.curves.confidence for point, _ in found if point.curves is not None), 0.0)
    lines = tuple(line(point, part) for point, part in shown)
    return LinesInfo(**header(data, title), lines=lines, confidence=confidence)


def left_out(data: SweepData, of: Part[T]) -> str:
    """Say how many points are drawn."""
    return omitted(MOST_LINES, len(_with(data, of)), "points of the front with curves")


def _with(data: SweepData, of: Part[T]) -> list[tuple[Point, T]]:
    """The points of the front that have such a part of curves, smallest epsilon first."""
    parts = [(point, None if point.curves is None else of(point.curves)) for point in data.front_points]
    return [(point, part) for point, part in parts if part is not None]


def legend(point: Point, words: str) -> str:
    """A point in the legend: its epsilon, and what its curve comes to."""
    return f"{OWN} {show_epsilon(point.values['epsilon'])}: {words}"


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


def draw(
    info: LinesInfo,
    theme: Theme,
    axes: Mapping[str, object],
    *,
    height: int,
    diagonal: bool = False,
    marked: bool = False,
    corner: str = "top right",
) -> go.Figure:
    """Draw the bands, the lines on top of them, and their names in a corner where no curve goes."""
    figure = new_figure(info, theme, empty=not info.lines, **axes, **({"height": height} if info.lines else {}))
    _add(figure, info.lines, theme, marked=marked, corner=corner)
    if diagonal and info.lines:
        figure.add_shape(type="line", x0=0, y0=0, x1=1, y1=1, line={"color": theme.line, "width": 1, "dash": "dot"})
    return figure


def _add(figure: go.Figure, lines: Sequence[HeldOutCurve], theme: Theme, *, marked: bool, corner: str) -> None:
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


def _ends(line: HeldOutCurve) -> tuple[tuple[str, Outline], tuple[str, Outline]]:
    return ("low", line.below), ("high", line.above)
