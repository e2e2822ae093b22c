"""Layers that only rearrange. Shape letters: B batch, C channels or features, H height, W width, T tokens."""

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from clipless.layers._base import Layer


@final
class Flatten(Layer):
    """Turns each example into one vector."""

    def forward(self, x: Tensor) -> Tensor:
        """Reshape (B, ...) to (B, n)."""
        return x.flatten(1)


@final
class SpaceToDepth(Layer):
    """Turns each square block of the map, whose side must divide height and width, into channels."""

    def __init__(self, block: int = 2) -> None:
        super().__init__()
        if not block >= 1:
            raise ValueError(f"Expected block >= 1, got block={block!r} (SpaceToDepth)")
        self.block = block

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Rearrange (B, C, H, W) to (B, C block^2, H / block, W / block)."""
        return F.pixel_unshuffle(x_BCHW, self.block)


@final
class Tokens(Layer):
    """Turns the positions of a map into tokens."""

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Rearrange (B, C, H, W) to (B, H W, C)."""
        return x_BCHW.flatten(2).mT


@final
class SwapAxes(Layer):
    """Swaps tokens and features, so that a dense layer mixes tokens."""

    def forward(self, x_BTC: Tensor) -> Tensor:
        """Rearrange (B, T, C) to (B, C, T)."""
        return x_BTC.mT


@final
class Shift(Layer):
    """Moves each group of channels by an offset of its own (Wu et al. 2018, arXiv 1711.08141); zeros come in.

    The offsets are the places of a square window, from its centre outwards; channels are split into as many groups,
    the first ones one channel larger if they must. A dense map of the channels behind it mixes each position with its
    neighbours, as a convolution does, and has the norm of one matrix.

    Args:
        window: side of the window, odd.
    """

    def __init__(self, window: int = 3) -> None:
        super().__init__()
        if not (window >= 1 and window % 2):
            raise ValueError(f"Expected an odd window >= 1, got window={window!r} (Shift)")
        self.window = window

    def offsets(self) -> list[tuple[int, int]]:
        """Return how far each group moves, down and to the right: nearest ones first."""
        reach = range(-(self.window // 2), self.window // 2 + 1)
        return sorted(((down, right) for down in reach for right in reach), key=lambda o: (o[0] ** 2 + o[1] ** 2, o))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Move the groups of (B, C, H, W)."""
        offsets, reach, (height, width) = self.offsets(), self.window // 2, x_BCHW.shape[-2:]
        groups = F.pad(x_BCHW, (reach, reach, reach, reach)).tensor_split(len(offsets), dim=1)
        moved = [
            group.narrow(2, reach - down, height).narrow(3, reach - right, width)
            for group, (down, right) in zip(groups, offsets, strict=True)
        ]
        return torch.cat(moved, dim=1)
