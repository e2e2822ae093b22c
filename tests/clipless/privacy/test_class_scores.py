"""Scores by class: how far a row or a unit moves a release, by brute force; what follows from it; and its intervals."""

import itertools
import math
from itertools import chain

import numpy as np
import pytest
import torch
from scipy.special import ndtr
from sklearn.metrics import roc_auc_score

from clipless.errors import AccountingError
from clipless.privacy import class_scores
from clipless.privacy.class_scores import ClassScores, NoiseSlopes, ScoreForm, expect_scores, release_class_scores
from clipless.testing import SeededSource
from tests.clipless.factories import RecordingSource

FORMS = [
    ScoreForm(1, 2, hits=True, order=True),
    ScoreForm(2, 2, order=True),
    ScoreForm(1, 2, hits=True),
    ScoreForm(1, 3, hits=True),
    ScoreForm(2, 5, hits=True),
]


def silent():
    return RecordingSource(0, scale=0.0)


def release(rows, form, population, source=None, sigma=1.0, offsets=None):
    """Release (class, right, score) of each row; answers beside the first are right with it."""
    y = torch.tensor([row[0] for row in rows], dtype=torch.int64)
    hits = torch.tensor([[bool(row[1])] * form.answers for row in rows], dtype=torch.bool)
    scores = torch.tensor([float(row[2]) for row in rows], dtype=torch.float64) if form.order else None
    offsets = None if offsets is None else torch.tensor(offsets)
    hits = hits.reshape(len(rows), form.answers)
    return release_class_scores(hits, y, scores, form, population, sigma, source or silent(), offsets=offsets)


@pytest.fixture
def released(monkeypatch, request):
    """Return a function that returns the numbers of a release as they leave, without noise."""
    request.getfixturevalue("exact_sums")
    monkeypatch.setattr(ClassScores, "of", lambda numbers_P, *_: numbers_P)
    return release


