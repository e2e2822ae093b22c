"""A private selection and the training that follows it, priced together: against exact laws, and against splits."""

import math

import numpy as np
import pytest
from scipy import stats

from clipless.errors import AccountantsDisagreeError, AccountingError
from clipless.privacy.accounting import selection_composed
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.selection_composed import composed_epsilon, explored_epsilon, selection_profiles
from clipless.privacy.accounting.selection_price import rdp_selection_epsilon, selection_epsilon
from clipless.privacy.events import Composed, PoissonGaussian, Relation

DELTA = 1e-5
MOST = 1200
SIX = Repetitions(mean=6.0)
ORDERS = {
    "ascending": lambda x: x,
    "descending": lambda x: -x,
    "from the middle": lambda x: -np.abs(x - 0.5),
    "from the ends": lambda x: np.abs(x - 0.5),
    "in blocks": lambda x: np.round(2 * x) % 3 + x / 1e3,
}


def spent(noise_multiplier, sampling_rate, steps, relation=Relation.ADD_OR_REMOVE_ONE):
    return PoissonGaussian(
        noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, steps=steps, relation=relation
    )


def rdp_composed_epsilon(candidate, repetitions, final, delta):
    return rdp_selection_epsilon(candidate, repetitions, delta, final)


def generating_function(repetitions):
    """phi on [0, 1], from the masses of K as the paper writes them."""
    gamma = repetitions.gamma
    return lambda z: gamma * z / (1.0 - (1.0 - gamma) * z)


def law_of_best(masses, repetitions, ranked):
    """The law of the best of K, the cells in their order."""
    return np.diff(
        generating_function(repetitions)(np.minimum(1.0, np.concatenate(([0.0], np.cumsum(masses[ranked])))))
    )


def gaussian_divergence(mu, epsilons):
    return stats.norm.cdf(mu / 2 - epsilons / mu) - np.exp(epsilons) * stats.norm.cdf(-mu / 2 - epsilons / mu)


def cells(noise, rate):
    """The two laws of one candidate, a Gaussian release of a row that is drawn or not, in cells; and their middles."""
    borders = np.linspace(-12.0, 13.0, 1201) * max(noise, 1.0)
    absent = np.diff(stats.norm.cdf(borders / noise))
    present = (1 - rate) * absent + rate * np.diff(stats.norm.cdf((borders - 1) / noise))
    return absent, present, (borders[1:] + borders[:-1]) / 2


def attained(first, other, mu, epsilon):
    """Exact divergence of the best and of a Gaussian release together."""
    kept = (first > 0) & (other > 0)
    losses = np.log(first[kept]) - np.log(other[kept])
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.sum(first[kept] * gaussian_divergence(mu, epsilon - losses)) + first[~kept].sum())


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("noise", "rate"), [(0.7, 0.2), (3.0, 1.0), (3.0, 0.2), (1.2, 0.05)])
@pytest.mark.parametrize("final_noise", [0.8, 4.0])
def test_no_order_of_the_candidates_attains_more_together_with_a_final_than_the_price(noise, rate, final_noise):
    repetitions, delta, mu = SIX, 1e-3, 1.0 / final_noise
    candidate, final = spent(noise, rate, 1), spent(final_noise, 1.0, 1)
    bounds = [bound(candidate, repetitions, final, delta) for bound in (composed_epsilon, rdp_composed_epsilon)]
    absent, present, middles = cells(noise, rate)
    for order in ORDERS.values():
        ranked = np.argsort(order(middles), kind="stable")
        p, q = (law_of_best(masses, repetitions, ranked) for masses in (absent, present))
        for epsilon in bounds:
            assert attained(p, q, mu, epsilon) <= delta
            assert attained(q, p, mu, epsilon) <= delta


@pytest.mark.parametrize(("noise", "rate"), [(0.7, 0.2), (3.0, 0.2), (3.0, 1.0)])
def test_profiles_are_above_every_order_at_both_signs_and_convex(noise, rate):
    profiles = selection_profiles(spent(noise, rate, 1), SIX)
    absent, present, middles = cells(noise, rate)
    pairs = {"ascending": [], "descending": []}
    for name, order in ORDERS.items():
        ranked = np.argsort(order(middles), kind="stable")
        pairs[name] = [law_of_best(masses, SIX, ranked) for masses in (present, absent)]
    for i, (alphas, deltas) in enumerate(profiles):
        assert (alphas[0], deltas[0]) == (0.0, 1.0)
        slopes = np.diff(deltas) / np.diff(alphas)
        assert (np.diff(slopes) >= -1e-9 * np.abs(slopes[1:]) - 1e-15).all()
        assert (deltas >= 1.0 - alphas - 1e-12).all()
        some = np.exp(np.linspace(-6.0, 6.0, 49))
        bound = np.interp(some, alphas, deltas)
        for pair in pairs.values():
            p, q = (pair[i], pair[1 - i]) if len(profiles) == 2 else pair
            exact = np.array([np.maximum(p - alpha * q, 0.0).sum() for alpha in some])
            assert (exact <= bound + 1e-9).all()


