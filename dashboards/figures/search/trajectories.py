"""Trajectories: the way of every trial through the plane of epsilon and utility, and how it ended.

Epsilon grows with the epochs, so a trial walks from left to right; a good trial hugs the front. As figure 14
of Bethune et al. (2024), https://arxiv.org/abs/2305.16202. A scheduler let a trial continue where there is a plus sign.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from math import inf, log10
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table, Topic, omitted
from dashboards.figures._common import (
    DASHES,
    FIRST_IN_LEGEND,
    MANY,
    bar_key,
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
from dashboards.figures._comparable import FINALS
from dashboards.figures._inset import Place, add_inset, find_place
from dashboards.figures._scores import intervals_in_words, is_noisy, open_marks, without_intervals
from dashboards.figures._staircases import band, step_lines
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.search._content import (
    DRAWN_TRIALS,
    TrajectoriesInfo,
    best_region,
    decisions,
    info,
    interval_of_best,
    outside,
    rivals,
)
from dashboards.figures.search._ways import (
    SERIES,
    Trajectory,
    bars_beside,
    beside,
    between,
    ends_of,
    key,
    last_points,
    passes,
    paths,
    write_names,
)
from dashboards.text import in_parentheses, in_sentence, show, show_epsilon
from sweeper.privacy.pricing import OWN
from sweeper.records import Interval, Point, TrialStatus
from sweeper.rounding import number_of

NAMED_TRIALS = 5  # of one stage; each has a colour, dashes and a name then
_BROAD = (6.0, 4.0)  # pixels of the line of the best, which is seen beside the trials on it, on a page and in a column
_WIDTH, _WIDER = 1.0, 0.6  # pixels of a line, and more for each later stage
_STAR = (13, 9)  # pixels, likewise
_HUES_OF_RIVALS = (2, 3)  # of the next best trials, beside the blue of others
_FEW_EPOCHS, _FEW_NAMES, _FEW_HEADS = 12, 2, 12
_CLEAR, _PALE = 0.7, 0.3  # opacity of lines
_AS_WIDE = 0.85  # of its region, an inset, which is higher
_PLACES = (
    Place((0.42, 0.97), (0.13, 0.6)),
    Place(),
    Place((0.6, 0.97), (0.12, 0.45)),
    Place((0.67, 0.97), (0.12, 0.4)),
)
_PAST = 1.12  # times the last epsilon, to which the line of the best is drawn: the mark of an end would hide its end
_FEW_BEYOND = 0.05  # of the points; of more the axis has all
_SYMBOLS = {  # at ends
    TrialStatus.COMPLETED: "circle",
    TrialStatus.STOPPED: "square",
    TrialStatus.FAILED: "x",
    TrialStatus.INTERRUPTED: "diamond",
    TrialStatus.RUNNING: "triangle-right",
}


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

    Colours are few trials, else stages of the budget, else the best trials, and others as far as they are best.
    """
    epsilons = [epsilon for t in info.trajectories for epsilon in t.epsilons]
    last = _PAST * max([*epsilons, *(step.epsilon for step in info.steps)], default=1.0)
    shown = [*epsilons, last] if epsilons else []
    terms = _terms(info)
    figure = over_epsilon(terms, theme, shown, info.utility, height=460, values=zoom(info.span))
    if epsilons:  # below the trials, which it would hide
        name = f"best {label(info.utility)}"
        width = _BROAD[info.narrow]
        sure = "95 % CI of the best" if info.narrow else f"95 % CI of the best, {info.sure_as}"
        figure.add_traces(band(info.steps, last, theme.grid, name=sure))
        lines = step_lines(info.steps, last, theme.line, name=name, width=width)
        figure.add_traces([line.update(legendrank=FIRST_IN_LEGEND) for line in lines])
    if info.stages:
        _draw_stages(figure, info, theme)
    named = _named(info, theme)
    if not info.stages:
        others = [t for t in info.trajectories if t.trial not in named]
        _draw_others(figure, info, others, theme, len(named))
    _draw_named(figure, info, named, theme)
    if any(t.passed for t in info.trajectories):
        size = 3 if info.narrow or len(info.trajectories) > MANY else 5
        figure.add_trace(passes(info.trajectories, theme.muted, info.utility, size=size))
    if info.still and any(trace.error_y.array and trace.text for trace in figure.data):
        few = info.stages or len(info.trajectories) <= NAMED_TRIALS
        figure.add_trace(bar_key("95 % CI" if few else "95 % CI, not drawn of others", theme.muted))
    if info.still and not info.narrow and (said := outside(info)):
        figure.add_trace(said_in_legend(said, theme))
    if info.still:
        _enlarge(figure, info, theme)
    return with_room(figure, info)


