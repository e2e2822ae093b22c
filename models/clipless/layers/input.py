"""The input ball. Shape letters: B batch."""

from typing import final

import torch
from torch import Tensor

from clipless.layers._base import Layer


@final
class InputBall(Layer):
    """Projects each example onto the Euclidean ball of a public radius.

    The projection onto a convex set does not enlarge distances. An example that holds a NaN or an infinity
    becomes the zero example: ``nan_to_num`` would map an infinity to 3e38 instead.

    Args:
        radius: radius of the ball, in the units of the tensor; positive and finite. A public number.
    """

    def __init__(self, radius: float) -> None:
        super().__init__()
        if not 0 < radius < float("inf"):
            raise ValueError(f"Expected 0 < radius < inf, got radius={radius!r} (InputBall)")
        self.radius = float(radius)

    def forward(self, x: Tensor) -> Tensor:
        """Project each row of ``x`` (B, ...)."""
        column = (-1, *[1] * (x.dim() - 1))
        finite_B = x.flatten(1).isfinite().all(dim=1).view(column)
        x = torch.where(finite_B, x, 0.0)
        # Dividing by the largest entry first keeps the squares of huge, finite entries finite.
        peak_B = x.flatten(1).abs().amax(dim=1).clamp(min=1.0).view(column)
        x = x / peak_B
        norm_B = torch.linalg.vector_norm(x.flatten(1), dim=1).clamp(min=1e-12).view(column)
        return x * torch.minimum(peak_B, self.radius / norm_B)
