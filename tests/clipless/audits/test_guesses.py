"""What right guesses prove of any mechanism."""

import numpy as np
import pytest
from scipy import special, stats

from clipless.audits.guesses import guessed_epsilon, guesses_bound, guesses_p_value
from clipless.errors import AuditError


@pytest.mark.parametrize(("guesses", "right", "epsilon"), [(100, 80, 1.0), (50, 50, 2.0), (10, 0, 0.0)])
def test_without_delta_the_p_value_is_the_tail_of_a_binomial(guesses, right, epsilon):
    exact = stats.binom.sf(right - 1, guesses, special.expit(epsilon))
    assert guesses_p_value(1000, guesses, right, epsilon, 0.0) == pytest.approx(exact)


def test_delta_adds_what_the_theorem_says():
    """By its definition: 2 m delta max_i P(v > B >= v - i) / i."""
    chance = stats.binom.pmf(np.arange(21), 20, special.expit(0.7))
    worst = max(chance[15 - i : 15].sum() / i for i in range(1, 16))
    expected = chance[15:].sum() + 2 * 100 * 1e-3 * worst
    assert guesses_p_value(100, 20, 15, 0.7, 1e-3) == pytest.approx(expected)


def test_the_bound_of_randomised_response_is_below_its_epsilon_and_near_it():
    generator, epsilon = np.random.default_rng(0), 1.5
    above = []
    for _ in range(100):
        coins = generator.random(2000) < 0.5
        told = np.where(generator.random(2000) < special.expit(epsilon), coins, ~coins)
        scores = np.where(told, 1.0, -1.0) + 1e-3 * generator.random(2000)
        above.append(guessed_epsilon(scores, coins, 0.0, 0.95))
    assert sum(bound > epsilon for bound in above) <= 12
    assert np.median(above) > 0.6 * epsilon


def test_all_right_proves_much_and_half_right_nothing():
    assert guesses_bound(1000, 100, 100, 1e-6, 0.95) == pytest.approx(3.5, abs=0.1)
    assert guesses_bound(1000, 100, 50, 0.0, 0.95) == 0.0
    assert guesses_bound(1000, 100, 70, 1.0 - 1e-9, 0.95) == 0.0


def test_numbers_that_do_not_fit_together_are_refused():
    with pytest.raises(AuditError, match="right <= guesses <= canaries"):
        guesses_bound(10, 5, 6, 0.0, 0.95)
