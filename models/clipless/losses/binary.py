r"""Binary cross-entropy of each of K outputs, for several labels at once. Shape letters: B batch, K logits."""

from dataclasses import dataclass
from math import exp, sqrt
from typing import TYPE_CHECKING, final

from clipless.losses._rules import Loss, loss_rule
from clipless.losses.numbers import check_positive
from clipless.losses.reduction import Reduction, parse_reduction
from clipless.losses.targets import target_rows
from clipless.option_types import Positive

if TYPE_CHECKING:
    from torch import Tensor


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
