"""What all evasion attacks share: their signature, and the ball they stay in. Shape letters: B batch."""

from math import inf
from typing import Protocol

import torch
from torch import Tensor

from clipless.guards.exact_sums import column_of
from clipless.network import Network

# Keeps a projected perturbation inside the ball when its norm is computed again, in any order of summation.
_INWARD = 1.0 - 1e-12


class Attack(Protocol):
    """Searches for nearby inputs that a network decides wrongly."""

    def __call__(self, model: Network, x: Tensor, target_B: Tensor, radius: float) -> Tensor:
        """Return float64 inputs of the shape of ``x`` within ``radius`` of it, in Euclidean norm, row by row."""


def into_ball(moved: Tensor, center: Tensor, radius: float) -> Tensor:
    """Project each row of ``moved`` onto the Euclidean ball around that of ``center``; a NaN row becomes the centre."""
    offset = moved - center
    norm_B = offset.flatten(1).norm(dim=1)
    shrink_B = (_INWARD * radius / norm_B).clamp(max=1.0)
    offset = torch.where(
        column_of(norm_B.isfinite(), offset), offset * column_of(shrink_B.nan_to_num(1.0), offset), 0.0
    )
    return center + offset


def check_radius(radius: float) -> None:
    """Raise ValueError unless the radius is positive and finite."""
    if not 0 < radius < inf:
        raise ValueError(f"Expected 0 < radius < inf, got radius={radius!r}")
