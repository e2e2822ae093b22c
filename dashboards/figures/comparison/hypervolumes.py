"""Hypervolumes of several sweeps: one mark per run, and the mean of the runs of a spec.

The rows that chose a front flatter it: beside each mark a cross is what its models have on test rows.
"""

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import (
    around,
    box_in_words,
    compared,
    interval_bars,
    interval_row,
    marks,
    new_figure,
)
from dashboards.figures._comparable import write_below
from dashboards.figures._scores import compared_on_test, rows_in_words
from dashboards.figures._tested import AT_ENDS, cross_in_words, cross_look, on_test_rows, volume_at_ends, volume_on_test
from dashboards.figures._theme import LIGHT, Theme
from dashboards.text import number
from sweeper.pareto.dominance import Box
from sweeper.records import Interval
from sweeper.results.comparison import Comparison, Group, prices_in_words
from sweeper.rounding import number_of

_MOST_ROWS = 12  # runs that have a row each; of more, those of one name share one
_ROW_PIXELS = 34
_MEAN = "mean of the sweeps of one name"
_BELOW_BAR = 0.26  # of a row, so that a cross hides no end of a bar
_INTERVAL = "bar: 95 % interval of the true scores"
_MEASURE = "hypervolume (share of the box)"
_BELOW, _BELOW_TITLE = 110, 50  # letters of a line below the axis, and pixels between the axis of a column and those


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumesInfo(FigureInfo):
    """Numbers of the hypervolumes figure; intervals are those of noisy scores, or of `volume_at_ends`."""

    groups: tuple[Group, ...]
    box: Box  # where hypervolumes were measured
    intervals: tuple[tuple[Interval | None, ...], ...]  # of each group, each run's
    on_test: tuple[
        tuple[float | None, ...], ...
    ]  # of each group, each run's by scores on test rows, where all have them


def info(comparison: Comparison) -> VolumesInfo:
    """Take the hypervolumes of the comparison."""
    return VolumesInfo(
        **compared(comparison, "hypervolume of each run"),
        groups=comparison.groups,
        box=comparison.box,
        on_test=tuple(
            tuple(volume_on_test(run.front, comparison.objectives, comparison.box) for run in group.runs)
            for group in comparison.groups
        ),
        intervals=tuple(
            tuple(
                run.interval or volume_at_ends(run.front, comparison.objectives, comparison.box) for run in group.runs
            )
            for group in comparison.groups
        ),
        test_scores=compared_on_test([run.front for run in comparison.runs]),
    )


def rows(info: VolumesInfo) -> Table:
    """The numbers of the figure: one row per run."""
    return [
        {"name": group.name, "sweep": run.label, "hypervolume": run.hypervolume, "mean_of_name": group.mean}
        | interval_row(interval)
        | {"on_test": volume, "price": None if run.front.price is None else run.front.price.epsilon}
        for group, volumes, intervals in zip(info.groups, info.on_test, info.intervals, strict=True)
        for run, volume, interval in zip(group.runs, volumes, intervals, strict=True)
    ]


