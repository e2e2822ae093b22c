"""Layers that limit the norm of each example alone, never over the batch axis: the input ball and normalisation.

Shape letters: B batch, G groups, N elements of one group.
"""

from math import sqrt
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


@final
class LayerCentering(Layer):
    """Subtracts from each example the mean of all its features: an orthogonal projection."""

    def forward(self, x: Tensor) -> Tensor:
        """Centre each row of (B, ...)."""
        return x - x.mean(dim=tuple(range(1, x.dim())), keepdim=True)


@final
class GroupNorm(Layer):
    r"""``(x - mean) / max(alpha, std)`` over each group of channels of one example.

    Centring, division by alpha and the projection onto the ball of radius ``sqrt(N)``, one after the other: Lipschitz
    with constant ``1 / alpha``, which ordinary group normalisation (Wu and He 2018, arXiv 1803.08494) is not. It has
    no scale and no shift.

    Args:
        groups: G; must divide the channels. 1 normalises over the whole example.
        alpha: smallest standard deviation that is divided by; positive and finite. A public number.
    """

    def __init__(self, groups: int = 1, alpha: float = 1.0) -> None:
        super().__init__()
        if not groups >= 1:
            raise ValueError(f"Expected groups >= 1, got groups={groups!r} (GroupNorm)")
        if not 0 < alpha < float("inf"):
            raise ValueError(f"Expected 0 < alpha < inf, got alpha={alpha!r} (GroupNorm)")
        self.groups = groups
        self.alpha = float(alpha)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the groups of channels of (B, C, ...)."""
        x_BGN = x.reshape(x.shape[0], self.groups, -1)
        centred_BGN = (x_BGN - x_BGN.mean(dim=2, keepdim=True)) / self.alpha
        radius = sqrt(x_BGN.shape[2])
        norm_BG1 = torch.linalg.vector_norm(centred_BGN, dim=2, keepdim=True)
        y: Tensor = centred_BGN * (radius / norm_BG1.clamp(min=radius))
        return y.view_as(x)
