"""Whole-numbered Laplace noise: the law by enumeration of its parts and by tests of fit."""

from fractions import Fraction
from math import exp

import numpy as np
import pytest
from scipy import stats

from clipless.errors import AccountingError
from clipless.privacy import discrete_noise
from clipless.privacy.discrete_noise import discrete_laplace, laplace_share, scale_at_least
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


@pytest.mark.sampled(3)
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


def negative_binomial(ratio, power, values):
    """The law of numbers of a power, by its recursion."""
    found = [(1.0 - ratio) ** power]
    for k in range(1, max(values) + 1):
        found.append(found[-1] * ratio * (k - 1 + power) / k)
    return found


@pytest.mark.sampled(5)
@pytest.mark.parametrize("power", [Fraction(1, 2), Fraction(1, 7), Fraction(3, 5), Fraction(1, 100)])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3), Fraction(25, 2)])
def test_the_urn_gives_a_colour_a_negative_binomial_part_of_a_geometric_number(scale, power):
    source = SeededSource(11)
    draws = discrete_noise._geometric(COUNT, scale.numerator, source) // scale.denominator
    values = range(round(3 * scale) + 1)
    law = negative_binomial(exp(-1 / scale), float(power), values)
    assert fits(discrete_noise._urn(draws, power, source), lambda k: law[k], values) > UNLIKELY


@pytest.mark.sampled(4)
@pytest.mark.parametrize("parties", [1, 2, pytest.param(5, marks=pytest.mark.long)])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(7, 2)])
def test_shares_of_as_many_parties_as_are_needed_sum_to_the_whole_numbered_laplace_law(scale, parties):
    source = SeededSource(12)
    drawn = sum(laplace_share(COUNT, scale, Fraction(1, parties), source) for _ in range(parties))
    ratio = exp(-1 / scale)
    values = range(-round(3 * scale) - 1, round(3 * scale) + 2)
    assert fits(drawn, lambda z: (1 - ratio) / (1 + ratio) * ratio ** abs(z), values) > UNLIKELY


@pytest.mark.sampled(2)
@pytest.mark.parametrize("power", [pytest.param(Fraction(3), marks=pytest.mark.long), Fraction(5, 2), Fraction(1, 3)])
def test_the_variance_of_a_share_is_its_power_times_that_of_the_whole(power):
    drawn = laplace_share(COUNT, Fraction(4), power, SeededSource(13))
    whole = discrete_laplace(COUNT, Fraction(4), SeededSource(14))
    assert drawn.var() == pytest.approx(float(power) * whole.var(), rel=0.05)
    assert abs(drawn.mean()) < 6.0 * drawn.std() / COUNT**0.5


def test_more_noise_than_is_needed_hides_no_less():
    """The largest log ratio of the law of two shares' sum and its shift, at a power of 3 / 2, by enumeration."""
    ratio, reach = exp(-1 / 2.0), 400
    one_side = np.array(negative_binomial(ratio, 1.5, range(reach)))
    law = np.convolve(one_side, one_side[::-1])[reach - 1 - 60 : reach + 60]
    assert np.abs(np.diff(np.log(law))).max() <= 1 / 2.0


@pytest.mark.parametrize("power", [Fraction(0), Fraction(-1, 2), Fraction(2**21), Fraction(1, 2**21)])
def test_a_share_of_no_or_of_absurd_power_is_refused(power):
    with pytest.raises(AccountingError, match="power"):
        laplace_share(3, Fraction(1), power, SeededSource(0))


def test_a_share_of_a_scale_that_cannot_be_sampled_is_refused():
    with pytest.raises(AccountingError, match="scale_at_least"):
        laplace_share(3, Fraction(1, 2**30), Fraction(1), SeededSource(0))
