"""Contours: the utility over two hyperparameters at a time, filled in between trials by their distance."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table
from dashboards.figures._common import color_bar, label, marks
from dashboards.figures._comparable import UNEXPLAINED, symbols
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures._ticks import rounded_ticks, texts_of
from dashboards.figures.hyperparameters._axes import Axis
from dashboards.figures.hyperparameters._compared import (
    explained_in_words,
    explained_share,
    gestures_of,
    half_width_of,
    remarks_of,
    trained_in_words,
)
from dashboards.figures.hyperparameters._content import (
    DRAWN_TRIALS,
    ConfigurationsInfo,
    best_in_words,
    content_of,
    identify,
    is_trained,
)
from dashboards.figures.hyperparameters._pairs import (
    both,
    find_axes,
    frame,
    letters,
    order_in_words,
    pairs,
    pairs_in_words,
    panels,
    places,
    stars_last,
    texts,
)

MOST_PANELS = 2
_SIZE, _SIZE_IN_COLUMN = 11, 8  # pixels of a mark
_BETWEEN = "guessed between marks"
CELLS = 32  # of the grid, along each axis
_FEW_WHOLE = 8  # whole numbers from end to end, between which nothing is filled
_LEAST_MARKS = 17  # of fewer, as a default number of rehearsals has, what lies between them is too much of a guess
_BANDWIDTH = 0.15  # share of an axis: a mean of several scores, whose noise would make an island of each
_LEGIBLE = 0.5  # up to which fading there are lines
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)  # times a power of ten: how far apart lines may be
_LEAST_WEIGHT = 1e-9  # far from all marks, where colours have faded
_MOST_LEVELS = 12
_AROUND = 3  # marks that are near where something is guessed: around one alone there would be a halo of its colour
_FULL, _GONE = 0.2, 0.4  # shares of an axis from the farthest of these up to which colours do not fade, and end


@dataclass(frozen=True, slots=True, kw_only=True)
class ContoursInfo(ConfigurationsInfo):
    """Numbers of the contours."""

    shown: tuple[tuple[Axis, Axis], ...]  # the hyperparameters of each panel
    apart: float | None  # from line to line: half the widest 95 % interval of a score, None where it is not known


def info(data: SweepData) -> ContoursInfo:
    """Compute the contours; none with too few trials or hyperparameters, or where these explain nothing."""
    content = content_of(data, f"best {label(data.utility)} by hyperparameter pair", one_noise=True)
    axes = [axis for axis in find_axes(ConfigurationsInfo(**content)) if _is_filled(axis)]
    found = [pair for pair in pairs(axes) if len(both(*pair)) >= _LEAST_MARKS]
    explained = explained_share(data, data.utility)
    if explained is None:  # a landscape that no forest finds is noise
        return ContoursInfo(**content, shown=(), apart=None)
    content["terms"] += f"; pale: few trials near; a random forest explains R² {explained:.2f} of unseen trials"
    return ContoursInfo(**content, shown=tuple(found[:MOST_PANELS]), apart=half_width_of(data))


def _is_filled(axis: Axis) -> bool:
    """Whether there is something between the values of an axis: they are numbers, and more than two."""
    values = {value for value in axis.values if value is not None}
    return len(values) > 2 and all(isinstance(value, int | float) for value in values)


def rows(info: ContoursInfo) -> Table:
    """The numbers of the figure: one row per trial and panel."""
    return [
        identify(info, i)
        | {"x": x.name, "y": y.name, "at x": x.values[i], "at y": y.values[i], info.color_name: info.colors[i]}
        for x, y in info.shown
        for i in both(x, y)
    ]


def plot(info: ContoursInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the contours on one scale of colours."""
    info = replace(info, shown=info.shown[:1]) if info.narrow else info
    info = replace(info, title=info.title + pairs_in_words(find_axes(info), len(info.shown)))
    if info.narrow and info.shown:
        info = replace(info, terms=f"{info.terms}; colours are {_between(info)}")
    figure = panels(info, theme, len(info.shown), columns=MOST_PANELS)
    for first, (place, (x, y)) in enumerate(zip(places(len(info.shown), MOST_PANELS), info.shown, strict=True)):
        chosen = stars_last(info, both(x, y))
        at_x, at_y, values = ([one[i] for i in chosen] for one in (x.positions, y.positions, info.colors))
        grid = fill_grid(x, y, chosen, values)
        low, high = min(info.colors), max(info.colors)
        levels = _levels(info)
        ticks = levels or rounded_ticks(low, high)
        bar = {
            "showscale": not first,
            "colorbar": color_bar(label(info.color_name) + ("" if info.narrow else f"<br>({_between(info)})"))
            | {"tickvals": ticks, "ticktext": texts_of(ticks, info.color_name)},
        }
        scale = {"colorscale": theme.colorscale()}
        look = {"contours": {"coloring": "heatmap", "showlines": False}, "line": {"width": 0}, "hoverinfo": "skip"}
        filled = go.Contour(x=grid.x, y=grid.y, z=grid.heights, zmin=low, zmax=high, **scale, **look, **bar)
        drawn = [filled, _fade(grid, theme), *([_lines(grid, levels, theme)] if levels else [])]
        figure.add_traces(drawn, rows=[place["row"]] * len(drawn), cols=[place["col"]] * len(drawn))
        outline = {"width": 1.2, "color": theme.ink}
        marker = {"color": values, "cmin": low, "cmax": high, "line": outline, "opacity": 1, **scale}
        marker |= symbols(is_trained(info, chosen), _SIZE_IN_COLUMN if info.narrow else _SIZE)
        figure.add_trace(marks(at_x, at_y, texts(info, [x, y], chosen), marker, showlegend=False), **place)
        frame(figure, place, x, y, letters=letters(info, MOST_PANELS))
    return figure


