"""Draws that follow from one seed, and values that stand open in a spec now and then; see ``sweep_fuzz.py``."""

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

Section = dict[str, Any]


class Chance:
    """Draws of one seed, and values that stand open now and then."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def maybe(self, probability: float) -> bool:
        """Whether something with this probability happens."""
        return self.random.random() < probability

    def pick(self, values: Sequence[Any]) -> Any:
        """Return one of the values."""
        return self.random.choice(list(values))

    def several(self, values: Sequence[Any], most: int = 3) -> list[Any]:
        """Return one or more of the values, each once."""
        return self.random.sample(list(values), self.random.randint(1, min(most, len(values))))

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from low to high."""
        return self.random.randint(low, high)

    def name(self, values: Sequence[Any], is_open: float = 0.15) -> Any:
        """Return one of the values, or a list of some."""
        chosen = self.several(values)
        return chosen if len(chosen) > 1 and self.maybe(is_open) else chosen[0]

    def count(self, low: int, high: int, step: int = 1, is_open: float = 0.2) -> Any:
        """Return a whole number, a list of some, or a range."""
        values = range(low, high + 1, step)
        if len(values) < 2 or not self.maybe(is_open):
            return self.pick(values)
        if self.maybe(0.5):
            return sorted(self.several(values))
        return {"int": [low, values[-1]], **({"step": step} if step > 1 else {})}

    def number(self, low: float, high: float, is_open: float = 0.2, *, log: bool = True) -> Any:
        """Return a number, a list of some, or a range, in its logarithm or not."""
        one = [float(f"{self._between(low, high, log=log):.3g}") for _ in range(3)]
        if not self.maybe(is_open):
            return one[0]
        if self.maybe(0.4):
            return sorted(set(one))
        return {"log" if log and low > 0 else "uniform": [low, high]}

    def _between(self, low: float, high: float, *, log: bool) -> float:
        if log and low > 0:
            return float(np.exp(self.random.uniform(np.log(low), np.log(high))))
        return self.random.uniform(low, high)


def listed(value: Any) -> list[Any]:
    """Return a value that may be a list of values as one."""
    return value if isinstance(value, list) else [value]
