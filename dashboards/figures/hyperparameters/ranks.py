"""Ranks: trials over two hyperparameters at a time, coloured by their place in the order of the utility."""

from dataclasses import dataclass

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table
from dashboards.figures._common import label, marks
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.hyperparameters._axes import Axis, ranks
from dashboards.figures.hyperparameters._compared import remarks_of
from dashboards.figures.hyperparameters._pairs import (
    both,
    find_axes,
    frame,
    letters,
    order_in_words,
    pairs,
    panels,
    places,
    texts,
)
from dashboards.figures.hyperparameters.configurations import DRAWN_TRIALS, ConfigurationsInfo, content_of
from dashboards.figures.sweep.front import color_bar


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksInfo(ConfigurationsInfo):
    """Numbers of the ranks."""

    shown: tuple[tuple[Axis, Axis], ...]  # the hyperparameters of each panel
    shares: tuple[float, ...]  # for each trial, the share of the others that it is ahead of


def info(data: SweepData) -> RanksInfo:
    """Compute the ranks; none with too few trials or hyperparameters."""
    content = content_of(data, f"order in {label(data.utility)} by hyperparameter pair", one_noise=True)
    base = ConfigurationsInfo(**content)
    order = ranks(base.colors)
    shares = tuple(float(place) / max(len(order) - 1, 1) for place in order)
    return RanksInfo(**content, shown=tuple(pairs(find_axes(base))), shares=shares)


def rows(info: RanksInfo) -> Table:
    """The numbers of the figure: one row per trial."""
    return [
        {info.subject: id_, "ahead of": info.shares[i], info.color_name: info.colors[i]}
        for i, id_ in enumerate(info.trials)
        if info.shown
    ]


def plot(info: RanksInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the ranks."""
    columns = 1 if info.narrow else 3
    shown = info.shown[:2] if info.narrow else info.shown
    figure = panels(info, theme, len(shown), columns=columns)
    for first, (place, (x, y)) in enumerate(zip(places(len(shown), columns), shown, strict=True)):
        chosen = both(x, y)
        marker = {
            "size": 10,
            "color": [info.shares[i] for i in chosen],
            "colorscale": theme.colorscale(),
            "cmin": 0,
            "cmax": 1,
            "line": {"width": 1, "color": theme.line},
            "showscale": not first,
            "colorbar": color_bar(f"share of {info.subject}s it beats") | {"tickformat": ".0%"},
        }
        at_x, at_y = [x.positions[i] for i in chosen], [y.positions[i] for i in chosen]
        figure.add_trace(marks(at_x, at_y, texts(info, [x, y], chosen), marker), **place)
        frame(figure, place, x, y, letters=letters(info, columns))
    return figure


FIGURE: FigureKind[SweepData, RanksInfo] = FigureKind(
    name="ranks",
    heading="The order of the trials",
    summary="trials over pairs of hyperparameters, coloured by their place in the order of what they reached",
    caption=(
        "One mark per trial over two hyperparameters; its colour is the share of the other trials that it is ahead of "
        "in its best point, so that one outlier does not take all the colours."
    ),
    position=103,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: order_in_words(data) + remarks_of(data, DRAWN_TRIALS, one_noise=True),
    wide=True,
    needs="four trials with points and two hyperparameters that differ",
)
