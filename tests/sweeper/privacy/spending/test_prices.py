"""The three prices and their statements: composition, private selection, private scores."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from clipless.privacy.noisy_counts import scores_event
from sweeper.privacy.entries import ChargedEvents
from sweeper.privacy.pricing import price
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending._composition import Composition
from sweeper.privacy.spending._winner import Winner
from sweeper.rounding import round_up

DELTA = 1e-5
QUESTIONS = ("winner", "front", "everything")
GEOMETRIC = Repetitions(mean=10.0)
ONE = PoissonGaussian(noise_multiplier=3.0, sampling_rate=0.05, steps=2000, relation=Relation.ADD_OR_REMOVE_ONE)
TERMS = Terms(event=ONE, repetitions=GEOMETRIC)


def answers(training, delta, *, tight=False, **charged):
    """Return the prices of a sweep without a budget."""
    terms = charged.get("selection")
    spending = Composition() if terms is None else Winner(terms=terms)
    return spending.prices(ChargedEvents(training=training, **charged), delta, tight=tight)


def test_an_adaptive_search_pays_the_composition_for_everything_it_may_release(event):
    found = answers([event, ONE, event], DELTA)
    assert tuple(found) == QUESTIONS
    whole = price([event, ONE, event], DELTA).epsilon
    assert all((answer.epsilon, answer.events, answer.delta) == (whole, 3, DELTA) for answer in found.values())
    cost = f"epsilon {round_up(whole)} at delta 1e-05, for the search and every model: the composition of every trial of the sweep (3)"
    assert all(cost in answer.statement for answer in found.values())
    assert len({answer.statement for answer in found.values()}) == 1


def test_the_winner_of_a_private_selection_costs_what_its_accountant_says():
    found = answers([ONE] * 3, DELTA, selection=TERMS)
    winner = found["winner"]
    assert winner.epsilon == pytest.approx(5.03, rel=0.01)
    assert winner.epsilon >= selection_epsilon(ONE, GEOMETRIC, DELTA)
    assert f"epsilon {round_up(winner.epsilon)} at delta 1e-05" in winner.statement
    assert (
        f"(geometric, mean 10), of which each spends epsilon {round_up(claim(ONE, DELTA).epsilon)}" in winner.statement
    )


def test_what_was_not_released_has_no_price_that_could_be_stated():
    found = answers([ONE] * 3, DELTA, selection=TERMS)
    for question in ("front", "everything"):
        assert found[question].epsilon == math.inf
        assert "was not released" in found[question].statement
        assert "give away how many there were" in found[question].statement


def test_nothing_that_is_said_of_a_held_selection_depends_on_how_many_there_were(event):
    many, none = (answers([ONE] * k, DELTA, selection=TERMS, validation=[event] * k) for k in (40, 0))
    assert many == none


def test_broken_conditions_cost_the_composition_and_are_named():
    broken = replace(TERMS, breaks=("Candidate t0002 crashed.", "The sweep was interrupted."))
    found = answers([ONE] * 10, DELTA, selection=broken)
    assert {answer.epsilon for answer in found.values()} == {price([ONE] * 10, DELTA).epsilon}
    assert found["winner"].epsilon == pytest.approx(13.6, rel=0.01)
    said = found["winner"].statement
    assert "Private selection (geometric, mean 10) was asked for, but its price does not hold" in said
    assert "Candidate t0002 crashed. The sweep was interrupted. So every training is charged." in said


def test_nothing_spent_costs_nothing_and_a_tight_answer_asks_both_accountants(event):
    assert {answer.epsilon for answer in answers([], DELTA).values()} == {0.0}
    loose, tight = (answers([event, event], DELTA, tight=flag)["winner"].epsilon for flag in (False, True))
    assert tight == claim(Composed((event, event)), DELTA).epsilon < loose


# --- scores of private rows


def test_scores_of_other_rows_cost_no_more_than_the_dearer_side(event):
    cheap, dear = (scores_event(noise, 10, event.relation) for noise in (50.0, 1.0))
    trained = price([event, event], DELTA).epsilon
    with_cheap = answers([event, event], DELTA, validation=[cheap, cheap], test=[cheap])["everything"]
    assert with_cheap.epsilon == trained
    assert with_cheap.events == 2
    assert "whichever is more, for a row is in one split only" in with_cheap.statement
    with_dear = answers([event, event], DELTA, validation=[dear, dear])["everything"]
    assert with_dear.epsilon == price([dear, dear], DELTA).epsilon > trained
    assert answers([event], DELTA, test=[dear])["winner"].epsilon == price([dear], DELTA).epsilon


def test_replacing_a_row_can_reach_two_splits_and_everything_is_composed(event):
    trained = replace(event, relation=Relation.REPLACE_ONE)
    scored = scores_event(30.0, 10, Relation.REPLACE_ONE)
    both = answers([trained], DELTA, validation=[scored])["everything"]
    assert both.epsilon == price([trained, scored], DELTA).epsilon > price([trained], DELTA).epsilon
    assert both.events == 1
    assert "replacing a row can reach two splits" in both.statement


def test_private_scores_are_selected_by_too_and_the_dearer_side_is_the_price(event):
    dear = scores_event(1.0, 10, event.relation)
    cheap = scores_event(500.0, 10, event.relation)
    by_scores = answers([], DELTA, selection=replace(TERMS, scores=dear))["winner"].epsilon
    assert by_scores == selection_epsilon(dear, GEOMETRIC, DELTA)
    alone = answers([], DELTA, selection=TERMS)["winner"].epsilon
    assert answers([], DELTA, selection=replace(TERMS, scores=cheap))["winner"].epsilon == alone < by_scores
    assert answers([], DELTA, selection=TERMS, test=[dear])["winner"].epsilon == price([dear], DELTA).epsilon > alone


def test_splits_that_rows_do_not_choose_alone_cost_their_composition(event):
    scored = scores_event(30.0, 10, event.relation)
    both = answers([event], DELTA, validation=[scored], test=[scored], apart=False)["front"]
    assert both.epsilon == price([event, scored, scored], DELTA).epsilon > price([event], DELTA).epsilon
    assert "the data do not say that the split of a row is its own matter" in both.statement
    assert answers([event], DELTA, apart=False) == answers([event], DELTA)


def test_a_candidate_spends_the_dearer_of_training_and_scores(event):
    dear = scores_event(0.5, 10, event.relation)
    said = answers([], DELTA, selection=replace(TERMS, scores=dear))["winner"].statement
    assert f"of which each spends epsilon {round_up(price([dear], DELTA).epsilon)};" in said


# --- a number of trainings that results chose


@pytest.mark.parametrize(("tight", "over"), [(False, 2.67), (True, 8.83)])
def test_a_price_of_trainings_that_were_ended_at_the_worst_moment_is_too_small(tight, over):
    """The number that docs/mathematics.md states, by dynamic programming over the privacy loss.

    V_n(l) = max(stop_n(l), E V_{n+1}(l + mu^2/2 + mu Z)) with stop_n(l) = max(0, 1 - exp(eps_n - l)): what exceeds the
    price of n Gaussian trainings, eps_n, where the loss so far is l. V_0(0) would be at most delta if stopping were free.
    """
    most, sigma, step = 32, 3.0, 0.02
    one = PoissonGaussian(noise_multiplier=sigma, sampling_rate=1.0, steps=1, relation=Relation.ADD_OR_REMOVE_ONE)
    prices = [price([one] * n, DELTA, tight=tight).epsilon for n in range(1, most + 1)]
    mu, losses = 1 / sigma, np.arange(-25, 40, step)
    reach = math.ceil(9 * mu / step)
    jump = norm.pdf(step * np.arange(-reach, reach + 1), mu**2 / 2, mu)
    value = np.zeros_like(losses)
    for epsilon in reversed(prices):
        value = np.maximum(value, -np.expm1(np.minimum(0, epsilon - losses)))
        value = np.correlate(np.pad(value, reach, mode="edge"), jump / jump.sum(), "valid")
    assert np.interp(0.0, losses, value) / DELTA == pytest.approx(over, rel=0.01)
    lengths = np.arange(1, most + 1)
    mean, spread = lengths * mu**2 / 2, mu * np.sqrt(lengths)
    fixed = norm.sf((prices - mean) / spread) - np.exp(prices) * norm.sf((prices + mean) / spread)
    assert fixed.max() <= DELTA
