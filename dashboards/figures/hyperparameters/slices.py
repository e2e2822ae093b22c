"""Slices: the utility over each hyperparameter alone, one panel each, those that go along with it most first."""

from dataclasses import dataclass

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table
from dashboards.figures._common import label, marks, percent_axis
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.hyperparameters._axes import Axis
from dashboards.figures.hyperparameters._compared import omitted_of
from dashboards.figures.hyperparameters._pairs import find_axes, frame, letters, panels, places, texts
from dashboards.figures.hyperparameters.configurations import DRAWN_TRIALS, ConfigurationsInfo, content_of

MOST_PANELS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesInfo(ConfigurationsInfo):
    """Numbers of the slices."""

    slices: tuple[Axis, ...]  # of the hyperparameters that are shown


def info(data: SweepData) -> SlicesInfo:
    """Compute the slices; none with too few trials."""
    content = content_of(data, f"best {label(data.utility)} by hyperparameter")
    return SlicesInfo(**content, slices=find_axes(ConfigurationsInfo(**content))[:MOST_PANELS])


def rows(info: SlicesInfo) -> Table:
    """The numbers of the figure: one row per trial."""
    return [
        {info.subject: id_, info.color_name: info.colors[i], **{axis.name: axis.values[i] for axis in info.slices}}
        for i, id_ in enumerate(info.trials)
        if info.slices
    ]


def plot(info: SlicesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the slices on one scale."""
    columns = 2 if info.narrow else MOST_PANELS
    figure = panels(info, theme, len(info.slices), columns=columns, shared_yaxes=True)
    everyone = range(len(info.trials))
    for place, axis in zip(places(len(info.slices), columns), info.slices, strict=True):
        marker = {"size": 8, "color": theme.blue, "opacity": 0.7}
        trace = marks(axis.positions, info.colors, texts(info, [axis], everyone), marker)
        figure.add_trace(trace, **place)
        frame(figure, place, axis, letters=letters(info, columns))
    if info.slices:
        figure.update_yaxes(**percent_axis(info.color_name))
        figure.update_yaxes(title=_title(info), col=1)
    return figure


def _title(info: SlicesInfo) -> dict[str, str]:
    """What is on the vertical axis: scores of validation rows, or of those that configurations were rehearsed on."""
    rows = "rehearsed" if info.note else "validation"
    return {"text": f"best {label(info.color_name)} ({rows})"}


FIGURE: FigureKind[SweepData, SlicesInfo] = FigureKind(
    name="slices",
    heading="One hyperparameter at a time",
    summary="what trials reached over each hyperparameter alone",
    caption=(
        "One mark per trial at the best that it reached, over one hyperparameter in each panel; the one that "
        "explains most comes first. Other hyperparameters differ between the marks."
    ),
    position=101,
    info=info,
    plot=plot,
    rows=rows,
    omitted=lambda data: omitted_of(data, DRAWN_TRIALS),
    wide=True,
    needs="four trials with points and a hyperparameter that differs",
)