def _terms(info: TrajectoriesInfo) -> TrajectoriesInfo:
    """What the axes say: in a column also what its legend has no room for, and not how sure scores are: a band does."""
    scores, title = info.scores, info.epsilon_title
    if any(step.interval for step in info.steps):
        rows = without_intervals(info.scores)
        scores = f"{rows}, 95 % CI {info.sure_as}" if info.narrow else rows
    if info.narrow:
        star = "" if info.best is None else f"star: {_best_in_words(info, info.best)}"
        title = "; ".join(filter(None, (title, star, outside(info))))
    return replace(info, scores=scores, epsilon_title=title)


def _enlarge(figure: go.Figure, info: TrajectoriesInfo, theme: Theme) -> None:
    """Add an inset around the interval of the best, if there is room for one that is about as wide as the region."""
    region = best_region(info)
    if region is None:
        return
    steps = [(after.epsilon, before.value) for before, after in pairwise(info.steps)]
    (first, last), (start, end) = figure.layout.xaxis.range, region.epsilons
    least = _AS_WIDE * log10(end / start) / (last - first)
    places = [place for place in _PLACES if place.wide[1] - place.wide[0] >= least]
    place = find_place(figure, [*between(info.trajectories), *steps], places=places)
    if place is not None:
        enlarged = [trace for trace in figure.data if trace.x and trace.x[0] is not None]
        add_inset(figure, enlarged, region, info.utility, theme, place, bars=True)


def _named(info: TrajectoriesInfo, theme: Theme) -> dict[str, str]:
    """The colours of trials that have one of their own, by id: of few all, of many the best one and its rivals.

    The best one is the first, in the colour of texts.
    """
    if info.stages:
        return {}
    best = {} if info.best is None else {info.best.trial: theme.ink}
    if len(info.trajectories) <= NAMED_TRIALS:
        return best | {t.trial: theme.hue(i) for i, t in enumerate(info.trajectories) if t.trial not in best}
    near = rivals(info, len(_HUES_OF_RIVALS))
    return best | {t.trial: theme.hue(hue) for t, hue in zip(near, _HUES_OF_RIVALS, strict=False)}


def _draw_named(figure: go.Figure, info: TrajectoriesInfo, named: Mapping[str, str], theme: Theme) -> None:
    """Draw trials in colours and with dashes of their own, and the best point; marks say how the trials ended.

    The end of the trial of the best point is below its star, or around it, those of others are above it.
    """
    by_id = {t.trial: t for t in info.trajectories}
    best = "" if info.best is None else info.best.trial
    ends: dict[str, go.Scatter] = {}
    keys: dict[str, go.Scatter] = {}
    for place, (trial, color) in reversed([*enumerate((id_, one) for id_, one in named.items() if id_ in by_id)]):
        t, is_best = by_id[trial], trial == best
        group = f"{escape(trial)}, {t.status.value}{_last_score(info, t)}"
        if not is_best:
            figure.add_traces(bars_beside([t], color, group, beside(figure, place, narrow=info.narrow)))
        path = paths([t], color, info.utility, group, 1.6 + is_best * _WIDER, opacity=_CLEAR, bars=is_best)
        is_marked = not info.narrow or len(t.epochs) <= _FEW_EPOCHS  # in a column marks would be a bar
        mode = "lines+markers" if is_marked else "lines"
        # in a column no marks fill the gaps of dashes, in which corners would be lost
        path.update(line={"dash": "solid" if info.narrow else DASHES[place % len(DASHES)]})
        figure.add_trace(path.update(mode=mode, marker={"size": 4, "symbol": "circle", "color": color}))
        is_around_star = is_best and _is_at_star(info, t)
        symbol = _SYMBOLS[t.status] + "-open" * is_around_star
        size = 9 - 2 * info.narrow + 8 * is_around_star
        ends[trial] = ends_of([t], color, info.utility, group, size=size, symbol=symbol, theme=theme)
        keys[trial] = key(path, ends[trial])
    figure.add_traces([ends.pop(best)] if best in ends else [])
    _draw_best(figure, info, theme)
    figure.add_traces([*reversed(ends.values()), *reversed(keys.values())])


