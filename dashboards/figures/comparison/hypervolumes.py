"""Hypervolumes of several sweeps: one mark per run, one line per spec for the mean of its runs."""

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import SYMBOLS, compared, marks, new_figure
from dashboards.figures._theme import LIGHT, Theme
from dashboards.text import number
from sweeper.results.comparison import Comparison, Group

_ROW_PIXELS = 56


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumesInfo(FigureInfo):
    """Numbers of the hypervolumes figure."""

    groups: tuple[Group, ...]


def info(comparison: Comparison) -> VolumesInfo:
    """Take the hypervolumes of the comparison."""
    return VolumesInfo(**compared(comparison, "hypervolume of each run"), groups=comparison.groups)


def rows(info: VolumesInfo) -> Table:
    """The numbers of the figure: one row per run."""
    return [
        {"name": group.name, "sweep": run.label, "hypervolume": run.hypervolume, "mean_of_name": group.mean}
        for group in info.groups
        for run in group.runs
    ]


def plot(info: VolumesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the hypervolumes."""
    figure = new_figure(
        info,
        theme,
        empty=False,
        height=150 + _ROW_PIXELS * max(2, len(info.groups)),
        showlegend=False,
        xaxis={"title": {"text": "hypervolume (share of the box)"}},
        yaxis={
            "range": [len(info.groups) - 0.5, -0.5],
            "type": "category",
            "ticks": "",
            "showgrid": False,
            "ticklabelstandoff": 6,
        },
    )
    for i, group in enumerate(info.groups):
        color, name = theme.hue(i), escape(group.name)
        marker = {"size": 10, "color": color, "symbol": SYMBOLS[i % len(SYMBOLS)], "opacity": 0.8}
        texts = [f"<b>{escape(run.label)}</b><br>hypervolume {number(run.hypervolume, 4)}" for run in group.runs]
        figure.add_trace(marks(list(group.volumes), [name] * len(group.runs), texts, marker))
        if len(group.runs) > 1:
            tick = {"size": 26, "symbol": "line-ns-open", "color": color, "line": {"width": 2}}
            text = f"mean of {len(group.runs)} runs: {number(group.mean, 4)}"
            figure.add_trace(marks([group.mean], [name], [text], tick))
    return figure


FIGURE: FigureKind[Comparison, VolumesInfo] = FigureKind(
    name="hypervolumes",
    heading="Hypervolumes",
    summary="one mark per sweep, a tick for the mean of a name",
    caption=(
        "One mark per sweep, a tick for the mean of a name: the share of one box, the same for all, that the front "
        "dominates."
    ),
    position=30,
    info=info,
    plot=plot,
    rows=rows,
)
