"""Mean absolute error, for regression and on one-hot labels. Shape letters: B batch, K logits."""

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, final

from clipless.losses._rules import Loss, loss_rule
from clipless.losses.arguments import Reduction, parse_reduction, target_rows

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class MAE(Loss):
    r"""Absolute error, ``sum_k |z_k - t_k|``, summed or averaged over the K outputs.

    t is the one-hot row of a label, a soft label, or, for regression, any (B,) numbers for one output or (B, K) for
    several. Each entry of the gradient of the sum is a sign (0 where equal): its norm is at most sqrt(K), attained
    almost everywhere, whatever t is, so L = sqrt(K) for the sum and 1 / sqrt(K) for the mean.
    """

    reduction: Reduction = Reduction.MEAN

    def __post_init__(self) -> None:
        object.__setattr__(self, "reduction", parse_reduction(self.reduction))

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses."""
        error_BK = (logits_BK - target_rows(target_B, logits_BK)).abs()
        return self.reduction.share(logits_BK.shape[1]) * error_BK.sum(dim=1)


@loss_rule(MAE, "mae")
def _mae(loss: MAE, logits: int, logit_norm: float) -> float:
    del logit_norm  # attained within any ball
    return loss.reduction.share(logits) * sqrt(logits)
