"""What a release takes of an account: one additive number that is never too small, and exact when it is added up."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clipless.errors import AccountingError
from clipless.privacy.accounting.gaussian_filter import GaussianFilter
from clipless.privacy.events import Relation
from clipless.privacy.gaussian import GaussianCost, gaussian_divergence
from clipless.privacy.noisy_counts import scores_event
from sweeper.account.cost import (
    SQUARE_STEP,
    budget_of,
    epsilon_of,
    epsilon_within,
    event_cost,
    is_covered,
    is_whole,
    is_within,
    raised_budget,
    rounded_down,
    rounded_up,
    scores_cost,
    total,
)


def test_an_account_has_the_budget_of_a_filter():
    assert budget_of(3.0, 1e-5).square == pytest.approx(GaussianFilter(3.0, 1e-5).budget.square, rel=1e-7)


COSTS = st.builds(GaussianCost, st.floats(0.0, 50.0), st.floats(0.0, 1e-3))


@pytest.mark.parametrize("noise", [0.9, 16.0, 300.0])
def test_a_pool_of_scores_holds_its_releases_however_it_is_divided(noise):
    pool = scores_event(noise, 60, Relation.ADD_OR_REMOVE_ONE)
    reserved = scores_cost(pool, 6.8, 1e-5)
    for parts in ([1] * 60, [7] * 8 + [4], [60]):
        drawn = total(event_cost(replace(pool, steps=steps), 6.8, 1e-5) for steps in parts)
        assert is_within(drawn, reserved)
    assert reserved.square <= event_cost(pool, 6.8, 1e-5).square + 60 * SQUARE_STEP
    assert is_whole(reserved)


def test_four_sweeps_at_epsilon_3_fit_into_6_8_and_a_fifth_does_not():
    one, budget = rounded_up(GaussianCost(0.721**2, 1e-7)), budget_of(6.8, 1e-5)
    assert epsilon_of(one, 1e-5) == pytest.approx(3.01, abs=0.01)
    assert is_within(total([one] * 4), budget)
    assert not is_within(total([one] * 5), budget)


@given(st.floats(0.05, 60.0), st.floats(1e-9, 0.5))
def test_a_budget_never_costs_more_than_it_says(epsilon, delta):
    budget = budget_of(epsilon, delta)
    assert is_whole(budget)
    assert gaussian_divergence(math.sqrt(budget.square), epsilon) + budget.slack <= delta
    assert epsilon * (1 - 1e-6) <= epsilon_of(budget, delta) <= epsilon * (1 + 1e-9)


@given(st.lists(COSTS, max_size=30))
def test_costs_are_rounded_up_and_their_sums_are_exact(costs):
    whole = [rounded_up(cost) for cost in costs]
    assert all(is_within(cost, up) and is_whole(up) for cost, up in zip(costs, whole, strict=True))
    assert all(is_within(rounded_down(cost), cost) for cost in costs)
    added = total(whole)
    assert Fraction(added.square) == sum(Fraction(cost.square) for cost in whole)
    assert Fraction(added.slack) == sum(Fraction(cost.slack) for cost in whole)
    assert added == total(whole[::-1])


def test_what_no_signal_covers_has_no_epsilon():
    assert epsilon_of(GaussianCost(math.inf, 0.0), 1e-5) == math.inf
    assert epsilon_of(GaussianCost(1.0, 1e-5), 1e-5) == math.inf
    assert epsilon_of(GaussianCost(), 1e-5) == 0.0
    assert rounded_up(GaussianCost(math.inf, 0.0)).square == math.inf
    assert not is_whole(GaussianCost(math.inf, 0.0))
    assert not is_within(GaussianCost(math.nan, 0.0), GaussianCost(1.0, 1.0))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-5), (math.nan, 1e-5), (math.inf, 1e-5), (1.0, 0.0), (1.0, 1.0)]
)
def test_a_budget_that_is_none_is_refused(epsilon, delta):
    with pytest.raises(AccountingError, match="epsilon > 0 and 0 < delta < 1"):
        budget_of(epsilon, delta)


def test_a_budget_of_which_nothing_can_be_spent_is_refused():
    with pytest.raises(AccountingError, match="of which something can be spent"):
        budget_of(1e-9, 1e-16)


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 1e-5), (3.5, 1e-5), (9.0, 1e-5), (3.0, 1e-4), (60.0, 1e-5)])
def test_a_budget_is_covered_by_signal_and_slack_together(epsilon, delta):
    opened = budget_of(3.0, 1e-5)
    raised = raised_budget(epsilon, delta, opened)
    assert is_within(opened, raised)
    assert is_covered(raised, epsilon, delta)
    assert gaussian_divergence(math.sqrt(raised.square), epsilon) + raised.slack <= delta
    if epsilon < 60.0:  # for twenty times the signal there is not enough delta
        assert raised.slack * opened.square == pytest.approx(opened.slack * raised.square, rel=1e-6)
    assert not is_covered(GaussianCost(raised.square + SQUARE_STEP, raised.slack), epsilon, delta)
    assert not is_covered(GaussianCost(raised.square, raised.slack + 0.01 * (delta - raised.slack)), epsilon, delta)
    assert not is_covered(GaussianCost(0.0, delta), epsilon, delta)


def test_what_would_fit_takes_signal_and_slack_alike():
    budget = budget_of(3.0, 1e-5)
    assert epsilon_within(budget, budget, 1e-5) == pytest.approx(3.0, abs=1e-6)
    half = GaussianCost(budget.square / 2, budget.slack / 2)
    assert epsilon_within(half, budget, 1e-5) == epsilon_of(half, 1e-5)
    assert epsilon_within(GaussianCost(budget.square, budget.slack / 2), budget, 1e-5) == epsilon_of(half, 1e-5)
    assert epsilon_within(GaussianCost(budget.square, 0.0), budget, 1e-5) == 0.0
