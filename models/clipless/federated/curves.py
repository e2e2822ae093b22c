"""Scores and certified radii of parties' rows as places in a public domain, and released sums as `clipless.curves`.

Shape letters: R rows, N thresholds of the domain.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clipless.curves.certified import CertifiedCurve
from clipless.curves.classes import ClassCurves
from clipless.curves.ecdf import PrivateEcdf
from clipless.curves.grid import Grid
from clipless.curves.tree import Floats
from clipless.errors import DataError
from clipless.federated.query import MOST_LEVELS, PartyRows, Query, places
from clipless.federated.ustat import Sums
from clipless.privacy.events import Relation


@dataclass(frozen=True, eq=False)
class Domain:
    """All thresholds that may be asked for, public."""

    levels: int  # n
    thresholds: Floats  # (2^n,) increasing

    def __post_init__(self) -> None:
        if not 2 <= self.levels <= MOST_LEVELS or self.thresholds.shape != (2**self.levels,):
            raise DataError(f"Expected 2^n thresholds, 2 <= n <= {MOST_LEVELS}, got n={self.levels!r}")

    @classmethod
    def probabilities(cls, levels: int) -> "Domain":
        """Return 2^n thresholds from 0 to 1."""
        return cls(levels, np.linspace(0.0, 1.0, _size(levels)))

    @classmethod
    def radii(cls, levels: int, largest: float) -> "Domain":
        """Return thresholds of minus the signed radius: from minus the largest to 0, and one behind for wrong ones."""
        if not 0.0 < largest < float("inf"):
            raise DataError(f"Expected a positive largest radius, got {largest!r}")
        return cls(levels, np.append(np.linspace(-largest, 0.0, _size(levels) - 1), largest))

    def scores(self, scores_R: Floats, positive_R: NDArray[np.bool_]) -> PartyRows:
        """Return rows by their score, those of the positive class in group 1."""
        return PartyRows(places(self.thresholds, scores_R), np.asarray(positive_R).astype(np.int64))

    def signed_radii(self, radii_R: Floats, correct_R: NDArray[np.bool_]) -> PartyRows:
        """Return rows by minus their certified radius, those that are decided wrongly behind all.

        A row is certified within its radius, not at it, as in the scores of a sweep; at radius 0 it counts if right.
        """
        radii_R = np.asarray(radii_R, dtype=np.float64)
        strict_R = np.where(radii_R > 0.0, np.nextafter(radii_R, 0.0), radii_R)
        signed = np.where(np.asarray(correct_R), -strict_R, np.inf)
        return PartyRows(places(self.thresholds, signed), np.zeros(len(signed), dtype=np.int64))

    def score_query(self, count: int, epsilon: float, relation: Relation) -> Query:
        """Return the query for the curves of two classes at ``count`` thresholds, the ends among them."""
        return Query(_spread(2**self.levels, count), 2, epsilon, relation)

    def radius_query(self, count: int, epsilon: float, relation: Relation) -> Query:
        """Return the query for certified accuracy at ``count`` radii, 0 and the largest among them."""
        return Query(_spread(2**self.levels - 1, count), 1, epsilon, relation)

    def class_curves(self, query: Query, sums: Sums) -> ClassCurves:
        """Return released counts of both classes."""
        negatives, positives = sums.counts
        grid = Grid(self.thresholds[list(query.thresholds)])
        return ClassCurves(grid, positives, negatives, sums.mechanism, query.relation)

    def certified_curve(self, query: Query, sums: Sums, population: int) -> CertifiedCurve:
        """Return released certified accuracy: the answer to a `radius_query` over a public number of rows."""
        if not population >= 1:
            raise DataError(f"Expected population >= 1, got population={population!r}")
        grid = Grid(np.append(self.thresholds[list(query.thresholds)], self.thresholds[-1]))
        shares = np.append(sums.counts[0] / population, 1.0)
        return CertifiedCurve(PrivateEcdf(grid, shares, population, sums.mechanism, query.relation))


def _size(levels: int) -> int:
    return int(2 ** min(max(levels, 0), MOST_LEVELS))


def _spread(size: int, count: int) -> tuple[int, ...]:
    if not 2 <= count <= size:
        raise DataError(f"Expected 2 to {size} thresholds, got {count!r}")
    return tuple(int(place) for place in np.unique(np.round(np.linspace(0, size - 1, count)).astype(np.int64)))
