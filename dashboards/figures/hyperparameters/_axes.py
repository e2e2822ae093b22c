"""Axes of hyperparameters and of what was reached: scaled as the spec declares them, with rounded ticks.

A value that a range of the spec declares has the scale and the ends of that range. A number that nothing declares is
drawn on a logarithmic axis if it spans a factor of ten or more, or if each of its values is as many times the one
before; scores never are, epsilon always is. A value that a trial does not have (a choice's own parameter) sits below
the axis at a dash.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, log10
from typing import Any

import numpy as np

from dashboards.figures._ticks import MOST_TICKS, rounded_ticks
from dashboards.text import MISSING, is_fraction, number, setting, show_epsilon
from sweeper.specification.fields.ranges import Range

_LOG_SPAN = 10.0
_TIMES, _AS_MANY = 1.2, 1.01  # the least ratio of multiples, for 18, 19 and 20 are none; how far their ratios differ
_TOUCHING = 0.07  # share of an axis
_BELOW = 0.2  # share of an axis, from its lower end to the dash of a value that a trial does not have
_ALIKE = 1e-9  # numbers whose spread is a smaller share of them differ by rounding alone
_KINDS = {"uniform": False, "int": False, "log": True, "log_int": True}


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: a position for every trial, and where the ticks are."""

    name: str
    label: str
    positions: tuple[float, ...]
    tick_positions: tuple[float, ...]
    tick_texts: tuple[str, ...]
    values: tuple[Any, ...] = ()
    ends: tuple[float, float] = (0.0, 1.0)  # positions
    logarithmic: bool = False
    is_range: bool = False  # whether the spec declares its ends

    @property
    def title(self) -> str:
        """The label, and the scale where it is not that of the numbers."""
        return f"{self.label} (log)" if self.logarithmic else self.label

    @property
    def distinct(self) -> int:
        """How many positions there are."""
        return len(set(self.positions))


def declared_ranges(spec: Mapping[str, Any]) -> dict[str, Range]:
    """Return the ranges of a resolved spec by dotted name; two of one name, in two choices, are joined.

    >>> declared_ranges({"training": {"rate": {"log": [0.01, 1]}, "loss": [{"name": "a", "tau": {"uniform": [1, 2]}}]}})
    ... # doctest: +NORMALIZE_WHITESPACE
    {'training.rate': Range(low=0.01, high=1, log=True, integer=False, step=None),
     'training.loss.tau': Range(low=1, high=2, log=False, integer=False, step=None)}
    """
    found: dict[str, Range] = {}
    for name, one in _ranges(spec, ""):
        other = found.get(name, one)
        found[name] = Range(low=min(one.low, other.low), high=max(one.high, other.high), log=one.log and other.log)
    return found


def _ranges(value: Any, name: str) -> Iterator[tuple[str, Range]]:
    match value:
        case Mapping() if (kind := next((key for key in value if key in _KINDS), None)) and _are_ends(value[kind]):
            yield name, Range(low=value[kind][0], high=value[kind][1], log=_KINDS[kind])
        case Mapping():
            for key, inner in value.items():
                yield from _ranges(inner, f"{name}.{key}" if name else str(key))
        case list() | tuple():
            for inner in value:
                yield from _ranges(inner, name)


def _are_ends(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(one, int | float) for one in value)


def differs(values: Sequence[Any]) -> bool:
    """Whether values differ by more than rounding."""
    if not _are_numbers(values):
        return len(set(map(repr, values))) > 1
    low, high = float(min(values)), float(max(values))
    return high - low > _ALIKE * max(abs(low), abs(high))


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) and isfinite(v) for v in values)


def make_axis(name: str, label: str, values: Sequence[Any], declared: Range | None = None) -> Axis:
    """Return the axis of one value of every trial, None where a trial has none."""
    numbers = [v for v in values if v is not None]
    if not numbers or not _are_numbers(numbers):
        return _categories(name, label, values)
    low, high = min(numbers), max(numbers)
    distinct = sorted(set(numbers))
    logarithmic = low > 0 and _is_logarithmic(name, distinct, declared)
    if declared is not None:
        low, high = min(low, declared.low), max(high, declared.high)
    scale: Callable[[float], float] = log10 if logarithmic else float
    bottom, top = scale(low), scale(high)
    absent = bottom - _BELOW * ((top - bottom) or 1.0)
    listed = declared is None and len(distinct) <= MOST_TICKS
    if listed:
        ticks = _apart(distinct, scale)
    else:
        ticks = rounded_ticks(low, high, logarithmic=logarithmic, integer=all(isinstance(v, int) for v in numbers))
        ticks = _with_ends(ticks, low, high, scale)
    missing = any(v is None for v in values)
    return Axis(
        name,
        label,
        tuple(absent if v is None else scale(v) for v in values),
        (*([absent] if missing else []), *map(scale, ticks)),
        (*([MISSING] if missing else []), *(_tick(name, tick, 2 if listed else 3) for tick in ticks)),
        tuple(values),
        (absent if missing else bottom, top),
        logarithmic,
        declared is not None,
    )


def _is_logarithmic(name: str, distinct: Sequence[float], declared: Range | None) -> bool:
    if declared is not None:
        return declared.log
    spans = distinct[-1] / distinct[0] >= _LOG_SPAN or _are_multiples(distinct)
    return name == "epsilon" or (not is_fraction(name) and spans)


def _are_multiples(distinct: Sequence[float]) -> bool:
    """Whether values that a spec lists are each as many times the one before, such as 32, 64 and 128."""
    if not 3 <= len(distinct) <= MOST_TICKS:
        return False
    ratios = [after / before for before, after in pairwise(distinct)]
    return min(ratios) > _TIMES and max(ratios) < _AS_MANY * min(ratios)


def _apart(values: Sequence[float], scale: Callable[[float], float]) -> list[float]:
    """The values without those whose ticks would touch the one before; the last one stays."""
    kept: list[float] = []
    room = _TOUCHING * (scale(values[-1]) - scale(values[0]))
    for value in reversed(values):
        if not kept or scale(kept[-1]) - scale(value) > room:
            kept.append(value)
    return kept[::-1]


def _with_ends(ticks: Sequence[float], low: float, high: float, scale: Callable[[float], float]) -> list[float]:
    """The ends of an axis, and the ticks between them that do not touch these."""
    room = _TOUCHING * (scale(high) - scale(low))
    inner = [tick for tick in ticks if scale(low) + room < scale(tick) < scale(high) - room]
    return [low, *inner, *([high] if high > low else [])]


def _tick(name: str, value: float, digits: int) -> str:
    if is_fraction(name):
        return f"{number(100 * value, digits)}%"
    is_round = value == float(f"{value:.{digits}g}")
    return number(value, digits) if name != "epsilon" or is_round else show_epsilon(value)


def _categories(name: str, label: str, values: Sequence[Any]) -> Axis:
    texts = [MISSING if value is None else setting(value) for value in values]
    names = sorted(set(texts))
    return Axis(
        name,
        label,
        tuple(float(names.index(text)) for text in texts),
        tuple(map(float, range(len(names)))),
        tuple(names),
        tuple(values),
        (0.0, max(len(names) - 1.0, 1.0)),
    )


def ranks(values: Any) -> Any:
    """Return the place of each value in ascending order, from 0; equal ones share theirs."""
    _, first, counts = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts) + (counts - 1) / 2)[first]
