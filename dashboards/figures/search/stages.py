"""From stage to stage: how well the order of the explorers held for the trials with less noise.

A promoted trial has the configuration of an earlier one, up to values that a rule moves with the noise. It is taken to
come from the trial with which it shares most settings, of the latest stage that has one; where two configurations
there share as many, from none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic
from dashboards.figures._common import (
    SMALL_LINE,
    bar_key,
    header,
    interval_bars,
    label,
    new_figure,
    title_below,
    value_axis,
    with_room,
)
from dashboards.figures._comparable import EXPLORERS_OF, stage_names, swarm
from dashboards.figures._scores import bars_in_words, interval_of
from dashboards.figures._theme import LIGHT, Theme
from dashboards.text import show, show_epsilon
from sweeper.privacy.pricing import OWN
from sweeper.records import Interval, Point

_FEWEST = 5  # pairs that an order is said of
_LEAST_TRIALS = 4  # of fewer, there is no order that a later stage could change
_BESIDE = (0.03, 0.06)  # of the way to the next stage, between trials that would lie on each other; in a column
_APART = 0.02  # of the values of such trials at most, as a share of all
_BELOW, _LINE = 62, 17  # pixels below axes with one line of ticks and of title, and of a further line of ticks
_NOISE = "privacy."  # settings that say how loud a trial is, not what it is


@dataclass(frozen=True, slots=True)
class Staged:
    """A trial of a stage, from 0, with the best value that it reached and the trial it was promoted from."""

    trial: str
    stage: int
    epsilon: float  # of its whole training
    epoch: int  # at which it was best
    best_epsilon: float  # own epsilon of that epoch
    value: float
    interval: Interval | None  # of a noisy score
    source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesInfo(FigureInfo):
    """Numbers of the stages figure."""

    utility: str
    trials: tuple[Staged, ...]  # those with points, in their order; none of few, or where the budget has one stage
    names: tuple[str, ...]  # of the stages
    taus: tuple[float | None, ...]  # by stage from the second: Kendall's tau of promoted trials and their sources
    # the interval of the best trial of each stage where it has no noise, by trial; of those where it is known
    sure: Mapping[str, Interval]


def info(data: SweepData, *, utility: str | None = None) -> StagesInfo:
    """Compute what each trial reached, by stage, with ``utility`` as the value; the sweep's own by default."""
    utility = utility or data.utility
    points: dict[str, list[Point]] = {}
    for point in data.points:
        if finite(point, "epsilon", utility):
            points.setdefault(point.trial, []).append(point)
    staged: list[Staged] = []
    for trial in data.trials if len(data.result.stages) > 1 else ():
        stage = data.result.stage_of(trial)
        if stage is not None and trial in points:
            earlier = [one.trial for one in staged if one.stage < stage]
            staged.append(_take_stage(data, utility, stage, points[trial], _source(data, trial, earlier)))
    known = {one.trial: interval_of(data.result, utility, one.value) for one in _best_of_each(data, utility, staged)}
    return StagesInfo(
        **header(data, "from stage to stage"),
        utility=utility,
        trials=tuple(staged) if len(staged) >= _LEAST_TRIALS else (),
        names=stage_names(data),
        taus=tuple(_tau(staged, stage) for stage in range(1, len(data.result.stages))),
        sure={trial: interval for trial, interval in known.items() if interval is not None},
    )


def _take_stage(data: SweepData, utility: str, stage: int, points: Sequence[Point], source: str | None) -> Staged:
    best = max(points, key=lambda point: data.direction(utility).sign * point.values[utility])
    return Staged(
        points[0].trial,
        stage,
        max(point.values["epsilon"] for point in points),
        best.epoch,
        best.values["epsilon"],
        best.values[utility],
        best.interval(utility),
        source,
    )


