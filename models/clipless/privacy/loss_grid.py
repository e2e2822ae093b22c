"""Privacy loss distributions on a grid: composed with themselves by Fourier transform, many lengths at once.

``P`` and ``Q`` are the outputs on two neighbours. The grid holds P's mass at losses log(P/Q), rounded so that the
hockey-stick divergence ``H(epsilon) = E_P (1 - e^(epsilon - loss))_+`` never falls. Steps add losses, so masses are
convolved; the transform is taken once, and each number of steps costs one product and one inverse transform, on
the window that Chernoff's bound gives. All roundings and truncations are upwards but those of the transform itself;
they were measured at most 2^-54 per step in H and are paid by ``delta_slack``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import fft

from clipless.privacy.spending import LARGEST_LOSS

TAIL = 1e-15
"""Mass that truncation moves to infinite loss, as in dp_accounting."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def delta_slack(steps: int) -> float:
    """Return what rounding in the transforms may change in a divergence: more than was seen at 10 to 10^6 steps."""
    return steps * 2.0**-52


@dataclass(frozen=True, slots=True, eq=False)
class LossGrid:
    """Pessimistic privacy loss distribution of one step.

    Attributes:
        masses: probability under P of the loss ``(first + j) * width``.
        first: smallest loss, in widths.
        width: distance between losses.
        infinite: probability of an infinite loss.
    """

    masses: FloatArray
    first: int
    width: float
    infinite: float

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

    def epsilons(self, counts: Sequence[int], delta: float) -> list[float]:
        """Return epsilon after each number of steps; ``counts`` are positive and increase."""
        lows, highs = self._windows(np.array(counts, dtype=np.float64))
        size = max(int((highs - lows).max()) + 1, len(self.masses))
        size = 16 * fft.next_fast_len(size // 16 + 1, real=True)
        one = fft.rfft(self.masses, size)
        product, done, power, gap = np.ones_like(one), 0, one, 1
        epsilons = [0.0]  # each search starts from the epsilon before
        for count, low, high in zip(counts, lows.tolist(), highs.tolist(), strict=True):
            if math.isinf(epsilons[-1]):
                epsilons.append(math.inf)
                continue
            if count - done != gap:
                gap = count - done
                power = one**gap
            product, done = product * power, count
            # Every fold-th frequency is the transform of the masses added up modulo size / fold.
            fold = max(fold for fold in (1, 2, 4, 8, 16) if fold == 1 or size // fold > high - low)
            masses = fft.irfft(product[::fold], size // fold)
            start = min(max(low, math.floor(epsilons[-1] / self.width) - count * self.first), high)
            masses = np.concatenate((masses, masses))[start % len(masses) :][: high + 1 - start]
            losses = (np.arange(start, high + 1) + count * self.first) * self.width
            infinite = TAIL - math.expm1(count * math.log1p(-self.infinite))
            epsilons.append(_solve(losses, masses, infinite, delta - delta_slack(count), epsilons[-1]))
        return epsilons[1:]

    def _windows(self, counts: FloatArray) -> tuple[IntArray, IntArray]:
        """Return between which indices all but TAIL of the mass is after each number of steps, by Chernoff's bound."""
        size = len(self.masses)
        index, orders = np.arange(size), np.geomspace(0.05, 50.0, 40) / size
        above = np.array([math.log(self.masses @ np.exp(t * (index - size))) + t * size for t in orders])
        below = np.array([math.log(self.masses @ np.exp(-t * index)) for t in orders])
        room = math.log(2.0 / TAIL)
        high = ((counts[:, None] * above + room) / orders).min(axis=1)
        low = -((counts[:, None] * below + room) / orders).min(axis=1)
        return (
            np.maximum(np.floor(low), 0).astype(np.int64),
            np.minimum(np.ceil(high), counts * (size - 1)).astype(np.int64),
        )


def _solve(losses: FloatArray, masses: FloatArray, infinite: float, delta: float, least: float) -> float:
    """Return the smallest epsilon >= least at which infinite + sum of (1 - e^(epsilon - loss))_+ mass <= delta."""
    kept = int(np.searchsorted(losses, LARGEST_LOSS))
    infinite += float(masses[kept:].sum())
    if infinite > delta or kept == 0:
        return math.inf
    falling, shrunk = masses[:kept][::-1], np.exp(-losses[:kept][::-1])
    upper, lower = infinite + np.cumsum(falling), np.cumsum(falling * shrunk)
    too_much = np.flatnonzero(shrunk * (upper - delta) > lower)  # losses at which the divergence exceeds delta
    last = int(too_much[0]) - 1 if len(too_much) else kept - 1
    if last >= 0 and upper[last] > delta:
        return max(least, math.log((upper[last] - delta) / lower[last]))
    return float(losses[kept - 1 - max(last, 0)]) if len(too_much) else least
