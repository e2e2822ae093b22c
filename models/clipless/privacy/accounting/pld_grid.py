"""Privacy loss distributions on a grid, composed with themselves by Fourier transform.

``P`` and ``Q`` are the outputs on two neighbours. The grid holds P's mass at losses log(P/Q), rounded so that the
hockey-stick divergence ``H(epsilon) = E_P (1 - e^(epsilon - loss))_+`` never falls. Steps add losses, so masses are
convolved: the transform of T steps is the T-th power of that of one, and one inverse transform, on the window that
Chernoff's bound gives, brings the masses back. All roundings and truncations are upwards but those of the transform
and the power, which ``rounding_slack`` pays for.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import fft

from clipless.privacy.accounting.spending import LARGEST_LOSS, overflow_slack

_LEAST_SIZE = 1024
_ORDERS = np.geomspace(0.05, 50.0, 40)  # of Chernoff's bound, over the number of masses

TAIL = 1e-15
"""Mass that truncation moves to infinite loss, as in dp_accounting."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
ComplexArray = npt.NDArray[np.complex128]


def rounding_slack(steps: int, masses: FloatArray, size: int) -> float:
    """Return the most that rounding in transforms of a size changes in a divergence, whatever masses are left out.

    That is the sum of the errors of all masses. A power of a coefficient is off by some roundings of itself for each
    step, so that by Parseval the errors' norm is that many roundings of the masses' norm; their sum is sqrt(size) times
    that at most. It is least where the masses spread, and large where next to all of them have one loss, at tiny
    sampling rates. Against extended precision, noise 0.05 to 300, rates 1e-9 to 1 and 1 to 10^6 steps, errors added up
    to 1.3 roundings of 2^-52 per step at most; 4 are taken.

    Args:
        steps: exponent of the transforms.
        masses: all that these transforms gave.
        size: of the transforms.
    """
    return (steps + 16) * 2.0**-50 * math.sqrt(size) * float(np.linalg.norm(masses))


class LossGrid:
    """Pessimistic privacy loss distribution of one step.

    Args:
        masses: probability under P of the loss ``(first + j) * width``.
        first: smallest loss, in widths.
        width: distance between losses.
        infinite: probability of an infinite loss.
    """

    def __init__(self, masses: FloatArray, first: int, width: float, infinite: float) -> None:
        self.masses, self.first, self.width, self.infinite = masses, first, width, infinite
        self._transforms: dict[int, ComplexArray] = {}

    @classmethod
    def from_dots(cls, points: IntArray, deltas: FloatArray, width: float) -> "LossGrid":
        """Connect the dots (Doroshenko et al. 2022, arXiv 2207.04380, algorithm 1).

        Args:
            points: losses in widths, increasing.
            deltas: hockey-stick divergences there, not increasing.
            width: distance between losses of the grid.
        """
        gaps, falls = np.diff(points) * width, -np.diff(deltas)
        masses = np.zeros(points[-1] - points[0] + 1)
        masses[points - points[0]] = np.concatenate(([1.0 - deltas[0]], falls / -np.expm1(-gaps)))
        masses[points[:-1] - points[0]] -= falls / np.expm1(gaps)
        return cls(np.maximum(masses, 0.0), int(points[0]), width, float(deltas[-1]))

    def epsilon(self, steps: int, delta: float) -> float:
        """Return epsilon after at least one step; it depends on nothing that was asked before."""
        low, high = self._window(steps)
        if (low + steps * self.first) * self.width > LARGEST_LOSS:
            return math.inf
        losses, masses, slack = self._masses(steps, max(low, -steps * self.first), high)  # those below 0 do not count
        return _solve(losses, masses, self._infinite(steps), delta - slack)

    def profile(self, steps: int) -> tuple[FloatArray, FloatArray]:
        """Return increasing epsilons of either sign, and upper bounds of the hockey-stick divergences there.

        Where losses are too large for floating point the bound is 1.
        """
        losses, masses, slack = self.compose(steps)
        kept = np.abs(losses) <= LARGEST_LOSS
        if not kept.any():
            return np.array([0.0]), np.array([1.0])
        infinite = self._infinite(steps) + float(masses[losses > LARGEST_LOSS].sum()) + slack
        losses, masses = losses[kept], masses[kept]
        above = np.cumsum(masses[::-1])[::-1]
        shrunk = np.cumsum((masses * np.exp(-losses))[::-1])[::-1]
        deltas = infinite + above - np.exp(losses) * shrunk + len(masses) * 2.0**-51
        return losses, np.clip(deltas, 0.0, 1.0)

    def compose(self, steps: int) -> tuple[FloatArray, FloatArray, float]:
        """Return losses after some steps, increasing, the masses there, and the most that their errors add up to.

        The last holds what batches that overflow change, and not what the window leaves out or folds into it: at most
        TAIL each.
        """
        low, high = self._window(steps)
        return self._masses(steps, min(low, high), high)

    def _masses(self, steps: int, start: int, high: int) -> tuple[FloatArray, FloatArray, float]:
        """Return losses after some steps, from one index to another, their masses, and the slack of `compose`."""
        low, _ = self._window(steps)
        start = min(start, high)
        size = max(_LEAST_SIZE, 1 << (high - low).bit_length())
        size = 3 * size // 4 if 3 * size // 4 > high - low else size
        masses = fft.irfft(_power(self._transform(size), steps), size)
        slack = rounding_slack(steps, masses, size) + overflow_slack(steps)
        masses = np.concatenate((masses, masses))[start % size :][: high + 1 - start]
        lowest = steps * self.first
        return self.width * np.arange(lowest + start, lowest + high + 1, dtype=np.float64), masses, slack

    def _infinite(self, steps: int) -> float:
        """Mass at infinite loss, with what the window leaves out."""
        return TAIL - math.expm1(steps * math.log1p(-self.infinite))

    def _transform(self, size: int) -> ComplexArray:
        """Return the transform of the masses added up modulo ``size``."""
        if size not in self._transforms:
            folded = np.pad(self.masses, (0, -len(self.masses) % size)).reshape(-1, size).sum(axis=0)
            self._transforms[size] = fft.rfft(folded)
        return self._transforms[size]

    def _window(self, steps: int) -> tuple[int, int]:
        """Return between which indices all but TAIL of the mass is, by Chernoff's bound."""
        above, below = self._log_moments
        tail_bound, orders, largest = math.log(2.0 / TAIL), _ORDERS / len(self.masses), steps * (len(self.masses) - 1)
        high = float(((steps * above + tail_bound) / orders).min())
        low = -float(((steps * below + tail_bound) / orders).min())
        return max(math.floor(low), 0), min(math.ceil(high), largest)

    @cached_property
    def _log_moments(self) -> tuple[FloatArray, FloatArray]:
        """Logarithms of the moments of one step's index, up- and downwards, by order."""
        size = len(self.masses)
        index, orders = np.arange(size), _ORDERS / size
        above = np.array([math.log(self.masses @ np.exp(t * (index - size))) + t * size for t in orders])
        below = np.array([math.log(self.masses @ np.exp(-t * index)) for t in orders])
        return above, below


