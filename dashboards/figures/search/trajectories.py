"""Trajectories: the way of every trial through the plane of epsilon and utility, and how it ended.

Epsilon grows with the epochs, so a trial walks from left to right; a good trial hugs the front. As figure 14
of Bethune et al. (2024), https://arxiv.org/abs/2305.16202. A scheduler let a trial continue where there is a plus sign.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import inf
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData, chosen_trials, finite
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic, omitted
from dashboards.figures._common import (
    DASHES,
    MANY,
    bar_key,
    header,
    interval_bars,
    interval_row,
    label,
    marks,
    over_epsilon,
    reached,
    said_in_legend,
    with_room,
    zoom,
)
from dashboards.figures._comparable import FINALS, stage_names
from dashboards.figures._scores import interval_of, intervals_in_words, open_marks
from dashboards.figures._staircases import Step, staircase, step_lines
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.search._ways import Trajectory, averages, ends_of, key, passes, paths
from dashboards.summary import best_of
from dashboards.text import in_parentheses, show
from sweeper.records import Interval, Objective, Point, TrialStatus
from sweeper.results.highlights import best_by_trial
from sweeper.rounding import number_of

DRAWN_TRIALS = 200
NAMED_TRIALS = 5  # of one stage; each has a colour, dashes and a name then
_BROAD = (6.0, 4.0)  # pixels of the line of the best, which is seen beside the trials on it, on a page and in a column
_WIDTH, _WIDER = 1.0, 0.6  # pixels of a line, and more for each later stage
_STAR = (13, 9)  # pixels, likewise
_HUES_OF_RIVALS = (0, 2)  # of the next best trials, beside the orange of those that were stopped
_FEW_EPOCHS, _FEW_AVERAGES = 12, 12
_PAST = 1.12  # times the last epsilon, to which the line of the best is drawn: the mark of an end would hide its end
_FEW_BEYOND = 0.05  # of the points; of more the axis has all
_LOOKS = {  # the symbol at the end, and the name of the colour
    TrialStatus.COMPLETED: ("circle", "blue"),
    TrialStatus.STOPPED: ("square", "orange"),
    TrialStatus.FAILED: ("x", "red"),
    TrialStatus.INTERRUPTED: ("diamond", "purple"),
    TrialStatus.RUNNING: ("triangle-right", "green"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoriesInfo(FigureInfo):
    """Numbers of the trajectories figure."""

    utility: str  # name on the vertical axis
    # trials with at least one point, by id; `DRAWN_TRIALS` of many, those on the front first
    trajectories: tuple[Trajectory, ...]
    reached: Mapping[str, float]  # the best value of each trial, averages of its weights among them, by id
    steps: tuple[Step, ...]  # the staircase of the front, for comparison
    stages: tuple[str, ...]  # of the budget, in words; empty where it was not cut
    best: Point | None  # the best point, None without one
    sure: Interval | None  # the interval of the best score where it has no noise, None where that is not known
    span: tuple[float, ...]  # values that the vertical axis shows as it opens: of the line of the best, and of the ends


def info(data: SweepData) -> TrajectoriesInfo:
    """Compute the trajectories."""
    points: dict[str, list[Point]] = {}
    for point in data.points:
        if not point.made_from and finite(point, "epsilon", data.utility):
            points.setdefault(point.trial, []).append(point)
    passed, ended = _decisions(data.decisions, goes_on=True), _decisions(data.decisions, goes_on=False)
    trajectories = []
    for id_ in chosen_trials(data, sorted(points), DRAWN_TRIALS):
        own = sorted(points[id_], key=lambda point: point.epoch)
        status, reason = TrialStatus(data.trials[id_].status), data.trials[id_].reason
        trajectory = Trajectory(
            trial=id_,
            stage=data.result.stage_of(id_),
            status=status,
            reason=reason,
            epochs=tuple(point.epoch for point in own),
            epsilons=tuple(point.values["epsilon"] for point in own),
            values=tuple(point.values[data.utility] for point in own),
            intervals=tuple(point.interval(data.utility) for point in own),
            passed=passed.get(id_, {}),
            ended=ended.get(id_, {}),
        )
        trajectories.append(trajectory)
    names, best = stage_names(data), best_of(data, data.utility)
    sure = None if best is None else interval_of(data.result, data.utility, best.values[data.utility])
    steps = staircase(data.front_points, data.utility, data.direction(data.utility))
    return TrajectoriesInfo(
        **header(data, "trajectories of the trials"),
        utility=data.utility,
        trajectories=tuple(trajectories),
        reached=_reached(data),
        steps=steps,
        stages=names if len(names) > 1 else (),
        best=best,
        sure=sure,
        span=(*_span(trajectories, steps), *(sure or ())),
    )


def _reached(data: SweepData) -> dict[str, float]:
    """The best value of each trial."""
    known = (point for point in data.points if finite(point, "epsilon", data.utility))
    best = best_by_trial(known, Objective(data.utility, data.direction(data.utility)))
    return {trial: point.values[data.utility] for trial, point in best.items()}


def _span(trajectories: Sequence[Trajectory], steps: Iterable[Step]) -> tuple[float, ...]:
    """The line of the best and the ends of trials, with their intervals; all points where many lie beyond."""
    ends = [(t.values[-1], t.intervals[-1]) for t in trajectories] + [(step.value, step.interval) for step in steps]
    span = [end for value, interval in ends for end in interval or (value,)]
    every = [value for t in trajectories for value in t.values]
    return (*span, *(every if sum(_beyond(span, every)) > _FEW_BEYOND * len(every) else ()))


def _outside(info: TrajectoriesInfo) -> str:
    """How many points that are drawn lie beyond the axis as it opens, and on which side; empty where none does."""
    values = [value for t in info.trajectories for value in t.values]
    below, above = _beyond(info.span, values)
    sides = [f"{count} {side}" for count, side in ((below, "below"), (above, "above")) if count]
    return f"outside the axes: {' and '.join(sides)}, of {number_of(len(values), 'point')}" if sides else ""


def _beyond(span: Iterable[float], values: Sequence[float]) -> tuple[int, int]:
    """How many values lie below and above the axis as it opens."""
    low, high = zoom(span) or (-inf, inf)
    return sum(value < low for value in values), sum(value > high for value in values)


def _decisions(decisions: Iterable[Mapping[str, Any]], *, goes_on: bool) -> dict[str, dict[int, str]]:
    """Reasons by trial and epoch; the last one where a resumed sweep decided again."""
    found: dict[str, dict[int, str]] = {}
    for decision in decisions:
        if bool(decision.get("goes_on")) is goes_on:
            found.setdefault(str(decision["trial"]), {})[int(decision["epoch"])] = str(decision.get("reason", ""))
    return found


def rows(info: TrajectoriesInfo) -> Table:
    """The numbers of the figure: one row per point, and what was decided there."""
    return [
        {
            "trial": t.trial,
            "stage": None if t.stage is None else t.stage + 1,
            "epoch": epoch,
            "epsilon": epsilon,
            info.utility: value,
            **interval_row(interval),
            "decision": t.ended.get(epoch) or t.passed.get(epoch) or "",
            "status": t.status.value,
            "reason": t.reason,
        }
        for t in info.trajectories
        for epoch, epsilon, value, interval in zip(t.epochs, t.epsilons, t.values, t.intervals, strict=True)
    ]


def plot(info: TrajectoriesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the trajectories as lines, for many share their epsilons, where steps would lie on each other.

    Colours are few trials, else stages of the budget, else the best trials, and ways to end of others that are best
    at some epsilon.
    """
    epsilons = [epsilon for t in info.trajectories for epsilon in t.epsilons]
    last = _PAST * max([*epsilons, *(step.epsilon for step in info.steps)], default=1.0)
    shown = [*epsilons, last] if epsilons else []
    figure = over_epsilon(info, theme, shown, info.utility, height=460, values=zoom(info.span))
    if epsilons:  # below the trials, which it would hide
        name = f"best {label(info.utility)}"
        width = _BROAD[info.narrow]
        figure.add_traces(step_lines(info.steps, last, theme.line, name=name, width=width, go_on=True))
        averaged = [step for step in info.steps if step.made_from]
        if averaged:
            colors = [_color_of(info, step.trial, theme) for step in averaged]
            size = 5 if info.narrow or len(averaged) > _FEW_AVERAGES else 8
            figure.add_traces(averages(averaged, colors, info.utility, size=size, theme=theme))
    if not info.stages and len(info.trajectories) <= NAMED_TRIALS:
        for i, t in enumerate(info.trajectories):
            _draw_named(figure, info, t, theme.hue(i), theme, place=i)
    else:
        _draw_grouped(figure, info, theme)
    _draw_best(figure, info, theme)
    if any(t.passed for t in info.trajectories):
        size = 3 if info.narrow or len(info.trajectories) > MANY else 5
        figure.add_trace(passes(info.trajectories, theme.muted, info.utility, size=size))
    if info.still and any(trace.error_y.array and trace.text for trace in figure.data):
        few = info.stages or len(info.trajectories) <= NAMED_TRIALS
        figure.add_trace(bar_key("95 % CI" if few else "95 % CI, not drawn of others", theme.muted))
    if info.still and (outside := _outside(info)):
        figure.add_trace(said_in_legend(outside, theme))
    return with_room(figure, info)