def _source(data: SweepData, trial: str, earlier: Sequence[str]) -> str | None:
    """The trial of the latest stage that shares most settings with a trial, None where two configurations there do."""
    names = [name for name in data.varying if not name.startswith(_NOISE)]

    def name_shared(other: str) -> tuple[str, ...]:
        return tuple(name for name in names if data.settings[other].get(name) == data.settings[trial].get(name))

    most = max((len(name_shared(other)) for other in earlier), default=0)
    nearest = [other for other in earlier if len(name_shared(other)) == most]
    latest = max((data.result.stage_of(other) or 0 for other in nearest), default=0)
    nearest = [other for other in nearest if data.result.stage_of(other) == latest]
    alike = {tuple(repr(data.settings[other].get(name)) for name in names) for other in nearest}
    return nearest[-1] if most and len(alike) == 1 else None


def _tau(staged: Sequence[Staged], stage: int) -> float | None:
    """Kendall's tau of the trials of a stage and those they come from, None where they are too few or all alike."""
    values = {one.trial: one.value for one in staged}
    pairs = [(values[one.source], one.value) for one in staged if one.stage == stage and one.source is not None]
    signs = [
        _sign(after - other_after) * _sign(before - other_before)
        for i, (before, after) in enumerate(pairs)
        for other_before, other_after in pairs[:i]
    ]
    untied = sum(sign != 0 for sign in signs)
    return sum(signs) / untied if len(pairs) >= _FEWEST and untied else None


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def rows(info: StagesInfo) -> Table:
    """The numbers of the figure: one row per trial."""
    return [
        {
            "trial": one.trial,
            "stage": one.stage + 1,
            "epsilon_of_training": one.epsilon,
            info.utility: one.value,
            "epoch": one.epoch,
            "epsilon": one.best_epsilon,
            "from": one.source,
        }
        for one in info.trials
    ]


