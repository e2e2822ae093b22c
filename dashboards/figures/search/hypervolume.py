"""Hypervolume of the front after each trial: what more trials brought, and whether more would help.

Hypervolume is the share of a fixed box that the front dominates; the box is recorded with the sweep, so that
sweeps can be compared. Trials count in the order in which they were proposed; beside each, the epochs trained so
far, which is what a sweep pays for. The rows that chose a front flatter it: a cross is what its models have on test
rows.
"""

from dataclasses import dataclass
from html import escape
from itertools import accumulate

import plotly.graph_objects as go

from dashboards.data import SweepData, evenly
from dashboards.figures._base import FigureInfo, FigureKind, Table, omitted
from dashboards.figures._common import (
    MANY,
    around,
    box_in_words,
    header,
    interval_bars,
    interval_row,
    marks,
    new_figure,
    with_terms,
)
from dashboards.figures._scores import rows_in_words, test_in_words
from dashboards.figures._tested import AT_ENDS, cross_in_words, cross_look, on_test_rows, volume_at_ends, volume_on_test
from dashboards.figures._theme import LIGHT, Theme
from dashboards.text import number
from sweeper.pareto.dominance import Box, hypervolume_curve
from sweeper.records import Interval, Point
from sweeper.rounding import number_of

DRAWN_STEPS = 400
_LETTERS = 110  # of a line below the axis, on a page
_FEW_TRIALS = 10
_ASIDE = 0.25  # trials right of the last one, so that a cross does not hide it
_SEEN = 0.001  # a gain that is marked
_LEAST_TRIALS = 4  # of fewer, the curve says nothing about what another one would bring


@dataclass(frozen=True, slots=True, kw_only=True)
class HypervolumeInfo(FigureInfo):
    """Numbers of the hypervolume figure: one entry per trial that has points, or per `DRAWN_STEPS`th part of many."""

    trials: tuple[str, ...]  # the trial behind which it was measured
    counts: tuple[int, ...]  # trials so far
    epochs: tuple[int, ...]  # epochs so far, of all these trials
    values: tuple[float, ...]  # the hypervolume
    box: Box  # where it was measured
    on_test: float | None  # that of the models of the whole front by their scores on test rows, where all have them
    interval: Interval | None  # of the last one
    is_noisy: bool  # whether scores are, so that the interval is that of their noise too


def info(data: SweepData) -> HypervolumeInfo:
    """Compute the hypervolume of the front after each trial."""
    of_trial: dict[str, list[Point]] = {id_: [] for id_ in data.trials}
    for point in data.points:
        of_trial[point.trial].append(point)
    found = [id_ for id_, points in of_trial.items() if points]
    ids = found if len(found) >= _LEAST_TRIALS else []
    ends = list(accumulate(len(of_trial[id_]) for id_ in ids))
    done = list(accumulate(sum(not point.made_from for point in of_trial[id_]) for id_ in ids))
    counts = sorted(len(ids) - i for i in evenly(range(len(ids)), DRAWN_STEPS))  # the last one among them
    ordered = [point for found in of_trial.values() for point in found]
    return HypervolumeInfo(
        **header(data, "hypervolume over trials"),
        trials=tuple(ids[count - 1] for count in counts),
        counts=tuple(counts),
        epochs=tuple(done[count - 1] for count in counts),
        values=hypervolume_curve(
            ordered, data.result.objectives, [ends[count - 1] for count in counts], data.result.box
        ),
        box=data.result.box,
        on_test=volume_on_test(data.result, data.result.objectives, data.result.box),
        interval=data.result.hypervolume_interval
        or volume_at_ends(data.result, data.result.objectives, data.result.box),
        is_noisy=data.result.hypervolume_interval is not None,
        test_scores=test_in_words(data.result.claim, None),
    )


def rows(info: HypervolumeInfo) -> Table:
    """The numbers of the figure: one row per step."""
    return [
        {"trials": count, "last_trial": trial, "epochs": epochs, "hypervolume": value}
        | interval_row(info.interval if count == info.counts[-1] else None)
        | {"on_test": info.on_test if count == info.counts[-1] else None}
        for count, trial, epochs, value in zip(info.counts, info.trials, info.epochs, info.values, strict=True)
    ]


