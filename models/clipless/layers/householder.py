"""The Householder activation. Shape letters: B batch, C channels or features, P = C / 2 pairs."""

from math import pi
from typing import Any, final

import torch
from torch import Tensor, nn

from clipless.guards.guard import GuardedLayer
from clipless.guards.per_channel import guarded_householder, householder


@final
class Householder(GuardedLayer):
    r"""Reflects the pairs of features that lie on one side of a learned line (Singla et al. 2022, arXiv 2108.04062).

    The vector of each pair's reflection is ``(sin(theta/2), -cos(theta/2))``: of norm 1 for every angle theta, so that
    nothing is projected and norms are preserved whatever is learned. ``theta = pi/2``, the start, is MaxMin.

    Args:
        features: C, the size of axis 1; even. Feature i is paired with ``i + C/2``.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        if not (features >= 2 and features % 2 == 0):
            raise ValueError(f"Expected an even number of features, got features={features!r} (Householder)")
        self.features = features
        self.angle = nn.Parameter(torch.full((features // 2,), pi / 2))

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"features": self.features}

    def forward(self, x_BC: Tensor) -> Tensor:
        """Reflect pairs along axis 1 of (B, C, ...); inside a private step the angles' gradient passes the guard."""
        if self.guards is None or not self.angle.requires_grad:
            return householder(x_BC, self.angle)
        return guarded_householder(x_BC, self.angle, self.guards["angle"])
