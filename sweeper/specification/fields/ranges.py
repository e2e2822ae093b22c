"""What stands open in a spec: a range or a list of choices; anything else is a fixed value.

Plain values only; the search library sees them through ``space.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sweeper.records import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Every number from ``low`` to ``high``, ends included."""

    low: float
    high: float
    log: bool = False  # drawn uniformly in the logarithm
    integer: bool = False  # whole numbers only
    # distance from one value to the next, counted from ``low``; ``None`` for 1 (integers) or no grid
    step: float | None = None

    def __contains__(self, value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not self.low <= value <= self.high or (self.integer and value != int(value)):
            return False
        steps = 0.0 if self.step is None else (value - self.low) / self.step
        return abs(steps - round(steps)) < 1e-8

    def size(self) -> int | None:
        """Return the number of values, ``None`` when there is no grid."""
        step = 1 if self.integer and self.step is None else self.step
        if step is None:
            return None
        return int((Decimal(str(self.high)) - Decimal(str(self.low))) // Decimal(str(step))) + 1

    def extremes(self) -> tuple[float, float]:
        """Return the smallest and the largest value."""
        return self.low, self.high

    def to_plain(self) -> dict[str, Any]:
        """Return the range as a spec writes it."""
        kinds = ("log", "log_int") if self.log else ("uniform", "int")
        ends = {kinds[self.integer]: [self.low, self.high]}
        return ends if self.step is None else {**ends, "step": self.step}


@dataclass(frozen=True, slots=True)
class Choices:
    """One of several values."""

    values: tuple[Scalar, ...]

    def __contains__(self, value: Any) -> bool:
        return any(value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in self.values)

    def size(self) -> int:
        """Return the number of values."""
        return len(self.values)

    def extremes(self) -> tuple[Any, Any]:
        """Return the smallest and the largest value."""
        ordered: Sequence[Any] = sorted(self.values)
        return ordered[0], ordered[-1]

    def to_plain(self) -> list[Scalar]:
        """Return the choices as a spec writes them."""
        return list(self.values)


Fixed = tuple[float, ...]  # a number for each class
Open = Scalar | Fixed | Range | Choices


def to_plain(value: Any) -> Any:
    """Return a value as a spec writes it."""
    return value.to_plain() if hasattr(value, "to_plain") else value


def largest(value: Any) -> Any:
    """Return the largest value that the search could choose."""
    return value.extremes()[1] if isinstance(value, Range | Choices) else value
