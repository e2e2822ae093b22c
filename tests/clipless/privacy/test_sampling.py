"""Poisson batches: every row with its probability, independently of rows and steps."""

from math import sqrt

import numpy as np
import pytest
import torch
from scipy import stats

from clipless.privacy.randomness import SecureSource
from clipless.privacy.sampling import PoissonSampler, draw_rows
from clipless.testing import SeededSource

ROWS, RATE, STEPS = 40, 0.2, 6000
SIGMAS = 6.0
UNLIKELY = 1e-9


def one_by_one(sampler):
    return sampler.batches(STEPS)


def many_at_once(sampler):
    """As for another device than the host."""
    return sampler._draw(STEPS, torch.device("cpu"))


@pytest.fixture(
    scope="module",
    params=[(SecureSource, one_by_one), (lambda: SeededSource(0), one_by_one), (SecureSource, many_at_once)],
    ids=["secure", "seeded", "at once"],
)
def members(request):
    """(STEPS, ROWS) whether each row was in each batch."""
    source, drawn = request.param
    table = np.zeros((STEPS, ROWS), dtype=bool)
    for step, rows in enumerate(drawn(PoissonSampler(ROWS, RATE, source()))):
        table[step, rows] = True
    return table


@pytest.mark.sampled(3)
def test_every_row_is_drawn_at_its_rate(members):
    counts = members.sum(axis=0)
    z = (counts - STEPS * RATE) / sqrt(STEPS * RATE * (1 - RATE))
    assert stats.chi2.sf((z**2).sum(), ROWS) > UNLIKELY
    assert np.abs(z).max() <= SIGMAS


def test_batch_sizes_are_binomial_and_not_fixed(members):
    sizes = members.sum(axis=1)
    variance = ROWS * RATE * (1 - RATE)
    assert abs(sizes.mean() - ROWS * RATE) <= SIGMAS * sqrt(variance / STEPS)
    assert abs(sizes.var() / variance - 1) <= SIGMAS * sqrt(2 / STEPS)
    expected = stats.binom.pmf(np.arange(3, 15), ROWS, RATE)
    found = np.array([(sizes == size).sum() for size in range(3, 15)])
    for count, probability in zip(found, expected, strict=True):
        assert stats.binomtest(int(count), STEPS, probability).pvalue > UNLIKELY


def test_rows_are_independent_of_each_other(members):
    """Batches of fixed size would correlate every two rows by -1 / (ROWS - 1)."""
    z = (members - RATE) / sqrt(RATE * (1 - RATE))
    correlation = z.T @ z / STEPS
    pairs = correlation[np.triu_indices(ROWS, 1)]
    assert np.abs(pairs).max() <= (SIGMAS + 1) / sqrt(STEPS)
    assert abs(pairs.mean()) <= SIGMAS / sqrt(STEPS * len(pairs))


def test_steps_are_independent_of_each_other(members):
    """Batches without replacement within an epoch would correlate neighbouring steps negatively."""
    z = (members - RATE) / sqrt(RATE * (1 - RATE))
    for lag in range(1, 6):
        correlation = (z[lag:] * z[:-lag]).mean()
        assert abs(correlation) <= SIGMAS / sqrt(z[lag:].size)


def test_rows_come_once_and_in_range():
    sampler = PoissonSampler(10, 0.5, SeededSource(1))
    for rows in sampler.batches(100):
        assert len(set(rows.tolist())) == len(rows)
        assert set(rows.tolist()) <= set(range(10))


def test_a_rate_of_one_draws_everybody():
    assert PoissonSampler(7, 1.0, SecureSource()).draw().tolist() == list(range(7))


def test_empty_batches_are_batches():
    sizes = [len(rows) for rows in PoissonSampler(3, 0.05, SeededSource(0)).batches(50)]
    assert len(sizes) == 50
    assert 0 in sizes