@pytest.mark.long
def test_a_selection_at_a_whisper_costs_less_than_to_see_its_candidates():
    """Sixteen explorers on MNIST (see the numbers of docs/mathematics.md) and one final."""
    candidate, final = spent(24.1, 0.152, 140), spent(3.02, 0.152, 140)
    repetitions = Repetitions(mean=16.0)
    found = explored_epsilon(candidate, repetitions, final, DELTA)
    split = min(
        selection_epsilon(candidate, repetitions, DELTA * share) + claim(final, DELTA * (1 - share)).epsilon
        for share in (0.05, 0.2, 0.5)
    )
    seen = claim(Composed((candidate.with_steps(16 * 140), final)), DELTA).epsilon
    assert (found, split, seen) == pytest.approx((2.855, 3.129, 2.912), abs=2e-3)


def test_the_price_is_above_that_of_either_alone_and_below_their_sum():
    candidate, final = spent(10.0, 0.1, 100), spent(3.0, 0.1, 200)
    found = explored_epsilon(candidate, SIX, final, DELTA)
    selection, training = selection_epsilon(candidate, SIX, DELTA), claim(final, DELTA).epsilon
    assert max(selection, training) < found
    assert found < selection_epsilon(candidate, SIX, DELTA / 2) + claim(final, DELTA / 2).epsilon


@pytest.mark.long
@pytest.mark.parametrize(("noise", "final"), [(6.0, 1.1), pytest.param(60.0, 10.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("mean", [20.0, pytest.param(1.5, marks=pytest.mark.long)])
def test_renyi_divergences_are_left_out_where_they_say_more(noise, final, mean):
    events = spent(noise, 0.2, 60), Repetitions(mean=mean), spent(final, 0.2, 62), DELTA
    assert explored_epsilon(*events) == composed_epsilon(*events) < rdp_composed_epsilon(*events)


@pytest.mark.long
def test_renyi_divergences_price_what_profiles_cannot(monkeypatch):
    events = spent(6.0, 0.2, 60), SIX, spent(1.1, 0.2, 62), DELTA
    monkeypatch.setattr(selection_composed, "composed_epsilon", lambda *_: math.inf)
    assert explored_epsilon.__wrapped__(*events) == rdp_composed_epsilon(*events)


@pytest.mark.long
def test_without_a_final_or_with_too_little_noise_the_edges_are_priced():
    law, event = SIX, spent(3.0, 0.1, 10)
    assert explored_epsilon(event, law, event.with_steps(0), DELTA) == selection_epsilon(event, law, DELTA)
    assert explored_epsilon(event, law, spent(0.01, 0.1, 10), DELTA) == math.inf
    assert explored_epsilon(spent(0.01, 0.1, 10), law, event, DELTA) == math.inf
    parts = Composed((spent(8.0, 1.0, 5), spent(20.0, 0.5, 5)))
    assert explored_epsilon(parts, law, Composed((event, spent(9.0, 0.2, 5))), DELTA) < math.inf


def test_replace_one_is_priced_by_profiles():
    one, other = (spent(8.0, 0.3, 20, relation) for relation in Relation)
    assert explored_epsilon(other, SIX, other, DELTA) > explored_epsilon(one, SIX, one, DELTA) or explored_epsilon(
        one, SIX, one, DELTA
    ) > explored_epsilon(other, SIX, other, DELTA)
    with pytest.raises(AccountingError, match="Expected one relation of candidate and final"):
        explored_epsilon(one, SIX, other, DELTA)


def test_a_price_below_an_attack_on_the_final_is_not_claimed(monkeypatch):
    monkeypatch.setattr(selection_composed, "composed_epsilon", lambda *_: 0.01)
    with pytest.raises(AccountantsDisagreeError, match="on the final alone attains"):
        explored_epsilon(spent(3.0, 0.1, 11), SIX, spent(2.0, 0.1, 100), DELTA)
