"""Certified accuracy at every radius in one release.

A row's signed radius is its certified radius if it is classified rightly, and minus infinity otherwise. Certified
accuracy at r is the share of rows whose signed radius is at least r: the distribution function of minus the signed
radius, at minus r. One release gives it at every threshold, accuracy itself among them.

Shape letters: N radii, R rows.
"""

from dataclasses import dataclass

import numpy as np

from clipless.curves.ecdf import PrivateEcdf, release_ecdf
from clipless.curves.grid import Grid
from clipless.curves.release import Mechanism
from clipless.curves.smoothing import Way, smooth
from clipless.curves.tree import Floats
from clipless.errors import DataError
from clipless.privacy.events import Relation
from clipless.privacy.randomness import RandomSource


@dataclass(frozen=True, eq=False)
class CertifiedCurve:
    """Certified accuracy at each radius."""

    curve: PrivateEcdf  # the distribution function of minus the signed radius

    @property
    def radii(self) -> Floats:
        """(N,) increasing, from 0."""
        return -self.curve.grid.thresholds[-2::-1]

    @property
    def certified(self) -> Floats:
        """(N,) certified accuracy at each radius."""
        return self.curve.shares[-2::-1]

    @property
    def accuracy(self) -> float:
        """Accuracy: certified accuracy at radius 0."""
        return float(self.certified[0])

    def band(self, confidence: float = 0.95) -> tuple[Floats, Floats]:
        """Return two curves of (N,) shares, between which certified accuracy lies at all radii at once.

        They stand around the smoothed curve, and cover the noise and that the rows are a sample: true of the rows'
        distribution with the probability ``confidence``.
        """
        width, middle = self.curve.band(confidence, sampling=True), self.smooth().certified
        return np.clip(middle - width, 0.0, 1.0), np.clip(middle + width, 0.0, 1.0)

    def smooth(self, way: Way = "isotonic") -> "CertifiedCurve":
        """Return the curve made to fall with the radius."""
        return CertifiedCurve(smooth(self.curve, way))


def release_certified(
    radii_R: Floats,
    correct_R: "np.ndarray[tuple[int], np.dtype[np.bool_]]",
    at: Floats,
    mechanism: Mechanism,
    *,
    population: int,
    relation: Relation = Relation.ADD_OR_REMOVE_ONE,
    source: RandomSource | None = None,
) -> CertifiedCurve:
    """Release certified accuracy at the radii ``at``.

    Args:
        radii_R: certified radius of each row's prediction, >= 0, each computed from its row and from public or released
            things alone.
        correct_R: whether the prediction is right.
        at: (N,) increasing radii from 0, public.
        mechanism: noise, and what the curve costs.
        population: the public number of rows.
        relation: which data sets are neighbours.
        source: of the noise.

    Guarantees:
        As `clipless.curves.ecdf.release_ecdf`.
    """
    at = np.asarray(at, dtype=np.float64)
    if at.ndim != 1 or len(at) < 1 or at[0] != 0.0:
        raise DataError("Expected increasing radii from 0 on, got others")
    signed = np.where(np.asarray(correct_R), np.asarray(radii_R, dtype=np.float64), -np.inf)
    grid = Grid(np.append(-at[::-1], 1.0))  # wrong ones lie beyond all radii
    released = release_ecdf(
        np.where(np.isnan(signed), np.inf, -signed),
        grid,
        mechanism,
        population=population,
        relation=relation,
        source=source,
    )
    return CertifiedCurve(released)
