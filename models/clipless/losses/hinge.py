"""The multiclass hinge, one class against all others. Shape letters: B batch, K logits."""

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, final

from clipless.losses._rules import Loss, loss_rule
from clipless.losses.numbers import check_positive
from clipless.losses.reduction import Reduction, parse_reduction
from clipless.losses.targets import target_rows
from clipless.option_types import Positive

if TYPE_CHECKING:
    from torch import Tensor


def hinge_terms(logits_BK: "Tensor", target_BK: "Tensor", margin: float) -> "Tensor":
    """Return (B, K) terms ``t_k max(0, m - z_k) + (1 - t_k) max(0, m + z_k)``."""
    above_BK = (margin - logits_BK).clamp(min=0.0)
    below_BK = (margin + logits_BK).clamp(min=0.0)
    return target_BK * above_BK + (1.0 - target_BK) * below_BK


@final
@dataclass(frozen=True, slots=True)
class MulticlassHinge(Loss):
    r"""Hinge of each class against all others, ``sum_k max(0, m - s_k z_k)``, s_k = +1 for the label, else -1.

    ``reduction`` sums or averages over the K logits; one logit is a binary decision at 0. Deel-lip's
    ``min_margin`` is 2 m. Each entry of the gradient of the sum is -s_k or 0: its norm is at most sqrt(K), attained
    at z = 0 where every term is active, so L = sqrt(K) for the sum and 1 / sqrt(K) for the mean (Bethune et al.
    2024, arXiv 2305.16202, Table 1 states the constants without K). A soft label t gives entries ``-t_k [z_k < m] +
    (1 - t_k) [z_k > -m]`` in [-1, 1]: the same bound.
    """

    margin: Positive = 1.0
    reduction: Reduction = Reduction.MEAN

    def __post_init__(self) -> None:
        check_positive("margin", self.margin)
        object.__setattr__(self, "reduction", parse_reduction(self.reduction))

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses."""
        terms_BK = hinge_terms(logits_BK, target_rows(target_B, logits_BK), self.margin)
        return self.reduction.share(logits_BK.shape[1]) * terms_BK.sum(dim=1)


@loss_rule(MulticlassHinge, "hinge")
def _hinge(loss: MulticlassHinge, logits: int, logit_norm: float) -> float:
    del logit_norm  # attained at z = 0
    return loss.reduction.share(logits) * sqrt(logits)