def lower_hull(alphas: FloatArray, deltas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the corners of the largest convex function that is nowhere above the points, and does not rise.

    A profile is convex in alpha = e^epsilon and falls: it lies below this function if it is nowhere above the points.
    Shapes: (P,), (P,) -> (C,), (C,).
    """
    deltas = np.minimum.accumulate(deltas)
    x, y = alphas.tolist(), deltas.tolist()  # whose items are read twenty times faster
    kept: list[int] = []
    for i in range(len(x)):
        while len(kept) > 1 and _is_above(x, y, kept[-2], kept[-1], i):
            kept.pop()
        kept.append(i)
    return alphas[kept], deltas[kept]


def _is_above(x: Sequence[float], y: Sequence[float], left: int, middle: int, right: int) -> bool:
    """Whether the middle point is not below the line through the others."""
    return (y[middle] - y[left]) * (x[right] - x[left]) >= (y[right] - y[left]) * (x[middle] - x[left])


def _power(base: ComplexArray, exponent: int) -> ComplexArray:
    """Return ``base ** exponent`` by squaring, in a fifth of numpy's time."""
    power = np.ones_like(base)
    while exponent:
        if exponent & 1:
            power = power * base
        exponent >>= 1
        if exponent:
            base = base * base
    return power


def _solve(losses: FloatArray, masses: FloatArray, infinite: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 at which infinite + sum of (1 - e^(epsilon - loss))_+ mass <= delta."""
    kept = int(np.searchsorted(losses, LARGEST_LOSS))
    infinite += float(masses[kept:].sum())
    if infinite > delta or kept == 0:
        return math.inf
    falling, shrunk = masses[:kept][::-1], np.exp(-losses[:kept][::-1])
    upper, lower = infinite + np.cumsum(falling), np.cumsum(falling * shrunk)
    too_much = np.flatnonzero(shrunk * (upper - delta) > lower)  # losses at which the divergence exceeds delta
    last = int(too_much[0]) - 1 if len(too_much) else kept - 1
    if last >= 0 and upper[last] > delta:
        return max(0.0, math.log((upper[last] - delta) / lower[last]))
    return float(losses[kept - 1 - max(last, 0)]) if len(too_much) else 0.0
