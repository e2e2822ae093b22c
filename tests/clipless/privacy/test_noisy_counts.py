"""Noisy scores: how far one row moves them, by brute force; and what they cost beside the training."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from clipless.datasets.splits import Part, assign_by_hash
from clipless.errors import AccountingError
from clipless.privacy import noisy_counts
from clipless.privacy.accounting.claim import claim
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from clipless.privacy.noisy_counts import (
    counts_sensitivity,
    epsilon_of_splits,
    in_one_split,
    release_scores,
    scores_event,
)
from clipless.testing import SeededSource

ADD, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE
DELTA = 1e-5


class SilentSource(SeededSource):
    """Normals of one value, 0 by default: what is left is the statistic itself."""

    def __init__(self, value=0.0):
        super().__init__(0)
        self._value = value

    def normal(self, count, device="cpu"):
        return torch.full((count,), float(self._value), device=device)


def statistic(rows, scores, population=40):
    """What is released without noise, in units of the noise of one score."""
    hits_BM = torch.tensor(rows, dtype=torch.bool).reshape(len(rows), scores)
    quiet = np.array(release_scores(hits_BM, population, 1.0, SilentSource()))
    loud = np.array(release_scores(hits_BM, population, 1.0, SilentSource(1.0)))
    return quiet / (loud - quiet)


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.parametrize("scores", [1, 2, 3])
def test_no_row_moves_the_scores_further_than_one_over_sigma_deviations(scores):
    """Every data set of up to two rows, every row that may be missing, all answers, nested or not."""
    farthest = 0.0
    answers = list(itertools.product([False, True], repeat=scores))
    for rows in itertools.chain.from_iterable(itertools.product(answers, repeat=n) for n in (1, 2)):
        whole = statistic(rows, scores)
        for left_out in range(len(rows)):
            fewer = [row for i, row in enumerate(rows) if i != left_out]
            farthest = max(farthest, float(np.linalg.norm(whole - statistic(fewer, scores))))
        replaced = [statistic([other, *rows[1:]], scores) for other in answers]
        assert max(np.linalg.norm(whole - other) for other in replaced) <= 2.0 + 1e-12
    assert 1.0 - 1e-5 <= farthest <= 1.0 + 1e-12  # sigma = 1: a bound, and a tight one


@pytest.mark.parametrize("scores", [1, 2, 3, 4])
def test_no_public_shift_makes_nested_answers_less_sensitive(scores):
    nested = np.array([[i < survived for i in range(scores)] for survived in range(scores + 1)], dtype=float)
    assert np.linalg.norm(nested - 0.5, axis=1).max() == pytest.approx(counts_sensitivity(scores))
    rng = np.random.default_rng(0)
    for shift in rng.uniform(-0.5, 1.5, (2000, scores)):
        assert np.linalg.norm(nested - shift, axis=1).max() >= counts_sensitivity(scores) - 1e-12


def test_scores_are_shares_of_the_declared_rows():
    hits_BM = torch.tensor([[True, True], [True, False], [True, False], [False, False]])
    assert release_scores(hits_BM, 4, 1.0, SilentSource()) == (0.75, 0.25)


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.parametrize("value", [-1e3, 1e3])
def test_a_score_is_not_cut_so_that_its_noise_has_mean_zero(value):
    released = release_scores(torch.ones(5, 3, dtype=torch.bool), 5, 2.0, SilentSource(value))
    assert released == pytest.approx([1.0 + value * 2.0 * math.sqrt(3) / 2 / 5] * 3)


def test_the_noise_has_the_priced_deviation_and_is_drawn_for_each_score_alone():
    hits_BM, source = torch.zeros(1000, 4, dtype=torch.bool), SeededSource(3)
    hits_BM[:500] = True
    released = np.array([release_scores(hits_BM, 1000, 8.0, source) for _ in range(2000)])
    std = 8.0 * math.sqrt(4) / 2 / 1000
    assert stats.kstest((released[:, 0] - 0.5) / std, "norm").pvalue > 1e-6
    assert released.std(axis=0) == pytest.approx(std, rel=0.08)
    assert np.abs(np.corrcoef(released.T) - np.eye(4)).max() < 0.12


@pytest.mark.parametrize(
    ("hits", "population", "noise", "said"),
    [
        (torch.ones(3, 2), 3, 1.0, "Expected booleans"),
        (torch.ones(3, dtype=torch.bool), 3, 1.0, "Expected booleans"),
        (torch.ones(3, 0, dtype=torch.bool), 3, 1.0, "one score or more"),
        (torch.ones(3, 2, dtype=torch.bool), 0, 1.0, "population >= 1"),
        (torch.ones(3, 2, dtype=torch.bool), 3, 0.0, "0 < noise_multiplier < inf"),
        (torch.ones(3, 2, dtype=torch.bool), 3, math.nan, "0 < noise_multiplier < inf"),
        (torch.ones(3, 2, dtype=torch.bool), 3, math.inf, "0 < noise_multiplier < inf"),
    ],
)
def test_what_is_no_paid_count_is_refused(hits, population, noise, said):
    with pytest.raises(AccountingError, match=said):
        release_scores(hits, population, noise, SeededSource(0))


def test_every_row_is_charged_every_time():
    event = scores_event(20.0, 30, ADD)
    assert (event.sampling_rate, event.steps, event.noise_multiplier, event.relation) == (1.0, 30, 20.0, ADD)


@pytest.mark.parametrize("present", [0, 30, 40])
def test_the_denominator_of_a_score_is_the_declared_number_of_rows_whatever_is_there(present):
    hits_BM = torch.ones(present, 1, dtype=torch.bool)
    (score,) = release_scores(hits_BM, 40, 1.0, SilentSource(1.0))
    std = 0.5 * (1 + 2.0**-40)
    assert score == pytest.approx(0.5 + (present / 2 + std) / 40, rel=1e-9)


# --- beside the training


def trained(relation=ADD):
    return PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.05, steps=300, relation=relation)


def claimed(events):
    return claim(Composed(tuple(events)), DELTA).epsilon


def test_splits_cost_the_dearest_of_them_when_a_row_is_in_one_only():
    cheap, dear = scores_event(60.0, 10, ADD), scores_event(3.0, 10, ADD)
    assert in_one_split([cheap, dear])
    train = claimed([trained()])
    assert epsilon_of_splits([[trained()], [cheap], []], claimed, apart=True) == train
    assert epsilon_of_splits([[trained()], [cheap], [dear]], claimed, apart=True) == claimed([dear]) > train
    both = epsilon_of_splits([[trained(), trained()], [cheap]], claimed, apart=True)
    assert both == claimed([trained(), trained()])


def test_splits_that_are_not_apart_cost_their_composition():
    cheap = scores_event(60.0, 10, ADD)
    assert epsilon_of_splits([[trained()], [cheap]], claimed, apart=False) == claimed([trained(), cheap])


def test_replacing_a_row_can_reach_two_splits_and_costs_their_composition():
    scored = scores_event(20.0, 5, REPLACE)
    assert not in_one_split([scored])
    together = epsilon_of_splits([[trained(REPLACE)], [scored]], claimed, apart=True)
    assert together == claimed([trained(REPLACE), scored])
    assert together > max(claimed([trained(REPLACE)]), claimed([scored]))


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(st.lists(st.binary(min_size=1, max_size=4), min_size=2, max_size=30), st.binary(min_size=5, max_size=6))
def test_the_relation_decides_how_many_splits_a_neighbour_reaches(rows, other):
    """The premise of the larger price: a row more or less is in one split; another row may be in another."""
    before = assign_by_hash(rows, "set", validation=0.3, test=0.2)
    fewer = assign_by_hash(rows[1:], "set", validation=0.3, test=0.2)
    assert sum(np.sum(before == part) != np.sum(fewer == part) for part in Part) == 1
    assert (before[1:] == fewer).all()
    replaced = assign_by_hash([other, *rows[1:]], "set", validation=0.3, test=0.2)
    assert sum(np.sum(before == part) != np.sum(replaced == part) for part in Part) in (0, 2)


def test_a_neighbour_by_addition_sees_one_of_both_prices_and_not_their_sum():
    """One Gaussian release of each split, both seen: no neighbour is told apart better than the larger price says."""
    sigma_train, sigma_score = 1.5, 2.5
    splits = [[scores_event(sigma_train, 1, ADD)], [scores_event(sigma_score, 1, ADD)]]
    epsilon = epsilon_of_splits(splits, claimed, apart=True)
    for mu in (1 / sigma_train, 1 / sigma_score):  # the other split's release is the same on both sides
        exact = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
        assert exact <= DELTA
    both = math.hypot(1 / sigma_train, 1 / sigma_score)  # a change of both would break it
    worse = stats.norm.cdf(both / 2 - epsilon / both) - math.exp(epsilon) * stats.norm.cdf(-both / 2 - epsilon / both)
    assert worse > 2 * DELTA


def test_nothing_spent_costs_nothing():
    assert epsilon_of_splits([[], []], claimed, apart=True) == epsilon_of_splits([], claimed, apart=False) == 0.0


# --- units of several rows


def units_statistic(units, population=10, sigma=1.0):
    """What is released of units, (rows, scores) each, in units of the noise of one score."""
    hits_BM = torch.cat([torch.as_tensor(unit, dtype=torch.bool) for unit in units])
    offsets = torch.tensor([0, *map(len, units)]).cumsum(0)
    quiet, loud = (
        np.array(release_scores(hits_BM, population, sigma, SilentSource(value), offsets=offsets)) for value in (0, 1)
    )
    return quiet / (loud - quiet)


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 1000])
@pytest.mark.parametrize("scores", [1, 3])
def test_the_rows_of_a_unit_together_move_the_scores_no_further_than_one_row(size, scores):
    rng = np.random.default_rng(size)
    others = [rng.random((n, scores)) < 0.6 for n in (1, 3, 1000)]
    without = units_statistic(others)
    moved = [
        float(np.linalg.norm(units_statistic([*others, unit]) - without))
        for unit in (
            np.ones((size, scores)),
            np.zeros((size, scores)),
            *(rng.random((size, scores)) < share for share in (0.1, 0.5, 0.9)),
        )
    ]
    assert max(moved) <= 1.0 + 1e-12  # sigma = 1
    assert moved[0] == pytest.approx(1.0)
    assert moved[1] == pytest.approx(1.0)


@pytest.mark.usefixtures("exact_sums")
def test_a_score_is_the_mean_over_units_of_the_mean_over_their_rows():
    hits_BM = torch.tensor([[True], [False], [False], [True], [True]])
    (score,) = release_scores(hits_BM, 2, 1.0, SilentSource(), offsets=torch.tensor([0, 3, 5]))
    assert 0 <= (1 / 3 + 1) / 2 - score <= 2.0**-20
    assert release_scores(hits_BM, 5, 1.0, SilentSource(), offsets=torch.arange(6)) == (0.6,)


def test_units_of_one_row_count_as_rows_do():
    hits_BM = torch.rand(50, 3, generator=torch.Generator().manual_seed(0)) < 0.5
    rows = release_scores(hits_BM, 50, 2.0, SilentSource(0.7))
    assert release_scores(hits_BM, 50, 2.0, SilentSource(0.7), offsets=torch.arange(51)) == rows


def test_loud_noise_of_units_lies_on_the_grid_of_their_shares():
    offsets = torch.tensor([0, 3])
    hits_BM = torch.tensor([[True], [False], [False]])
    (exact,) = noisy_counts._centred_sums(hits_BM, offsets).tolist()
    assert (exact * 2.0**20).is_integer(), "before noise is added, which is rounded once more"
    assert exact == pytest.approx(1 / 3 - 1 / 2, abs=2.0**-20)
    with pytest.raises(AccountingError, match=r"at most 2\^49 steps of its grid"):
        release_scores(hits_BM, 1, 2.0**31, SilentSource(), offsets=offsets)