def _draw_named(
    figure: go.Figure, info: TrajectoriesInfo, t: Trajectory, color: str, theme: Theme, *, place: int = 0
) -> None:
    """Draw a trial in a colour and with dashes of its own; its mark and the legend say how it ended."""
    group = f"{escape(t.trial)}, {t.status.value}"
    path = paths([t], color, info.utility, group, 1.6, crowded=len(info.trajectories) > MANY)
    is_marked = not info.narrow or len(t.epochs) <= _FEW_EPOCHS  # in a column marks would be a bar
    mode = "lines+markers" if is_marked else "lines"
    path.update(line={"dash": DASHES[place % len(DASHES)]})
    figure.add_trace(path.update(mode=mode, marker={"size": 4, "symbol": "circle", "color": color}))
    size = 9 - 2 * info.narrow + 2 * bool(place)  # later ends are open, around those that they would hide
    symbol = _LOOKS[t.status][0] + "-open" * bool(place)
    ends = ends_of([t], color, info.utility, group, size=size, symbol=symbol, theme=theme)
    figure.add_traces([ends, key(path, ends)])


def _draw_grouped(figure: go.Figure, info: TrajectoriesInfo, theme: Theme) -> None:
    """Draw the trials in groups, with an end mark for each way a trial can end."""
    if not info.stages:
        _draw_one_stage(figure, info, theme)
        return
    crowded, last = len(info.trajectories) > MANY, len(info.stages) - 1
    for stage, stage_name in enumerate(info.stages):
        color, has_finals = theme.hue(stage), info.stages[last] == FINALS
        mark = "circle" + "-open" * (has_finals and stage < last)
        for status, (symbol, _) in _LOOKS.items():
            chosen = [t for t in info.trajectories if t.status is status and (t.stage or 0) == stage]
            symbol += "-open" * (not has_finals or stage < last)  # ends of one noise may lie on each other
            group = _Group(stage_name + _ended(info, status), color, symbol, _WIDTH + _WIDER * stage, crowded)
            _draw_group(figure, info, chosen, group, theme, mark=None if crowded or info.narrow else mark)


