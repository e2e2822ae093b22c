"""Poisson sampling: each row joins each batch independently with one probability."""

from collections.abc import Iterator
from typing import final

import numpy as np
from numpy.typing import NDArray

from clipless.privacy.randomness import RandomSource


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

    def batches(self, steps: int) -> Iterator[NDArray[np.intp]]:
        """Yield the rows of ``steps`` batches."""
        for _ in range(steps):
            yield self.draw()
