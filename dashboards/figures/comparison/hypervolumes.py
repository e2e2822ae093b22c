"""Hypervolumes of several sweeps: one mark per run, one line per spec for the mean of its runs."""

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import SYMBOLS, around, box_in_words, compared, marks, new_figure, with_terms
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures._ticks import thin
from dashboards.text import number
from sweeper.pareto.dominance import Box
from sweeper.results.comparison import Comparison, Group, Run

_ROW_PIXELS = 56
_MEAN = "mean of the sweeps of one name"
_MOST_NAMED = 5  # sweeps of one name
_NAME_SHIFT = 20  # pixels of the name of a sweep, from its mark
_ACROSS = (110, 24)  # letters across the panel, on a page and in a column
_BELOW, _NARROW_BELOW = 110, 52  # of a line below it


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumesInfo(FigureInfo):
    """Numbers of the hypervolumes figure."""

    groups: tuple[Group, ...]
    box: Box  # where hypervolumes were measured


def info(comparison: Comparison) -> VolumesInfo:
    """Take the hypervolumes of the comparison."""
    head = compared(comparison, "hypervolume of each run")
    return VolumesInfo(**head, groups=comparison.groups, box=comparison.box)


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
    several = [i for i, group in enumerate(info.groups) if len(group.runs) > 1]
    figure = new_figure(
        info,
        theme,
        empty=False,
        height=150 + _ROW_PIXELS * max(2, len(info.groups)),
        showlegend=bool(several),
        legend={"itemsizing": "constant"},
        xaxis={"title": {"text": _axis_title(info)}, "range": around(_volumes(info))},
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
        figure.add_trace(marks(list(group.volumes), [name] * len(group.runs), texts, marker, showlegend=False))
        if i in several:
            tick = {"size": 26, "symbol": "line-ns-open", "color": color, "line": {"width": 2}}
            text = f"mean of {len(group.runs)} runs: {number(group.mean, 4)}"
            figure.add_trace(marks([group.mean], [name], [text], tick, name=_MEAN, showlegend=i == several[0]))
        for run, shift in _named(info, group):
            look = {"font": {"size": 12, "color": color}, "showarrow": False, "yshift": shift}
            figure.add_annotation(x=run.hypervolume, y=name, text=escape(_last_name(run)), **look)
    return figure


def _last_name(run: Run) -> str:
    return run.label.rpartition("/")[2]


def _named(info: VolumesInfo, group: Group) -> list[tuple[Run, int]]:
    """The runs that are named, above their mark or below it, as far as names do not touch; none of many."""
    left = list(group.runs) if len(group.runs) <= _MOST_NAMED else []
    found: list[tuple[Run, int]] = []
    for shift in (_NAME_SHIFT, -_NAME_SHIFT):
        at, names = [run.hypervolume for run in left], [_last_name(run) for run in left]
        (low, high), letters = around(_volumes(info)) or (0.0, 1.0), _ACROSS[info.narrow]
        kept = thin(at, names, (low, high), letters)
        found += [(left[i], shift) for i in kept]
        left = [run for i, run in enumerate(left) if i not in kept]
    return found


def _axis_title(info: VolumesInfo) -> str:
    _, _, together = info.epsilon_title.partition("; ")
    name, box = "hypervolume (share of the box)", box_in_words(info.box, _BELOW)
    if info.narrow:
        return with_terms(name, [box.replace("<br>", " "), together], _NARROW_BELOW)
    return "<br>".join(filter(None, [name, box, together]))


def _volumes(info: VolumesInfo) -> list[float]:
    return [volume for group in info.groups for volume in group.volumes]


def _means(comparison: Comparison) -> str:
    has_means = any(len(group.runs) > 1 for group in comparison.groups)
    return f" A tick is the {_MEAN}." if has_means else ""


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