def _draw_one_stage(figure: go.Figure, info: TrajectoriesInfo, theme: Theme) -> None:
    """Draw the best trial and its rivals apart, and those that are best at no epsilon paler than those that are."""
    crowded, best, width = len(info.trajectories) > MANY, info.best, _WIDTH - _WIDER * info.narrow
    adding, rivals = {step.trial for step in info.steps}, _rivals(info)
    named = {t.trial for t in rivals} | ({best.trial} if best else set())
    others = [t for t in info.trajectories if t.trial not in named]
    for adds in (False, True):
        for status, (symbol, name) in _LOOKS.items():
            chosen = [t for t in others if t.status is status and (t.trial in adding) is adds]
            color, symbol = (getattr(theme, name), symbol) if adds else (theme.muted, f"{symbol}-open")
            group = ("trials that are best somewhere" if adds else "others") + _ended(info, status)
            _draw_group(
                figure, info, chosen, _Group(group, color, symbol, width + _WIDER * adds, crowded or not adds), theme
            )
    for place, t in enumerate(rivals):
        _draw_named(figure, info, t, theme.hue(_HUES_OF_RIVALS[place]), theme, place=place + 1)
    for t in info.trajectories:
        if best is not None and t.trial == best.trial:
            _draw_named(figure, info, t, theme.ink, theme)


def _rivals(info: TrajectoriesInfo) -> list[Trajectory]:
    """The next best of many trials, as far as their best scores lie in the interval of the best point."""
    if info.best is None or (interval := _interval_of_best(info, info.best)) is None:
        return []
    others = [t for t in info.trajectories if t.trial != info.best.trial]
    near = [t for t in others if interval[0] <= info.reached[t.trial] <= interval[1]]
    return sorted(near, key=lambda t: info.reached[t.trial], reverse=True)[: len(_HUES_OF_RIVALS)]


def _interval_of_best(info: TrajectoriesInfo, best: Point) -> Interval | None:
    return info.sure or best.interval(info.utility)


def _color_of(info: TrajectoriesInfo, trial: str, theme: Theme) -> str:
    """The colour of a trial's line, that of the paper where it is not drawn."""
    place, t = next(((i, t) for i, t in enumerate(info.trajectories) if t.trial == trial), (0, None))
    if t is None:
        return theme.paper
    if info.stages:
        return theme.hue(t.stage or 0)
    if len(info.trajectories) <= NAMED_TRIALS:
        return theme.hue(place)
    rivals = [rival.trial for rival in _rivals(info)]
    if trial in rivals:
        return theme.hue(_HUES_OF_RIVALS[rivals.index(trial)])
    _, name = _LOOKS[t.status]
    return theme.ink if info.best is not None and trial == info.best.trial else str(getattr(theme, name))