def rows_of(form):
    return list(itertools.product(range(form.classes), (False, True), (0, 1, 2) if form.order else (0,)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS)
def test_no_row_moves_a_release_further_than_its_sensitivity(form, released):
    """Data sets of up to three rows, each row left out, where the larger or the smaller set is the declared one."""
    rng, kinds = np.random.default_rng(0), rows_of(form)
    several = [rows for count in (1, 2, 3) for rows in itertools.combinations_with_replacement(kinds, count)]
    several = several[:60] + [several[i] for i in rng.choice(len(several), 40)]
    farthest = 0.0
    for rows, population in itertools.product(several, (0, 1)):
        whole = released(rows, form, max(len(rows) - population, 1))
        for left_out in range(len(rows)):
            fewer = released([row for i, row in enumerate(rows) if i != left_out], form, max(len(rows) - population, 1))
            farthest = max(farthest, float(np.linalg.norm(whole - fewer)))
    assert 0.8 * form.sensitivity < farthest <= form.sensitivity + 1e-12


@pytest.mark.parametrize("form", FORMS)
def test_the_sensitivity_is_reached_by_a_row_against_many_of_the_other_class(form, released):
    others, population = [(0, True, 0)] * 3000, 3000
    moved = released([*others, (1, True, 1)], form, population) - released(others, form, population)
    assert 0.999 * form.sensitivity < np.linalg.norm(moved) <= form.sensitivity


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("form", FORMS[:2] + FORMS[3:4])
def test_the_rows_of_a_unit_together_move_a_release_no_further_than_one_row(form, size, released):
    rng = np.random.default_rng(size)

    def unit(count, label=None):
        labels = rng.integers(0, form.classes, count) if label is None else np.full(count, label)
        return [(int(one), bool(rng.random() < 0.7), int(rng.integers(0, 4))) for one in labels]

    others = [unit(count, label) for count, label in [(1, 0), (3, 0), (1, 0), (40, None), (2, 0), (1, 1)]]
    kinds = [unit(size), [(1, True, 9)] * size, [(0, False, 9)] * size, [(1, True, 9), (0, False, 0)] * size]
    without = released([*chain(*others)], form, 6, offsets=np.cumsum([0, *map(len, others)]))
    for own in kinds:
        whole = [*others, own]
        found = released([*chain(*whole)], form, 6, offsets=np.cumsum([0, *map(len, whole)]))
        assert np.linalg.norm(found - without) <= form.sensitivity + 1e-12


def test_numbers_are_whole_steps_of_the_grid_of_the_noise(released):
    rows = [(1, True, 3), (0, False, 1), (0, True, 2), (1, False, 2), (1, True, 0)]
    found = released(rows, FORMS[0], 3, offsets=[0, 3, 5])
    assert np.all(found * 2.0**21 == np.floor(found * 2.0**21))


def test_pairs_beyond_what_numbers_of_64_bits_hold_are_counted_exactly():
    labels = np.arange(6000) % 2
    rows = class_scores._WeightedScores(
        hits=np.zeros((6000, 1), dtype=bool),
        y=labels,
        scores=labels.astype(float),
        unit=np.arange(6000),
        weight=np.full(6000, 2**20),
        counts=np.ones(6000, dtype=np.int64),
    )
    assert class_scores._signed_pairs(rows) == 3000**2 << 40 > 2**63


def test_pairs_are_those_of_a_comparison_one_by_one():
    rng = np.random.default_rng(0)
    labels, scores, offsets = rng.integers(0, 2, 60), rng.integers(0, 5, 60), [0, 1, 4, 30, 60]
    weights = np.repeat(2**20 // np.diff(offsets), np.diff(offsets))
    rows = class_scores._WeightedScores.of(
        torch.zeros(60, 1, dtype=torch.bool),
        torch.tensor(labels),
        torch.tensor(scores, dtype=torch.float64),
        torch.tensor(offsets),
    )
    pairs = [
        int(weights[i]) * int(weights[j]) * int(np.sign(scores[i] - scores[j]))
        for i, j in itertools.product(np.flatnonzero(labels == 1), np.flatnonzero(labels == 0))
    ]
    assert class_scores._signed_pairs(rows) == sum(pairs)


@pytest.fixture
def many():
    rng = np.random.default_rng(1)
    labels = (rng.random(4000) < 0.1).astype(int)
    scores = np.round(rng.normal(size=4000) + 1.2 * labels, 1)  # with ties
    return [(int(y), bool((s > 1) == y), float(s)) for y, s in zip(labels, scores, strict=True)]


def test_without_noise_scores_are_what_public_rows_have(many):
    found = release(many, FORMS[0], 4000)
    y, right, scores = (np.array([row[i] for row in many]) for i in range(3))
    assert found.auroc == pytest.approx(roc_auc_score(y, scores), abs=1e-4)
    assert found.recalls == pytest.approx([right[y == label].mean() for label in (0, 1)], abs=1e-6)
    assert found.balanced_accuracy == pytest.approx(found.recalls.mean())
    assert found.shares == pytest.approx([right.mean()], abs=1e-6)
    assert found.sizes == pytest.approx([(y == 0).sum(), (y == 1).sum()], abs=1e-6)


@pytest.mark.parametrize(("scores", "expected"), [((1, 1, 1, 1), 0.5), ((0, 0, 1, 1), 1.0), ((1, 1, 0, 0), 0.0)])
def test_constant_scores_are_no_order_and_perfect_ones_are_one(scores, expected):
    rows = [(label, True, score) for label, score in zip((0, 0, 1, 1), scores, strict=True)] * 100
    assert release(rows, FORMS[0], 400).auroc == pytest.approx(expected, abs=1e-4)


def test_scores_that_are_no_numbers_come_last():
    rows = [(0, True, 0.0), (1, True, math.nan)] * 50
    assert release(rows, FORMS[0], 100).auroc == pytest.approx(0.0, abs=1e-3)


def test_a_class_without_rows_has_scores_that_say_nothing():
    found = release([(0, True, 0)] * 500, FORMS[0], 500, SeededSource(0), sigma=4.0)
    assert found.auroc_error.std > 0.3
    assert found.recall_errors[1].std > 0.3
    assert found.recall_errors[0].std < 0.02
    assert all(math.isfinite(value) for value in (found.auroc, *found.recalls, found.balanced_error.rows))


def test_scores_of_a_release_share_noise_as_much_as_their_slopes_say(many):
    source = SeededSource(3)
    form = ScoreForm(1, 2, hits=True, order=True)
    several = [release(many, form, 4000, source, sigma=8.0) for _ in range(600)]
    first = several[0]
    accuracy, balanced = NoiseSlopes.of_accuracy(2, 4000), NoiseSlopes.of_balanced(first.recalls, first.rows)
    recalls = NoiseSlopes.of_recalls(first.recalls, first.rows)
    kinds = [
        ([one.shares[0] for one in several], accuracy),
        ([one.balanced_accuracy for one in several], balanced),
        ([one.auroc for one in several], NoiseSlopes.of_auroc(first.auroc, first.rows, 4000)),
        *(([one.recalls[label] for one in several], recalls[label]) for label in (0, 1)),
    ]
    for (values, slopes), (others, other) in itertools.combinations(kinds, 2):
        assert slopes.correlation(other) == pytest.approx(np.corrcoef(values, others)[0, 1], abs=0.13)
    assert abs(accuracy.correlation(balanced)) > 0.3


def test_a_release_has_the_noise_that_its_errors_say(many):
    source = SeededSource(0)
    several = [release(many, FORMS[0], 4000, source, sigma=4.0) for _ in range(100)]
    for values, error in (
        ([one.auroc for one in several], several[0].auroc_error),
        ([one.shares[0] for one in several], several[0].share_errors[0]),
        ([one.recalls[1] for one in several], several[0].recall_errors[1]),
        ([one.balanced_accuracy for one in several], several[0].balanced_error),
    ):
        assert np.std(values) == pytest.approx(error.std, rel=0.25)
    raw = 4.0 * FORMS[0].sensitivity
    assert several[0].share_errors[0].std == pytest.approx(raw * math.sqrt(2 / 3) / 4000)  # agrees with the hits


def test_what_is_expected_is_what_a_release_says():
    expected = expect_scores(FORMS[0], 2000, 3.0, [1900, 100], 0.8)
    assert expected.auroc == expected.balanced_accuracy == pytest.approx(0.8)
    rows = [(0, i % 5 > 0, i % 5) for i in range(1900)] + [(1, i % 5 > 0, 3 + i % 2) for i in range(100)]
    found = release(rows, FORMS[0], 2000, silent(), sigma=3.0)
    assert found.recall_errors[1].std == pytest.approx(expected.recall_errors[1].std, rel=1e-6)


@pytest.mark.parametrize(
    ("form", "arguments"),
    [
        (FORMS[0], {"hits": torch.ones(3, 2, dtype=torch.bool)}),
        (FORMS[0], {"hits": torch.ones(3, 1)}),
        (FORMS[0], {"y": torch.tensor([0, 1, 2])}),
        (FORMS[0], {"y": torch.tensor([0, -1, 1])}),
        (FORMS[0], {"y": torch.tensor([0, 1])}),
        (FORMS[0], {"scores": None}),
        (FORMS[0], {"scores": torch.zeros(2).double()}),
        (FORMS[0], {"population": 1}),
        (FORMS[0], {"population": 0}),
        (FORMS[0], {"sigma": 0.0}),
        (FORMS[0], {"sigma": math.nan}),
        (ScoreForm(1), {}),
    ],
)
def test_what_is_no_release_by_class_is_refused_before_noise_is_drawn(form, arguments):
    given = {
        "hits": torch.ones(3, 1, dtype=torch.bool),
        "y": torch.tensor([0, 1, 1]),
        "scores": torch.zeros(3).double(),
    }
    given |= {"population": 3, "sigma": 2.0} | arguments
    source = RecordingSource(0)
    with pytest.raises(AccountingError):
        release_class_scores(
            given["hits"], given["y"], given["scores"], form, given["population"], given["sigma"], source
        )
    assert not source.normals


@pytest.mark.parametrize("form", [(0,), (1, 1, True), (1, 101, True), (1, 3, False, True)])
def test_a_form_that_no_release_has_is_refused(form):
    with pytest.raises(AccountingError):
        ScoreForm(*form)


@pytest.mark.parametrize("noise", [1.0, 60.0, 5000.0])
def test_noise_as_large_as_the_rows_leaves_nothing_known_of_scores_by_class(noise):
    form, errors = ScoreForm(answers=1, classes=2, hits=True, order=True), []
    for sizes in ((40.0, 45.0), (85.0, 0.0)):
        numbers = np.array([20.0, 10.0, 10.0, *(0.5 * (np.array(sizes) - 42.5)), 3.0])
        found = ClassScores.of(numbers, form, 85, noise)
        errors += [found.auroc_error.std, found.balanced_error.std, *(one.std for one in found.recall_errors)]
    assert (min(errors) >= 1.0) is (noise > 85 / 2), "an interval of all shares"


def test_a_class_of_many_rows_is_not_doubted_for_much_noise():
    form = ScoreForm(1, 3, hits=True, order=False)
    found = expect_scores(form, 199, 20.0, [40.0, 80.0, 79.0], 0.8)
    assert (found.sampled == found.rows).all()
    assert expect_scores(form, 199, 0.1, [0.0, 100.0, 99.0], 0.8).sampled.tolist() == [0.25, 100.0, 99.0]


def test_an_auroc_is_known_no_better_than_by_the_rows_of_the_smaller_class():
    """Where a tenth of these have the scores of the other class, they alone decide it."""
    rng, found = np.random.default_rng(3), []
    truth = 0.9 * ndtr(3.0 / math.sqrt(2.0)) + 0.1 * ndtr(-3.0 / math.sqrt(2.0))
    for seed in range(40):
        labels = np.arange(440) >= 40
        odd = ~labels & (rng.random(440) < 0.1)
        scores = rng.normal(size=440) + np.where(labels, 3.0, 6.0 * odd)
        rows = [(int(label), True, score) for label, score in zip(labels, scores, strict=True)]
        one = release(rows, FORMS[0], 440, SeededSource(seed), sigma=0.2)
        assert one.auroc_error.rows == pytest.approx(40.0, abs=2.0)
        spread = math.sqrt(one.auroc_error.std**2 + truth * (1.0 - truth) / one.auroc_error.rows)
        found.append(abs(one.auroc - truth) <= 1.96 * spread)
    assert np.mean(found) >= 0.9


def test_of_a_class_that_may_have_no_row_neither_recall_nor_auroc_has_one():
    found = expect_scores(ScoreForm(1, 2, hits=True, order=True), 200, 0.1, [200.0, 0.0], 0.8)
    assert [error.rows for error in found.recall_errors] == [200.0, 0.25]
    assert found.auroc_error.rows == 0.25
