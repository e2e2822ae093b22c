"""What the price of a sweep means to a person: everything that is priced is exposed, by what is known of it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.tradeoff.group import group_price
from clipless.privacy.accounting.tradeoff.profile import profile_event
from clipless.privacy.accounting.tradeoff.risk import pair_risk, risk_of
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from clipless.privacy.exposure import Basis
from clipless.privacy.noisy_counts import scores_event
from sweeper.adapters import dump, parse
from sweeper.privacy.entries import ChargedEvents
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.exposures import expose_price, expose_prices
from sweeper.privacy.pricing import Price, price
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending._composition import Composition
from sweeper.privacy.spending._exploration import Exploration
from sweeper.privacy.spending._stages import Stage
from sweeper.privacy.spending._winner import Winner
from sweeper.privacy.spending.filter import Filter
from sweeper.privacy.spending.slots import Slots
from sweeper.specification.stages import StagePlan

DELTA = 1e-5
ONE = PoissonGaussian(noise_multiplier=6.0, sampling_rate=0.1, steps=50, relation=Relation.ADD_OR_REMOVE_ONE)
OTHER = replace(ONE, noise_multiplier=9.0)
LAW = Repetitions(mean=5.0)
TERMS = Terms(event=replace(ONE, noise_multiplier=30.0), repetitions=LAW)


def exposed(spending, charged, *, tight=True):
    found = expose_prices(spending.prices(charged, DELTA, tight=tight), spending.release(charged, tight=tight))
    return found["winner"].exposure


@pytest.fixture(scope="module")
def slots():
    return Slots.of_plans(3.0, DELTA, (StagePlan(4, 0.3), StagePlan(1, 0.7)), ONE)


def test_compositions_are_exposed_as_they_are_priced():
    both = Composed((ONE, OTHER))
    tight = exposed(Composition(), ChargedEvents(training=[ONE, OTHER]))
    assert tight.risk == risk_of(profile_event(both)).at_most(
        pair_risk(price([ONE, OTHER], DELTA, tight=True).epsilon, DELTA)
    )
    assert tight.groups[0].epsilon == group_price(both, 2, DELTA)[0]
    quick = exposed(Composition(), ChargedEvents(training=[ONE, OTHER]), tight=False)
    assert quick.risk.basis is Basis.RENYI
    assert all(less < more for less, more in zip(tight.risk.caught, quick.risk.caught, strict=True))
    scores = scores_event(4.0, 10, Relation.ADD_OR_REMOVE_ONE)
    apart = exposed(Composition(), ChargedEvents(training=[ONE], validation=[scores]))
    together = exposed(Composition(), ChargedEvents(training=[ONE], validation=[scores], apart=False))
    assert apart.risk == risk_of(profile_event(scores)).at_most(pair_risk(price([scores], DELTA).epsilon, DELTA))
    assert together.risk.advantage > apart.risk.advantage
    replaced = replace(ONE, relation=Relation.REPLACE_ONE)
    reaching = ChargedEvents(training=[replaced], validation=[replaced])
    assert exposed(Composition(), reaching).risk.caught == risk_of(profile_event(Composed((replaced, replaced)))).caught


def test_nothing_spent_exposes_nothing():
    assert exposed(Composition(), ChargedEvents()).risk.caught == pytest.approx((0.001, 0.01, 0.1), abs=2e-5)


def test_slots_price_groups_by_their_own_mechanisms_or_by_group_privacy(slots):
    first, last = (stage.slot for stage in slots.stages)
    pools = Composed(tuple(stage.pool for stage in slots.stages))
    own = exposed(slots, ChargedEvents(training=[first, last.with_steps(10)]))
    assert own.groups[0].epsilon == group_price(pools, 2, DELTA)[0]
    assert all(group.own for group in own.groups)
    fitted = exposed(
        slots,
        ChargedEvents(training=[replace(first, sampling_rate=0.2, noise_multiplier=2.5 * first.noise_multiplier)]),
    )
    assert not any(group.own for group in fitted.groups)
    assert all(less.shift < more.shift for less, more in zip(own.groups, fitted.groups, strict=True))
    assert fitted.risk == own.risk
    assert not exposed(slots, ChargedEvents(training=[first] * 5)).groups[0].own


def test_what_slots_exceed_is_exposed_too(slots):
    pools = Composed(tuple(stage.pool for stage in slots.stages))
    found = slots.release(ChargedEvents()).profile.caught(np.array([1e-9]))
    assert found[0] > profile_event(pools).caught(np.array([1e-9]))[0]


def test_scores_that_cost_more_than_training_are_what_is_exposed(slots):
    scores = PaidScores(event=scores_event(2.0, 20, Relation.ADD_OR_REMOVE_ONE), apart=True, kept=0)
    paid = replace(slots, scores=scores)
    assert exposed(paid, ChargedEvents()).risk.advantage >= risk_of(profile_event(scores.event)).advantage
    assert not exposed(paid, ChargedEvents()).groups[0].own


def test_a_winner_is_exposed_less_than_all_candidates_and_more_than_one():
    winner, charged = Winner(terms=TERMS), ChargedEvents(training=[TERMS.event] * 9, selection=TERMS)
    found = exposed(winner, charged).risk.caught[1]
    one, nine = (risk_of(profile_event(TERMS.event.with_steps(steps * 50))).caught[1] for steps in (1, 9))
    assert one < found < nine
    assert exposed(winner, replace(charged, training=())) == exposed(winner, charged)  # their number is secret
    assert expose_prices(winner.prices(charged, DELTA), winner.release(charged))["front"].exposure is None
    tests = ChargedEvents(test=[ONE.with_steps(500)], selection=TERMS)
    assert exposed(winner, tests).risk.caught[1] > risk_of(profile_event(ONE.with_steps(500))).caught[1] - 1e-9


def test_a_selection_whose_conditions_broke_exposes_every_candidate():
    broken = replace(TERMS, breaks=("One crashed.",))
    charged = ChargedEvents(training=[TERMS.event] * 9, selection=broken)
    everything = risk_of(profile_event(TERMS.event.with_steps(450))).caught
    assert exposed(Winner(terms=TERMS), charged).risk.caught == everything


def test_an_exploration_exposes_selection_and_final():
    budget = Exploration(epsilon=2.0, delta=DELTA, terms=TERMS, final=Stage(slot=ONE, trials=1, spare=5))
    held = ChargedEvents(selection=budget.terms)
    final = risk_of(profile_event(budget.final.pool))
    assert all(more > less for more, less in zip(exposed(budget, held).risk.caught, final.caught, strict=True))
    assert budget.release(ChargedEvents()) is None
    scores = PaidScores(event=scores_event(2.0, 20, Relation.ADD_OR_REMOVE_ONE), apart=True, kept=0)
    paid = replace(budget, scores=scores, terms=replace(budget.terms, scores=scores.event.with_steps(1)))
    assert exposed(paid, ChargedEvents(selection=paid.terms)).risk.advantage > exposed(budget, held).risk.advantage


def test_a_filter_exposes_a_gaussian_of_its_budget_whatever_it_admitted():
    budget = Filter(epsilon=3.0, delta=DELTA)
    found = exposed(budget, ChargedEvents(training=[ONE] * 9))
    signal, slack = budget.gaussian.budget.square**0.5, budget.gaussian.budget.slack
    for rate, caught in zip((0.001, 0.01, 0.1), found.risk.caught, strict=True):
        assert 0.0 <= caught - (norm.cdf(norm.ppf(rate) + signal) + slack) < 2e-5
    assert found.risk.basis is Basis.PROFILE
    assert found == exposed(budget, ChargedEvents())
    assert budget.release(ChargedEvents()).profile.epsilon(DELTA) == pytest.approx(3.0, rel=1e-4)


def test_what_says_nothing_more_is_exposed_by_its_pair_alone():
    found = expose_price(Price(epsilon=3.0, delta=DELTA, events=1), None)
    assert found.risk == pair_risk(3.0, DELTA)
    assert found.risk.basis is Basis.PAIR
    assert not found.groups[0].own


def test_an_exposure_is_read_back_as_it_was_written():
    made = replace(price([ONE], DELTA), exposure=expose_price(price([ONE], DELTA), None))
    assert parse(Price, dump(made)) == made
    assert "exposure" not in dump(price([ONE], DELTA))
