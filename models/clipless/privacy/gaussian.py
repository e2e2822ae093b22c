r"""Gaussian privacy in closed form, without torch or scipy: to look at a budget takes no seconds of imports.

A mechanism with the signal mu is one that observations of N(mu, 1) dominate: its hockey-stick divergence at epsilon is
at most (Balle and Wang 2018, theorem 8)

    delta_G(mu; epsilon) = Phi(-epsilon / mu + mu / 2) - e^epsilon Phi(-epsilon / mu - mu / 2).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SLACK_SHARE = 0.05
"""Share of the delta of an adaptive budget that is slack: with 0.01 to 0.1, trainings cost the same within 0.5 %."""

_ROUNDING = 1e-11  # relative, of the normal distribution function: ten times what its arguments, up to 40, leave open
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True, slots=True)
class GaussianCost:
    """What a mechanism takes of a budget of Gaussian privacy, or what there is to take: two numbers that add up."""

    square: float = 0.0  # of the signal; infinite where no signal is enough
    slack: float = 0.0  # probability with which the mechanism may show everything

    @classmethod
    def total(cls, costs: Iterable["GaussianCost"]) -> "GaussianCost":
        """Return what mechanisms take together, rounded up."""
        costs = tuple(costs)
        square = math.fsum(cost.square for cost in costs) * (1.0 + 2.0**-50)
        return cls(square, math.fsum(cost.slack for cost in costs) * (1.0 + 2.0**-50))


def gaussian_divergence(signal: float, epsilon: float) -> float:
    """Return the divergence of a signal >= 0 at epsilon >= 0, rounded up.

    >>> f"{gaussian_divergence(1.0, 1.0):.6f}"
    '0.126937'
    """
    if signal == 0.0:
        return 0.0
    first = _normal(-epsilon / signal + signal / 2)
    second = 0.0 if epsilon > _LARGEST_EXPONENT else math.exp(epsilon) * _normal(-epsilon / signal - signal / 2)
    return min(max(first - second, 0.0) + _ROUNDING * first, 1.0)


def largest_signal(epsilon: float, delta: float, *, most: float = 2.0**10) -> float:
    """Return the largest signal, up to ``most``, whose divergence at epsilon is at most delta, rounded down.

    >>> f"{largest_signal(3.0, 0.95e-5):.3f}"
    '0.717'
    """
    return _last(0.0, most, lambda signal: gaussian_divergence(signal, epsilon) <= delta)[0]


def smallest_epsilon(signal: float, delta: float) -> float:
    """Return the smallest epsilon at which the divergence of a signal is at most delta > 0, rounded up.

    >>> f"{smallest_epsilon(0.721, 0.99e-5):.2f}"
    '3.01'
    """
    if signal == 0.0:
        return 0.0
    most = signal**2 + 100.0 * signal  # where nothing of it is left that a float can hold
    return _last(0.0, most, lambda epsilon: gaussian_divergence(signal, epsilon) > delta)[1]


def _last(low: float, high: float, holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return neighbours between which a condition stops to hold; it holds at the first unless that is ``low``."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))
