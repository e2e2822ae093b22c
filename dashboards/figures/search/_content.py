"""What trajectories show: the ways of the trials, the best of them, and which values the axes open at."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from dashboards.data import SweepData, chosen_trials, finite
from dashboards.figures._base import FigureInfo
from dashboards.figures._common import header, zoom
from dashboards.figures._comparable import stage_names
from dashboards.figures._inset import Region
from dashboards.figures._scores import CHOSEN, UNCHOSEN, interval_of, is_noisy
from dashboards.figures._staircases import Step, staircase
from dashboards.figures.search._ways import Trajectory
from dashboards.summary import best_of
from dashboards.text import show_epsilon
from sweeper.records import Interval, Objective, Point, TrialStatus
from sweeper.results.highlights import best_by_trial
from sweeper.rounding import number_of

DRAWN_TRIALS = 200
_FEW_BEYOND = 0.05  # of the points; of more the axis has all
_FEW_INSIDE, _HIGH = 12, 0.4  # points of an inset; of the axis, a region that needs none


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoriesInfo(FigureInfo):
    """Numbers of the trajectories figure."""

    utility: str  # name on the vertical axis
    # trials with at least one point, by id; `DRAWN_TRIALS` of many, those on the front first
    trajectories: tuple[Trajectory, ...]
    reached: Mapping[str, float]  # the best value of each trial, averages of its weights among them, by id
    steps: tuple[Step, ...]  # the staircase of the front, for comparison
    sure_as: str  # what the intervals of its values make of selection
    stages: tuple[str, ...]  # of the budget, in words; empty where it was not cut
    best: Point | None  # the best point, None without one
    price: str  # what the model of the best point costs, behind a comma; empty where it is not known
    sure: Interval | None  # the interval of the best score where it has no noise, None where that is not known
    span: tuple[float, ...]  # values that the vertical axis shows as it opens: of the line of the best, and of the ends


def info(data: SweepData) -> TrajectoriesInfo:
    """Compute the trajectories."""
    points: dict[str, list[Point]] = {}
    for point in data.points:
        if finite(point, "epsilon", data.utility):
            points.setdefault(point.trial, []).append(point)
    utility = Objective(data.utility, data.direction(data.utility))
    passed, ended = decisions(data.decisions, goes_on=True), decisions(data.decisions, goes_on=False)
    trajectories = []
    for id_ in chosen_trials(data, sorted(points), DRAWN_TRIALS):
        own = _way(points[id_], utility)
        status, reason = TrialStatus(data.trials[id_].status), data.trials[id_].reason
        trajectory = Trajectory(
            trial=id_,
            stage=data.result.stage_of(id_),
            status=status,
            reason=reason,
            epochs=tuple(point.epoch for point in own),
            moments=tuple(point.moment for point in own),
            epsilons=tuple(point.values["epsilon"] for point in own),
            values=tuple(point.values[data.utility] for point in own),
            intervals=tuple(point.interval(data.utility) for point in own),
            passed=passed.get(id_, {}),
            ended=ended.get(id_, {}),
        )
        trajectories.append(trajectory)
    names, best = stage_names(data), best_of(data, data.utility)
    sure = None if best is None else interval_of(data.result, data.utility, best.values[data.utility])
    steps = staircase(data.front_points, data.utility, utility.direction)
    known = [step.interval or interval_of(data.result, data.utility, step.value) for step in steps]
    return TrajectoriesInfo(
        **header(data, "trajectories of the trials"),
        sure_as=CHOSEN if is_noisy(data.result) else UNCHOSEN,
        utility=data.utility,
        trajectories=tuple(trajectories),
        reached=_reached(data),
        steps=tuple(replace(step, interval=interval) for step, interval in zip(steps, known, strict=True)),
        stages=names if len(names) > 1 else (),
        best=best,
        price="" if (price := data.result.price) is None else f", price {show_epsilon(price.epsilon)}{price.doubt}",
        sure=sure,
        span=(*_span(trajectories, steps), *(sure or ())),
    )


def _way(points: Iterable[Point], utility: Objective) -> list[Point]:
    """The best model of each epoch, of the last weights and averages of them; where scores are noisy the last weights.

    Among noisy scores, the best would be chosen by its luck.
    """
    chosen: dict[int, Point] = {}
    sign = utility.direction.sign
    for point in sorted(points, key=lambda point: (point.epoch, bool(point.made_from))):
        other = chosen.setdefault(point.epoch, point)
        if point.noisy is None and sign * point.values[utility.name] > sign * other.values[utility.name]:
            chosen[point.epoch] = point
    return list(chosen.values())


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


def outside(info: TrajectoriesInfo) -> str:
    """How many points that are drawn lie beyond the axis as it opens, and on which side; empty where none does."""
    values = [value for t in info.trajectories for value in t.values]
    below, above = _beyond(info.span, values)
    sides = [f"{count} {side}" for count, side in ((below, "below"), (above, "above")) if count]
    return f"outside the axes: {' and '.join(sides)}, of {number_of(len(values), 'point')}" if sides else ""


def _beyond(span: Iterable[float], values: Sequence[float]) -> tuple[int, int]:
    """How many values lie below and above the axis as it opens."""
    low, high = zoom(span) or (-inf, inf)
    return sum(value < low for value in values), sum(value > high for value in values)


def decisions(decisions: Iterable[Mapping[str, Any]], *, goes_on: bool) -> dict[str, dict[int, str]]:
    """Reasons by trial and epoch; the last one where a resumed sweep decided again."""
    found: dict[str, dict[int, str]] = {}
    for decision in decisions:
        if bool(decision.get("goes_on")) is goes_on:
            found.setdefault(str(decision["trial"]), {})[int(decision["epoch"])] = str(decision.get("reason", ""))
    return found


def rivals(info: TrajectoriesInfo, count: int) -> list[Trajectory]:
    """The next best trials, as far as their best scores lie in the interval of the best point; at most so many."""
    if info.best is None or (interval := interval_of_best(info)) is None:
        return []
    others = [t for t in info.trajectories if t.trial != info.best.trial]
    near = [t for t in others if interval[0] <= info.reached[t.trial] <= interval[1]]
    return sorted(near, key=lambda t: info.reached[t.trial], reverse=True)[:count]


def interval_of_best(info: TrajectoriesInfo) -> Interval | None:
    """How sure the best score is, where that is known."""
    return info.sure or (None if info.best is None else info.best.interval(info.utility))


def best_region(info: TrajectoriesInfo) -> Region | None:
    """The rectangle around the interval of the best, from where the line of the best enters it.

    ``None`` where too few points lie in it, or it is so high that the axes show them as well.
    """
    interval = interval_of_best(info)
    if interval is None or not info.span:
        return None
    low, high = interval[0] - (interval[1] - interval[0]), interval[1]
    points = [(x, y) for t in info.trajectories for x, y in zip(t.epsilons, t.values, strict=True)]
    inside = [x for x, y in points if low <= y <= high]
    first = min((step.epsilon for step in info.steps if step.value >= low), default=inf)
    inside = [x for x in inside if x >= first]
    if len(inside) < _FEW_INSIDE or high - low > _HIGH * (max(info.span) - min(info.span)):
        return None
    return Region((first, max(inside)), (low, high))
