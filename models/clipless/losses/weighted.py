"""A loss times a public weight of the example's class. Shape letters: B batch, K logits, C classes."""

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, final

from clipless.losses._rules import Loss, loss_lipschitz, loss_rule
from clipless.losses.arguments import constants, target_rows

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class ClassWeighted:
    r"""``w_y * loss``; a soft label t weighs ``sum_k t_k w_k``.

    The weight does not depend on the logits and is at most max_k w_k: L = max_k w_k times the constant of ``loss``,
    attained where that is attained for the class of the largest weight. Weights must be public: counts of private
    labels are a release.

    Attributes:
        weights: one for each class, >= 0, not all 0.
    """

    loss: Loss
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))
        positive = len(self.weights) >= 2 and all(0 <= w < inf for w in self.weights) and sum(self.weights) > 0
        if not positive:
            raise ValueError(f"Expected a finite weight >= 0 for each class, not all 0, got weights={self.weights!r}")

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses."""
        rows_BC = target_rows(target_B, logits_BK)
        if logits_BK.shape[1] == 1:
            import torch

            rows_BC = torch.cat([1.0 - rows_BC, rows_BC], dim=1)
        weights_C = constants(self.weights, logits_BK)
        return (rows_BC * weights_C).sum(dim=1) * self.loss(logits_BK, target_B)

    def output_size(self, classes: int) -> int:
        """Return the logits of the weighted loss."""
        if classes != len(self.weights):
            raise ValueError(f"Expected {len(self.weights)} classes, one for each weight, got {classes}")
        return self.loss.output_size(classes)


@loss_rule(ClassWeighted)
def _class_weighted(loss: ClassWeighted, logits: int, logit_norm: float) -> float:
    if len(loss.weights) != max(logits, 2):
        raise ValueError(f"Expected {max(logits, 2)} weights for {logits} logits, got {len(loss.weights)}")
    return max(loss.weights) * loss_lipschitz(loss.loss, logits, logit_norm=logit_norm)