def plot(info: HypervolumeInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the hypervolume over trials; where they are few, marks show those that enlarged it."""
    count = info.counts[-1] if info.counts else 0
    whole = {"dtick": 1} if count <= _FEW_TRIALS else {}  # Plotly would put ticks between whole numbers
    figure = new_figure(
        info,
        theme,
        empty=not count,
        height=340,
        showlegend=True,
        xaxis={"title": {"text": _below(info)}, "range": [0.5, max(count, 2) + 0.75], "tickformat": "d", **whole},
        yaxis={
            "title": {"text": f"hypervolume{'<br>' if info.narrow else ' '}(share of the box)"},
            "range": around([*info.values, *([info.on_test] if info.on_test else []), *(info.interval or ())]),
        },
    )
    if not count:
        return figure
    before = (0.0, *info.values)
    size = 7 if len(info.values) <= MANY else 0
    figure.add_trace(
        go.Scatter(
            x=list(info.counts),
            y=list(info.values),
            mode="lines+markers",
            line={"shape": "hv", "width": 2, "color": theme.blue},
            marker={
                "size": [size * (now - last >= _SEEN) for now, last in zip(info.values, before, strict=False)],
                "line": {"width": 0},  # rims would cut the line
            },
            name=f"front so far, {info.values[-1]:.3f} at the end"
            + (f"; marks: trials that added {_SEEN} or more" if size and not info.narrow else ""),
            text=[
                f"after <b>{escape(trial)}</b>, {epochs} epochs in all<br>hypervolume {number(now, 4)}"
                f"<br>gain {number(now - last)}"
                for trial, epochs, now, last in zip(info.trials, info.epochs, info.values, before, strict=False)
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    if info.interval is not None:
        marker = {"size": 7, "color": theme.blue}
        of_scores = "" if info.narrow else " of its true scores"
        name = f"the whole front, 95 % interval{of_scores}" if info.is_noisy else AT_ENDS
        text = f"{name}<br>{number(info.interval[0], 4)} to {number(info.interval[1], 4)}"
        last = marks([count], [info.values[-1]], [text], marker, name=name)
        figure.add_trace(last.update(error_y=interval_bars([info.values[-1]], [info.interval], theme.blue)))
    if info.on_test is not None:
        name = f"{on_test_rows(info.test_scores)}: {info.on_test:.3f}"
        text = f"{name}<br>hypervolume {number(info.on_test, 4)}"
        figure.add_trace(marks([count + _ASIDE], [info.on_test], [text], cross_look(theme.orange, theme), name=name))
    return figure


def _below(info: HypervolumeInfo) -> str:
    """What the axis counts, what the box is, and what a model of the front costs: pictures have no page around them."""
    _, _, paid = info.epsilon_title.partition(", ")
    name, box = "trials, in the order of their proposals", box_in_words(info.box, _LETTERS)
    chosen = rows_in_words(info.scores) + ("" if info.interval else ", their sampling error not shown")
    chosen += ", ignoring selection" if info.interval and not info.is_noisy else ""
    if info.narrow:
        return with_terms(name, [box.replace("<br>", " "), chosen, paid])
    return "<br>".join([name, box, "; ".join(filter(None, [chosen, paid]))])


def _too_few(data: SweepData) -> str:
    return str(len({point.trial for point in data.points}) or "")


def _found(info: HypervolumeInfo) -> str:
    half = (len(info.values) - 1) // 2
    end = f"{number(info.values[-1])} of the box after {number_of(info.counts[-1], 'trial')}"
    return f"The front covers {end}, and covered {number(info.values[half])} after {info.counts[half]}."


FIGURE: FigureKind[SweepData, HypervolumeInfo] = FigureKind(
    name="hypervolume",
    heading="What more trials brought",
    summary="hypervolume of the front after each trial, and what its models have on test rows",
    caption=(
        "Hypervolume of the front after each trial: where the curve is flat, more trials of this kind add little. A "
        f"mark stands at each trial that enlarged it by {_SEEN} or more. A bar says how sure that of the "
        "whole front is: the 95 % interval of what its models truly have where scores are noisy, else the hypervolumes "
        "with all scores at the lower and at the upper end of their 95 % intervals."
    ),
    position=80,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: cross_in_words(info(data).on_test) + omitted(DRAWN_STEPS, len(data.trials), "trials"),
    awaits=f"How much each trial enlarged the front,<br>as soon as {_LEAST_TRIALS} have finished their first epoch",
    needs=f"{_LEAST_TRIALS} trials with points",
    lacks=_too_few,
)