def _last_score(info: TrajectoriesInfo, t: Trajectory) -> str:
    """Where a trial ended, for a legend that has room for it; nothing where a star says it."""
    if info.narrow or _is_at_star(info, t):
        return ""
    value, interval = t.values[-1], t.intervals[-1]
    return f" at {show(info.utility, value)}{in_parentheses(info.utility, interval)}"


def _is_at_star(info: TrajectoriesInfo, t: Trajectory) -> bool:
    """Whether a trial ends at the epsilon of the best point, whose star would hide the mark of its end."""
    return info.best is not None and t.epsilons[-1] == info.best.values["epsilon"]


def _draw_stages(figure: go.Figure, info: TrajectoriesInfo, theme: Theme) -> None:
    """Draw the trials of each stage of the budget, paler those that are best at no epsilon."""
    crowded, last, adding = len(info.trajectories) > MANY, len(info.stages) - 1, _lasts(info)
    for stage, stage_name in enumerate(info.stages):
        color, has_finals = theme.hue(stage), info.stages[last] == FINALS
        mark = None if crowded or info.narrow else "circle" + "-open" * (has_finals and stage < last)
        for status, symbol in _SYMBOLS.items():
            chosen = [t for t in info.trajectories if t.status is status and (t.stage or 0) == stage]
            symbol += "-open" * (not has_finals or stage < last)  # ends of one noise may lie on each other
            group = _Group(stage_name + _ended(info, status), color, symbol, _WIDTH + _WIDER * stage, crowded)
            pale = [t for t in chosen if t.trial not in adding]
            clear = [t for t in chosen if t.trial in adding]
            _draw_group(figure, info, pale, replace(group, pale=bool(clear)), theme, mark=mark, is_key=not clear)
            _draw_group(figure, info, clear, group, theme, mark=mark)


def _draw_others(
    figure: go.Figure, info: TrajectoriesInfo, others: Sequence[Trajectory], theme: Theme, place: int
) -> None:
    """Draw trials that do not stand out, in a colour up to where they are best the last time; see `beside` for bars."""
    crowded, width, lasts = len(info.trajectories) > MANY, _WIDTH - _WIDER * info.narrow, _lasts(info)
    for status, symbol in _SYMBOLS.items():
        chosen = [_part(t, from_=lasts.get(t.trial, -inf)) for t in others if t.status is status]
        name = f"others{_ended(info, status)}"
        _draw_group(figure, info, chosen, _Group(name, theme.muted, symbol, width, crowded=True, pale=True), theme)
    if heads := [_part(t, to=lasts[t.trial]) for t in others if t.trial in lasts]:
        names = " and ".join(escape(t.trial) for t in heads)
        name = f"{names if len(heads) <= _FEW_NAMES else 'others'}, until last best"
        if not crowded:
            figure.add_traces(bars_beside(heads, theme.blue, name, beside(figure, place, narrow=info.narrow)))
        opacity = _PALE if crowded else _CLEAR
        path = paths(heads, theme.blue, info.utility, name, width + _WIDER, opacity=opacity, bars=False)
        mark = {"size": 4, "symbol": "diamond-tall", "color": theme.blue}
        lasting = last_points(heads, info.utility, name, mark)
        if len(heads) <= _FEW_HEADS:
            font = {"size": 10 - 3 * info.narrow, "color": theme.blue}
            write_names(lasting, heads, figure, font, narrow=info.narrow)
        figure.add_traces([path, lasting, key(path, lasting)])


