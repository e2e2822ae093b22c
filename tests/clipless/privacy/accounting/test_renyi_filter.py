"""The Renyi filter: nothing beyond the budget, and what was not run is given back."""

import itertools
import math
import random
import re
from dataclasses import replace

import pytest

from clipless.errors import AccountingError
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.accounting.renyi_filter import RenyiFilter, best_order
from clipless.privacy.events import Composed, Relation
from tests.clipless.factories import event

TRAINING = event(10.0, 0.1, 200)
FILTER = RenyiFilter(8, 3.0, 1e-5)  # at the best order for trainings like this one


def admitted(chosen, trainings):
    run = []
    for training in trainings:
        if chosen.admits(run, training):
            run.append(training)
    return run


def test_a_gaussian_step_costs_its_divergence_in_closed_form():
    for order in (2, 7, 100):
        chosen = RenyiFilter(order, 2.0, 1e-5)
        assert chosen.spent([event(4.0, 1.0, 3), event(2.0, 1.0, 1)]) == pytest.approx(order * (3 / 32 + 1 / 8))
        conversion = math.log((order - 1) / order) - (math.log(1e-5) + math.log(order)) / (order - 1)
        assert chosen.budget == pytest.approx(2.0 - conversion)
        assert chosen.budget + conversion <= 2.0


def test_as_many_trainings_fit_as_the_budget_holds_and_not_one_more():
    run = admitted(FILTER, [TRAINING] * 100)
    assert FILTER.spent(run) <= FILTER.budget < FILTER.spent([*run, TRAINING])
    assert 0.97 * 3.0 - 3.0 / len(run) < rdp_epsilon(Composed(tuple(run)), 1e-5) <= 3.0


@pytest.mark.parametrize("seed", range(5))
def test_what_was_admitted_is_claimed_at_no_more_than_the_budget(seed):
    draw = random.Random(seed)
    mixed = [event(draw.uniform(1, 20), draw.uniform(0.01, 1.0), draw.randint(1, 300)) for _ in range(30)]
    run = admitted(FILTER, mixed)
    assert 0 < len(run) < 30
    assert claim(Composed(tuple(run)), 1e-5).epsilon <= 3.0


def test_the_planned_training_counts_before_it_begins():
    assert not FILTER.admits([], TRAINING.with_steps(10**5))
    count = len(admitted(FILTER, [TRAINING] * 100))
    assert not FILTER.admits([TRAINING] * count, TRAINING)


def test_what_was_stopped_early_is_refunded():
    count = len(admitted(FILTER, [TRAINING] * 100))
    stopped = [TRAINING.with_steps(50)] * count
    assert FILTER.admits(stopped, TRAINING)
    assert FILTER.spent(stopped) == pytest.approx(FILTER.spent([TRAINING] * count) / 4)


def test_the_best_order_fits_no_fewer_trainings_than_any_other():
    def fits(order):
        chosen = RenyiFilter(order, 3.0, 1e-5)
        return chosen.budget / chosen.spent([TRAINING])

    assert FILTER.order == best_order(TRAINING, 3.0, 1e-5)
    assert fits(FILTER.order) >= max(fits(order) for order in (2, 4, 6, 7, 9, 10, 12, 16, 24, 32, 64))


def test_edges_fail_closed():
    assert not FILTER.admits([], event(0.0, 0.1, 1))
    assert not FILTER.admits([event(0.01, 0.1, 1)], event(10.0, 0.1, 1))
    assert FILTER.admits([], event(0.0, 0.1, 0))
    assert FILTER.spent([]) == 0.0
    assert not RenyiFilter(2, 0.1, 1e-5).admits([], event(1e6, 1e-3, 1))
    replaced = replace(TRAINING, relation=Relation.REPLACE_ONE)
    for ask in (lambda: FILTER.admits([replaced], TRAINING), lambda: FILTER.admits([], replaced)):
        with pytest.raises(AccountingError, match="replace-one"):
            ask()
    for order, epsilon, delta in itertools.chain(
        ((order, 3.0, 1e-5) for order in (1, 1.5, 2.0, True, 1025, math.nan)),
        ((8, epsilon, 1e-5) for epsilon in (0.0, -1.0, math.inf, math.nan)),
        ((8, 3.0, delta) for delta in (0.0, 1.0, math.nan)),
    ):
        with pytest.raises(AccountingError, match="Expected"):
            RenyiFilter(order, epsilon, delta)


def test_no_order_is_best_where_no_training_fits():
    for useless, why in ((event(0.5, 1.0, 100), "needs 410.1"), (event(1.0, 0.1, 0), "costs nothing")):
        with pytest.raises(AccountingError, match=why):
            best_order(useless, 0.1, 1e-5)


def test_a_budget_that_is_too_small_for_one_training_names_one_that_is_not():
    with pytest.raises(AccountingError, match=r"needs [\d.]+; raise epsilon") as refused:
        best_order(TRAINING, 0.1, 1e-5)
    enough = float(re.search(r"needs ([\d.]+)", str(refused.value))[1])
    assert best_order(TRAINING, enough, 1e-5)
    with pytest.raises(AccountingError):
        best_order(TRAINING, enough - 0.002, 1e-5)
