"""Slices: the utility over each hyperparameter alone, one panel each, those that go along with it most first."""

from dataclasses import dataclass

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table
from dashboards.figures._common import marks, value_axis
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.hyperparameters._compared import omitted_of
from dashboards.figures.hyperparameters._pairs import find_axes, frame, objectives_of, panels, texts
from dashboards.figures.hyperparameters.configurations import DRAWN_TRIALS, Axis, ConfigurationsInfo
from dashboards.figures.hyperparameters.configurations import info as configurations

MOST_PANELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesInfo(ConfigurationsInfo):
    """Numbers of the slices."""

    slices: tuple[Axis, ...]  # of the hyperparameters that are shown


def info(data: SweepData) -> SlicesInfo:
    """Compute the slices; none with too few trials."""
    base = configurations(data)
    shown = find_axes(base, objectives_of(data))[:MOST_PANELS]
    return SlicesInfo(**{name: getattr(base, name) for name in base.__dataclass_fields__}, slices=shown)


def rows(info: SlicesInfo) -> Table:
    """The numbers of the figure: one row per trial."""
    return [
        {info.subject: id_, info.color_name: info.colors[i], **{axis.name: axis.values[i] for axis in info.slices}}
        for i, id_ in enumerate(info.trials)
        if info.slices
    ]


def plot(info: SlicesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the slices on one scale."""
    figure = panels(info, theme, len(info.slices), shared_yaxes=True)
    everyone = range(len(info.trials))
    for column, axis in enumerate(info.slices, start=1):
        marker = {"size": 8, "color": theme.blue, "opacity": 0.7}
        trace = marks(axis.positions, info.colors, texts(info, [axis], everyone), marker)
        figure.add_trace(trace, row=1, col=column)
        frame(figure, column, axis)
    if info.slices:
        figure.update_yaxes(**value_axis(info.color_name), row=1, col=1)
        figure.update_yaxes(tickformat=value_axis(info.color_name).get("tickformat"))
    return figure


FIGURE: FigureKind[SweepData, SlicesInfo] = FigureKind(
    name="slices",
    heading="One hyperparameter at a time",
    summary="what trials reached over each hyperparameter alone",
    caption=(
        "One mark per trial at what it reached at its last epoch, over one hyperparameter in each panel; the one that "
        "explains most comes first. Other hyperparameters differ between the marks."
    ),
    position=101,
    info=info,
    plot=plot,
    rows=rows,
    omitted=lambda data: omitted_of(data, DRAWN_TRIALS),
    wide=True,
)