def plot(info: StagesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw one mark per trial over its stage, and a line from where it comes."""
    count = len(info.names)
    ticks = [_tick(info, stage) for stage in range(count)]
    name = f"stage of the budget, {OWN} at most" if info.narrow else "stage of the budget"
    title = title_below(f"{name}; {info.epsilon_title.partition(', ')[2]}", info)
    axis = {
        "tickvals": list(range(count)),
        "ticktext": ticks,
        "range": [-0.4, max(count, 1) - 0.6],
        "title": {"text": title},
    }
    lines = max((tick.count("<br>") for tick in ticks), default=0)
    axis_of_value = value_axis(info, info.utility)
    figure = new_figure(
        info,
        theme,
        empty=not info.trials,
        height=400,
        xaxis=axis,
        yaxis={**axis_of_value, "title": {"text": f"best {axis_of_value['title']['text']}"}},
        margin={"b": _BELOW + _LINE * lines + SMALL_LINE * title.count("<br>")},
    )
    if info.trials:
        figure.add_traces([_lines(info, theme), _marks(info, theme)])
        best = [one for one in info.trials if one.trial in info.sure]
        if best:
            places = _places(info)
            beside = -2 * _BESIDE[info.narrow]  # a bar among marks would not be seen
            x, y = [places[one.trial] + beside for one in best], [one.value for one in best]
            bars = interval_bars(y, [info.sure[one.trial] for one in best], theme.ink)
            look = {"mode": "markers", "marker": {"opacity": 0}, "hoverinfo": "skip", "showlegend": False}
            figure.add_trace(go.Scatter(x=x, y=y, error_y=bars, **look))
            figure.add_trace(bar_key("bar: 95 % CI of the best", theme.ink))
        for symbol, words in (("circle", "trial that was promoted, or a final"), ("circle-open", "other trial")):
            marker = {"size": 8, "symbol": symbol, "color": theme.muted}
            figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=words))
    return with_room(figure, info)


def _goes_on(info: StagesInfo, one: Staged) -> bool:
    return one.stage == len(info.names) - 1 or any(other.source == one.trial for other in info.trials)


def _best_of_each(data: SweepData, utility: str, trials: Sequence[Staged]) -> list[Staged]:
    """The trial of each stage with the best value."""
    sign = data.direction(utility).sign
    stages = sorted({one.stage for one in trials})
    return [max((one for one in trials if one.stage == stage), key=lambda one: sign * one.value) for stage in stages]


def _places(info: StagesInfo) -> dict[str, float]:
    """Where each trial stands: on its stage, beside those that it would hide there."""
    values = [one.value for one in info.trials]
    near = _APART * (max(values) - min(values))
    found = swarm([one.stage for one in info.trials], values, _BESIDE[info.narrow], near)
    return {one.trial: place for one, place in zip(info.trials, found, strict=True)}


def _tick(info: StagesInfo, stage: int) -> str:
    epsilons = [one.epsilon for one in info.trials if one.stage == stage]
    whole = f"≤ {show_epsilon(max(epsilons))}" if epsilons else "no points"
    name = info.names[stage]
    lines = [name.removeprefix(EXPLORERS_OF), whole] if info.narrow else [name, f"{OWN} {whole}" if epsilons else whole]
    tau = info.taus[stage - 1] if stage else None
    promoted = sum(one.stage == stage and one.source is not None for one in info.trials)
    kendall = "tau" if info.narrow else "Kendall's tau"
    gap = "<br>" if info.narrow else " "
    return "<br>".join([*lines, *([] if tau is None else [f"{kendall} {tau:.2f}{gap}(n = {promoted})"])])


def _lines(info: StagesInfo, theme: Theme) -> go.Scatter:
    places = _places(info)
    at = {one.trial: (places[one.trial], one.value) for one in info.trials}
    x: list[float | None] = []
    y: list[float | None] = []
    for one in info.trials:
        if one.source in at:
            x += [at[one.source][0], places[one.trial], None]
            y += [at[one.source][1], one.value, None]
    line = {"color": theme.muted, "width": 1.5}
    return go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", name="promoted to a later stage")


def _marks(info: StagesInfo, theme: Theme) -> go.Scatter:
    texts = [
        f"<b>{escape(one.trial)}</b>{f' from {escape(one.source)}' if one.source else ''}"
        f"<br>best {label(info.utility)} {show(info.utility, one.value)} in epoch {one.epoch}, "
        f"{OWN} {show_epsilon(one.best_epsilon)}<br>whole training: {OWN} {show_epsilon(one.epsilon)}"
        for one in info.trials
    ]
    return go.Scatter(
        x=[_places(info)[one.trial] for one in info.trials],
        y=[one.value for one in info.trials],
        mode="markers",
        marker={
            "size": 6 if info.narrow else 9,
            "color": [theme.hue(one.stage) for one in info.trials],
            "symbol": ["circle" if _goes_on(info, one) else "circle-open" for one in info.trials],
        },
        error_y=interval_bars([one.value for one in info.trials], [one.interval for one in info.trials], theme.muted),
        text=texts,
        hovertemplate="%{text}<extra></extra>",
        name="one trial",
        showlegend=False,
    )


def _tau_in_words(data: SweepData) -> str:
    if all(tau is None for tau in info(data).taus):
        return ""
    return (
        f" tau is Kendall's, from -1 (reversed) to 1 (the same order), where at least {_FEWEST} trials were promoted."
    )


FIGURE: FigureKind[SweepData, StagesInfo] = FigureKind(
    name="stages",
    heading="From stage to stage",
    summary="what each trial of a divided budget reached, and from which one it was promoted",
    caption=(
        "The best value of each trial, by the stage of the budget: explorers on the left, finals on the right. A line "
        "joins a promoted trial to the one whose configuration it has; where lines cross, a later stage changed the "
        "order. The epsilon below a stage is that of a whole training; a best value may be of an earlier epoch, which "
        "has a smaller one: the text of a mark names both."
    ),
    position=75,
    info=info,
    plot=plot,
    rows=rows,
    info_at=lambda data, certificate: info(data, utility=certificate),
    remarks=lambda data: _tau_in_words(data) + bars_in_words(data),
    topic=Topic.SEARCH,
    needs=f"a budget of two stages with {_LEAST_TRIALS} trials",
)
