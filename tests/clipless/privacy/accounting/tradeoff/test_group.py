"""What several rows cost together: exact for Gaussians and for one sampled step, simulated, and by group privacy."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binom, norm

from clipless.errors import AccountingError
from clipless.privacy.accounting.pld import pld_epsilon
from clipless.privacy.accounting.tradeoff.group import chain_rows, expose, group_price
from clipless.privacy.accounting.tradeoff.profile import NOTHING, profile_event, profile_pair
from clipless.privacy.events import Composed, Relation
from tests.clipless.factories import event

DELTA = 1e-5
MNIST = event(2.70, 0.152, 140)


def gaussian_delta(mu, epsilon):
    return norm.cdf(mu / 2.0 - epsilon / mu) - math.exp(epsilon + norm.logcdf(-mu / 2.0 - epsilon / mu))


def test_mnist_at_3_of_the_guide():
    found = expose(profile_event(MNIST), DELTA, MNIST)
    assert [one.rows for one in found.groups] == [2, 4, 8]
    assert [one.epsilon for one in found.groups] == pytest.approx([6.7, 15.8, 40.4], rel=0.005)
    assert all(one.own for one in found.groups)
    shifts = [found.risk.advantage, *(one.shift for one in found.groups)]
    assert all(less < more for less, more in pairwise(shifts))


@pytest.mark.parametrize("rows", [1, 2, 8])
@pytest.mark.parametrize(("sigma", "steps"), [(3.0, 1), (20.0, 30)])
def test_gaussians_are_those_of_a_larger_signal_and_hardly_more(rows, sigma, steps):
    mu = rows * math.sqrt(steps) / sigma
    epsilon, shift = group_price(event(sigma, 1.0, steps), rows, DELTA)
    assert gaussian_delta(mu, epsilon) <= DELTA < gaussian_delta(mu, 0.995 * epsilon)
    assert 0.0 <= shift - gaussian_delta(mu, 0.0) < 1e-3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rows", [1, 2, 4, 8])
@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.3), (2.0, 0.05)])
def test_one_sampled_step_is_bounded_in_both_directions(rows, sigma, rate):
    """The divergences by quadrature over outputs, of densities."""
    x = np.linspace(-12.0, 12.0 + rows / sigma, 200_001)
    without = norm.pdf(x)
    joined = binom.pmf(np.arange(rows + 1), rows, rate) @ norm.pdf(x - np.arange(rows + 1)[:, None] / sigma)

    def worst(epsilon):
        growth, width = math.exp(epsilon), x[1] - x[0]
        both = (joined - growth * without, without - growth * joined)
        return max(float(np.maximum(one, 0.0).sum() * width) for one in both)

    epsilon, shift = group_price(event(sigma, rate, 1), rows, DELTA)
    assert worst(epsilon) <= DELTA < worst(0.99 * epsilon)
    assert 0.0 <= shift - worst(0.0) < 2e-3 * rows


def test_one_row_costs_what_it_costs():
    epsilon, shift = group_price(MNIST, 1, DELTA)
    assert epsilon == pytest.approx(pld_epsilon(MNIST, DELTA), rel=1e-3)
    assert shift == pytest.approx(profile_event(MNIST).delta(0.0), rel=1e-3)


def test_a_simulated_attack_on_two_rows_stays_below_and_comes_close():
    sigma, rate, steps, draws = 2.0, 0.2, 20, 100_000
    generator, weights = np.random.default_rng(3), binom.pmf(np.arange(3), 2, rate)

    def losses(*, join):
        total = np.zeros(draws)
        for _ in range(steps):
            x = generator.standard_normal(draws) + join * generator.binomial(2, rate, draws) / sigma
            total += np.log(sum(w * np.exp(i * x / sigma - (i / sigma) ** 2 / 2.0) for i, w in enumerate(weights)))
        return total

    _, shift = group_price(event(sigma, rate, steps), 2, DELTA)
    attained = np.mean(losses(join=True) > 0.0) - np.mean(losses(join=False) > 0.0)
    assert 0.97 * shift < attained < shift + 5.0 / math.sqrt(draws)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spent", [MNIST, event(5.0, 1.0, 20), Composed((event(8.0, 0.15, 400), MNIST))])
def test_own_profiles_are_never_above_group_privacy(spent):
    derived = chain_rows(profile_event(spent), (2, 4, 8), DELTA)
    for rows, (epsilon, shift) in derived.items():
        own = group_price(spent, rows, DELTA)
        assert own[0] <= epsilon
        assert own[1] <= shift


def test_group_privacy_of_a_pair_is_that_of_its_worst_mechanism():
    """Without a delta an answer is randomised: what k rows may change is k times epsilon, and no less."""
    epsilon = 0.7
    growth = math.exp(epsilon)
    derived = chain_rows(profile_pair(epsilon, 0.0), (1, 2, 4), 1e-30)
    for rows, (found, _) in derived.items():
        assert rows * epsilon <= found <= rows * epsilon + 0.03
    exact = (growth - 1.0) / (growth + 1.0)
    assert exact <= derived[1][1] <= exact + 0.02
    assert math.isinf(chain_rows(profile_pair(1.0, 1e-3), (2,), 1e-3)[2][0])  # two rows show more often than one
    assert chain_rows(profile_pair(1.0, 1e-3), (2,), 1e-3 * (1.0 + math.e) * 1.001)[2][0] == pytest.approx(
        2.0, abs=0.03
    )


def test_what_has_no_profile_of_its_own_is_derived():
    replaced = event(2.7, 0.152, 140, Relation.REPLACE_ONE)
    found = expose(profile_event(replaced), DELTA, replaced)
    assert not any(one.own for one in found.groups)
    many = Composed(tuple(event(20.0 + i, 0.1, 10) for i in range(5)))
    assert not any(one.own for one in expose(profile_pair(3.0, DELTA), DELTA, many).groups)
    assert not any(one.own for one in expose(profile_event(MNIST), DELTA).groups)


def test_nothing_everything_and_nonsense():
    free = event(math.inf, 0.1, 10)
    assert group_price(free, 8, DELTA) == (0.0, 0.0)
    assert all(one.shift == 0.0 for one in expose(NOTHING, DELTA, free).groups)
    for loud in (event(0.01, 0.1, 1), event(0.05, 1.0, 1)):
        assert group_price(loud, 8, DELTA) == (math.inf, 1.0)
    assert math.isinf(group_price(Composed((MNIST, event(5.0, 0.1, 10))), 2, 1e-16)[0])
    with pytest.raises(AccountingError, match="Expected 0 < delta < 1"):
        expose(NOTHING, 0.0)
