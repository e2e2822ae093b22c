"""Projected gradient descent on the margin, in the Euclidean ball (Madry et al. 2018, arXiv 1706.06083).

No box: certificates speak of every input of the ball, also of pixels below 0, so the attack may use them.

Shape letters: B batch, K logits.
"""

from copy import deepcopy
from dataclasses import dataclass
from math import cos, inf, pi
from typing import Protocol, final

import torch
from torch import Tensor

from clipless.certificates.certify import decisions
from clipless.guards.exact_sums import column_of
from clipless.network import Network

# Keeps a projected perturbation inside the ball when its norm is computed again, in any order of summation.
_INWARD = 1.0 - 1e-12


class EvasionAttack(Protocol):
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


_CHUNK = 1024


@final
@dataclass(frozen=True, slots=True)
class PGD:
    """Steps down the gradient of the margin, each of a length that falls from 2 r / 3 to 0 along a cosine.

    The first start is the input itself and lowers the margin to the nearest other class; restart i starts at random
    on the border of the ball and lowers the margin to the i-th most likely other class, and begins again with the
    first when every class had its turn. Gradients are those of the float64 network.
    """

    steps: int = 30
    restarts: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.steps >= 1 and self.restarts >= 0):
            raise ValueError(f"Expected steps >= 1 and restarts >= 0, got {self.steps} and {self.restarts}")

    def __call__(self, model: Network, x: Tensor, target_B: Tensor, radius: float) -> Tensor:
        """Return float64 inputs within ``radius``: a wrongly decided one where found, else that of least margin.

        Targets are int64 labels, the radius is in units of ``x``; the model stays as it is.

        Raises:
            ValueError: a radius that is not positive and finite.
        """
        check_radius(radius)
        double = deepcopy(model).double().requires_grad_(requires_grad=False)
        generator = torch.Generator().manual_seed(self.seed)
        chunks = zip(x.double().split(_CHUNK), target_B.split(_CHUNK), strict=True)
        return torch.cat([self._attack(double, rows, target_b, radius, generator) for rows, target_b in chunks])

    def _attack(self, model: Network, x: Tensor, target_B: Tensor, radius: float, generator: torch.Generator) -> Tensor:
        best, least_B = x, torch.full((len(x),), torch.inf, dtype=x.dtype, device=x.device)
        for start in range(self.restarts + 1):
            rival_B, moved = None, x
            if start > 0:
                rival_B = _rival(model(x), target_B, start - 1)
                noise = torch.randn(x.shape, dtype=x.dtype, generator=generator).to(x.device)
                moved = into_ball(x + 1e3 * radius * noise, x, radius)
            for step in range(self.steps + 1):
                moved = moved.detach().requires_grad_()
                logits_BK = model(moved)
                margin_B = _margin(logits_BK, target_B, rival_B)
                (gradient,) = torch.autograd.grad(margin_B.sum(), moved)
                wrong_B = decisions(logits_BK) != target_B
                reached_B = torch.where(wrong_B, -torch.inf, _margin(logits_BK, target_B, None).detach())
                better_B = reached_B < least_B
                best = torch.where(column_of(better_B, x), moved.detach(), best)
                least_B = torch.where(better_B, reached_B, least_B)
                length = radius / 3.0 * (1.0 + cos(pi * step / self.steps))
                norm_B = gradient.flatten(1).norm(dim=1).clamp(min=torch.finfo(x.dtype).tiny)
                moved = into_ball(moved.detach() - length * gradient / column_of(norm_B, x), x, radius)
        return best


def _margin(logits_BK: Tensor, target_B: Tensor, rival_B: Tensor | None) -> Tensor:
    """Return by how much each row wins, against ``rival_B`` or the nearest class."""
    if logits_BK.shape[1] == 1:
        return logits_BK[:, 0] * (target_B.to(logits_BK.dtype) * 2.0 - 1.0)
    own_B = logits_BK.gather(1, target_B[:, None])[:, 0]
    if rival_B is not None:
        return own_B - logits_BK.gather(1, rival_B[:, None])[:, 0]
    return own_B - _others(logits_BK, target_B).amax(dim=1)


def _rival(logits_BK: Tensor, target_B: Tensor, rank: int) -> Tensor | None:
    """Return the class of that rank among the others, from 0, counted round."""
    classes = logits_BK.shape[1]
    if classes == 1:
        return None
    order_BK = _others(logits_BK.detach(), target_B).argsort(dim=1, descending=True)
    return order_BK[:, rank % (classes - 1)]


def _others(logits_BK: Tensor, target_B: Tensor) -> Tensor:
    return logits_BK.scatter(1, target_B[:, None], -torch.inf)
