r"""Counts of both classes up to each threshold of a score: one release for ROC curve, AUROC and calibration.

A row has one label, so that adding or removing it changes the counts of one class only: the two curves are released
side by side for the price of one (parallel composition). Everything else here is computed from them and costs nothing.
The thesis' Algorithm 10 spends 8 of L + 9 parts of its budget on expected and observed numbers of each group; here the
first are an integral over the curves, and the second their differences.

Shape letters: N thresholds, R rows, G groups.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from clipless.curves.ecdf import PublicSource
from clipless.curves.grid import Grid
from clipless.curves.release import Mechanism
from clipless.curves.smoothing import isotonic
from clipless.curves.tree import Change, Floats
from clipless.errors import DataError
from clipless.privacy.events import Relation
from clipless.privacy.randomness import RandomSource, SecureSource

_LEAST_EXPECTED = 0.5  # rows: groups with fewer expected of a class would blow the statistic up by noise alone


@dataclass(frozen=True, eq=False)
class ClassCurves:
    """Released counts of rows of each class whose score does not exceed each threshold."""

    grid: Grid  # thresholds of the score
    positives: Floats  # (N,) counts with noise; that of the last threshold is the class' own number
    negatives: Floats  # likewise
    mechanism: Mechanism  # the noise in each count
    relation: Relation  # which data sets are neighbours

    def smooth(self) -> "ClassCurves":
        """Return the closest curves that increase."""
        return replace(self, positives=isotonic(self.positives, None), negatives=isotonic(self.negatives, None))

    def roc(self) -> tuple[Floats, Floats]:
        """Return false and true positive rates, (N + 1,) each, from (1, 1) to (0, 0): scores above each threshold."""
        return _rates(self.negatives), _rates(self.positives)

    def auroc(self) -> float:
        """Return the area under the ROC curve, ties counting one half, in [0, 1]."""
        false, true = self.smooth().roc()
        return float(np.clip(np.sum((false[:-1] - false[1:]) * (true[:-1] + true[1:]) / 2.0), 0.0, 1.0))

    def calibration(self, groups: int = 10) -> "Calibration":
        """Return expected and observed rows in groups of about equal size, by quantiles of the released score.

        Scores are probabilities of the positive class.
        """
        curves = self.smooth()
        both = curves.positives + curves.negatives
        ends = np.searchsorted(both, both[-1] * np.arange(1, groups) / groups)
        bounds = np.unique(np.concatenate([[-1], ends, [len(both) - 1]]))
        thresholds = self.grid.thresholds
        middles = np.concatenate([thresholds[:1], (thresholds[:-1] + thresholds[1:]) / 2.0])
        sums = np.cumsum(np.diff(both, prepend=0.0) * middles)
        rows, positives, expected = (_between(curve, bounds) for curve in (both, curves.positives, sums))
        return Calibration(rows, expected, positives)

    def auroc_interval(self, confidence: float = 0.95, draws: int = 200) -> tuple[float, float]:
        """Return an interval for the area under the ROC curve of these rows, within [0, 1], that covers the noise.

        Areas are taken of counts that are not smoothed: to make curves increase pulls noisy ones to one side. Curves
        with as much noise again say how far it moves an area, and to which side (parametric bootstrap on the smoothed
        curves); so the interval is approximate. It contains what `auroc` estimates.
        """
        source, smooth, shown = PublicSource(), self.smooth(), self.auroc()
        moved = np.array([_area(self.noisy(source)) for _ in range(draws)]) - _area(smooth)
        middle, width = _area(self) - moved.mean(), float(ndtri(0.5 + confidence / 2.0)) * moved.std()
        return max(min(middle - width, shown), 0.0), min(max(middle + width, shown), 1.0)

    def noisy(self, source: RandomSource) -> "ClassCurves":
        """Return the curves, made to increase, with further noise of the mechanism."""
        curves, change = self.smooth(), class_change(self.relation)
        first, second = (self.mechanism.noise(len(self.grid), change, source) for _ in range(2))
        return replace(self, positives=curves.positives + first, negatives=curves.negatives + second)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Groups of rows in increasing order of their predicted probability."""

    rows: Floats  # (G,) how many
    expected: Floats  # (G,) the sum of their probabilities
    observed: Floats  # (G,) how many are positive

    @property
    def predicted(self) -> Floats:
        """Mean probability of each group."""
        return np.divide(self.expected, self.rows, out=np.zeros_like(self.rows), where=self.rows > 0)

    @property
    def rate(self) -> Floats:
        """Observed share of positives of each group, in [0, 1]."""
        shares = np.divide(self.observed, self.rows, out=np.zeros_like(self.rows), where=self.rows > 0)
        return np.clip(shares, 0.0, 1.0)

    def hosmer_lemeshow(self) -> float:
        """Return H (thesis, equation 6.5.1); groups expected to hold next to no row of a class count at half a row."""
        expected = np.maximum(self.expected, _LEAST_EXPECTED)
        others = np.maximum(self.rows - self.expected, _LEAST_EXPECTED)
        return float(np.sum((self.observed - self.expected) ** 2 * (1.0 / expected + 1.0 / others)))


