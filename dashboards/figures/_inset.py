"""An inset that enlarges where most points of a figure lie, in a picture that nobody can zoom."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log10
from typing import Any

import plotly.graph_objects as go

from dashboards.figures._common import percent_axis
from dashboards.figures._theme import Theme
from dashboards.figures._ticks import log_ticks

_MANY = 20  # points, of which half lie in
_UPPER = 0.12  # this share of the height of the axes
_AROUND = 0.05  # share of the axes around it that is empty as well
_PAD = 0.12  # share of the inset around its points


@dataclass(frozen=True, slots=True)
class Region:
    """A rectangle of the axes: the ends of own epsilon, and of the values."""

    epsilons: tuple[float, float]
    values: tuple[float, float]

    def around(self, points: Iterable[tuple[float, float]]) -> "Region":
        """Return the rectangle so high that it holds all points, by epsilon and value, between its ends of epsilon."""
        first, last = self.epsilons
        values = [*self.values, *(value for epsilon, value in points if first <= epsilon <= last)]
        return Region(self.epsilons, (min(values), max(values)))


def crowded(points: Sequence[tuple[float, float]]) -> Region | None:
    """Return the rectangle of the uppermost of many points, by epsilon and value, where half of them lie in it.

    >>> crowded([(1.0, 0.2), *((2.0 + i, 0.9 + i / 1000) for i in range(20))])
    Region(epsilons=(2.0, 21.0), values=(0.9, 0.919))
    >>> crowded([(1.0, i / 20) for i in range(21)]) is None
    True
    """
    if len(points) <= _MANY:
        return None
    values = [value for _, value in points]
    least = max(values) - _UPPER * (max(values) - min(values))
    inside = [(epsilon, value) for epsilon, value in points if value >= least]
    if 2 * len(inside) < len(points):
        return None
    epsilons, values = [epsilon for epsilon, _ in inside], [value for _, value in inside]
    return Region((min(epsilons), max(epsilons)), (min(values), max(values)))


@dataclass(frozen=True, slots=True)
class Place:
    """Where an inset stands, as shares of the width and of the height of the axes."""

    wide: tuple[float, float] = (0.5, 0.97)
    high: tuple[float, float] = (0.17, 0.52)


def find_place(
    figure: go.Figure,
    points: Sequence[tuple[float, float]],
    heights: Sequence[float] = (),
    places: Iterable[Place] = (Place(),),
) -> Place | None:
    """Return the first place that covers none of the points, by epsilon and value, and no line at one of the heights.

    ``None`` where none of them is empty.
    """
    (first, last), (least, most) = figure.layout.xaxis.range, figure.layout.yaxis.range
    at = [((log10(epsilon) - first) / (last - first), value) for epsilon, value in points if epsilon > 0]
    drawn = [(x, (value - least) / (most - least)) for x, value in [*at, *((1.0, height) for height in heights)]]

    def is_empty(place: Place) -> bool:
        left, low, high = place.wide[0] - _AROUND, place.high[0] - _AROUND, place.high[1] + _AROUND
        return not any(x >= left and low <= y <= high for x, y in drawn)

    return next(filter(is_empty, places), None)


def add_inset(
    figure: go.Figure,
    traces: Sequence[go.Scatter],
    region: Region,
    name: str,
    theme: Theme,
    place: Place,
    *,
    bars: bool = False,
) -> None:
    """Draw traces once more, enlarged to a region, and mark the region; error bars only with ``bars``."""
    ticks = log_ticks(region.epsilons)
    low, high = region.values
    pad = _PAD * ((high - low) or 0.1)
    frame: dict[str, Any] = {"showline": True, "mirror": True, "linecolor": theme.muted, "tickfont": {"size": 11.5}}
    figure.update_layout(
        xaxis2={"type": "log", "domain": place.wide, "anchor": "y2", **ticks, **frame},
        yaxis2={
            "domain": place.high,
            "anchor": "x2",
            "range": [low - pad, high + pad],
            "nticks": 5,
            **percent_axis(name),
            **frame,
        },
    )
    for trace in traces:
        copy = go.Scatter(trace).update(xaxis="x2", yaxis="y2", showlegend=False, cliponaxis=True)
        if not bars:
            copy.update(error_y=None)
        if copy.marker.showscale is not None or copy.marker.colorbar.title.text:
            copy.update(marker={"showscale": False, "colorbar": None})
        figure.add_trace(copy)
    first, last = (10.0**end for end in ticks["range"])
    corners = {"x0": first, "x1": last, "y0": low - pad, "y1": high + pad}
    figure.add_shape(type="rect", line={"color": theme.muted, "width": 0.8}, **corners)
