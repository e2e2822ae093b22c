"""Cross-entropies with temperature, ``T * CE(z / T)``, of one label or several. Shape letters: B batch, K logits."""

from dataclasses import dataclass
from math import exp, sqrt
from typing import TYPE_CHECKING, final

from clipless.losses._rules import Loss, loss_rule
from clipless.losses.arguments import Reduction, check_positive, parse_reduction, target_rows
from clipless.losses.softmax_ball import largest_softmax_error
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


@final
@dataclass(frozen=True, slots=True)
class MultilabelBCE(Loss):
    r"""Binary cross-entropy of each output alone, ``T * BCE(z_k / T, t_k)``, summed or averaged over the K outputs.

    t is any (B, K) row with entries in [0, 1], several of which may be 1, or the one-hot row of a label. Each entry
    of the gradient of the sum is ``sigmoid(z_k / T) - t_k``, of modulus at most ``sigmoid(|z_k| / T)``, which t_k = 0
    or 1 attains. So L = sqrt(K) for the sum and 1 / sqrt(K) for the mean, approached for confident mistakes in every
    output. Where ``|z| <= R``, let ``h(v) = sigmoid(sqrt v)^2``: it increases and is concave, since with
    s = sigmoid(t) the logarithmic derivative of ``h'(t^2) = s^2 (1 - s) / t`` is ``2 - 3 s - 1 / t < 0`` for t > 0
    (``2 - 3 s <= 1 / 2 < 1 / t`` below 2, and ``s > 2 / 3`` from 2 on). By Jensen equal entries are worst::

        L = share * sqrt(K) * sigmoid(R / (T sqrt(K))),     share = 1 (sum) or 1 / K (mean)

    attained at ``z = R (1, ..., 1) / sqrt(K), t = 0``.
    """

    temperature: Positive = 1.0
    reduction: Reduction = Reduction.MEAN

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)
        object.__setattr__(self, "reduction", parse_reduction(self.reduction))

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses for (B,) labels or (B, K) rows; rows are clamped into [0, 1]."""
        import torch.nn.functional as F

        scaled_BK = logits_BK / self.temperature
        target_BK = target_rows(target_B, scaled_BK).clamp(0.0, 1.0)
        terms_BK = F.binary_cross_entropy_with_logits(scaled_BK, target_BK, reduction="none")
        return self.temperature * self.reduction.share(logits_BK.shape[1]) * terms_BK.sum(dim=1)


@loss_rule(MultilabelBCE, "multilabel-bce")
def _multilabel_bce(loss: MultilabelBCE, logits: int, logit_norm: float) -> float:
    root = sqrt(logits)
    return loss.reduction.share(logits) * root / (1.0 + exp(-logit_norm / (loss.temperature * root)))
