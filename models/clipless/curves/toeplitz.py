r"""Correlated Gaussian noise for counts up to a threshold: the square root of summation as a matrix mechanism.

With A the lower triangular matrix of ones and r_k = binom(2k, k) / 4^k, the Toeplitz matrix S with r_0, r_1, .. from
the diagonal downwards has S S = A. Releasing A h + S z = S (S h + z) of a histogram h is the Gaussian mechanism on
S h, whose sensitivity is the largest norm of what one row changes in it: a column of S, or the difference of two
columns where a row's value moves (Fichtenberger, Henzinger and Upadhyay, "Constant matters", 2023: within a small
additive constant of the least largest variance that any such factorisation has).

Shape letters: N thresholds.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.signal import fftconvolve

from clipless.curves.tree import MOST_LEAVES, Change, Floats
from clipless.errors import AccountingError

_EXACT = 2048  # up to here all pairs of columns are looked at
_ROUNDING = 1.0 + 2.0**-30


@dataclass(frozen=True, slots=True)
class SquareRoot:
    """Noise S z on N counts."""

    leaves: int  # N

    def __post_init__(self) -> None:
        if not 1 <= self.leaves <= MOST_LEAVES:
            raise AccountingError(f"Expected 1 to {MOST_LEAVES} thresholds, got {self.leaves!r}")

    def gaussian_change(self, change: Change) -> float:
        """Return the largest squared norm of the change that one row makes in S h, rounded up."""
        return change.largest(_change(self.leaves, False), _change(self.leaves, True)) * _ROUNDING

    def gaussian_variance(self, change: Change) -> float:
        """Largest variance of the noise of a count at noise multiplier 1."""
        return float(np.sum(_entries(self.leaves) ** 2)) * self.gaussian_change(change)

    @property
    def spreads(self) -> float:
        """How many times larger than the largest normal number the noise of a count can be, at most."""
        return float(np.sum(_entries(self.leaves)))

    def spread(self, normals_N: Floats) -> Floats:
        """Return S z, (N,)."""
        sums: Floats = fftconvolve(_entries(self.leaves), normals_N)[: self.leaves]
        return sums


@cache
def _entries(count: int) -> Floats:
    k = np.arange(1, count)
    entries = np.concatenate([[1.0], np.cumprod((2.0 * k - 1.0) / (2.0 * k))])
    entries.flags.writeable = False
    return entries


@cache
def _change(count: int, moved: bool) -> float:
    r = _entries(count)
    norms = np.cumsum(r * r)  # of a column with so many entries, less one
    if not moved or count == 1:
        return float(norms[-1])
    if count > _EXACT:  # entries are positive, so are products of columns
        return float(2.0 * norms[-1])
    largest = norms[-1]
    for lag in range(1, count):
        shared = np.cumsum(r[: count - lag] * r[lag:])
        largest = max(largest, float(np.max(norms[lag:] + norms[: count - lag] - 2.0 * shared)))
    return float(largest)
