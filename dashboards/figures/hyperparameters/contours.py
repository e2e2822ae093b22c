"""Contours: the utility over two hyperparameters at a time, filled in between trials by their distance."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from scipy.spatial import ConvexHull, QhullError

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
    half_width_of,
    remarks_of,
    trained_in_words,
)
from dashboards.figures.hyperparameters._pairs import (
    LEAST_TRIALS,
    PAD,
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
from dashboards.figures.hyperparameters.configurations import (
    DRAWN_TRIALS,
    ConfigurationsInfo,
    content_of,
    identify,
    is_trained,
)
from dashboards.text import number

MOST_PANELS = 2
_SIZE = 9  # pixels of a mark
_BETWEEN = "interpolated between marks"
CELLS = 24  # of the grid, along each axis
_SHARP = 3.0  # the power of the distance by which a trial counts
_NEAR = 0.02  # within this share of an axis trials count alike


@dataclass(frozen=True, slots=True, kw_only=True)
class ContoursInfo(ConfigurationsInfo):
    """Numbers of the contours."""

    shown: tuple[tuple[Axis, Axis], ...]  # the hyperparameters of each panel
    apart: float | None  # from line to line: half the widest 95 % interval of a score, None where it is not known


def info(data: SweepData) -> ContoursInfo:
    """Compute the contours; none with too few trials or hyperparameters, or where these explain nothing."""
    content = content_of(data, f"best {label(data.utility)} by hyperparameter pair", one_noise=True)
    axes = [axis for axis in find_axes(ConfigurationsInfo(**content)) if _is_filled(axis)]
    found = [pair for pair in pairs(axes) if len(both(*pair)) >= LEAST_TRIALS]
    explained = explained_share(data, data.utility)
    if explained is None:  # a landscape that no forest finds is noise
        return ContoursInfo(**content, shown=(), apart=None)
    content["terms"] += f"; a forest explains R² {explained:.2f} of it"
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
    info = replace(info, title=info.title + pairs_in_words(find_axes(info), len(info.shown)))
    figure = panels(info, theme, len(info.shown), columns=MOST_PANELS)
    for first, (place, (x, y)) in enumerate(zip(places(len(info.shown), MOST_PANELS), info.shown, strict=True)):
        chosen = stars_last(info, both(x, y))
        at_x, at_y, values = ([one[i] for i in chosen] for one in (x.positions, y.positions, info.colors))
        grid_x, grid_y, heights = fill_grid(at_x, at_y, values)
        low, high = min(info.colors), max(info.colors)
        ticks = rounded_ticks(low, high)  # Plotly would put them where lines are
        bar = {
            "showscale": not first,
            "colorbar": color_bar(f"{label(info.color_name)}<br>{_between(info)}")
            | {"tickvals": ticks, "ticktext": texts_of(ticks, info.color_name)},
        }
        scale = {"colorscale": theme.colorscale()}
        apart = info.apart or 0.0  # without lines
        lines = {"start": low + apart, "end": high, "size": apart}
        look = {"contours": {"coloring": "heatmap", **lines}, "line": {"width": apart and 0.8}, "hoverinfo": "skip"}
        filled = go.Contour(x=grid_x, y=grid_y, z=heights, zmin=low, zmax=high, **scale, **look, **bar)
        figure.add_traces(
            [filled, _beyond(x, y, _hull(at_x, at_y), theme)], rows=[place["row"]] * 2, cols=[place["col"]] * 2
        )
        outline = {"width": 1.5, "color": theme.paper}
        marker = {"color": values, "cmin": low, "cmax": high, "line": outline, "opacity": 1, **scale}
        marker |= symbols(is_trained(info, chosen), _SIZE)
        figure.add_trace(marks(at_x, at_y, texts(info, [x, y], chosen), marker, showlegend=False), **place)
        frame(figure, place, x, y, letters=letters(info, MOST_PANELS))
    return figure


def _between(info: ContoursInfo) -> str:
    """What the colours between marks are, and how far apart lines are."""
    return f"({_BETWEEN})" if info.apart is None else f"({_BETWEEN}, lines {number(100 * info.apart, 2)} points apart)"


def fill_grid(
    x: list[float], y: list[float], values: list[float]
) -> tuple[list[float], list[float], list[list[float]]]:
    """Return a grid over the points and a height for each of its cells: the mean of values, nearer ones count more."""
    grid_x, grid_y = (np.linspace(min(one), max(one), CELLS) for one in (x, y))
    far_x = (grid_x[None, :, None] - np.asarray(x)) / np.ptp(x)
    far_y = (grid_y[:, None, None] - np.asarray(y)) / np.ptp(y)
    weights: Any = (np.hypot(far_x, far_y) + _NEAR) ** -_SHARP
    heights = (weights * np.asarray(values)).sum(axis=2) / weights.sum(axis=2)
    return grid_x.tolist(), grid_y.tolist(), heights.tolist()


def _hull(x: list[float], y: list[float]) -> tuple[list[float], list[float]]:
    """The corners of the convex hull of points, counterclockwise; none where all are on one line."""
    points = np.array([x, y], dtype=np.float64).T
    try:
        corners = ConvexHull((points - points.min(axis=0)) / np.ptp(points, axis=0)).vertices
    except QhullError:
        return [], []
    return [x[i] for i in corners], [y[i] for i in corners]


def _beyond(x: Axis, y: Axis, hull: tuple[list[float], list[float]], theme: Theme) -> go.Scatter:
    """Paper over all of a panel that is not between marks: clockwise around it, with their hull as a hole."""
    (left, right), (low, high) = (_widened(axis.ends) for axis in (x, y))
    hull_x, hull_y = hull
    return go.Scatter(
        x=[left, left, right, right, left, None, *hull_x, *hull_x[:1]],
        y=[low, high, high, low, low, None, *hull_y, *hull_y[:1]],
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=theme.paper,
        hoverinfo="skip",
        showlegend=False,
    )


def _widened(ends: tuple[float, float]) -> tuple[float, float]:
    pad = PAD * (ends[1] - ends[0])
    return ends[0] - pad, ends[1] + pad


FIGURE: FigureKind[SweepData, ContoursInfo] = FigureKind(
    name="contours",
    heading="Two hyperparameters at a time",
    summary="what trials reached over pairs of hyperparameters, filled in between",
    caption=(
        "One mark per trial or rehearsed configuration over two hyperparameters, in the colour of what it reached in "
        "its best point. The colour between marks is a mean of what those around reached, in which nearer ones count "
        "more: it is a guess, not a measurement. Lines are as far apart as half the 95 % interval of a score, where "
        "that is known: within less, differences may be chance. Beyond the outermost marks there is no colour."
    ),
    position=102,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: trained_in_words(data) + order_in_words(data) + remarks_of(data, DRAWN_TRIALS, one_noise=True),
    wide=True,
    for_paper=False,
    needs=(
        f"trials whose hyperparameters explain the utility (R² ≥ {UNEXPLAINED}), two of them numbers with three values"
    ),
    lacks=lambda data: explained_in_words(data, data.utility),
)
