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
_LEAST_PAD = 0.05  # beyond the outermost hypervolumes


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
        | {"price": None if run.front.price is None else run.front.price.epsilon}
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
        xaxis={"title": {"text": "hypervolume (share of the box)"}, "range": _ends(info)},
        yaxis={
            "range": [len(info.groups) - 0.5, -0.5],
            "type": "category",
            "ticks": "",
            "showgrid": False,
            "ticklabelstandoff": 6,
        },
    )
    for i, group in enumerate(info.groups):
        color, name = theme.hue(i), f"{escape(group.name)}<br>{group.price_in_words}"
        marker = {"size": 10, "color": color, "symbol": SYMBOLS[i % len(SYMBOLS)], "opacity": 0.8}
        texts = [f"<b>{escape(run.label)}</b><br>hypervolume {number(run.hypervolume, 4)}" for run in group.runs]
        figure.add_trace(marks(list(group.volumes), [name] * len(group.runs), texts, marker))
        if len(group.runs) > 1:
            tick = {"size": 26, "symbol": "line-ns-open", "color": color, "line": {"width": 2}}
            text = f"mean of {len(group.runs)} runs: {number(group.mean, 4)}"
            figure.add_trace(marks([group.mean], [name], [text], tick))
    return figure


def _ends(info: VolumesInfo) -> list[float]:
    """The ends of the axis: around all hypervolumes, not so near that a small difference looks large."""
    volumes = [volume for group in info.groups for volume in group.volumes]
    low, high = min(volumes), max(volumes)
    pad = max(_LEAST_PAD, 0.1 * (high - low))
    return [max(low - pad, 0.0), min(high + pad, 1.0)]


def _means(comparison: Comparison) -> str:
    has_means = any(len(group.runs) > 1 for group in comparison.groups)
    return " A tick is the mean of the sweeps of one name." if has_means else ""


FIGURE: FigureKind[Comparison, VolumesInfo] = FigureKind(
    name="hypervolumes",
    heading="Hypervolumes",
    summary="one mark per sweep, a tick for the mean of a name",
    caption=(
        "One mark per sweep: the share of one box, the same for all, that the front dominates. A larger one may only "
        "have a larger price."
    ),
    remarks=_means,
    position=30,
    info=info,
    plot=plot,
    rows=rows,
)
