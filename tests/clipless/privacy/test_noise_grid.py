"""Noise as whole numbers of steps: exact up to a deviation, and refused beyond, with the reason why."""

import inspect
from decimal import Decimal, getcontext
from math import log, sqrt

import numpy as np
import pytest
import torch

from clipless.curves.release import Gaussian
from clipless.curves.toeplitz import SquareRoot
from clipless.curves.tree import Change, Tree
from clipless.errors import AccountingError
from clipless.privacy import noisy_counts
from clipless.privacy.noise_grid import MOST_STEPS, check_steps, released_step, step_for
from clipless.privacy.noisy_counts import counts_sensitivity, release_scores
from clipless.privacy.randomness import RandomSource, SecureSource
from clipless.testing import SeededSource

INF, NAN = float("inf"), float("nan")
DRAWS = 200_000


class LargestSource(RandomSource):
    """The words of which the largest normal numbers are made."""

    secure = False

    def random_bytes(self, count):
        return bytearray(count)


def released(total, std):
    """The sum of a row or of none with noise, in steps of the grid, as a step of training computes it."""
    noise = (SeededSource(1).normal(DRAWS) * std).round_()
    return torch.full((DRAWS,), float(total), dtype=torch.float64).addcmul_(noise, torch.ones_like(noise))


def test_no_normal_number_leaves_the_doubles_that_hold_every_whole_number():
    largest = float(LargestSource().normal(2).abs().max())
    assert 10.19 < largest < 10.2
    assert 10.2 * MOST_STEPS < 2.0**53 < 10.2 * 2 * MOST_STEPS


def test_beyond_the_limit_neighbouring_sums_leave_out_different_outcomes():
    """Where the reason lies: half of what one can release is impossible for the other."""
    without, with_one = (released(total, 64 * MOST_STEPS) for total in (0, 1))
    odd = lambda outcomes: (outcomes.abs().lt(2.0**54) & outcomes.remainder(4).eq(2)).sum().item()  # noqa: E731
    seen = without.abs().gt(2.0**53) & without.abs().lt(2.0**54)
    assert seen.sum() > 1000
    assert odd(without[seen]) > 0.4 * seen.sum()
    assert odd(with_one[seen]) == 0


@pytest.mark.parametrize("share", [1.0, 0.77])
def test_within_the_limit_outcomes_of_one_sum_are_those_of_its_neighbour_and_equally_even(share):
    std = share * MOST_STEPS
    without, with_one = (total + SeededSource(1).noise(DRAWS, std, 1.0) for total in (0.0, 1.0))
    assert torch.equal(with_one - 1.0, without)
    assert float(without.remainder(2).mean()) == pytest.approx(0.5, abs=0.006)  # five standard deviations


def test_rounding_to_the_nearest_would_tell_even_sums_from_odd_ones():
    """Why noise is cut downwards: a double lies in the middle of two whole numbers often, and the even one wins."""
    nearest = (SeededSource(1).normal(DRAWS) * MOST_STEPS).round_()
    assert float(nearest.remainder(2).mean()) < 0.48


@pytest.mark.parametrize("std", [MOST_STEPS * 1.0001, INF, NAN])
def test_noise_that_leaves_gaps_is_refused_before_it_is_drawn(std):
    class Silent(SeededSource):
        def random_bytes(self, count):
            raise AssertionError(f"{count} bytes were drawn")

    with pytest.raises(AccountingError, match=r"Expected noise of at most 2\^49 steps.*got std=.*raise epsilon"):
        Silent(0).noise(3, std, 1.0)
    with pytest.raises(AccountingError):
        check_steps(std, 1.0)
    check_steps(MOST_STEPS, 1.0)
    assert SecureSource().noise(3, MOST_STEPS * 2.0**-30, 2.0**-30).shape == (3,)


def test_a_step_is_as_fine_as_is_exact():
    assert step_for(1.0, 2.0**-42, 0.5) == 2.0**-42
    assert step_for(2.0**7, 2.0**-42, 0.5) == 2.0**-42
    assert step_for(2.0**7 + 1, 2.0**-42, 0.5) == 2.0**-41
    assert step_for(2.0**48, 2.0**-42, 0.5) == 0.5
    with pytest.raises(AccountingError, match=r"2.81475e\+14 in all, got std=5.6"):
        step_for(2.0**49, 2.0**-42, 0.5)


@pytest.mark.parametrize("std", [1e-3, 0.7, 1.0, 5e4])
def test_what_is_released_has_64_to_128_steps_in_a_deviation_and_none_finer_than_the_sums(std):
    step = released_step(std, 2.0**-30)
    assert np.log2(step).is_integer()
    assert 64 <= std / step < 128
    on_device = released_step(torch.tensor(std, dtype=torch.float64), torch.tensor(2.0**-30, dtype=torch.float64))
    assert on_device.item() == step
    assert released_step(std, 2.0**20) == 2.0**20
    assert released_step(0.0, 2.0**-30) == 2.0**-30


