"""Poisson sampling: each row joins each batch independently with one probability."""

from collections.abc import Iterator, Sequence
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clipless.privacy.randomness import RandomSource

_AHEAD = 2**22  # rows that are drawn or not at once, where batches are drawn in advance


@final
class PoissonSampler:
    """Draws the rows of batches.

    Args:
        population: N, the number of rows; a public number.
        sampling_rate: q, the probability of each row.
        source: the secret generator, shared with the noise.

    Guarantees:
        Membership of a row is independent of every other row and of every other step, so that the step is the
        Poisson-subsampled mechanism that the accountants price. The drawn batch size is secret: nothing may
        be divided by it or log it.
    """

    def __init__(self, population: int, sampling_rate: float, source: RandomSource) -> None:
        if not population >= 1:
            raise ValueError(f"Expected population >= 1, got population={population!r}")
        if not 0 < sampling_rate <= 1:
            raise ValueError(f"Expected 0 < sampling_rate <= 1, got sampling_rate={sampling_rate!r}")
        self._population = population
        self._sampling_rate = sampling_rate
        self._source = source

    def draw(self) -> NDArray[np.intp]:
        """Return the row indices of one batch; possibly empty, which is a step like any other."""
        return np.flatnonzero(self._source.bernoulli(self._population, self._sampling_rate))

    def batches(self, steps: int, device: torch.device | str = "cpu") -> Iterator[Tensor]:
        """Yield the row indices of ``steps`` batches on ``device``.

        Other devices than the host draw for many steps at once: in between, no step waits for one to say how many rows
        it has drawn.
        """
        device = torch.device(device)
        if device.type == "cpu":
            yield from (torch.from_numpy(self.draw()) for _ in range(steps))
            return
        at_once = max(1, _AHEAD // self._population)
        for first in range(0, steps, at_once):
            yield from self._drawn(min(at_once, steps - first), device)

    def _drawn(self, steps: int, device: torch.device) -> Sequence[Tensor]:
        count = steps * self._population
        members_SN = self._source.members(count, self._sampling_rate, device).view(steps, -1)
        sizes: list[int] = members_SN.sum(dim=1).tolist()
        return torch.split(members_SN.nonzero()[:, 1], sizes)