def _ended(info: TrajectoriesInfo, status: TrialStatus) -> str:
    """How trials ended, unless all were completed."""
    return f", {status.value}" if any(t.status is not TrialStatus.COMPLETED for t in info.trajectories) else ""


def _draw_best(figure: go.Figure, info: TrajectoriesInfo, theme: Theme) -> None:
    """Draw the best point as a star, with its interval."""
    if info.best is not None:
        interval = _interval_of_best(info, info.best)
        bars = [] if interval is None else [_bar_of_best(info, info.best, interval, theme)]
        figure.add_traces([_star(info, info.best, interval, theme), *bars])


@dataclass(frozen=True, slots=True)
class _Group:
    """Trials that look alike: their name in the legend, colour, end mark and width of line; whether there are many."""

    name: str
    color: str
    symbol: str
    width: float
    crowded: bool


def _draw_group(
    figure: go.Figure,
    info: TrajectoriesInfo,
    chosen: list[Trajectory],
    group: _Group,
    theme: Theme,
    mark: str | None = None,
) -> None:
    """Draw a group, if it has trials, with a mark at each epoch where one is given."""
    if not chosen:
        return
    path = paths(chosen, group.color, info.utility, group.name, group.width, crowded=group.crowded)
    if mark:
        path.update(mode="lines+markers", marker={"size": 4, "symbol": mark, "color": group.color})
    size = (6 if group.crowded else 8) - 2 * info.narrow
    ends = ends_of(chosen, group.color, info.utility, group.name, size=size, symbol=group.symbol, theme=theme)
    figure.add_traces([path, ends, key(path, ends)])


def _star(info: TrajectoriesInfo, best: Point, interval: Interval | None, theme: Theme) -> go.Scatter:
    """The best point, which need not be the end of its trial, with its interval."""
    utility = info.utility
    text = reached(best.values["epsilon"], utility, best.values[utility], best.interval(utility))
    marker = {
        "symbol": "star",
        "size": _STAR[info.narrow],
        "color": theme.ink,
        "line": {"width": 1 - 0.5 * info.narrow, "color": theme.paper},
    }
    text = f"<b>{escape(best.trial)}</b>, epoch {escape(best.moment)}<br>{text}"
    name = f"{escape(best.trial)} at its best{', averaged weights' * bool(best.made_from)}"
    star = marks([best.values["epsilon"]], [best.values[utility]], [text], marker, name=name)
    if interval is not None:
        ends = f"{show(utility, best.values[utility])}{in_parentheses(utility, interval)}"
        star.update(name=f"{name}: {ends}")
    return star


def _bar_of_best(info: TrajectoriesInfo, best: Point, interval: Interval, theme: Theme) -> go.Scatter:
    """The interval of the best point."""
    value = best.values[info.utility]
    bars = interval_bars([value], [interval], theme.ink)
    look = {"mode": "markers", "marker": {"opacity": 0}, "hoverinfo": "skip", "showlegend": False}
    return go.Scatter(x=[best.values["epsilon"]], y=[value], error_y=bars, **look)


def _remarks(data: SweepData) -> str:
    said, found = "", info(data)
    if outside := _outside(found):
        said += f" A double click shows what lies {outside}."
    if any(step.made_from for step in found.steps):
        said += (
            " Pentagons on it, in the colour of their trial, are averages of its weights (free points), drawn only "
            "where they are the best."
        )
    said += " A plus sign: a scheduler let the trial continue." if _decisions(data.decisions, goes_on=True) else ""
    if len(data.result.stages) > 1:
        said += " Each stage of the budget has its colour, a later one a wider line."
    return said + intervals_in_words(data) + open_marks(data)


FIGURE: FigureKind[SweepData, TrajectoriesInfo] = FigureKind(
    name="trajectories",
    heading="How the trials got there",
    summary="the way of every trial, how it ended, and plus signs where a scheduler let it continue",
    caption=(
        "One line per trial through its epochs; the mark at the end says how the trial ended: a circle is completed, "
        "a square was stopped. Of more than five trials of one stage those that are the best at some epsilon have "
        "colours, and the best one stands out, with up to two whose scores lie in its interval. A star is the best "
        "point. The broad pale steps are the best of all trials within each epsilon."
    ),
    position=70,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: (
        _remarks(data) + omitted(DRAWN_TRIALS, len(data.trials), "trials, those on the front among them")
    ),
    topic=Topic.TRIALS,
    epsilon_axis=True,
    awaits=("One line for each trial,<br>as soon as one has finished its first epoch"),
)