def _part(t: Trajectory, *, from_: float = -inf, to: float = inf) -> Trajectory:
    """The way of a trial between two epsilons, and its end or its beginning where it has nothing there."""
    from_, to = min(from_, max(t.epsilons)), max(to, min(t.epsilons))
    kept = [i for i, epsilon in enumerate(t.epsilons) if from_ <= epsilon <= to]
    series: dict[str, Any] = {name: tuple(getattr(t, name)[i] for i in kept) for name in SERIES}
    return replace(t, **series)


def _lasts(info: TrajectoriesInfo) -> dict[str, float]:
    """The last own epsilon at which each trial is best, of those that are anywhere."""
    return {step.trial: step.epsilon for step in info.steps}


def _ended(info: TrajectoriesInfo, status: TrialStatus) -> str:
    """How trials ended, unless all were completed."""
    return f", {status.value}" if any(t.status is not TrialStatus.COMPLETED for t in info.trajectories) else ""


def _draw_best(figure: go.Figure, info: TrajectoriesInfo, theme: Theme) -> None:
    """Draw the best point as a star, with its interval."""
    if info.best is not None:
        interval = interval_of_best(info)
        bars = [] if interval is None else [_bar_of_best(info, info.best, interval, theme)]
        figure.add_traces([_star(info, info.best, theme), *bars])


@dataclass(frozen=True, slots=True)
class _Group:
    """Trials that look alike: their name in the legend, colour, end mark and width of line.

    Of ``crowded`` ones no intervals are drawn, and ``pale`` ones are behind others; ``bars`` are those of their lines.
    """

    name: str
    color: str
    symbol: str
    width: float
    crowded: bool
    pale: bool = False
    bars: bool = True


def _draw_group(
    figure: go.Figure,
    info: TrajectoriesInfo,
    chosen: Sequence[Trajectory],
    group: _Group,
    theme: Theme,
    mark: str | None = None,
    *,
    is_key: bool = True,
) -> None:
    """Draw a group, if it has trials, with a mark at each epoch where one is given, and its entry in the legend."""
    if not chosen:
        return
    opacity = _PALE if group.pale or group.crowded else _CLEAR
    utility, bars = info.utility, group.bars and not group.crowded
    path = paths(chosen, group.color, utility, group.name, group.width, opacity=opacity, bars=bars)
    if mark:
        path.update(mode="lines+markers", marker={"size": 4, "symbol": mark, "color": group.color})
    size = (6 if group.crowded else 8) - 2 * info.narrow
    ends = ends_of(chosen, group.color, utility, group.name, size=size, symbol=group.symbol, theme=theme)
    if group.pale:
        ends.update(opacity=_PALE + 0.3 * (not info.stages))
    figure.add_traces([path, ends.update(showlegend=False), *([key(path, ends)] if is_key else [])])


def _star(info: TrajectoriesInfo, best: Point, theme: Theme) -> go.Scatter:
    """The best point, which need not be the end of its trial."""
    utility = info.utility
    text = reached(best.values["epsilon"], utility, best.values[utility], best.interval(utility))
    marker = {
        "symbol": "star",
        "size": _STAR[info.narrow],
        "color": theme.ink,
        "line": {"width": 1 - 0.5 * info.narrow, "color": theme.paper},
    }
    text = f"<b>{escape(best.trial)}</b>, epoch {escape(best.moment)}<br>{text}"
    name = _best_in_words(info, best).replace(" at own epsilon", "<br>at own epsilon")
    name = f"{escape(best.trial)} at its best" if info.narrow else name
    return marks([best.values["epsilon"]], [best.values[utility]], [text], marker, name=name)