def _between(info: ContoursInfo) -> str:
    """What the colours between marks are, and where lines are."""
    return f"{_BETWEEN}; lines at the ticks" if _levels(info) else _BETWEEN


def _levels(info: ContoursInfo) -> list[float]:
    """Where lines are: at two round values or more, at least `ContoursInfo.apart` from each other, if that is known."""
    low, high = min(info.colors), max(info.colors)
    if not info.apart:
        return []
    least = max(info.apart, (high - low) / _MOST_LEVELS)
    power = 10.0 ** floor(log10(least))
    step = next(power * one for one in _ROUND if power * one >= least)
    found = [round(i * step, 12) for i in range(ceil(low / step), floor(high / step) + 1)]
    return found if len(found) > 1 else []  # one alone may be a height that no panel reaches


@dataclass(frozen=True, slots=True)
class Heights:
    """A grid over a panel: a height for each cell, and how far its colour is faded, from 0 to 1."""

    x: list[float]
    y: list[float]
    heights: list[list[float]]
    faded: list[list[float]]


def _possible(axis: Axis, cells: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return for each cell the nearest position that a trial can have."""
    are_whole = all(isinstance(value, int) for value in axis.values if value is not None)
    ends = [10.0**end if axis.logarithmic else end for end in axis.ends]
    if not are_whole or ends[1] - ends[0] > _FEW_WHOLE:
        return cells
    whole = np.arange(round(ends[0]), round(ends[1]) + 1.0)
    at: np.ndarray[Any, Any] = np.log10(whole) if axis.logarithmic else whole
    nearest: np.ndarray[Any, Any] = at[np.abs(cells[:, None] - at).argmin(axis=1)]
    return nearest


def fill_grid(x: Axis, y: Axis, chosen: Sequence[int], values: Sequence[float]) -> Heights:
    """Return a grid over two axes.

    A height is the mean of the values of marks, of which nearer ones count more by a Gaussian kernel (Nadaraya 1964,
    On Estimating Regression); it fades with the distance to the third-nearest mark, in shares of the axes. There is
    nothing between few whole numbers: a cell has the height of the nearest one.
    """
    (left, right), (low, high) = x.ends, y.ends
    grid_x, grid_y = np.linspace(left, right, CELLS), np.linspace(low, high, CELLS)
    far_x = (_possible(x, grid_x)[None, :, None] - np.array([x.positions[i] for i in chosen])) / (right - left)
    far_y = (_possible(y, grid_y)[:, None, None] - np.array([y.positions[i] for i in chosen])) / (high - low)
    far: Any = np.hypot(far_x, far_y)
    weights = np.exp(-0.5 * (far / _BANDWIDTH) ** 2) + _LEAST_WEIGHT
    heights = (weights * np.asarray(values)).sum(axis=2) / weights.sum(axis=2)
    beyond = (np.partition(far, _AROUND - 1, axis=2)[..., _AROUND - 1] - _FULL) / (_GONE - _FULL)
    faded = np.clip(beyond, 0.0, 1.0)
    return Heights(grid_x.tolist(), grid_y.tolist(), heights.tolist(), faded.tolist())


def _lines(grid: Heights, levels: Sequence[float], theme: Theme) -> go.Contour:
    """Lines above the paper, where there is colour below."""
    shown = [
        [height if faded < _LEGIBLE else None for height, faded in zip(row, alphas, strict=True)]
        for row, alphas in zip(grid.heights, grid.faded, strict=True)
    ]
    look: dict[str, Any] = {"showscale": False, "showlegend": False, "hoverinfo": "skip"}
    look["line"] = {"width": 0.8, "color": theme.ink}
    step = levels[1] - levels[0] if len(levels) > 1 else 1.0
    lines = {"coloring": "none", "start": levels[0], "end": levels[-1], "size": step}
    return go.Contour(x=grid.x, y=grid.y, z=shown, contours=lines, **look)


def _fade(grid: Heights, theme: Theme) -> go.Contour:
    """Paper over a panel, the less transparent the farther a place is from every mark."""
    look = {
        "contours": {"coloring": "heatmap", "showlines": False},
        "line": {"width": 0},
        "showscale": False,
        "hoverinfo": "skip",
    }
    scale = [[0.0, theme.clear], [1.0, theme.paper]]
    return go.Contour(x=grid.x, y=grid.y, z=grid.faded, zmin=0.0, zmax=1.0, colorscale=scale, **look)


FIGURE: FigureKind[SweepData, ContoursInfo] = FigureKind(
    name="contours",
    heading="Two hyperparameters at a time",
    summary="what trials reached over pairs of hyperparameters, filled in between and fading where no trial is near",
    caption=(
        "One mark per trial or rehearsed configuration over two hyperparameters, in the colour of what it reached in "
        "its best point. The colour between marks is a mean of what those around reached, in which nearer ones count "
        "more: it is a guess, not a measurement, and the noise of one score makes no island. Lines are at least half "
        "the 95 % interval of a score apart, where that is known: within less, differences may be chance. Colours "
        "fade where fewer than three marks are near. Between few whole numbers there is nothing to guess."
    ),
    position=102,
    found=lambda info: best_in_words(info, {axis.name: axis for pair in info.shown for axis in pair}.values()),
    info=info,
    plot=plot,
    rows=rows,
    gestures_here=gestures_of,
    remarks=lambda data: trained_in_words(data) + order_in_words(data) + remarks_of(data, DRAWN_TRIALS, one_noise=True),
    wide=True,
    needs=(
        f"{_LEAST_MARKS} trials whose hyperparameters explain the utility (R² ≥ {UNEXPLAINED}), "
        "two of them numbers with three values"
    ),
    lacks=lambda data: explained_in_words(data, data.utility),
)
