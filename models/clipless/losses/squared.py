r"""Squared error to the one-hot label, for heads by least squares. Shape letters: B batch, K logits.

The gradient of ``|z - t|^2 / 2`` in the logits is the residual ``z - t``, which has no bound. Two bounds make it one:

* *Logits in a ball*, ``|z| <= R``, as those of a Lipschitz network whose inputs have a bounded norm. Then the residual
  has norm at most ``R + |t|``, attained at ``z = -R t / |t|``.
* *A residual in a ball*: from ``|z - t| = b`` on the loss goes on as its tangent, a Huber loss of the whole residual::

      l(z) = |z - t|^2 / 2            if |z - t| <= b,        else b |z - t| - b^2 / 2

  It is convex with a continuous gradient ``(z - t) min(1, b / |z - t|)``, whose norm is at most b and attains it.

The target is the label's centred row times s, ``t = s (e_y - 1 / K)``: adding one number to all logits changes no
class, and centring keeps a head from having to learn that number. Its norm is ``s sqrt((K - 1) / K)``; that of a soft
label's row is no larger, by convexity. One logit has ``t = s (y - 1 / 2)``, of size s / 2. Together::

    L = min(b, R + s sqrt((K - 1) / K)),        for one logit  min(b, R + s / 2)

References:
    Mehta et al. (2023), Large scale transfer learning for differentially private image classification, TMLR; Huber
    (1964).
"""

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, final

from clipless.losses._rules import Loss, loss_rule
from clipless.losses.arguments import check_positive, target_rows
from clipless.option_types import Positive

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class Squared(Loss):
    """Half the squared distance to the centred one-hot row, linear from a distance on.

    Attributes:
        bound: b > 0, the distance from which the loss is linear, in units of the logits.
        scale: s > 0, the height of the target of a class over that of the others.
    """

    bound: Positive = 1.0
    scale: Positive = 1.0

    def __post_init__(self) -> None:
        check_positive("bound", self.bound)
        check_positive("scale", self.scale)

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses for (B,) labels or (B, K) soft labels."""
        import torch

        centre = 1.0 / logits_BK.shape[1] if logits_BK.shape[1] > 1 else 0.5
        target_BK = self.scale * (target_rows(target_B, logits_BK) - centre)
        squares_B = (logits_BK - target_BK).square().sum(dim=1)
        near_B = squares_B <= self.bound**2
        root_B = torch.where(near_B, 1.0, squares_B).sqrt()  # the root of 0 has no derivative
        return torch.where(near_B, squares_B / 2.0, self.bound * root_B - self.bound**2 / 2.0)


@loss_rule(Squared, "squared")
def _squared(loss: Squared, logits: int, logit_norm: float) -> float:
    target = sqrt((logits - 1) / logits) if logits > 1 else 0.5
    return min(loss.bound, logit_norm + loss.scale * target)
