r"""Cross-entropies with temperature, ``T * CE(z / T)``. Shape letters: B batch, K logits."""

from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, final

from clipless.losses._rules import Loss, loss_rule
from clipless.losses.numbers import check_positive
from clipless.losses.softmax_ball import largest_softmax_error
from clipless.losses.targets import target_rows
from clipless.option_types import Positive

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class TauCCE(Loss):
    r"""Categorical cross-entropy with temperature, ``T * CE(z / T)``, K >= 2 logits.

    Its gradient is ``softmax(z / T) - e_y``. With p_y = 1 - s, its squared norm is ``s^2 + sum_{j != y} p_j^2
    <= 2 s^2 <= 2``, so L = sqrt(2), approached as T -> 0 or for confident mistakes (Bethune et al. 2024, arXiv
    2305.16202, Table 1). A soft label t gives ``softmax(z / T) - t``; its norm is convex in t, so largest at a
    label. Where ``|z| <= R`` the supremum is that over ``|u| <= R / T``, see
    `clipless.losses.softmax_ball.largest_softmax_error`.
    """

    temperature: Positive = 1.0

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses for (B,) labels or (B, K) soft labels."""
        import torch.nn.functional as F

        scaled_BK = logits_BK / self.temperature
        target = target_B if target_B.dim() == 1 else target_B.to(scaled_BK.dtype)
        return self.temperature * F.cross_entropy(scaled_BK, target, reduction="none")


@final
@dataclass(frozen=True, slots=True)
class TauBCE:
    r"""Binary cross-entropy with temperature on one logit, ``T * BCE(z / T)``; targets 0 and 1, or between.

    Its derivative is ``sigmoid(z / T) - y``, in [-1, 1]: L = 1; where ``|z| <= R``, L = sigmoid(R / T), attained
    at ``z = R, y = 0`` (Bethune et al. 2024, arXiv 2305.16202, Table 1).
    """

    temperature: Positive = 1.0

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses of (B, 1) logits."""
        import torch.nn.functional as F

        scaled_B1 = logits_BK[:, :1] / self.temperature
        losses_B1 = F.binary_cross_entropy_with_logits(scaled_B1, target_rows(target_B, scaled_B1), reduction="none")
        return self.temperature * losses_B1[:, 0]

    def output_size(self, classes: int) -> int:
        """One logit, for two classes only."""
        if classes != 2:
            raise ValueError(f"Expected two classes for tau-bce, got {classes}; use tau-cce")
        return 1


@loss_rule(TauCCE, "tau-cce")
def _tau_cce(loss: TauCCE, logits: int, logit_norm: float) -> float:
    if logits < 2:
        raise ValueError(f"Expected at least 2 logits for tau-cce, got {logits}; use tau-bce")
    return largest_softmax_error(logits, logit_norm / loss.temperature)


@loss_rule(TauBCE, "tau-bce")
def _tau_bce(loss: TauBCE, logits: int, logit_norm: float) -> float:
    if logits != 1:
        raise ValueError(f"Expected 1 logit for tau-bce, got {logits}; use tau-cce")
    return 1.0 / (1.0 + exp(-logit_norm / loss.temperature))
