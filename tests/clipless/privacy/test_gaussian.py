"""Gaussian privacy in closed form: never below what a hundred digits say, and close to it."""

import math

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clipless.privacy.gaussian import gaussian_divergence, largest_signal, smallest_epsilon

SIGNALS, EPSILONS, DELTAS = st.floats(1e-3, 12.0), st.floats(0.0, 60.0), st.floats(1e-12, 0.5)


def exact_divergence(signal, epsilon):
    """The divergence and the first of the two probabilities that it is the difference of, to a hundred digits."""
    with mpmath.workdps(100):
        mu, e = mpmath.mpf(signal), mpmath.mpf(epsilon)
        first = mpmath.ncdf(-e / mu + mu / 2)
        return first - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2), first


@given(SIGNALS, EPSILONS)
def test_a_divergence_is_rounded_up_by_little(signal, epsilon):
    exact, first = exact_divergence(signal, epsilon)
    found = gaussian_divergence(signal, epsilon)
    assert min(exact, 1) <= found or exact < 1e-290
    assert found <= exact + 3e-11 * first + 1e-290  # less than this is told as its first probability alone


@given(st.floats(0.01, 60.0), DELTAS)
def test_the_largest_signal_is_within_delta_and_the_next_is_not(epsilon, delta):
    signal = largest_signal(epsilon, delta)
    assert gaussian_divergence(signal, epsilon) <= delta
    assert gaussian_divergence(signal * (1 + 1e-7), epsilon) > delta


@given(SIGNALS, DELTAS)
def test_an_epsilon_suffices_and_one_below_does_not(signal, delta):
    epsilon = smallest_epsilon(signal, delta)
    assert exact_divergence(signal, epsilon)[0] <= delta
    assert epsilon < 1e-9 or exact_divergence(signal, epsilon * (1 - 1e-6) - 1e-7)[0] > delta


def test_no_signal_costs_nothing_and_a_large_one_is_within_reach():
    assert gaussian_divergence(0.0, 0.0) == smallest_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_divergence(1000.0, 0.0) == pytest.approx(1.0)
    assert math.isfinite(smallest_epsilon(64.0, 1e-300))
