"""Composition on the grid of losses, against distributions that can be added up by hand."""

import math

import numpy as np
import pytest
from scipy import fft, stats

from clipless.privacy.accounting.pld import composed_pld, loss_grids, self_compose
from clipless.privacy.accounting.pld_grid import LossGrid, _power, rounding_slack
from clipless.privacy.accounting.spending import overflow_slack
from clipless.privacy.events import Composed, PoissonGaussian, Relation


def randomized_response(loss, width):
    """Loss +-l with odds e^l: the divergence of n steps is a binomial sum."""
    cells = round(loss / width)
    masses = np.zeros(2 * cells + 1)
    masses[-1] = 1 / (1 + math.exp(-loss))
    masses[0] = 1 - masses[-1]
    return LossGrid(masses, -cells, width, 0.0)


def divergence(loss, steps, epsilon):
    ups = np.arange(steps + 1)
    total = (2 * ups - steps) * loss
    return float(stats.binom.pmf(ups, steps, 1 / (1 + math.exp(-loss))) @ -np.expm1(np.minimum(epsilon - total, 0)))


def slack(grid, steps):
    return grid.compose(steps)[2]


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1])
def test_randomized_response_composes_to_its_binomial_sum(delta):
    loss, grid = 0.5, randomized_response(0.5, 0.125)
    for count in (1000, 1, 2, 3, 7, 10, 50, 51, 200):
        epsilon = grid.epsilon(count, delta)
        assert epsilon == randomized_response(loss, 0.125).epsilon(count, delta)
        if epsilon > 0.0:
            assert divergence(loss, count, epsilon) == pytest.approx(delta, rel=1e-4, abs=2 * slack(grid, count))
        else:
            assert divergence(loss, count, 0.0) <= delta


def test_infinite_mass_adds_up_and_ends_in_an_infinite_epsilon():
    grid = LossGrid(np.array([1.0 - 1e-6]), 0, 0.1, 1e-6)
    assert [grid.epsilon(count, 1e-5) for count in (1, 5, 11, 12)] == [0.0, 0.0, math.inf, math.inf]


def test_losses_beyond_the_exponential_count_as_infinite():
    grid = LossGrid(np.array([0.5, 0.5]), 800, 1.0, 0.0)
    assert grid.epsilon(1, 1e-5) == math.inf
    wide = LossGrid(np.array([0.999, 0.001]), 0, 800.0, 0.0)
    assert [wide.epsilon(count, 0.01) for count in (1, 2, 20)] == [0.0, 0.0, math.inf]


def test_connected_dots_keep_both_distributions_and_never_lower_the_divergence():
    width, points = 0.05, np.array([-80, -40, -21, -20, -3, 0, 1, 2, 5, 9, 30, 60, 100])
    mu = 1.0  # two normals one deviation apart

    def exact(epsilon):
        return stats.norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)

    grid = LossGrid.from_dots(points, exact(points * width), width)
    losses = (grid.first + np.arange(len(grid.masses))) * width
    assert grid.masses.sum() + grid.infinite == pytest.approx(1.0, abs=1e-12)
    assert grid.masses @ np.exp(-losses) <= 1.0 + 1e-12
    for epsilon in np.linspace(-3.5, 4.5, 300):
        ours = grid.infinite + grid.masses @ np.maximum(0, -np.expm1(epsilon - losses))
        assert ours >= exact(epsilon) - 1e-14
    on_dots = [grid.infinite + grid.masses @ np.maximum(0, -np.expm1(e - losses)) for e in points * width]
    np.testing.assert_allclose(on_dots, exact(points * width), rtol=1e-9, atol=1e-14)


def test_rounding_of_many_steps_stays_within_its_slack():
    steps, sigma, width = 4096, 64.0, 1 / 1024
    reach = round(0.4 / width)
    points = np.arange(-reach, reach + 1)
    mu = 1 / sigma
    losses = points * width
    deltas = stats.norm.cdf(mu / 2 - losses / mu) - np.exp(losses + stats.norm.logcdf(-mu / 2 - losses / mu))
    grid = LossGrid.from_dots(points, np.clip(deltas, 0, 1), width)
    for delta in (1e-5, 1e-9, 10 * slack(grid, steps)):
        epsilon = grid.epsilon(steps, delta)
        total = math.sqrt(steps) * mu
        exact = stats.norm.cdf(total / 2 - epsilon / total) - math.exp(
            epsilon + stats.norm.logcdf(-total / 2 - epsilon / total)
        )
        assert 0.97 * delta - 2 * slack(grid, steps) <= exact <= delta


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "size"),
    [
        (0.8, 0.01, 10, 12288),
        (0.5, 1e-3, 1000, 49152),
        (3.0, 0.05, 2000, 12288),
        (0.2, 2.5e-9, 937, 98304),  # next to all of the mass has one loss
        (0.3, 9e-9, 800, 98304),
        (0.18, 0.06, 37_290, 12288),
    ],
)
def test_errors_of_all_masses_together_stay_within_the_slack(sigma, rate, steps, size):
    """Against the same transforms in extended precision, on the sizes that these windows lead to."""
    for grid in loss_grids(sigma, rate, Relation.ADD_OR_REMOVE_ONE):
        ours = fft.irfft(_power(grid._transform(size), steps), size)
        padded = np.pad(grid.masses, (0, -len(grid.masses) % size)).reshape(-1, size).sum(axis=0)
        finer = fft.irfft(_power(fft.rfft(padded.astype(np.longdouble)), steps), size)
        assert np.abs(ours - finer).sum() <= 0.5 * rounding_slack(steps, ours, size)


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(0.2, 2.5e-9, 937), (0.8, 0.01, 200), (0.5, 1e-3, 1000)])
def test_errors_of_masses_that_dp_accounting_composes_stay_within_the_slack(sigma, rate, steps):
    event = PoissonGaussian(sampling_rate=rate, noise_multiplier=sigma, steps=1, relation=Relation.ADD_OR_REMOVE_ONE)
    one = composed_pld(event, None, pessimistic=True).distribution
    composed = self_compose(one, steps)
    for name in ("_pmf_remove", "_pmf_add"):
        masses, found = getattr(one, name)._probs, getattr(composed.distribution, name)
        size = fft.next_fast_len(max(len(found._probs), len(masses)))
        finer = fft.irfft(_power(fft.rfft(masses.astype(np.longdouble), size), steps), size)
        start = found._lower_loss - steps * getattr(one, name)._lower_loss
        finer = np.roll(finer, -start)[: len(found._probs)]
        assert 0.0 < np.abs(found._probs - finer).sum() <= 0.5 * composed.slack


def test_what_is_composed_has_the_slack_of_both():
    given = {"sampling_rate": 0.01, "steps": 100, "relation": Relation.ADD_OR_REMOVE_ONE}
    parts = [PoissonGaussian(noise_multiplier=noise, **given) for noise in (1.0, 2.0)]
    both = composed_pld(Composed(tuple(parts)), 0.01, pessimistic=True)
    alone = [composed_pld(part, 0.01, pessimistic=True) for part in parts]
    assert both.slack > sum(one.slack for one in alone) > 2 * overflow_slack(100)
