"""Released sums are the curves that rows in one place would give."""

import numpy as np
import pytest

from clipless.errors import DataError
from clipless.federated.curves import Domain
from clipless.federated.ustat import Curator, FunctionSharing
from clipless.privacy.events import Relation

LOUD, ADDED = 200.0, Relation.ADD_OR_REMOVE_ONE


@pytest.fixture
def scored():
    rng = np.random.default_rng(0)
    labels = rng.random(400) < 0.4
    return np.clip(0.5 + 0.2 * labels + 0.2 * rng.normal(size=400), 0.0, 1.0), labels


def by_party(domain_rows):
    return {
        name: domain_rows(slice(start, start + 100)) for start, name in ((0, "a"), (100, "b"), (200, "c"), (300, "d"))
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("protocol", [Curator(), FunctionSharing(8)], ids=["curator", "function sharing"])
def test_the_auroc_over_parties_is_that_of_all_rows(scored, protocol):
    from sklearn.metrics import roc_auc_score

    scores, labels = scored
    domain = Domain.probabilities(8)
    query = domain.score_query(200, LOUD, ADDED)
    sums = protocol.release(query, by_party(lambda some: domain.scores(scores[some], labels[some])))
    curves = domain.class_curves(query, sums)
    assert curves.positives[-1] == labels.sum()
    assert curves.negatives[-1] == (~labels).sum()
    assert curves.auroc() == pytest.approx(roc_auc_score(labels, scores), abs=0.01)
    low, high = curves.auroc_interval(draws=20)
    assert low <= curves.auroc() <= high


def test_certified_accuracy_over_parties_is_that_of_all_rows():
    rng = np.random.default_rng(1)
    radii, correct = rng.exponential(0.3, 400), rng.random(400) < 0.8
    domain = Domain.radii(10, 1.0)
    query = domain.radius_query(65, LOUD, ADDED)
    sums = Curator().release(query, by_party(lambda some: domain.signed_radii(radii[some], correct[some])))
    curve = domain.certified_curve(query, sums, 400)
    assert curve.accuracy == pytest.approx(correct.mean())
    assert curve.radii[0] == 0.0
    assert curve.radii[-1] == 1.0
    for radius, share in zip(curve.radii, curve.certified, strict=True):
        assert share == pytest.approx((correct & (radii >= radius)).mean(), abs=1e-9)


def test_a_row_is_certified_within_its_radius_and_not_at_it_as_in_the_scores_of_a_sweep():
    domain = Domain.radii(4, 1.0)
    query = domain.radius_query(15, LOUD, ADDED)
    radii = -domain.thresholds[:-1]
    right = np.ones(len(radii), dtype=bool)
    curve = domain.certified_curve(query, Curator().release(query, {"a": domain.signed_radii(radii, right)}), 15)
    assert curve.accuracy == pytest.approx(1.0)
    for radius, share in zip(curve.radii[1:], curve.certified[1:], strict=True):
        assert share == pytest.approx((radii > radius).mean(), abs=1e-9)


def test_a_row_without_a_number_is_counted_as_wrong():
    domain = Domain.radii(4, 1.0)
    assert domain.signed_radii(np.array([np.nan, 0.5]), np.array([True, False])).places.tolist() == [15, 15]


@pytest.mark.parametrize("levels", [0, 1, 21, -1])
def test_domains_have_two_to_twenty_levels(levels):
    with pytest.raises(DataError, match="n <= 20"):
        Domain.probabilities(levels)


@pytest.mark.parametrize("largest", [0.0, -1.0, float("nan"), float("inf")])
def test_a_largest_radius_is_positive(largest):
    with pytest.raises(DataError, match="Expected a positive largest radius"):
        Domain.radii(4, largest)


@pytest.mark.parametrize("count", [1, 17])
def test_as_many_thresholds_as_the_domain_has_can_be_asked_for(count):
    with pytest.raises(DataError, match="Expected 2 to 16 thresholds"):
        Domain.probabilities(4).score_query(count, 1.0, ADDED)


def test_shares_need_a_population():
    domain = Domain.radii(4, 1.0)
    query = domain.radius_query(3, LOUD, ADDED)
    with pytest.raises(DataError, match="Expected population >= 1"):
        domain.certified_curve(query, Curator().release(query, {}), 0)
