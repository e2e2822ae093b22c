"""A private empirical distribution function, and the numbers that are read off it.

F(t) is the share of rows whose value does not exceed t. Thesis "Enhancing differentially private machine learning",
chapter 6; everything but `release_ecdf` is computed from what was released, and costs nothing.

Shape letters: N thresholds, R rows, Q quantiles.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log, sqrt

import numpy as np

from clipless.curves.grid import Grid
from clipless.curves.release import Mechanism, change_of
from clipless.curves.tree import Change, Floats
from clipless.errors import DataError
from clipless.privacy.events import Relation
from clipless.privacy.randomness import RandomSource, SecureSource

_USUAL_RISK = 0.025  # for which draws of the noise are asked for; a smaller one takes more of them in proportion
_MOST_DRAWS = 40_000  # of the noise, to simulate it: a minute or several


@dataclass(frozen=True, eq=False)
class PrivateEcdf:
    """A released distribution function."""

    grid: Grid  # the thresholds
    shares: Floats  # (N,) F at each threshold; 1 at the last one. Not yet increasing, see `clipless.curves.smoothing`
    population: int  # the public number of rows
    mechanism: Mechanism  # the noise in it
    relation: Relation  # which data sets are neighbours

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in a share."""
        return self.mechanism.deviation(len(self.grid) - 1, change_of(self.relation)) / self.population

    def __call__(self, values: Floats) -> Floats:
        """Return F at any values: that of the last threshold which does not exceed them, 0 before the first."""
        places = np.searchsorted(self.grid.thresholds, np.asarray(values, dtype=np.float64), side="right")
        return np.concatenate([[0.0], self.shares])[places]

    def inverse(self, share: float) -> float:
        """Return a threshold at which F reaches ``share``, by bisection (Algorithm 9); the least one if F increases."""
        low, high = 0, len(self.grid) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.shares[middle] < share else (low, middle)
        return float(self.grid.thresholds[low])

    def quantiles(self, shares_Q: Sequence[float]) -> Floats:
        """Return `inverse` of each share, (Q,)."""
        return np.array([self.inverse(share) for share in shares_Q])

    def histogram(self, edges: Sequence[float]) -> Floats:
        """Return the shares of rows above each edge up to the next one."""
        return np.diff(self(np.asarray(edges, dtype=np.float64)))

    def band(self, confidence: float = 0.95, *, draws: int = 400, sampling: bool = False) -> float:
        """Return a half-width: F lies within it of the truth at all thresholds at once with that probability.

        The noise's law is public: its largest absolute value is simulated.

        Args:
            confidence: in (0, 1).
            draws: of the noise, at least; see `largest_noise`.
            sampling: of the distribution that the rows are independent draws of, not of the rows at hand: adds the
                bound of Dvoretzky, Kiefer, Wolfowitz and Massart, half of the risk for each.

        Raises:
            DataError: a confidence out of (0, 1), or one that no simulation reaches.
        """
        if not 0.0 < confidence < 1.0:
            raise DataError(f"Expected a confidence in (0, 1), got {confidence!r}")
        risk = (1.0 - confidence) / (2.0 if sampling else 1.0)
        noise = largest_noise(self.mechanism, len(self.grid) - 1, change_of(self.relation), risk, draws=draws)
        return noise / self.population + (sampling_width(self.population, risk) if sampling else 0.0)


def release_ecdf(
    values_R: Floats,
    grid: Grid,
    mechanism: Mechanism,
    *,
    population: int,
    relation: Relation = Relation.ADD_OR_REMOVE_ONE,
    source: RandomSource | None = None,
) -> PrivateEcdf:
    """Release the distribution function of values of private rows.

    Args:
        values_R: one value for each row, computed from that row and from public or released things alone.
        grid: thresholds, public.
        mechanism: `clipless.curves.release.Laplace` or ``Gaussian``.
        population: N, public; the number of rows as declared, not as counted from the data.
        relation: which data sets are neighbours.
        source: of the noise, secret; a fresh `clipless.privacy.randomness.SecureSource` by default.

    Guarantees:
        Under ``relation`` all shares together are epsilon-DP (`Laplace`), or one Gaussian mechanism whose event is
        ``mechanism.event(relation)`` (`Gaussian`), whatever the values are: `clipless.curves.tree` and
        `clipless.curves.toeplitz` have the reasons. Values that are not finite, or beyond the grid, count at its ends.
    """
    if not population >= 1:
        raise DataError(f"Expected population >= 1, got population={population!r}")
    counts_N = grid.counts(np.asarray(values_R, dtype=np.float64))
    released = mechanism.release(counts_N[:-1], change_of(relation), source or SecureSource())
    shares = np.append(released / population, 1.0)  # the last count is public
    return PrivateEcdf(grid, shares, population, mechanism, relation)


def largest_noise(
    mechanism: Mechanism, leaves: int, change: Change, risk: float, *, draws: int = 400, curves: int = 1
) -> float:
    """Return what the noise of so many curves exceeds in absolute value anywhere with a probability of at most a risk.

    The noise's law is public: its largest absolute value is simulated, and the rank of the quantile rounded up. The
    probability is over these draws as well. The largest of n draws is exceeded with 1 / (n + 1): a small risk takes
    1 / risk - 1 of them at least. By default there are 400, and 10 / risk for risks below 1 / 40, so that ten lie
    beyond the bound and it hardly depends on which were drawn; a thousand take a second to ten, once in a process.

    Raises:
        DataError: a risk that takes too many draws.
    """
    needed = max(draws, ceil(max(1.0, _USUAL_RISK * draws) / risk) - 1)
    if needed > _MOST_DRAWS:
        raise DataError(f"Expected a risk that {_MOST_DRAWS} draws tell, got {risk!r}; ask for less confidence")
    rank = min(needed, ceil((1.0 - risk) * (needed + 1)))
    return _largest_noises(mechanism, leaves, change, needed, curves)[rank - 1]


@lru_cache(maxsize=64)
def _largest_noises(mechanism: Mechanism, leaves: int, change: Change, draws: int, curves: int) -> tuple[float, ...]:
    source = PublicSource()
    noises = (np.concatenate([mechanism.noise(leaves, change, source) for _ in range(curves)]) for _ in range(draws))
    return tuple(sorted(float(np.abs(noise).max()) for noise in noises))


def sampling_width(rows: float, risk: float) -> float:
    """Return how far a distribution function of rows strays from that which they are independent draws of.

    Dvoretzky, Kiefer, Wolfowitz and Massart: at all thresholds at once, except with a probability of at most a risk.
    """
    return sqrt(log(2.0 / risk) / (2.0 * rows))


class PublicSource(RandomSource):
    """Reproducible draws of public laws, to simulate noise with; never for noise that hides anything."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = np.random.default_rng(seed)

    @property
    def secure(self) -> bool:
        """False."""
        return False

    def random_bytes(self, count: int) -> bytearray:
        """Return pseudorandom bytes."""
        return bytearray(self._generator.bytes(count))
