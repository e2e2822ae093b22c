"""Thresholds at which a curve is released: public numbers, never taken from the rows."""

from dataclasses import dataclass

import numpy as np

from clipless.curves.tree import MOST_LEAVES, Floats
from clipless.errors import DataError


@dataclass(frozen=True, eq=False)
class Grid:
    """Increasing thresholds tau_1 < .. < tau_N.

    A value counts at every threshold that it does not exceed; values beyond the last one count there, values below the
    first one everywhere.

    Raises:
        DataError: thresholds that are not finite, or do not increase.
    """

    thresholds: Floats  # (N,) finite numbers

    def __post_init__(self) -> None:
        found = np.asarray(self.thresholds, dtype=np.float64)
        if found.ndim != 1 or not 2 <= len(found) <= MOST_LEAVES or not np.isfinite(found).all():
            raise DataError(f"Expected 2 to {MOST_LEAVES} finite thresholds, got an array of shape {found.shape}")
        if not (np.diff(found) > 0).all():
            raise DataError("Expected thresholds that increase, got some that do not")
        object.__setattr__(self, "thresholds", found)

    @classmethod
    def linear(cls, low: float, high: float, count: int) -> "Grid":
        """Return ``count`` thresholds at equal distances, both ends among them."""
        _check_ends(low, high, count)
        return cls(np.linspace(low, high, count))

    @classmethod
    def logarithmic(cls, low: float, high: float, count: int) -> "Grid":
        """Return ``count`` thresholds at equal ratios: for relative errors of positive values."""
        _check_ends(low, high, count)
        if not low > 0:
            raise DataError(f"Expected a positive lower end of a logarithmic grid, got low={low!r}")
        return cls(np.geomspace(low, high, count))

    def __len__(self) -> int:
        """Return N."""
        return len(self.thresholds)

    def counts(self, values_R: Floats) -> Floats:
        """Return how many values do not exceed each threshold, (N,); the last count is that of all.

        A value that is not a number counts at the last threshold only, whatever the other values are.
        """
        places_R = np.searchsorted(self.thresholds, values_R, side="left")  # NaN sorts behind everything
        found = np.bincount(np.minimum(places_R, len(self) - 1), minlength=len(self))
        return np.cumsum(found).astype(np.float64)


def _check_ends(low: float, high: float, count: int) -> None:
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise DataError(f"Expected finite ends low < high of a grid, got {low!r} and {high!r}")
    if not 2 <= count <= MOST_LEAVES:
        raise DataError(f"Expected 2 to {MOST_LEAVES} thresholds, got {count!r}")
