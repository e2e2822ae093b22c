"""Whole-numbered Laplace noise: the law by enumeration of its parts and by tests of fit."""

from fractions import Fraction
from math import exp

import numpy as np
import pytest
from scipy import stats

from clipless.errors import AccountingError
from clipless.privacy import discrete_noise
from clipless.privacy.discrete_noise import discrete_laplace, scale_at_least
from clipless.privacy.randomness import SecureSource
from clipless.testing import SeededSource

COUNT = 200_000
UNLIKELY = 1e-9


def fits(drawn, probability_of, values):
    """P-value of a test of fit on given values and the rest."""
    expected = np.array([probability_of(value) for value in values])
    observed = np.array([(drawn == value).sum() for value in values])
    rest = len(drawn) - observed.sum()
    return stats.chisquare([*observed, rest], [*(expected * len(drawn)), (1 - expected.sum()) * len(drawn)]).pvalue


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(20)])
@pytest.mark.parametrize("source", [SeededSource(1), SecureSource()], ids=["seeded", "secure"])
def test_the_law_is_that_of_the_whole_numbered_laplace_distribution(scale, source):
    drawn = discrete_laplace(COUNT, scale, source)
    ratio = exp(-1 / scale)
    values = range(-round(3 * scale) - 1, round(3 * scale) + 2)
    assert fits(drawn, lambda z: (1 - ratio) / (1 + ratio) * ratio ** abs(z), values) > UNLIKELY


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 1), (1, 3), (2, 3), (999, 1000)])
def test_exponentials_come_true_as_often_as_they_should(numerator, denominator):
    drawn = discrete_noise._bernoulli_exp(np.full(COUNT, numerator), denominator, SeededSource(2))
    expected = exp(-numerator / denominator)
    assert stats.binomtest(int(drawn.sum()), COUNT, expected).pvalue > UNLIKELY


def test_whole_numbers_below_a_bound_are_uniform():
    drawn = discrete_noise._below(np.full(COUNT, 7), SeededSource(3))
    assert fits(drawn, lambda _: 1 / 7, range(6)) > UNLIKELY
    assert set(np.unique(drawn)) == set(range(7))


def test_draws_are_independent_of_each_other():
    drawn = discrete_laplace(COUNT, Fraction(5), SeededSource(4)).astype(float)
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 6 / np.sqrt(COUNT)


@pytest.mark.parametrize("scale", [2.0**-20, 0.3, 1.0, 3.3333, 10 / 0.7, 12345.678, 2.0**19])
def test_a_scale_is_never_rounded_down_and_hardly_up(scale):
    found = scale_at_least(scale)
    assert found >= Fraction(scale)
    assert float(found) <= scale * 1.00001 + 2.0**-19
    assert max(found.numerator, found.denominator) <= 2**20


@pytest.mark.parametrize("scale", [0.0, -1.0, 2.0**20, float("nan"), float("inf")])
def test_a_scale_that_cannot_be_sampled_is_refused(scale):
    with pytest.raises(AccountingError, match="choose another epsilon"):
        scale_at_least(scale)
