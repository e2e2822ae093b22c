"""Curves: the utility of every trial over its epochs; pages that compare trials reduce it to these.

Beside its epochs each curve carries its epsilons, over which a page can draw it too, and the intervals of noisy scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import inf

import plotly.graph_objects as go

from dashboards.data import SweepData, chosen_trials, finite
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic, omitted
from dashboards.figures._common import (
    MANY,
    SYMBOLS,
    bar_key,
    header,
    interval_bars,
    label,
    new_figure,
    said_in_legend,
    title_below,
    value_axis,
    zoom,
)
from dashboards.figures._comparable import stage_epsilon, stage_names
from dashboards.figures._scores import bars_in_words, interval_of
from dashboards.figures._shades import differ, shaded_marker, shades
from dashboards.figures._theme import LIGHT, Theme
from dashboards.summary import best_of
from dashboards.text import in_sentence, show_epsilon, show_value
from sweeper.privacy.pricing import OWN
from sweeper.records import Interval, Point
from sweeper.rounding import number_of

DRAWN_TRIALS = 200
HUES = 5  # colours that tell curves apart; then dashes do too
_OTHERS = "trials"  # that are neither few nor the best
_SHADED = 0.6  # opacity of shaded lines at least, or their colours would not be told
_BEST_WIDTH = 2.2  # pixels of the line of the best trial among shades
_SIDE = 0.008  # share of the epochs between two bars
_PAD = 0.03  # share of the epochs before the first and behind the last
_FEW_EPOCHS = 10
_FEW = 12  # curves of which every epoch is shown, and whose marks have room in a column


@dataclass(frozen=True, slots=True)
class Curve:
    """One trial's iterates in the order of their epochs."""

    trial: str
    stage: int | None  # of the sweep's budget, from 0
    epochs: tuple[int, ...]
    epsilons: tuple[float, ...]
    values: tuple[float, ...]
    shown: tuple[str, ...]  # the values in words, with the intervals of noisy scores
    intervals: tuple[Interval | None, ...]
    deviations: tuple[float | None, ...]  # of the values over repeats, which they are means of


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvesInfo(FigureInfo):
    """Numbers of the curves figure."""

    utility: str  # name on the vertical axis
    curves: tuple[Curve, ...]  # by trial; `DRAWN_TRIALS` of many, those on the front first
    stages: tuple[str, ...]  # of the budget, in words; empty where it was not cut
    best: str  # the trial of the best point, "" without one
    averaged: bool  # whether there are points of averaged weights, which have no epoch of their own
    sure: Interval | None  # of the last score of the best trial where it has no noise, None where that is not known


def info(data: SweepData) -> CurvesInfo:
    """Compute the curves."""
    points: dict[str, list[Point]] = {}
    for point in data.points:
        if not point.made_from and finite(point, "epsilon", data.utility):
            points.setdefault(point.trial, []).append(point)
    curves = []
    for id_ in chosen_trials(data, sorted(points), DRAWN_TRIALS):
        own = sorted(points[id_], key=lambda point: point.epoch)
        curve = Curve(
            trial=id_,
            stage=data.result.stage_of(id_),
            epochs=tuple(point.epoch for point in own),
            epsilons=tuple(point.values["epsilon"] for point in own),
            values=tuple(point.values[data.utility] for point in own),
            shown=tuple(show_value(point, data.utility) for point in own),
            intervals=tuple(point.interval(data.utility) for point in own),
            deviations=tuple(point.deviation(data.utility) for point in own),
        )
        curves.append(curve)
    names, best = stage_names(data), best_of(data, data.utility)
    ends = [curve.values[-1] for curve in curves if best is not None and curve.trial == best.trial]
    stages = [f"{name}, {stage_epsilon(data, stage)}" for stage, name in enumerate(names)] if len(names) > 1 else ()
    return CurvesInfo(
        **header(data, "trials over their epochs"),
        utility=data.utility,
        curves=tuple(curves),
        stages=tuple(stages),
        best="" if best is None else best.trial,
        averaged=any(point.made_from for point in data.points),
        sure=None if not ends else interval_of(data.result, data.utility, ends[0]),
    )


def rows(info: CurvesInfo) -> Table:
    """The numbers of the figure: one row per point, with the ends of its interval where its score is noisy."""
    return [
        {
            "trial": curve.trial,
            "epoch": epoch,
            "epsilon": epsilon,
            info.utility: value,
            "low": None if interval is None else interval[0],
            "high": None if interval is None else interval[1],
            "deviation": deviation,
        }
        for curve in info.curves
        for epoch, epsilon, value, interval, deviation in zip(
            curve.epochs, curve.epsilons, curve.values, curve.intervals, curve.deviations, strict=True
        )
    ]