def release_classes(
    scores_R: Floats,
    positive_R: NDArray[np.bool_],
    grid: Grid,
    mechanism: Mechanism,
    *,
    relation: Relation = Relation.ADD_OR_REMOVE_ONE,
    source: RandomSource | None = None,
) -> ClassCurves:
    """Release the counts of both classes up to each threshold.

    Args:
        scores_R: larger for rows that are likelier positive; each computed from its row and from public or released
            things alone.
        positive_R: labels.
        grid: thresholds, public; probabilities want one from 0 to 1.
        mechanism: noise, and what both curves together cost.
        relation: which data sets are neighbours.
        source: of the noise, secret; a fresh `clipless.privacy.randomness.SecureSource` by default.

    Guarantees:
        As `clipless.curves.ecdf.release_ecdf`, for both curves together. A replaced row may change its label: noise is
        then scaled for the larger of a move within one curve and of leaving one for the other.
    """
    scores_R, positive_R = np.asarray(scores_R, dtype=np.float64), np.asarray(positive_R)
    if positive_R.dtype != np.bool_ or positive_R.shape != scores_R.shape or scores_R.ndim != 1:
        raise DataError(f"Expected one boolean label for each score, got {positive_R.dtype} {positive_R.shape}")
    source, change = source or SecureSource(), class_change(relation)
    positives, negatives = (
        mechanism.release(grid.counts(scores_R[rows]), change, source) for rows in (positive_R, ~positive_R)
    )
    return ClassCurves(grid, positives, negatives, mechanism, relation)


def null_of_hosmer_lemeshow(curves: ClassCurves, groups: int = 10, draws: int = 200, seed: int = 0) -> Floats:
    """Return H of calibrated models under the same noise, sorted, (draws,): where H would lie without misfit.

    Labels are drawn with the released probabilities; the noise of the mechanism is added to both curves. The share of
    these that exceed H is its p-value.
    """
    generator, source = np.random.default_rng(seed), PublicSource(seed + 1)
    curves = curves.smooth()
    rows = np.maximum(np.round(np.diff(curves.positives + curves.negatives, prepend=0.0)), 0.0).astype(np.int64)
    probabilities = np.clip(curves.grid.thresholds, 0.0, 1.0)
    probabilities = np.concatenate([probabilities[:1], (probabilities[:-1] + probabilities[1:]) / 2.0])
    found = []
    for _ in range(draws):
        positives = generator.binomial(rows, probabilities)
        drawn = replace(
            curves,
            positives=np.cumsum(positives).astype(np.float64),
            negatives=np.cumsum(rows - positives).astype(np.float64),
        )
        found.append(drawn.noisy(source).calibration(groups).hosmer_lemeshow())
    return np.sort(found)


def class_change(relation: Relation) -> Change:
    """Return the largest change that one row makes in the curves of two classes."""
    return Change.RELABELLED if relation is Relation.REPLACE_ONE else Change.ADDED


def _area(curves: ClassCurves) -> float:
    """The area under the ROC curve of counts as they are, ties counting one half; with noise anywhere."""
    positives, negatives = (np.concatenate([[0.0], one]) for one in (curves.positives, curves.negatives))
    above = positives[-1] - (positives[:-1] + positives[1:]) / 2.0
    return float(np.diff(negatives) @ above / (max(positives[-1], 1.0) * max(negatives[-1], 1.0)))


def _rates(counts_N: Floats) -> Floats:
    """The share of a class above each threshold, beginning below all of them."""
    total = max(counts_N[-1], 1.0)
    rates: Floats = np.clip(1.0 - np.concatenate([[0.0], counts_N]) / total, 0.0, 1.0)
    return rates


def _between(curve_N: Floats, bounds: NDArray[np.int64]) -> Floats:
    """How much a curve grows between bounds; -1 is before the first threshold."""
    grown: Floats = np.diff(np.concatenate([[0.0], curve_N])[bounds + 1])
    return grown
