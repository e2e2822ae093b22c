"""Bands around released curves: they cover what they say, and are no wider than the noise and the sample ask for."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from clipless.curves.bands import calibration_band, roc_band, width_of_counts
from clipless.curves.certified import release_certified
from clipless.curves.classes import ClassCurves, release_classes
from clipless.curves.ecdf import largest_noise
from clipless.curves.grid import Grid
from clipless.curves.release import Gaussian, Laplace
from clipless.curves.tree import Change
from clipless.errors import DataError
from clipless.privacy.events import Relation
from clipless.testing import SeededSource

GRID = Grid.linear(0.0, 1.0, 65)
ADDED = Relation.ADD_OR_REMOVE_ONE
POSITIVE, NEGATIVE = beta(4, 2), beta(2, 4)
TRUE, FALSE = (np.concatenate([[1.0], law.sf(GRID.thresholds)]) for law in (POSITIVE, NEGATIVE))


def sample(seed, rows):
    generator = np.random.default_rng(seed)
    positive = generator.random(rows) < 0.3
    return np.where(
        positive, POSITIVE.rvs(rows, random_state=seed), NEGATIVE.rvs(rows, random_state=seed + 1)
    ), positive


def released(seed, mechanism, rows=3000):
    scores, positive = sample(seed, rows)
    return release_classes(scores, positive, GRID, mechanism, source=SeededSource(seed)), scores, positive


@pytest.mark.parametrize("mechanism", [Gaussian(4.0), pytest.param(Laplace(2.0), marks=pytest.mark.long)], ids=str)
def test_the_true_roc_curve_is_in_the_band_at_every_threshold(mechanism):
    area = float(np.sum((FALSE[:-1] - FALSE[1:]) * (TRUE[:-1] + TRUE[1:]) / 2.0))
    for seed in range(12):
        curves, _, _ = released(seed, mechanism)
        band = roc_band(curves, draws=100)
        assert ((band.false_low <= FALSE) & (band.false_high >= FALSE)).all()
        assert ((band.true_low <= TRUE) & (band.true_high >= TRUE)).all()
        low, high = band.auroc
        assert 0.0 < low <= area <= high < 1.0
        assert low <= curves.auroc() <= high


def test_a_band_that_leaves_the_noise_out_misses_the_curve():
    """The sample alone is not enough: what is tested above can fail."""
    missed = 0
    for seed in range(6):
        curves, _, _ = released(seed, Gaussian(30.0))
        silent = roc_band(replace(curves, mechanism=Gaussian(1e-3)), draws=100)
        missed += not ((silent.true_low <= TRUE) & (silent.true_high >= TRUE)).all()
    assert missed >= 5


def test_bands_narrow_with_rows_and_with_less_noise():
    def width(mechanism, rows):
        band = roc_band(released(0, mechanism, rows)[0], draws=100)
        return float(np.mean(band.true_high - band.true_low))

    assert width(Gaussian(4.0), 3000) < 0.8 * width(Gaussian(16.0), 3000)
    assert width(Gaussian(4.0), 30000) < width(Gaussian(4.0), 3000) / 2.0


@pytest.mark.long
def test_the_noise_exceeds_its_bound_as_rarely_as_is_said_and_not_much_more_rarely():
    curves, risk = released(0, Gaussian(3.0))[0], 0.1
    bound, source = width_of_counts(curves, risk, draws=800), SeededSource(7)
    beyond = [
        max(np.abs(curves.mechanism.noise(len(GRID), Change.ADDED, source)).max() for _ in range(2)) > bound
        for _ in range(800)
    ]
    assert risk / 2 < np.mean(beyond) < 1.6 * risk
    assert bound > largest_noise(curves.mechanism, len(GRID), Change.ADDED, risk, draws=800)  # two curves exceed more


def test_the_rates_of_the_rows_at_hand_are_in_the_band_of_calibration():
    for seed in range(12):
        curves, scores, positive = released(seed, Gaussian(5.0))
        found = curves.calibration(8)
        low, high = calibration_band(curves, found, draws=100)
        both = curves.smooth()
        ends = np.searchsorted(
            np.cumsum(np.diff(both.positives + both.negatives, prepend=0.0)), np.cumsum(found.rows) - 1e-6
        )
        true = np.diff(np.concatenate([[0.0], GRID.counts(scores[positive])[ends]]))
        assert (low * found.rows <= true + 1e-6).all()
        assert (np.where(high < 1.0, high * found.rows, np.inf) >= true - 1e-6).all()


def test_certified_accuracy_is_in_its_band_at_every_radius():
    at = np.linspace(0.0, 1.0, 33)
    for seed in range(12):
        generator = np.random.default_rng(seed)
        radii, correct = generator.exponential(0.4, 2000), generator.random(2000) < 0.8
        curve = release_certified(radii, correct, at, Gaussian(6.0), population=2000, source=SeededSource(seed))
        low, high = curve.band()
        true = 0.8 * np.exp(-at / 0.4)
        assert ((low <= true) & (true <= high)).all()
        assert (np.diff(low) <= 0).all()
        assert (np.diff(high) <= 0).all()
        assert high[5] - low[5] < 0.25


@pytest.mark.parametrize("curves", [1, 2, 3])
@pytest.mark.parametrize("relation", list(Relation))
def test_curves_that_share_a_multiplier_are_one_event_of_it_together(curves, relation):
    event = Gaussian.share(3.0, curves, relation).event(relation)
    assert (curves / event.noise_multiplier**2) ** -0.5 == pytest.approx(3.0)
    assert (event.steps, event.sampling_rate, event.relation) == (1, 1.0, relation)


def test_a_confidence_beyond_its_range_is_refused():
    curves = ClassCurves(GRID, np.arange(65.0), np.arange(65.0), Gaussian(1.0), ADDED)
    for wrong in (0.0, 1.0, float("nan")):
        with pytest.raises(DataError, match="Expected a confidence in"):
            roc_band(curves, wrong)
