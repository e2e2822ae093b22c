"""Ranks: trials over two hyperparameters at a time, coloured by their place in the order of the utility."""

from dataclasses import dataclass

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table
from dashboards.figures._common import label, marks
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.hyperparameters._compared import omitted_of
from dashboards.figures.hyperparameters._pairs import both, find_axes, frame, objectives_of, pairs, panels, ranks, texts
from dashboards.figures.hyperparameters.configurations import DRAWN_TRIALS, Axis, ConfigurationsInfo
from dashboards.figures.hyperparameters.configurations import info as configurations
from dashboards.figures.sweep.front import color_bar


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksInfo(ConfigurationsInfo):
    """Numbers of the ranks."""

    shown: tuple[tuple[Axis, Axis], ...]  # the hyperparameters of each panel
    shares: tuple[float, ...]  # for each trial, the share of the others that it is ahead of


def info(data: SweepData) -> RanksInfo:
    """Compute the ranks; none with too few trials or hyperparameters."""
    base = configurations(data)
    content = {name: getattr(base, name) for name in base.__dataclass_fields__}
    places = ranks(base.colors)
    shares = tuple(float(place) / max(len(places) - 1, 1) for place in places)
    return RanksInfo(**content, shown=tuple(pairs(find_axes(base, objectives_of(data)))), shares=shares)


def rows(info: RanksInfo) -> Table:
    """The numbers of the figure: one row per trial."""
    return [
        {info.subject: id_, "ahead of": info.shares[i], info.color_name: info.colors[i]}
        for i, id_ in enumerate(info.trials)
        if info.shown
    ]


def plot(info: RanksInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the ranks."""
    figure = panels(info, theme, len(info.shown))
    for column, (x, y) in enumerate(info.shown, start=1):
        chosen = both(x, y)
        marker = {
            "size": 10,
            "color": [info.shares[i] for i in chosen],
            "colorscale": theme.colorscale(),
            "cmin": 0,
            "cmax": 1,
            "line": {"width": 1, "color": theme.line},
            "showscale": column == 1,
            "colorbar": color_bar(f"ahead of, in {label(info.color_name)}") | {"tickformat": ".0%"},
        }
        at_x, at_y = [x.positions[i] for i in chosen], [y.positions[i] for i in chosen]
        figure.add_trace(marks(at_x, at_y, texts(info, [x, y], chosen), marker), row=1, col=column)
        frame(figure, column, x, y)
    return figure


FIGURE: FigureKind[SweepData, RanksInfo] = FigureKind(
    name="ranks",
    heading="The order of the trials",
    summary="trials over pairs of hyperparameters, coloured by their place in the order of what they reached",
    caption=(
        "One mark per trial over two hyperparameters; its colour is the share of the other trials that it is ahead of "
        "at its last epoch, so that one outlier does not take all the colours."
    ),
    position=103,
    info=info,
    plot=plot,
    rows=rows,
    omitted=lambda data: omitted_of(data, DRAWN_TRIALS),
    wide=True,
)
