"""Layers that only rearrange. Shape letters: B batch, C channels or features, H height, W width, T tokens."""

from typing import final

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