def plot(info: VolumesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the hypervolumes: a row for each run, or of many runs for each name."""
    several = [i for i, group in enumerate(info.groups) if len(group.runs) > 1]
    tested = [volume for volumes in info.on_test for volume in volumes if volume is not None]
    names = _names(info)
    shown = list(dict.fromkeys(name for group in names for name in group))
    count = len(shown)
    figure = new_figure(
        info,
        theme,
        empty=False,
        height=160 + _ROW_PIXELS * max(2, count),
        showlegend=bool(several or tested),
        legend={"itemsizing": "constant"},
        xaxis={
            "title": {"text": "<br>".join([_MEASURE, *(() if info.narrow else _terms(info))])},
            "range": around([*_volumes(info), *tested]),
        },
        yaxis={
            "range": [count - 0.5, -0.5],
            "tickvals": list(range(count)),
            "ticktext": shown,
            "ticks": "",
            "showgrid": count > len(info.groups),
            "ticklabelstandoff": 6,
        },
    )
    for i, group in enumerate(info.groups):
        color, at = theme.hue(i), [shown.index(name) for name in names[i]]
        marker = {"size": 10, "color": color, "symbol": "circle", "opacity": 0.8}
        texts = [f"<b>{escape(run.label)}</b><br>hypervolume {number(run.hypervolume, 4)}" for run in group.runs]
        ends = interval_bars(list(group.volumes), info.intervals[i], color)
        figure.add_trace(marks(list(group.volumes), at, texts, marker, showlegend=False).update(error_x=ends))
        known = [(v, y, run.label) for v, y, run in zip(info.on_test[i], at, group.runs, strict=True) if v is not None]
        texts = [f"<b>{escape(run)}</b> on {info.test_scores}<br>hypervolume {number(v, 4)}" for v, _, run in known]
        x, y = [v for v, _, _ in known], [row + _BELOW_BAR for _, row, _ in known]
        figure.add_trace(marks(x, y, texts, cross_look(color, theme), showlegend=False))
        if i in several:
            tick = {"size": 20, "symbol": "line-ns-open", "color": color, "line": {"width": 2}}
            text = f"mean of {len(group.runs)} runs: {number(group.mean, 4)}"
            rows_of_it = list(dict.fromkeys(at))
            means = marks([group.mean] * len(rows_of_it), rows_of_it, [text] * len(rows_of_it), tick)
            figure.add_trace(means.update(showlegend=False))
    validation = {"size": 9, "color": theme.muted, "symbol": "circle"}
    mean = {"size": 12, "symbol": "line-ns-open", "color": theme.muted, "line": {"width": 2}}
    keys = [(mean, _MEAN)] if several else []
    if tested:
        cross = cross_look(theme.muted, theme), on_test_rows(info.test_scores)
        keys += [(validation, rows_in_words(info.scores)), cross]
    if any(interval for intervals in info.intervals for interval in intervals):
        bar = {"size": 12, "symbol": "line-ew-open", "color": theme.muted, "line": {"width": 1.5}}
        keys.append((bar, _INTERVAL if any(run.interval for group in info.groups for run in group.runs) else AT_ENDS))
    for marker, words in keys:
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=words))
    if info.narrow:  # names leave the axis no room for them
        words = "; ".join(_terms(info)).replace("<br>", " ")
        write_below(figure, words, theme, down=_BELOW_TITLE, narrow=True, side="right")
    return figure


def _names(info: VolumesInfo) -> list[list[str]]:
    """The row of each run of each group: its own, or of many runs that of its name; with its price."""
    has_own = sum(len(group.runs) for group in info.groups) <= _MOST_ROWS
    return [
        [
            _own_name(info, group, i) if has_own else f"{escape(group.name)}<br>{group.price_in_words}"
            for i in range(len(group.runs))
        ]
        for group in info.groups
    ]


def _own_name(info: VolumesInfo, group: Group, i: int) -> str:
    """The row of a run: which of its spec it is, how many trials it trained, and its price."""
    run = group.runs[i]
    name = f"{escape(group.name)}{f', run {i + 1}' if len(group.runs) > 1 else ''}"
    trials, price = number_of(run.front.trials_begun, "trial"), prices_in_words([run.front.price])
    if info.narrow:
        return f"{name}: {trials}<br>{price.replace(': epsilon', '')}"
    return f"{name}<br>{trials}, {price}"


def _terms(info: VolumesInfo) -> list[str]:
    """What the axis measures: the box, and the scores with the price of choosing by them."""
    _, _, together = info.epsilon_title.partition("; ")
    chosen = rows_in_words(info.scores)
    chosen += "" if any(run.interval for group in info.groups for run in group.runs) else ", ignoring selection"
    return [box_in_words(info.box, _BELOW), "; ".join(filter(None, [chosen, together]))]


def _volumes(info: VolumesInfo) -> list[float]:
    volumes = [run.hypervolume for group in info.groups for run in group.runs]
    return volumes + [end for intervals in info.intervals for interval in intervals for end in interval or ()]


def _remarks(comparison: Comparison) -> str:
    means = f" A tick is the {_MEAN}." if any(len(group.runs) > 1 for group in comparison.groups) else ""
    return means + cross_in_words(*(volume for volumes in info(comparison).on_test for volume in volumes))


FIGURE: FigureKind[Comparison, VolumesInfo] = FigureKind(
    name="hypervolumes",
    heading="Hypervolumes",
    summary="one mark per sweep, a cross for its models on test rows, a tick for the mean of a name",
    caption=(
        "One mark per sweep: the share of one box, the same for all, that the front dominates. A larger one may only "
        "have a larger price. A bar says how sure it is: the 95 % interval of what its models truly have where scores "
        "are noisy, else the hypervolumes with all scores at an end of their 95 % intervals."
    ),
    remarks=_remarks,
    position=30,
    info=info,
    plot=plot,
    rows=rows,
)