@pytest.mark.parametrize("population", [0, -1, float("nan")])
def test_a_population_without_rows_is_refused(population):
    with pytest.raises(ValueError, match="population"):
        PoissonSampler(population, 0.5, SeededSource(0))


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, float("nan")])
def test_a_rate_out_of_range_is_refused(rate):
    with pytest.raises(ValueError, match="sampling_rate"):
        PoissonSampler(5, rate, SeededSource(0))


def test_batches_for_a_device_are_drawn_in_parts_that_make_up_all_steps(monkeypatch):
    drawn = []

    def draw(_, steps, device):
        drawn.append((steps, device.type))
        return (torch.empty(0, dtype=torch.int64),) * steps

    monkeypatch.setattr(PoissonSampler, "_draw", draw)
    monkeypatch.setattr("clipless.privacy.sampling._AHEAD", 35)
    assert len(list(PoissonSampler(10, 0.5, SeededSource(0)).batches(7, "meta"))) == 7
    assert drawn == [(3, "meta"), (3, "meta"), (1, "meta")]
    assert len(list(PoissonSampler(100, 0.5, SeededSource(0)).batches(2, "meta"))) == 2


# Units of several rows

SIZES = [1, 2, 8, 9, 1000]
UNITS = torch.tensor([0, *SIZES]).cumsum(0)


def units_of(rows_B):
    return torch.searchsorted(UNITS, rows_B, right=True) - 1


def draw_at_once(steps, rate, seed):
    """As for another device than the host."""
    sampler = PoissonSampler(len(SIZES), rate, SeededSource(seed), UNITS)
    return [draw_rows(units_B, UNITS, sampler._source) for units_B in sampler._draw(steps, torch.device("cpu"))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("drawn", [None, draw_at_once], ids=["one by one", "at once"])
def test_a_unit_joins_at_its_rate_with_one_row_however_many_it_has(drawn):
    steps, rate = 4000, 0.3
    if drawn is None:
        batches = list(PoissonSampler(len(SIZES), rate, SeededSource(0), UNITS).batches(steps))
    else:
        batches = drawn(steps, rate, 0)
    counts = np.zeros((steps, len(SIZES)), dtype=int)
    for step, rows_B in enumerate(batches):
        np.add.at(counts[step], units_of(rows_B).numpy(), 1)
    assert len(batches) == steps
    assert counts.max() == 1
    for joined in counts.sum(axis=0):
        assert stats.binomtest(int(joined), steps, rate).pvalue > UNLIKELY


def test_the_row_of_a_unit_is_drawn_anew_and_uniformly_among_its_own():
    sampler = PoissonSampler(len(SIZES), 1.0, SeededSource(1), UNITS)
    rows_SN = torch.stack(list(sampler.batches(4000)))
    assert torch.equal(units_of(rows_SN), torch.arange(len(SIZES)).expand(4000, -1))
    for unit, size in enumerate(SIZES):
        places = (rows_SN[:, unit] - UNITS[unit]).numpy()
        assert stats.chisquare(np.bincount(places, minlength=size)).pvalue > UNLIKELY if size > 1 else not places.any()
        again = (places[1:] == places[:-1]).sum()
        assert stats.binomtest(int(again), 3999, 1 / size).pvalue > UNLIKELY


def test_what_a_unit_sends_does_not_depend_on_the_rows_of_others():
    fewer = torch.tensor([0, *SIZES[:-1], 1]).cumsum(0)  # the last unit has one row instead of a thousand
    drawn = [list(PoissonSampler(5, 0.5, SeededSource(2), one).batches(50)) for one in (UNITS, fewer)]
    for whole_B, other_B in zip(*drawn, strict=True):
        assert torch.equal(whole_B[whole_B < UNITS[-2]], other_B[other_B < UNITS[-2]])
        assert (whole_B >= UNITS[-2]).sum() == (other_B >= UNITS[-2]).sum()


def test_offsets_of_another_number_of_units_are_refused():
    with pytest.raises(ValueError, match="offsets of 4 units, got 5"):
        PoissonSampler(4, 0.5, SeededSource(0), UNITS)
