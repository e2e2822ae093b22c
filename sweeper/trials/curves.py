"""Whole curves of private test rows: one paid release for each point of the front, and everything that it tells.

Behind `release_curves` all is computed from the released counts: rates, areas, calibration and bands cost nothing.
A privacy unit with several rows enters with one of them, drawn for this release alone: what enters are independent
draws, as bands and tests take them to be.

Shape letters: B rows, K logits, N thresholds.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clipless.certificates.certify import (
    binary_scores,
    certified_radii,
    decisions,
    float64_logits,
    row_by_row,
)
from clipless.certificates.outputs import encoding_error
from clipless.certificates.radii import parse_radius
from clipless.curves.bands import calibration_band, roc_band
from clipless.curves.certified import CertifiedCurve, release_certified
from clipless.curves.classes import ClassCurves, null_of_hosmer_lemeshow, release_classes
from clipless.datasets import Metadata, Split
from clipless.errors import AccountingError
from clipless.network import Network
from clipless.privacy.randomness import RandomSource, SecureSource
from clipless.privacy.sampling import draw_rows
from sweeper.privacy.evaluation.curve_noise import CONFIDENCE
from sweeper.privacy.evaluation.paid_scores import ScoreNoise
from sweeper.records import ConfigValues, ReleasedCurves, ScoreCurves
from sweeper.specification.objectives import radius_text

_COUNT_DIGITS, _SHARE_DIGITS = 2, 5  # that are written down


def release_curves(
    model: Network,
    split: Split,
    features: Tensor | None,
    noise: ScoreNoise,
    declared: Metadata,
    *,
    temperature: float = 1.0,
    source: RandomSource | None = None,
) -> ReleasedCurves:
    """Release the curves of a model on private test rows.

    Args:
        model: what is scored.
        split: the test rows.
        features: their `clipless.certificates.certify.float64_features`.
        noise: of the sweep; says what is released, and with how much noise.
        declared: what is known of the data.
        temperature: that of the loss, by which logits are divided to make them probabilities.
        source: of the noise, secret; a fresh secure one by default.

    Raises:
        AccountingError: the sweep declares no noise of curves.

    Guarantees:
        One call is one release of ``noise.paid_test(1)``: each unit enters with one row, whose values are its own,
        given the model, and the squared reciprocal multipliers of the curves add up to that of the event.
    """
    if noise.curves is None:
        raise AccountingError("Expected noise of curves, got none; set privacy.curve_noise")
    curves, source = noise.curves, source or SecureSource()
    rows_B = draw_rows(torch.arange(len(split), device=split.y.device), split.offsets, source)
    logits_BK, y_B = float64_logits(model, split.x, features=features, alone=True)[rows_B], split.y[rows_B]
    radius_B = certified_radii(model, logits_BK, y_B)
    radius_B = (radius_B - encoding_error(split.x[rows_B], radius_B)) / declared.input_gain
    certified = release_certified(
        _strict(radius_B.cpu().numpy()),
        (decisions(logits_BK) == y_B).cpu().numpy(),
        np.array(curves.radii),
        curves.mechanism,
        population=noise.test,
        relation=curves.relation,
        source=source,
    )
    scores = None
    if curves.two_classes:
        scores = release_classes(
            row_by_row(torch.sigmoid, binary_scores(logits_BK) / temperature).cpu().numpy(),
            (y_B == 1).cpu().numpy(),
            curves.probabilities,
            curves.mechanism,
            relation=curves.relation,
            source=source,
        )
    return _recorded(certified, scores, noise, curves.noise_multiplier)


def scores_of(curves: ReleasedCurves, noise: ScoreNoise) -> dict[str, float]:
    """Return the scores that are read off released curves, by name: those of the sweep, and with two classes AUROC."""
    at = dict(zip(curves.radii, curves.certified, strict=True))
    texts = {name: radius_text(name) for name in noise.shares}
    found = {name: at[0.0 if text is None else parse_radius(text)] for name, text in texts.items()}
    return found if curves.scores is None else found | {"auroc": curves.scores.auroc[1]}


def temperature(config: ConfigValues) -> float:
    """Return the temperature of the loss of a trial's configuration, 1 where it has none."""
    loss = config["training"]["loss"]
    found = loss.get("temperature") if isinstance(loss, Mapping) else None
    return float(found) if isinstance(found, int | float) else 1.0


def _strict(radius_B: NDArray[np.float64]) -> NDArray[np.float64]:
    """Radii of which those at least r are those that were greater: a row is certified within its radius, not at it."""
    return np.where(radius_B > 0.0, np.nextafter(radius_B, 0.0), 0.0)


def _recorded(certified: CertifiedCurve, scores: ClassCurves | None, noise: ScoreNoise, sigma: float) -> ReleasedCurves:
    low, high = certified.band(CONFIDENCE)
    return ReleasedCurves(
        confidence=CONFIDENCE,
        noise_multiplier=sigma,
        rows=noise.test,
        radii=tuple(certified.radii.tolist()),
        certified=_shares(certified.smooth().certified),
        certified_low=_shares(low),
        certified_high=_shares(high),
        scores=None if scores is None else _scores(scores),
    )


def _scores(curves: ClassCurves) -> ScoreCurves:
    band, groups = roc_band(curves, CONFIDENCE), curves.calibration()
    (false, true), (least, most) = curves.smooth().roc(), band.auroc
    low, high = calibration_band(curves, groups, CONFIDENCE)
    statistic, full = groups.hosmer_lemeshow(), groups.rows >= 1.0  # noise leaves some groups without rows
    return ScoreCurves(
        thresholds=_rounded(curves.grid.thresholds, _SHARE_DIGITS),
        positives=_rounded(curves.positives, _COUNT_DIGITS),
        negatives=_rounded(curves.negatives, _COUNT_DIGITS),
        false_rates=_shares(false),
        false_low=_shares(band.false_low),
        false_high=_shares(band.false_high),
        true_rates=_shares(true),
        true_low=_shares(band.true_low),
        true_high=_shares(band.true_high),
        auroc=(least, curves.auroc(), most),
        group_rows=_rounded(groups.rows[full], _COUNT_DIGITS),
        group_predicted=_shares(groups.predicted[full]),
        group_rates=_shares(groups.rate[full]),
        group_low=_shares(low[full]),
        group_high=_shares(high[full]),
        hosmer_lemeshow=statistic,
        p_value=_p_value(statistic, null_of_hosmer_lemeshow(curves)),
    )


def _p_value(statistic: float, null: NDArray[np.float64]) -> float:
    """The share of draws that are at least as large, the statistic among them: valid at any number of draws."""
    return float((1 + np.sum(null >= statistic)) / (1 + len(null)))


def _shares(values: NDArray[np.float64]) -> tuple[float, ...]:
    return _rounded(values, _SHARE_DIGITS)


def _rounded(values: NDArray[np.float64], digits: int) -> tuple[float, ...]:
    return tuple(np.round(values, digits).tolist())
