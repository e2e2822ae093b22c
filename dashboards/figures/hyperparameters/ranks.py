"""Ranks: trials over two hyperparameters at a time, coloured by their place in the order of the utility."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import cos, hypot, sin, sqrt
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table
from dashboards.figures._common import color_bar, label, marks
from dashboards.figures._comparable import RIM, name_rims, symbols
from dashboards.figures._scores import interval_of
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.hyperparameters._axes import Axis, ranks
from dashboards.figures.hyperparameters._compared import gestures_of, half_width_of, remarks_of, trained_in_words
from dashboards.figures.hyperparameters._content import (
    DRAWN_TRIALS,
    ConfigurationsInfo,
    best_in_words,
    content_of,
    identify,
    is_trained,
)
from dashboards.figures.hyperparameters._pairs import (
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
    texts,
)
from sweeper.rounding import number_of

_SIZE = 10  # pixels of a mark
MOST_SPREAD = 0.12  # share of an axis between a place and the farthest of its marks
_STEP = 0.04  # share of an axis between a place and the nearest other mark of it
_NEAREST = 0.4  # share of the way to the next place
_TURN = 2.4  # radians from one mark to the next: the golden angle


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksInfo(ConfigurationsInfo):
    """Numbers of the ranks."""

    shown: tuple[tuple[Axis, Axis], ...]  # the hyperparameters of each panel
    shares: tuple[float, ...]  # for each trial, the share of the others that it is ahead of
    near: tuple[bool, ...]  # for each trial, whether the best one may be ahead of it by chance alone


def info(data: SweepData) -> RanksInfo:
    """Compute the ranks; none with too few trials or hyperparameters."""
    content = content_of(data, f"order in {label(data.utility)} by hyperparameter pair", one_noise=True)
    base = ConfigurationsInfo(**content)
    order = ranks(base.colors)
    shares = tuple(float(place) / max(len(order) - 1, 1) for place in order)
    half = half_width_of(data)
    best = base.colors[shares.index(max(shares))] if shares else 0.0
    near = tuple(
        half is not None and abs(value - best) < hypot(_half(data, value, half), _half(data, best, half))
        for value in base.colors
    )
    return RanksInfo(**content, shown=tuple(pairs(find_axes(base))), shares=shares, near=near)


def spread(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return places in which marks of equal ones lie side by side, the last of them in its own.

    They lie on a spiral, as the seeds of a sunflower do, and nearer to their own place than to the next one.

    >>> spread([1.0, 1.0, 2.0], [3.0, 4.0, 4.0])
    ([1.0, 1.0, 2.0], [3.0, 4.0, 4.0])
    """
    alike: dict[tuple[float, float], list[int]] = defaultdict(list)
    for i, place in enumerate(zip(x, y, strict=True)):
        alike[place].append(i)
    wide, high = _room(x), _room(y)
    at_x, at_y = list(x), list(y)
    for found in alike.values():
        for k, i in enumerate(reversed(found)):
            away = sqrt(k) * min(_STEP, MOST_SPREAD / sqrt(len(found)))
            at_x[i] += wide * away * cos(k * _TURN)
            at_y[i] += high * away * sin(k * _TURN)
    return at_x, at_y


def _room(positions: Sequence[float]) -> float:
    """Return how long an axis is, or less where its places are so near that spread marks would meet those of others."""
    places = sorted(set(positions))
    gaps = [after - before for before, after in pairwise(places)]
    return min(places[-1] - places[0], _NEAREST / MOST_SPREAD * min(gaps)) if gaps else 1.0


def rows(info: RanksInfo) -> Table:
    """The numbers of the figure: one row per trial."""
    return [
        identify(info, i) | {"ahead of": info.shares[i], "near the best": info.near[i], info.color_name: info.colors[i]}
        for i in range(len(info.trials))
        if info.shown
    ]


def plot(info: RanksInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the ranks."""
    columns = 1 if info.narrow else 3
    shown = info.shown[:2] if info.narrow else info.shown
    info = replace(info, title=info.title + pairs_in_words(find_axes(info), len(shown)))
    figure = panels(info, theme, len(shown), columns=columns, has_key=any(info.near))
    for first, (place, (x, y)) in enumerate(zip(places(len(shown), columns), shown, strict=True)):
        chosen = sorted(both(x, y), key=lambda i: info.shares[i])  # the best one is drawn last
        marker = {
            **symbols(is_trained(info, chosen), _SIZE),
            "color": [info.shares[i] for i in chosen],
            "colorscale": theme.colorscale(),
            "cmin": 0,
            "cmax": 1,
            "opacity": 1,
            "line": _rims([info.near[i] for i in chosen], theme),
            "showscale": not first,
            "colorbar": color_bar(f"share of {info.subject}s it beats in {label(info.color_name)}")
            | {"tickformat": ".0%"},
        }
        at = [x.positions[i] for i in chosen], [y.positions[i] for i in chosen]
        at_x, at_y = spread(*at)
        figure.add_trace(marks(at_x, at_y, texts(info, [x, y], chosen), marker, showlegend=False), **place)
        frame(figure, place, x, y, letters=letters(info, columns), pad=PAD if (at_x, at_y) == at else PAD + MOST_SPREAD)
    if shown and any(info.near):
        name_rims(figure, theme, "perhaps not worse than the best (95 %)")
    return figure


def _half(data: SweepData, value: float, most: float) -> float:
    """Half the 95 % interval of one score: of as many other rows, or that of the one that is known least."""
    ends = None if data.compares_rehearsals else interval_of(data.result, data.utility, value)
    return most if ends is None else (ends[1] - ends[0]) / 2.0


def _rims(near: Sequence[bool], theme: Theme) -> dict[str, Any]:
    """Wide orange rims of marks that are as good as the best, as far as scores tell."""
    return {
        "width": [RIM if one else 1 for one in near],
        "color": [theme.orange if one else theme.line for one in near],
    }


def _found(info: RanksInfo) -> str:
    best = best_in_words(info, {axis.name: axis for pair in info.shown for axis in pair}.values())
    others = sum(info.near) - 1
    return f"{number_of(others, 'other')} may be as good, as far as scores tell. {best}" if others > 0 else best


FIGURE: FigureKind[SweepData, RanksInfo] = FigureKind(
    name="ranks",
    heading="The order of the trials",
    summary="trials over pairs of hyperparameters, coloured by their place in the order of what they reached",
    caption=(
        "One mark per trial or rehearsed configuration over two hyperparameters; its colour is the share of the others "
        "that it is ahead of in its best point, so that one outlier does not take all the colours. Marks with an "
        "orange rim are so near the best one that the difference may be chance: within the 95 % interval of a "
        "difference of two scores of as many other rows. Marks of one place lie side by side around it, the best in "
        "its middle."
    ),
    position=103,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    gestures_here=gestures_of,
    remarks=lambda data: trained_in_words(data) + order_in_words(data) + remarks_of(data, DRAWN_TRIALS, one_noise=True),
    wide=True,
    needs="four trials with points and two hyperparameters that differ",
)