class Rare(SeededSource):
    """Radii made of uniform numbers below 2^-34."""

    def words(self, count, device, purpose):
        words = super().words(count, device, purpose)
        words[: count // 2] &= ~((2**34 - 1) << 19)
        return words


def _misses(hits, counts, sigma, source):
    """How far a pair of noisy counts is from one that a 75-bit uniform number makes of these counts, at most 1/2."""
    std = Decimal(sigma * counts_sensitivity(2) * (1.0 + 2.0**-40))
    for _ in range(60):
        noisy = [(Decimal(s) - Decimal("0.5")) * len(hits) for s in release_scores(hits, len(hits), sigma, source)]
        squares = sum((n - c + Decimal(2) ** -43) ** 2 for n, c in zip(noisy, counts, strict=True))
        whole = (-squares / (2 * std**2)).exp() * 2**75
        yield float(abs(whole - whole.to_integral_value()))


def test_a_release_does_not_tell_the_counts_by_the_numbers_that_can_be_drawn():
    """Small uniform numbers are few, and so are radii: on a fine grid what other counts release is impossible."""
    getcontext().prec = 60
    hits = torch.rand(1024, 2, generator=torch.Generator().manual_seed(0)) < 0.8
    counts = [int(count) - len(hits) // 2 for count in hits.sum(dim=0)]
    there, other = (np.array([*_misses(hits, [c - d for c in counts], 140.0, Rare(1))]) for d in (0, 1))
    assert np.median(there) > 0.1, "that of the counts themselves is as far from whole as any other"
    assert np.median(other) > 0.1


def test_a_small_uniform_number_has_22_bits_more():
    """The last bits of both words, which nothing else is made of."""

    class Few(RandomSource):
        secure = False

        def random_bytes(self, count):
            first, second = (torch.tensor([spare << 53]).numpy().tobytes() for spare in (3, 5))
            return bytearray((first + second)[:count])

    drawn = Few().normal(2)
    assert drawn[0].item() == pytest.approx(sqrt(2 * (75 * log(2) - log(3 * 2**11 + 5 + 1))), rel=1e-14)


class Noted(SeededSource):
    """Notes how the noise was asked for."""

    def noise(self, count, std, step, device="cpu"):
        self.std, self.step = std, step
        return super().noise(count, std, step, device)


@pytest.mark.parametrize("multiplier", [1e-3, 1.0, 300.0, 1e6, 1e12])
def test_scores_have_noise_that_is_exact(multiplier):
    source = Noted(0)
    release_scores(torch.ones(40, 9, dtype=torch.bool), 10**6, multiplier, source)
    assert source.std == pytest.approx(multiplier * counts_sensitivity(9))
    assert source.std / source.step <= MOST_STEPS
    assert source.step <= 0.5
    assert np.log2(source.step).is_integer()


def test_scores_with_more_noise_than_is_exact_are_refused():
    with pytest.raises(AccountingError, match="Expected noise of at most"):
        release_scores(torch.ones(4, 1, dtype=torch.bool), 4, 1e16, SeededSource(0))
    assert "step_for" in inspect.getsource(noisy_counts.release_scores)


class Loudest(SeededSource):
    """Normals of the largest size, one after the other of one sign."""

    def normal(self, count, device="cpu"):
        return torch.full((count,), 10.19, dtype=torch.float64, device=device)


@pytest.mark.parametrize("kind", [Tree.binary(300), Tree(300), SquareRoot(300)])
@pytest.mark.parametrize("multiplier", [1.0, 1e6, 1e9, 1e12])
def test_curves_have_noise_that_is_exact_however_it_adds_up(kind, multiplier):
    mechanism = Gaussian(multiplier, kind)
    std = multiplier * np.sqrt(kind.gaussian_change(Change.ADDED))
    step = step_for(std * kind.spreads, 2.0**-20, 1.0)
    loudest = mechanism.noise(300, Change.ADDED, Loudest(0))
    assert np.abs(loudest).max() / step < 2.0**53
    assert np.abs(loudest).max() >= 0.99 * 10.19 * std * kind.spreads
    assert (loudest / step == np.round(loudest / step)).all()


@pytest.mark.parametrize("kind", [Tree.binary(300), SquareRoot(300)])
def test_curves_are_released_as_coarsely_as_one_of_their_normals_asks_for(kind):
    counts, mechanism = np.arange(300.0), Gaussian(2.0, kind)
    step = released_step(2.0 * np.sqrt(kind.gaussian_change(Change.ADDED)) * (1.0 + 2.0**-40), 2.0**-20)
    noisy = mechanism.release(counts, Change.ADDED, SeededSource(0))
    exact = counts + mechanism.noise(300, Change.ADDED, SeededSource(0))
    assert np.array_equal(noisy, np.rint(exact / step) * step)
    assert not np.array_equal(noisy, exact)


def test_curves_with_more_noise_than_is_exact_are_refused():
    with pytest.raises(AccountingError, match="Expected noise of at most"):
        Gaussian(1e16, Tree(4)).noise(4, Change.ADDED, SeededSource(0))