def _best_in_words(info: TrajectoriesInfo, best: Point) -> str:
    """The best point, and where its interval is known its score, and on a page what it costs."""
    words = f"{escape(best.trial)} at its best{', averaged weights' * bool(best.made_from)}"
    interval = interval_of_best(info)
    if interval is None:
        return words
    score = f"{show(info.utility, best.values[info.utility])}{in_parentheses(info.utility, interval)}"
    price = "" if info.narrow else info.price  # which the title of the axis says in a column
    return f"{words}: {score} at own epsilon {show('epsilon', best.values['epsilon'])}{price}"


def _bar_of_best(info: TrajectoriesInfo, best: Point, interval: Interval, theme: Theme) -> go.Scatter:
    """The interval of the best point."""
    value = best.values[info.utility]
    bars = interval_bars([value], [interval], theme.ink)
    look = {"mode": "markers", "marker": {"opacity": 0}, "hoverinfo": "skip", "showlegend": False}
    return go.Scatter(x=[best.values["epsilon"]], y=[value], error_y=bars, **look)


def _remarks(data: SweepData) -> str:
    said, found = "", info(data)
    if found.stages:
        said += " Trials that are the best at no epsilon are pale."
    elif len(found.trajectories) > NAMED_TRIALS:
        said += (
            " The best trial stands out, with up to two whose scores lie in its interval; others are pale from where "
            "they are the best for the last time."
        )
    if beyond := outside(found):
        said += f" Some points lie {beyond}."
    if any(point.made_from for point in data.points):
        said += " Lines pass the better of the last weights and averages of them (free points)"
        said += ", but for noisy scores the last weights." if is_noisy(data.result) else "."
    if any(step.interval for step in found.steps):
        said += f" The pale band is the 95 % interval of that best score, {found.sure_as}."
    if any(step.is_explorer for step in found.steps):
        said += " The dotted steps are the best of explorers, the solid ones of finals."
    if not found.stages and any(t.intervals[-1] for t in found.trajectories):
        said += " Bars are 95 % intervals: those of the best trial on its points, those of other ones beside theirs."
    said += " A plus sign: a scheduler let the trial continue." if decisions(data.decisions, goes_on=True) else ""
    if len(data.result.stages) > 1:
        said += " Each stage of the budget has its colour, a later one a wider line."
    return said + intervals_in_words(data) + open_marks(data)


def _gestures(data: SweepData) -> str:
    return " A double click shows what lies outside the axes." if outside(info(data)) else ""


def _found(info: TrajectoriesInfo) -> str:
    if info.best is None:
        return ""
    value = in_sentence(info.utility, info.best.values[info.utility], interval_of_best(info))
    where = f"at {OWN} {show_epsilon(info.best.values['epsilon'])}, epoch {info.best.moment}"
    drawn = f"the {number_of(len(info.trajectories), 'trial')} that are drawn"
    return f"{info.best.trial} did best of {drawn}: {value} {where}."


FIGURE: FigureKind[SweepData, TrajectoriesInfo] = FigureKind(
    name="trajectories",
    heading="How the trials got there",
    summary="the way of every trial, how it ended, and plus signs where a scheduler let it continue",
    caption=(
        "One line per trial through its epochs; the mark at the end says how the trial ended: a circle is completed, "
        "a square was stopped. A star is the best point. The broad pale steps are the best of all trials within each "
        "epsilon."
    ),
    terms=(
        "Own epsilon is that of one training if its configuration and epoch were fixed in advance; who publishes the "
        "best model of the sweep pays its price."
    ),
    found=_found,
    position=70,
    info=info,
    plot=plot,
    rows=rows,
    gestures_here=_gestures,
    remarks=lambda data: (
        _remarks(data) + omitted(DRAWN_TRIALS, len(data.trials), "trials, those on the front among them")
    ),
    topic=Topic.TRIALS,
    epsilon_axis=True,
    awaits=("One line for each trial,<br>as soon as one has finished its first epoch"),
)
