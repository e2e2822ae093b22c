"""Curves of two classes in one release, and certified accuracy at every radius: what is released, and what it costs."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from clipless.curves.certified import release_certified
from clipless.curves.classes import class_change, null_of_hosmer_lemeshow, release_classes
from clipless.curves.grid import Grid
from clipless.curves.release import Gaussian, Laplace
from clipless.curves.tree import Change
from clipless.errors import DataError
from clipless.privacy.events import Relation
from clipless.testing import SeededSource

RNG = np.random.default_rng(0)
SCORES = RNG.beta(2, 4, size=4000)
POSITIVE = RNG.random(4000) < SCORES  # calibrated
GRID = Grid.linear(0.0, 1.0, 129)
ADDED, REPLACED = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE


def released(mechanism, scores=SCORES, positive=POSITIVE, relation=ADDED, seed=0):
    return release_classes(scores, positive, GRID, mechanism, relation=relation, source=SeededSource(seed))


@pytest.fixture
def silent(monkeypatch):
    """Mechanisms without noise."""
    monkeypatch.setattr(Laplace, "release", lambda _self, counts, _change, _source: counts)
    return Laplace(1.0)


def test_without_noise_the_curves_are_those_of_the_rows(silent):
    curves = released(silent)
    np.testing.assert_array_equal(curves.positives, GRID.counts(SCORES[POSITIVE]))
    np.testing.assert_array_equal(curves.negatives, GRID.counts(SCORES[~POSITIVE]))
    assert curves.auroc() == pytest.approx(roc_auc_score(POSITIVE, SCORES), abs=2e-3)
    false, true = curves.roc()
    assert (false[0], true[0], false[-1], true[-1]) == (1.0, 1.0, 0.0, 0.0)


def test_groups_have_what_is_expected_and_observed_in_them(silent):
    found = released(silent).calibration(10)
    assert found.rows.sum() == len(SCORES)
    assert found.observed.sum() == POSITIVE.sum()
    assert found.expected.sum() == pytest.approx(SCORES.sum(), rel=5e-3)
    np.testing.assert_allclose(found.rate, found.predicted, atol=0.08)


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.parametrize("relation", [ADDED, REPLACED])
@pytest.mark.parametrize("mechanism", [Laplace(1.0), Gaussian(2.0)], ids=str)
def test_both_curves_get_noise_of_their_own_for_what_one_row_changes(relation, mechanism):
    curves = released(mechanism, relation=relation)
    change = Change.RELABELLED if relation is REPLACED else Change.ADDED
    assert class_change(relation) is change
    source = SeededSource(0)
    for counts, rows in ((curves.positives, POSITIVE), (curves.negatives, ~POSITIVE)):
        noise = mechanism.noise(len(GRID), change, source)
        np.testing.assert_allclose(counts - GRID.counts(SCORES[rows]), noise, atol=1e-8)
    noises = curves.positives - GRID.counts(SCORES[POSITIVE]), curves.negatives - GRID.counts(SCORES[~POSITIVE])
    assert not np.array_equal(*noises)


@pytest.mark.parametrize("score", [0.3, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("label", [True, False])
def test_a_row_more_changes_one_class_from_a_threshold_on(silent, score, label):
    before = released(silent)
    after = released(silent, np.append(SCORES, score), np.append(POSITIVE, label))
    changed = after.positives - before.positives, after.negatives - before.negatives
    own, other = changed if label else changed[::-1]
    assert not other.any()
    assert (np.diff(own) >= 0).all()
    assert own[-1] == 1.0


def test_noise_moves_the_area_by_little_and_its_interval_says_how_much():
    truth = roc_auc_score(POSITIVE, SCORES)
    curves = released(Gaussian(5.0))
    low, high = curves.auroc_interval(draws=60)
    assert low < curves.auroc() < high
    assert abs(curves.auroc() - truth) < 0.02
    assert low - 0.02 < truth < high + 0.02


def test_intervals_of_the_area_hold_for_a_few_rows_in_much_noise():
    draws, held = np.random.default_rng(0), []
    for seed in range(30):
        positive = np.arange(200) < 20
        scores = 1.0 / (1.0 + np.exp(-(draws.normal(size=200) + 1.5 * positive)))
        curves = release_classes(scores, positive, GRID, Gaussian(6.0), source=SeededSource(seed))
        low, high = curves.auroc_interval(draws=40)
        held.append(low <= roc_auc_score(positive, scores) <= high)
    assert np.mean(held) >= 0.9


def test_a_calibrated_model_is_within_its_null_and_a_bent_one_is_not():
    fair, bent = released(Gaussian(2.0)), released(Gaussian(2.0), scores=SCORES**2)
    assert fair.calibration().hosmer_lemeshow() < null_of_hosmer_lemeshow(fair, draws=60)[-1]
    assert bent.calibration().hosmer_lemeshow() > null_of_hosmer_lemeshow(bent, draws=60)[-1]


def test_certified_accuracy_at_every_radius_is_one_curve(silent):
    radii, correct = np.abs(RNG.normal(size=500)), RNG.random(500) < 0.8
    radii[:3], correct[:3] = [np.nan, np.inf, 0.0], True
    at = np.linspace(0.0, 2.0, 33)
    curve = release_certified(radii, correct, at, silent, population=500, source=SeededSource(0))
    np.testing.assert_array_equal(curve.radii, at)
    expected = [np.mean(correct & (radii >= radius)) for radius in at]
    np.testing.assert_allclose(curve.certified, expected)
    assert curve.accuracy == pytest.approx(np.mean(correct & ~np.isnan(radii)))
    assert (np.diff(curve.smooth().certified) <= 0).all()


@pytest.mark.parametrize("radius", [0.0, 0.7, np.inf, np.nan])
@pytest.mark.parametrize("right", [True, False])
def test_a_row_more_raises_certified_accuracy_up_to_its_radius_by_one_row(silent, radius, right):
    radii, correct, at = np.abs(RNG.normal(size=50)), RNG.random(50) < 0.8, np.linspace(0.0, 2.0, 9)
    before = release_certified(radii, correct, at, silent, population=50)
    after = release_certified(np.append(radii, radius), np.append(correct, right), at, silent, population=50)
    changed = (after.certified - before.certified) * 50
    np.testing.assert_allclose(changed, [float(right and radius >= one) for one in at], atol=1e-9)


@pytest.mark.parametrize("labels", [POSITIVE.astype(int), POSITIVE[:5]])
def test_labels_that_do_not_fit_are_refused(labels):
    with pytest.raises(DataError, match="Expected one boolean label"):
        release_classes(SCORES, labels, GRID, Laplace(1.0))


@pytest.mark.parametrize("at", [np.array([0.1, 0.2]), np.zeros((2, 2)), np.array([])])
def test_radii_that_do_not_begin_at_zero_are_refused(at):
    with pytest.raises(DataError, match="increasing radii from 0"):
        release_certified(np.ones(3), np.ones(3, bool), at, Laplace(1.0), population=3)
