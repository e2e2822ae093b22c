"""How often an attacker finds a row: against exact tests of one step and of Gaussians, and simulated attacks."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.tradeoff.profile import (
    NOTHING,
    merge_splits,
    profile_by_renyi,
    profile_event,
    profile_pair,
    profile_selection,
)
from clipless.privacy.accounting.tradeoff.risk import event_risks, pair_risk, risk_of
from clipless.privacy.events import Composed, Relation
from clipless.privacy.exposure import Basis
from tests.clipless.factories import event

RATES = np.array([1e-6, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])


@pytest.mark.parametrize(
    ("sigma", "caught", "by_pair"),
    [(2.70, (0.0085, 0.052, 0.277), (0.0201, 0.201, 0.955)), (1.335, (0.062, 0.209, 0.576), None)],
)
def test_mnist_at_3_and_8_of_the_guide(sigma, caught, by_pair):
    (found,) = event_risks(event(sigma, 0.152, 140), (140,))
    assert found.caught == pytest.approx(caught, rel=0.01)
    assert found.basis is Basis.PROFILE
    if by_pair:
        pair = pair_risk(3.0, 1e-5)
        assert pair.caught == pytest.approx(by_pair, rel=0.01)
        assert found.at_most(pair) == found == pair.at_most(found)


@pytest.mark.parametrize(("sigma", "steps"), [(0.5, 1), (2.0, 1), (5.0, 40), (100.0, 9)])
def test_gaussians_have_the_power_of_the_gaussian_test_and_hardly_more(sigma, steps):
    mu = math.sqrt(steps) / sigma
    exact = norm.cdf(norm.ppf(RATES) + mu)
    profile = profile_event(event(sigma, 1.0, steps))
    found = profile.caught(RATES)
    assert np.all(found >= exact)
    assert np.all(found <= exact * 1.005 + 1e-9)
    assert 0.0 <= profile.delta(0.0) - (2.0 * norm.cdf(mu / 2.0) - 1.0) < 1e-3


@pytest.mark.parametrize(("sigma", "rate"), [(0.6, 0.1), (1.0, 0.5), (1.5, 0.2)])
def test_one_sampled_step_is_bounded_in_both_directions_and_hardly_above(sigma, rate):
    """The likelihood ratio of one step increases with its output, so that the best tests are thresholds."""
    x = np.linspace(-8.0, 8.0 + 1.0 / sigma, 4001)
    without, joined = norm.sf(x), (1.0 - rate) * norm.sf(x) + rate * norm.sf(x - 1.0 / sigma)
    profile = profile_event(event(sigma, rate, 1))
    present = np.interp(RATES, without[::-1], joined[::-1])
    absent = np.interp(RATES, 1.0 - joined, 1.0 - without)
    best = np.maximum(present, absent)
    assert (absent > present * 1.001).any()
    assert (present > absent * 1.001).any()
    found = profile.caught(RATES)
    assert np.all(found >= best * (1.0 - 1e-4))  # which is interpolated
    assert np.all(found <= best * 1.01)
    advantage = float(np.max(joined - without))
    assert advantage - 1e-6 <= profile.delta(0.0) <= advantage * 1.01


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.0, 0.1, 20), (2.7, 0.152, 10)])
def test_simulated_attacks_by_the_likelihood_ratio_stay_below_and_come_close(sigma, rate, steps):
    draws, generator = 100_000, np.random.default_rng(7)

    def losses(*, joins):
        total = np.zeros(draws)
        for _ in range(steps):
            x = generator.standard_normal(draws)
            x += joins * (generator.random(draws) < rate) / sigma
            total += np.log1p(rate * np.expm1(x / sigma - 0.5 / sigma**2))
        return total

    with_row, without = losses(joins=True), losses(joins=False)
    found = profile_event(event(sigma, rate, steps)).caught(np.array([0.01, 0.1]))
    for rate_, bound in zip((0.01, 0.1), found, strict=True):
        present = np.mean(with_row > np.quantile(without, 1.0 - rate_))
        absent = np.mean(without < np.quantile(with_row, rate_))
        assert 0.92 * bound < max(present, absent) < bound + 5.0 * math.sqrt(bound / draws)


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 1e-5), (0.5, 0.1), (0.0, 0.2), (12.0, 0.0)])
def test_a_pair_says_what_its_worst_mechanism_attains_and_no_less(epsilon, delta):
    """Kairouz, Oh and Viswanath 2015: with probability delta the row shows, otherwise an answer is randomised."""
    profile = profile_pair(epsilon, delta)
    growth = math.exp(epsilon)
    exact = np.minimum(growth * RATES + delta, 1.0 - (1.0 - delta - RATES) / growth)
    assert profile.caught(RATES) == pytest.approx(np.minimum(exact, 1.0), rel=1e-12)
    assert profile.delta(0.0) >= (growth - 1.0 + 2.0 * delta) / (growth + 1.0)
    assert profile.delta(0.0) == pytest.approx((growth - 1.0 + 2.0 * delta) / (growth + 1.0), rel=1e-12)
    assert profile.delta(epsilon) == pytest.approx(delta, abs=1e-15)


def test_sources_order_as_they_should():
    one, other = event(4.0, 0.1, 200), event(9.0, 0.2, 100)
    both = Composed((one, other))
    losses, renyi = profile_event(both), profile_by_renyi(both)
    assert renyi.basis is Basis.RENYI
    assert np.all(losses.caught(RATES) <= renyi.caught(RATES) * (1.0 + 1e-9))
    assert np.all(profile_event(one).caught(RATES) <= losses.caught(RATES))
    for epsilon in (0.3, 1.0, 2.0):
        assert losses.epsilon(losses.delta(epsilon)) == pytest.approx(epsilon, rel=1e-6)


def test_splits_count_with_the_worst_of_them_and_slack_is_added():
    quiet, loud = profile_event(event(9.0, 0.1, 100)), profile_pair(2.0, 1e-3)
    for profiles in ((quiet, loud), (loud, quiet)):
        merged = merge_splits(profiles)
        assert np.all(merged.caught(RATES) == np.maximum(quiet.caught(RATES), loud.caught(RATES)))
        assert merged.delta(0.0) == max(quiet.delta(0.0), loud.delta(0.0)) > min(quiet.delta(0.0), loud.delta(0.0))
        assert merged.basis is Basis.PAIR
    slack = quiet.with_slack(0.01)
    assert np.all(slack.caught(RATES[:4]) >= quiet.caught(RATES[:4]) + 0.01)
    assert slack.delta(0.0) >= quiet.delta(0.0) + 0.01
    assert math.isinf(slack.epsilon(0.009))


def test_a_private_selection_is_above_its_candidate_and_a_final_comes_on_top():
    candidate, final, law = event(20.0, 0.1, 100), event(4.0, 0.1, 100), Repetitions(mean=8.0)
    selected, explored = profile_selection(candidate, law), profile_selection(candidate, law, final)
    assert np.all(profile_event(candidate).caught(RATES) < selected.caught(RATES))
    assert np.all(profile_event(final).caught(RATES) < explored.caught(RATES))
    assert np.all(selected.caught(RATES) < explored.caught(RATES))
    free = event(20.0, 0.1, 0)
    assert profile_selection(free, law).caught(RATES) == pytest.approx(RATES)
    assert profile_selection(free, law, final) is profile_event(final)


def test_nothing_and_everything():
    assert NOTHING.caught(RATES) == pytest.approx(RATES)
    assert NOTHING.epsilon(1e-9) == NOTHING.delta(0.0) == 0.0
    assert profile_event(event(math.inf, 0.5, 100)) is NOTHING
    for bare in (event(0.0, 0.5, 1), event(1.0, 0.5, 10**8), event(0.05, 1.0, 1)):
        found = risk_of(profile_event(bare))
        assert (found.caught, found.advantage) == ((1.0, 1.0, 1.0), 1.0)
    assert risk_of(profile_pair(math.inf, 1e-5)).caught == (1.0, 1.0, 1.0)
    assert risk_of(profile_selection(event(0.0, 0.5, 1), Repetitions(mean=8.0))).advantage == 1.0


def test_one_replaced_row_is_found_more_often_than_one_added():
    added, replaced = (risk_of(profile_event(event(2.7, 0.152, 140, relation))) for relation in Relation)
    assert all(more > less for more, less in zip(replaced.caught, added.caught, strict=True))


def test_probabilities_are_stated_rounded_up():
    profile = profile_event(event(2.7, 0.152, 140))
    found = risk_of(profile)
    exact = (*profile.caught(np.array([0.001, 0.01, 0.1])), profile.delta(0.0))
    for stated, value in zip((*found.caught, found.advantage), exact, strict=True):
        assert value <= stated <= value + 1e-6
