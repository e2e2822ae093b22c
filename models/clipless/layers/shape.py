"""Layers that only rearrange. Shape letters: B batch."""

from typing import Any, final

from torch import Tensor, nn


@final
class Flatten(nn.Module):
    """Turns each example into one vector."""

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {}

    def forward(self, x: Tensor) -> Tensor:
        """Reshape (B, ...) to (B, n)."""
        return x.flatten(1)
