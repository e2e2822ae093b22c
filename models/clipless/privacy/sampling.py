"""Poisson sampling: each privacy unit joins each batch independently with one probability.

A unit that joins sends one of its rows, drawn uniformly for this batch alone: in expectation the mean of its rows, and
never more than a single one. So what holds for a row in a batch holds for a unit: given which row each unit would send,
the step is that of a table with one row for each; that choice does not depend on who else is there, and hockey-stick
divergences are jointly convex.

Where kernels look at the place of a row (`clipless.row_independence`), batches are spread over a fixed number of slots
(`RandomPlacement`).
"""

from collections.abc import Iterator, Sequence
from math import ceil, log, log1p
from typing import final

import numpy as np
import torch
from torch import Tensor

from clipless.privacy.events import OVERFLOW
from clipless.privacy.keystream import Purpose
from clipless.privacy.randomness import RandomSource

_AHEAD = 2**22  # rows that are drawn or not at once, where batches are drawn in advance


@final
class PoissonSampler:
    """Draws the rows of batches.

    Args:
        population: N, the number of units; a public number.
        sampling_rate: q, the probability of each unit.
        source: the secret generator, shared with the noise.
        offsets: of the rows of units, as `clipless.datasets.Split` has them; None where each row is a unit.

    Guarantees:
        Membership of a unit is independent of every other unit and of every other step, and a unit has at most one row
        in a batch, so that the step is the Poisson-subsampled mechanism that the accountants price. The drawn batch
        size is secret: nothing may be divided by it or log it.
    """

    def __init__(
        self, population: int, sampling_rate: float, source: RandomSource, offsets: Tensor | None = None
    ) -> None:
        if not population >= 1:
            raise ValueError(f"Expected population >= 1, got population={population!r}")
        if not 0 < sampling_rate <= 1:
            raise ValueError(f"Expected 0 < sampling_rate <= 1, got sampling_rate={sampling_rate!r}")
        if offsets is not None and len(offsets) != population + 1:
            raise ValueError(f"Expected offsets of {population} units, got {len(offsets) - 1}")
        self._population = population
        self._offsets = offsets
        self._sampling_rate = sampling_rate
        self._source = source

    def draw(self) -> Tensor:
        """Return the row indices of one batch, int64; possibly empty, which is a step like any other."""
        units = np.flatnonzero(self._source.bernoulli(self._population, self._sampling_rate))
        return draw_rows(torch.from_numpy(units), self._offsets, self._source)

    def batches(self, steps: int, device: torch.device | str = "cpu") -> Iterator[Tensor]:
        """Yield the row indices of ``steps`` batches on ``device``.

        Other devices than the host draw for many steps at once: in between, no step waits for one to say how many rows
        it has drawn.
        """
        device = torch.device(device)
        if device.type == "cpu":
            yield from (self.draw() for _ in range(steps))
            return
        at_once = max(1, _AHEAD // self._population)
        for first in range(0, steps, at_once):
            for units_B in self._draw(min(at_once, steps - first), device):
                yield draw_rows(units_B, self._offsets, self._source)

    def _draw(self, steps: int, device: torch.device) -> Sequence[Tensor]:
        count = steps * self._population
        members_SN = self._source.members(count, self._sampling_rate, device).view(steps, -1)
        sizes: list[int] = members_SN.sum(dim=1).tolist()
        return torch.split(members_SN.nonzero()[:, 1], sizes)


def draw_rows(units_B: Tensor, offsets: Tensor | None, source: RandomSource) -> Tensor:
    """Return one row of each of these units, (B,), drawn uniformly among its own.

    ``offsets`` are those of a `clipless.datasets.Split`; None where each row is a unit.

    Guarantees:
        Which row a unit sends depends on nothing of another unit: what is private for each of these rows is private for
        each unit with all of its rows.
    """
    if offsets is None or len(units_B) == 0:
        return units_B
    first_B, end_B = offsets[units_B], offsets[units_B + 1]
    words_B = source.words(len(units_B), units_B.device, Purpose.BATCHES)  # uniform up to the last bits of 64
    return first_B + words_B.remainder(end_B - first_B)


def slots_for(population: int, sampling_rate: float) -> int:
    """Return M, a number of slots that N rows drawn at rate q fill or exceed with a probability below `OVERFLOW` / 2.

    By Chernoff's bound P(Binomial(N, q) >= M) <= exp(-N KL(M/N || q)); N slots always do. About q N and 9 to 10
    standard deviations.
    """

    def suffices(slots: int) -> bool:
        share = slots / population
        if share >= 1.0:
            return True
        divergence = share * log(share / sampling_rate) + (1.0 - share) * (log1p(-share) - log1p(-sampling_rate))
        return share > sampling_rate and population * divergence * (1.0 - 1e-9) >= log(2.0 / OVERFLOW)

    low, high = min(population, ceil(population * sampling_rate)), population
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle + 1, high)
    return low


@final
class RandomPlacement:
    """A fixed number of slots, over which the rows of each batch are spread uniformly at random.

    Args:
        count: M, at least `slots_for` the sampling; a public number.
        source: the secret generator, shared with batches and noise.

    Guarantees:
        A row that joins a batch moves no other row: there is a coupling of the places of n and of n + 1 <= M rows in
        which the n rows stand in the same ones, and given the places a row's contribution may depend on its own. A step
        is then the Poisson-subsampled Gaussian that accountants price, but for a probability of `OVERFLOW`.
    """

    def __init__(self, count: int, source: RandomSource) -> None:
        if not count >= 1:
            raise ValueError(f"Expected at least one slot, got count={count!r}")
        self.count = count
        self._source = source

    def place(self, rows_B: Tensor) -> Tensor:
        """Return the content of each slot, (M,): a row index, or -1 for nothing.

        More rows than slots, which `OVERFLOW` covers, get as many as they need.
        """
        slots = rows_B.new_full((max(self.count, len(rows_B)),), -1)
        slots[self._source.permutation(len(slots), rows_B.device)[: len(rows_B)]] = rows_B
        return slots