def plot(info: CurvesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the curves, one colour and mark for each stage of the budget, or of few curves for each.

    Many curves of one stage are coloured by their own epsilons, where these differ, and the best stands out.
    """
    last = max((epoch for curve in info.curves for epoch in curve.epochs), default=0)
    whole = {"dtick": 1} if last <= _FEW_EPOCHS else {"nticks": _FEW_EPOCHS}  # else ticks stand between epochs
    _, _, terms = info.epsilon_title.partition(", ")
    epoch = "epoch (without averaged weights)" if info.averaged else "epoch"
    title = title_below(f"{epoch}; {terms}", info) if info.narrow else f"{epoch}<br>{terms}"
    ends = [1 - _PAD * last, (1 + _PAD) * last] if last > 1 else [0.5, 1.5]
    xaxis = {"title": {"text": title}, "range": ends, "tickformat": "d", **whole}
    meta = {"epsilon": info.epsilon_title, "hues": [theme.hue(i) for i in range(HUES)]}
    figure = new_figure(
        *(info, theme),
        empty=not info.curves,
        height=420,
        xaxis=xaxis,
        yaxis=value_axis(info, info.utility) | {"range": zoom(_span(info))},
        meta=meta,
    )
    names, colors = _group(info), _shades(info, theme)
    groups = list(dict.fromkeys([*(name for name in names if name == _OTHERS), *names]))
    for i, curve in sorted(enumerate(info.curves), key=lambda pair: names[pair[0]] != _OTHERS):  # these below the best
        group = groups.index(names[i])
        is_named = len(groups) > 1 and names.index(names[i]) == i
        line = _line(info, curve, theme.hue(group), group, name=names[i], is_named=is_named)
        if colors:
            is_best = names[i] != _OTHERS
            color = theme.ink if is_best else colors[i]
            line.update(line={"color": color, "width": _BEST_WIDTH if is_best else 1.2}, marker={"color": color})
            line.update(showlegend=is_best, opacity=1.0 if is_best else max(line.opacity, _SHADED))
        figure.add_trace(line)
    figure.add_traces([_bar(info, theme)] if colors else [])
    if info.still and info.sure is not None:
        figure.add_traces(
            [_ruler(info, last, theme), bar_key(f"bar: 95 % CI of {escape(info.best)}'s last epoch", theme.ink)]
        )
    if spreads := _spreads(info, colors, theme):
        figure.add_traces(spreads)
    if info.still and spreads:
        figure.add_trace(bar_key("bars: ±1 SD over repeats, of last epochs", theme.muted))
    if info.still and (count := _outside(info)):
        name = f"{count} of {sum(len(curve.values) for curve in info.curves)} points beyond the axis"
        figure.add_trace(said_in_legend(name, theme))
    return figure


def _ruler(info: CurvesInfo, last: int, theme: Theme) -> go.Scatter:
    """The interval of a score as a bar right of where the best trial ends."""
    at, end = next((curve.epochs[-1], curve.values[-1]) for curve in info.curves if curve.trial == info.best)
    return go.Scatter(
        x=[at + _PAD / 2 * last if last > 1 else 1.25],
        y=[end],
        mode="markers",
        marker={"opacity": 0},
        error_y=interval_bars([end], [info.sure], theme.ink),
        hoverinfo="skip",
        showlegend=False,
    )


def _span(info: CurvesInfo) -> list[float]:
    """Values, with their intervals, that the vertical axis shows as it opens.

    Bad first epochs of many trials do not stretch it.
    """
    last = max((epoch for curve in info.curves for epoch in curve.epochs), default=0)
    few = len(info.curves) <= _FEW
    return [*(info.sure or ())] + [
        end
        for curve in info.curves
        for epoch, value, interval in zip(curve.epochs, curve.values, curve.intervals, strict=True)
        if few or 3 * epoch > last or epoch == curve.epochs[-1]
        for end in interval or (value,)
    ]


def _outside(info: CurvesInfo) -> int:
    low, high = zoom(_span(info)) or (-inf, inf)
    return sum(not low <= value <= high for curve in info.curves for value in curve.values)


def _last_epsilons(info: CurvesInfo) -> list[float]:
    return [max(curve.epsilons) for curve in info.curves]


def _shades(info: CurvesInfo, theme: Theme) -> list[str]:
    """The colour of each of many curves of one stage by its own epsilon; none where these hardly differ."""
    own = _last_epsilons(info)
    return [] if info.stages or len(own) <= HUES or not differ(own) else shades(own, theme)


def _bar(info: CurvesInfo, theme: Theme) -> go.Scatter:
    """What shows the scale of the shades."""
    own = _last_epsilons(info)
    look = shaded_marker([min(own), max(own)], theme, "the whole trial")
    return go.Scatter(x=[None], y=[None], mode="markers", marker=look, showlegend=False, hoverinfo="skip")


def _group(info: CurvesInfo) -> list[str]:
    """What the colour of each curve stands for: its stage; of one stage, itself where they are few, or the best."""
    if info.stages:
        return [info.stages[curve.stage or 0] for curve in info.curves]
    if len(info.curves) <= HUES:
        return [f"{escape(curve.trial)}, {OWN} {show_epsilon(max(curve.epsilons))}" for curve in info.curves]
    own = next((f"{OWN} {show_epsilon(max(c.epsilons))}, " for c in info.curves if c.trial == info.best), "")
    best = f"{escape(info.best)}, {own}with the best point"
    return [best if curve.trial == info.best else _OTHERS for curve in info.curves]


def _line(info: CurvesInfo, curve: Curve, color: str, group: int, *, name: str, is_named: bool) -> go.Scatter:
    is_many, crowded = len(info.curves) > HUES, len(info.curves) > (_FEW if info.narrow else MANY)
    cells = [
        [epsilon, show_epsilon(epsilon), shown] for epsilon, shown in zip(curve.epsilons, curve.shown, strict=True)
    ]
    return go.Scatter(
        x=curve.epochs,
        y=curve.values,
        mode="lines" if is_many and len(curve.epochs) > 1 and not any(curve.intervals) else "lines+markers",
        line={"color": color, "width": 1.2 if crowded else 1.6},
        marker={"size": 3 if crowded else 5, "color": color, "symbol": SYMBOLS[group % len(SYMBOLS)]},
        opacity=(0.55 if info.narrow else 0.35) if crowded else 0.75,
        error_y=interval_bars(curve.values, curve.intervals, color),
        text=f"<b>{escape(curve.trial)}</b>",
        customdata=cells,
        hovertemplate=(
            f"%{{text}}<br>{label(info.utility)}: %{{customdata[2]}}<br>{OWN}: %{{customdata[1]}}<extra></extra>"
        ),
        meta=escape(curve.trial),
        name=name,
        legendgroup=name,
        showlegend=is_named,
    )


def _spreads(info: CurvesInfo, colors: Sequence[str], theme: Theme) -> list[go.Scatter]:
    """One standard deviation over repeats to either side of where each trial ends, side by side."""
    ends = [(curve, curve.deviations[-1]) for curve in info.curves]
    last = max((epoch for curve in info.curves for epoch in curve.epochs), default=0)
    shown = [(i, curve, spread) for i, (curve, spread) in enumerate(ends) if spread and len(ends) <= MANY]
    look = {"mode": "markers", "marker": {"opacity": 0}, "hoverinfo": "skip", "showlegend": False}
    return [
        go.Scatter(
            x=[curve.epochs[-1] - _SIDE * last * place],
            y=[curve.values[-1]],
            error_y=interval_bars(
                [curve.values[-1]],
                [(curve.values[-1] - spread, curve.values[-1] + spread)],
                theme.ink if curve.trial == info.best and colors else colors[i] if colors else theme.hue(i),
            ),
            **look,
        )
        for place, (i, curve, spread) in enumerate(shown)
    ]


def _found(info: CurvesInfo) -> str:
    lengths = [curve.epochs[-1] for curve in info.curves]
    span = " to ".join(map(str, dict.fromkeys((min(lengths), max(lengths)))))
    said = f"{number_of(len(lengths), 'trial')} of {span} epochs."
    for curve in info.curves:
        if curve.trial == info.best:
            value = in_sentence(info.utility, curve.values[-1], curve.intervals[-1] or info.sure)
            said += (
                f" {curve.trial}, which has the best point, ended in epoch {curve.epochs[-1]} with {value}, at {OWN} "
                f"{show_epsilon(curve.epsilons[-1])}."
            )
    return said


def _looks(info: CurvesInfo) -> str:
    """What colours and marks stand for."""
    if info.stages:
        return " Each stage of the budget has its colour and mark."
    if len(info.curves) <= HUES:
        return ""  # the legend names each
    colours = " Colours are those of their own epsilons." if differ(_last_epsilons(info)) else ""
    return f"{colours} The best trial stands out."


FIGURE: FigureKind[SweepData, CurvesInfo] = FigureKind(
    name="curves",
    heading="The trials over their epochs",
    summary="the first objective beside epsilon of every trial, epoch by epoch, by stage of the budget",
    caption="One line per trial, one point per epoch.",
    position=72,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: (
        _looks(info(data))
        + bars_in_words(data)
        + omitted(DRAWN_TRIALS, len(data.trials), "trials, those on the front among them")
    ),
    topic=Topic.TRIALS,
)
