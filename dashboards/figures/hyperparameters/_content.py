"""What parallel coordinates and figures over hyperparameters show: an axis for each setting that differs, and results.

Axes of hyperparameters have the scale and the ends that the spec declares, see `_axes`; those of results are so long
that a difference within the error of a score does not look as if it were much.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import ceil, floor, inf, log10, nan
from typing import Any

from dashboards.data import SweepData, evenly, finite, varying
from dashboards.figures._base import FigureInfo
from dashboards.figures._common import header, short_names
from dashboards.figures._comparable import stage_names
from dashboards.figures._scores import interval_of
from dashboards.figures.hyperparameters._axes import Axis, declared_ranges, make_axis
from dashboards.figures.hyperparameters._compared import Compared, compare, order, terms_of
from dashboards.text import in_parentheses, in_sentence, setting, short_title, show
from sweeper.records import Interval
from sweeper.specification.fields.ranges import Range
from sweeper.specification.objectives import is_share_of_rows, needs_two_classes

DRAWN_TRIALS = 300
STAGE = "stage"  # the axis of stages of the budget
_LEAST_HALVES = 4.0  # of the interval of a score, in an axis of scores
_LEAST_RATIO = 2.0  # of the ends of an axis of epsilons
_RIVALS = 4  # a point is compared where one in so many trials has reached its epsilon
_APART = 2.0  # times the least own epsilon, beyond which best points do not compare


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationsInfo(FigureInfo):
    """Numbers of the parallel coordinates."""

    subject: str = "trial"  # what a line is, as a table calls it
    note: str = ""  # what is compared, where that are not all trials, and how sure scores are; in one line each
    trained: tuple[str, ...] = ()  # of each rehearsed configuration the trials that train it, empty where none does
    attained: Mapping[str, str] = field(default_factory=dict)  # best scores of these trials by `trained`, in words
    sure: Interval | None = None  # how sure the highest score is, None where that is not known
    sure_as: str = ""  # what that interval is
    # ids of the trials that have a point with every objective, or of rehearsed configurations; evenly spread ones
    # of more than `DRAWN_TRIALS`
    trials: tuple[str, ...]
    axes: tuple[Axis, ...]  # configuration first, objectives last
    objectives: tuple[str, ...]
    color_name: str  # the objective that colours the lines
    colors: tuple[float, ...]  # its value for each trial
    # by how much each is behind the best score at an own epsilon that is no larger, NaN where few are so small; empty
    # where all are of like ones
    behind: tuple[float, ...] = ()
    terms: str = ""  # what the marks are the best points of, how sure they are and what they cost; parts by "; "
    order: tuple[str, ...] = ()  # hyperparameters, the most important first; those beyond it have no order


def info(data: SweepData, *, one_noise: bool = False) -> ConfigurationsInfo:
    """Compute the parallel coordinates, of one stage with ``one_noise``; empty with fewer than two trials."""
    shown = compare(data, one_noise=one_noise)
    ids = evenly(list(shown.reached), DRAWN_TRIALS)
    axes: list[Axis] = []
    if len(ids) > 1:
        flats = [shown.settings[id_] for id_ in ids]
        chosen = varying({id_: shown.settings[id_] for id_ in ids})
        labels = short_names(chosen, shown.objectives)
        ranges = declared_ranges({} if data.manifest is None else data.manifest.spec)
        axes = [make_axis(n, labels[n], [flat.get(n) for flat in flats], ranges.get(n)) for n in chosen]
        if shown.trained is None:
            axes += [] if one_noise else _stage_axis(data, ids)
        rehearsed = "rehearsed " * (shown.trained is not None)
        reached = {name: [shown.reached[id_][name] for id_ in ids] for name in shown.objectives}
        axes += [_result_axis(shown, name, rehearsed + short_title(name), reached[name]) for name in shown.objectives]
    return ConfigurationsInfo(
        **header(data, "configurations and their best points"),
        objectives=shown.objectives,
        trials=ids if axes else (),
        axes=tuple(axes),
        color_name=data.utility,
        colors=tuple(shown.reached[id_][data.utility] for id_ in ids) if axes else (),
        behind=_behind(data, [shown.reached[id_] for id_ in ids]) if axes and shown.trained is None else (),
        subject=shown.subject,
        note="\n".join(filter(None, (shown.note, shown.certainty))),
        trained=tuple(shown.trained[id_] for id_ in ids) if axes and shown.trained is not None else (),
        attained=_attained(data, shown),
        sure=shown.sure,
        sure_as=shown.sure_as,
        order=order(data) if axes else (),
        terms=terms_of(data, shown),
    )


def _result_axis(shown: Compared, name: str, title: str, values: Sequence[float]) -> Axis:
    """The axis of a result: what differs by less than the interval of a score does not look as if it were much."""
    low, high = min(values), max(values)
    ends, half = None, shown.half_width
    if half is None and shown.sure is not None:
        half = (shown.sure[1] - shown.sure[0]) / 2.0
    if (is_share_of_rows(name) or needs_two_classes(name)) and half is not None:
        high = min(max(high, 1.0), ceil(100 * (high + half)) / 100)
        low = min(low, max(0.0, high - _LEAST_HALVES * half))
        ends = Range(low=floor(100 * low) / 100, high=high)
    elif name == "epsilon" and high > low > 0.0:
        ends = Range(low=_outward(min(low, high / _LEAST_RATIO), floor), high=_outward(high, ceil), log=True)
    return make_axis(name, title, values, ends)


def _outward(epsilon: float, rounded: Callable[[float], int]) -> float:
    """The end of an axis in two digits.

    >>> _outward(0.3211, floor), _outward(1.917, ceil), _outward(2.0, ceil)
    (0.32, 2.0, 2.0)
    """
    unit = 10.0 ** (floor(log10(epsilon)) - 1)
    return float(f"{rounded(float(f'{epsilon / unit:.9g}')) * unit:.2g}")


def _stage_axis(data: SweepData, ids: Sequence[str]) -> list[Axis]:
    """The axis that tells stages of the budget apart, where some trials are of another one."""
    names = stage_names(data)
    stages = [data.result.stage_of(id_) or 0 for id_ in ids]
    values = [names[stage].removeprefix("stage ") for stage in stages] if len(set(stages)) > 1 else []
    return [make_axis(STAGE, STAGE, values)] if values else []


def _behind(data: SweepData, reached: Sequence[Mapping[str, float]]) -> tuple[float, ...]:
    """Return how far best points are behind the best of all points at own epsilons that are no larger.

    Trials that were stopped early, or have another noise, compare so; NaN of points at epsilons that less than a
    quarter of the trials have reached, which are the best of few. Nothing where all are of like epsilons, whose scores
    compare as they are.
    """
    own = [values.get("epsilon", 0.0) for values in reached]
    if not 0.0 < _APART * min(own) < max(own):
        return ()
    sign = data.direction(data.utility).sign
    points = [point for point in data.points if finite(point, "epsilon", data.utility)]
    known = sorted((point.values["epsilon"], sign * point.values[data.utility]) for point in points)
    best = list(accumulate((score for _, score in known), max))
    firsts: dict[str, float] = {}
    for point in points:
        firsts[point.trial] = min(firsts.get(point.trial, inf), point.values["epsilon"])
    least = sorted(firsts.values())[(len(firsts) - 1) // _RIVALS]
    places = [bisect_right(known, (epsilon, inf)) - 1 for epsilon in own]
    gaps = (best[place] - sign * values[data.utility] for place, values in zip(places, reached, strict=True))
    return tuple(gap if epsilon >= least else nan for epsilon, gap in zip(own, gaps, strict=True))


def _attained(data: SweepData, shown: Compared) -> dict[str, str]:
    """Return what trials of rehearsed configurations reached, by their names: the best utility, and how sure it is."""
    utility, found = data.utility, {}
    for trials in filter(None, (shown.trained or {}).values()):
        points = [point for point in data.points if point.trial in trials.split(", ") and finite(point, utility)]
        if points:
            best = max(points, key=lambda point: data.direction(utility).sign * point.values[utility])
            value = best.values[utility]
            interval = best.interval(utility) or interval_of(data.result, utility, value)
            found[trials] = f"{show(utility, value)}{in_parentheses(utility, interval)} on validation rows"
    return found


def content_of(data: SweepData, title: str, *, one_noise: bool = False) -> dict[str, Any]:
    """Return the fields of `ConfigurationsInfo`, for a figure of the same numbers with a title of its own."""
    base = replace(info(data, one_noise=one_noise), **header(data, title))
    return {name: getattr(base, name) for name in base.__dataclass_fields__}


def in_order(info: ConfigurationsInfo) -> list[Axis]:
    """Return the axes of hyperparameters, the most important first; those without an order: ranges before others."""
    places = {name: place for place, name in enumerate(info.order)}
    settings = [axis for axis in info.axes if is_setting(info, axis)]
    return sorted(settings, key=lambda axis: (places.get(axis.name, len(places)), not axis.is_range))


def is_setting(info: ConfigurationsInfo, axis: Axis) -> bool:
    """Return whether an axis is that of a hyperparameter, and not of a result or a stage."""
    return axis.name not in (*info.objectives, STAGE)


def identify(info: ConfigurationsInfo, i: int) -> dict[str, Any]:
    """Return the first columns of a row: the trial, or the rehearsed configuration and the trials that train it."""
    return {info.subject: info.trials[i]} | ({"trained_as": info.trained[i]} if info.trained else {})


def is_trained(info: ConfigurationsInfo, chosen: Iterable[int]) -> list[bool]:
    """Return which of them are rehearsed configurations that trials train."""
    return [bool(info.trained and info.trained[i]) for i in chosen]


def best_in_words(info: ConfigurationsInfo, axes: Iterable[Axis]) -> str:
    """Return what the best trial or rehearsed configuration reached, and its settings on these axes, as text."""
    if not info.colors:
        return ""
    i = info.colors.index(max(info.colors))
    value = in_sentence(info.color_name, info.colors[i], info.sure)
    chosen = [f"{axis.name} {setting(axis.values[i])}" for axis in axes if axis.values[i] is not None]
    settings = f", with {', '.join(chosen)}" if chosen else ""
    return f"{info.trials[i]} scores best of the {len(info.trials)} that are drawn: {value}{settings}."
