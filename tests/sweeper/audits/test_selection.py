"""Simulated private selections: the planted orders are bad, winners are right, and no claim that is true falls."""

import numpy as np
import pytest
import torch

from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.selection_composed import explored_epsilon
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.audits import selection
from sweeper.audits.lower_bound import attack
from sweeper.audits.selection import _numbers, _World, plant_orders, selection_scores

EVENT = PoissonGaussian(noise_multiplier=1.5, sampling_rate=1.0, steps=1, relation=Relation.ADD_OR_REMOVE_ONE)
LAW = Repetitions(mean=8.0)
DELTA = 1e-3


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def test_the_best_of_many_attains_more_than_one_and_no_more_than_its_price(generator, monkeypatch):
    monkeypatch.setattr(selection, "_REFERENCE", 100_000)
    price = selection_epsilon(EVENT, LAW, DELTA)
    _, found = attack(selection_scores(EVENT, LAW, 100_000, generator), {DELTA: price})
    assert claim(EVENT, DELTA).epsilon < found.epsilon <= price
    assert found.epsilon > 0.5 * price
    assert found.p_value > 0.01


@pytest.mark.long
def test_with_a_final_winner_and_final_attain_more_than_either(generator):
    final = EVENT.with_steps(2)
    price = explored_epsilon(EVENT, LAW, final, DELTA)
    _, found = attack(selection_scores(EVENT, LAW, 100_000, generator, final), {DELTA: price})
    assert max(0.6 * price, claim(final, DELTA).epsilon) < found.epsilon <= price


def test_numbers_of_candidates_follow_the_declared_law(generator):
    numbers = _numbers(LAW, 100_000, generator)
    assert numbers.mean() == pytest.approx(8.0, rel=0.03)
    assert numbers.var() == pytest.approx(56.0, rel=0.05)
    assert numbers.min() == 1


def test_the_winner_of_each_run_is_its_best_candidate():
    world = _World(np.array([1.0, 3.0, 2.0, -4.0]), np.array([3, 1]), np.zeros(2))
    assert world.won(lambda loss: loss).tolist() == [3.0, -4.0]
    assert world.won(lambda loss: -loss).tolist() == [1.0, -4.0]


def test_a_block_on_top_is_one_that_the_other_world_has_more_often(generator):
    present, absent = (selection.losses(EVENT, 50_000, generator, present=one) for one in (True, False))
    orders = plant_orders(present, absent, LAW)
    low = orders["lowest on top, then ascending"](np.array([-9.0, 0.5, 3.0, 9.0]))
    assert low[0] > low[3] > low[2] > low[1]
    high = orders["highest on top, then descending"](np.array([-9.0, -3.0, 0.0, 9.0]))
    assert high[3] > high[0] > high[1] > high[2]
