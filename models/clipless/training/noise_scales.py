"""Scales of the noise on the sums of a training, for each of their entries."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clipless.privacy.noise_grid import released_step, round_to
from clipless.scalars import Scalar


@dataclass(frozen=True, slots=True)
class NoiseScales:
    """How the noise of sums is scaled: for each of their entries, float64 of one shape.

    Attributes:
        stds: deviations, in steps of the grids.
        grids: steps of the exact sums.
        released: steps to which noisy sums are rounded, see `clipless.privacy.noise_grid`.
    """

    stds: Tensor
    grids: Tensor
    released: Tensor

    @classmethod
    def like(cls, sums: Tensor) -> "NoiseScales":
        """Return scales without noise."""
        return cls(torch.zeros_like(sums), torch.ones_like(sums), torch.ones_like(sums))

    def __getitem__(self, member: int) -> "NoiseScales":
        """Return views of those of one member of a stack."""
        return NoiseScales(self.stds[member], self.grids[member], self.released[member])

    def split(self, sizes: list[int]) -> Iterator["NoiseScales"]:
        """Yield views of so many entries each."""
        tensors = (self.stds, self.grids, self.released)
        yield from map(NoiseScales, *(tensor.split(sizes) for tensor in tensors))

    def fill(self, std: Scalar, step: Scalar) -> None:
        """Give every entry noise of a deviation and a grid; resting ones have none."""
        self.stds.fill_(std / step)
        self.grids.fill_(step)
        self.released.fill_(released_step(std, step))

    def add_noise(self, sums: Tensor, noise: Tensor) -> None:
        """Add standard normal ``noise`` to exact sums in whole steps of their grid: a rounded Gaussian mechanism."""
        sums.addcmul_((noise * self.stds).floor_(), self.grids)
        round_to(sums, self.released)
