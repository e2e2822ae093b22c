"""Bands around curves of two classes: true at every threshold at once, noise included.

Isotonic regression brings no curve farther from one that increases, in the largest difference; so what bounds the noise
bounds the error of the smoothed curves.

Shape letters: N thresholds, G groups.
"""

from dataclasses import dataclass

import numpy as np

from clipless.curves.classes import Calibration, ClassCurves, class_change
from clipless.curves.ecdf import largest_noise, sampling_width
from clipless.curves.tree import Floats
from clipless.errors import DataError


@dataclass(frozen=True, slots=True)
class RocBand:
    """Bounds of false and true positive rates at each threshold, (N + 1,) each, as `ClassCurves.roc` orders them."""

    false_low: Floats
    false_high: Floats
    true_low: Floats
    true_high: Floats
    confidence: float  # with which all of them hold at once, of the distribution that the rows are a sample of

    @property
    def auroc(self) -> tuple[float, float]:
        """Bounds of the area under the curve of the score as it is rounded to the thresholds."""
        return _area(self.false_high, self.true_low), _area(self.false_low, self.true_high)


def width_of_counts(curves: ClassCurves, risk: float, *, draws: int = 400) -> float:
    """Return by how much a count of either curve may be wrong, at any threshold, except with a probability."""
    change = class_change(curves.relation)
    return largest_noise(curves.mechanism, len(curves.grid), change, risk, draws=draws, curves=2)


def roc_band(curves: ClassCurves, confidence: float = 0.95, *, draws: int = 400) -> RocBand:
    """Return the band of the ROC curve: half of the risk is the noise's, the other half that the rows are a sample.

    Raises:
        DataError: a confidence out of (0, 1), or one that no simulation reaches.
    """
    risk = _risk(confidence)
    width, smooth = width_of_counts(curves, risk / 2.0, draws=draws), curves.smooth()
    rates = (_rates(counts, width, risk / 4.0) for counts in (smooth.negatives, smooth.positives))
    (false_low, false_high), (true_low, true_high) = rates
    return RocBand(false_low, false_high, true_low, true_high, confidence)


def calibration_band(
    curves: ClassCurves, found: Calibration, confidence: float = 0.95, *, draws: int = 400
) -> tuple[Floats, Floats]:
    """Return (G,) bounds of the rate of positives among the released rows of each group.

    They cover the noise in the observed positives, at whatever thresholds the groups end. That the rows are a sample is
    the matter of `clipless.curves.classes.null_of_hosmer_lemeshow`.
    """
    width = 2.0 * width_of_counts(curves, _risk(confidence), draws=draws)
    rows = np.maximum(found.rows, 1.0)
    return np.clip((found.observed - width) / rows, 0.0, 1.0), np.clip((found.observed + width) / rows, 0.0, 1.0)


def _risk(confidence: float) -> float:
    if not 0.0 < confidence < 1.0:
        raise DataError(f"Expected a confidence in (0, 1), got {confidence!r}")
    return 1.0 - confidence


def _rates(counts_N: Floats, width: float, risk: float) -> tuple[Floats, Floats]:
    """Bounds of the share above each threshold, beginning below all of them."""
    total = counts_N[-1]
    least = max(total - width, 1.0)
    sampled = sampling_width(least, risk)
    below = np.clip(counts_N + width, 0.0, None) / least, np.clip(counts_N - width, 0.0, None) / max(total + width, 1.0)
    low, high = (
        np.clip(1.0 - share + sign * sampled, 0.0, 1.0) for share, sign in zip(below, (-1.0, 1.0), strict=True)
    )
    low[-1] = high[-1] = 0.0  # no row lies above the last threshold, where all count
    return np.concatenate([[1.0], low]), np.concatenate([[1.0], high])


def _area(false: Floats, true: Floats) -> float:
    return float(np.clip(np.sum((false[:-1] - false[1:]) * (true[:-1] + true[1:]) / 2.0), 0.0, 1.0))
