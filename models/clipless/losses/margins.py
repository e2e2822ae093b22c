"""Hinges: one class against all others, and on differences of logits. Shape letters: B batch, K logits.

On differences of logits a soft label t weighs the losses of the labels, ``sum_y t_y loss_y``. Its gradient is the mean
of theirs, so that no constant below grows.
"""

from dataclasses import dataclass
from math import inf, sqrt
from typing import TYPE_CHECKING, final

from clipless.losses._rules import Loss, loss_rule
from clipless.losses.arguments import Reduction, check_positive, parse_reduction, target_rows
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


@final
@dataclass(frozen=True, slots=True)
class WestonWatkins(Loss):
    r"""``sum_{j != y} max(0, m - (z_y - z_j))``, summed, or divided by the number of classes K >= 2.

    The hinge of Weston and Watkins (1999); divided by the number of classes it is the form over c of Barczewski (2025,
    chapter 5), and PyTorch's ``MultiMarginLoss``. With n active terms the gradient of the sum is -n at y and 1 at n
    others: of norm ``sqrt(n^2 + n)``, largest where all n = K - 1 are active, as at z = 0::

        L = sqrt(K (K - 1)) for the sum,     sqrt((K - 1) / K) for the mean: 0.949 at K = 10
    """

    margin: Positive = 1.0
    reduction: Reduction = Reduction.MEAN

    def __post_init__(self) -> None:
        check_positive("margin", self.margin)
        object.__setattr__(self, "reduction", parse_reduction(self.reduction))

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses for (B,) labels or (B, K) soft labels."""
        if target_B.dim() == 2:
            return _soft(self, logits_BK, target_B)
        own_B1 = logits_BK.gather(1, target_B[:, None])
        terms_BK = (self.margin - own_B1 + logits_BK).clamp(min=0.0).masked_fill(_own(target_B, logits_BK), 0.0)
        return self.reduction.share(logits_BK.shape[1]) * terms_BK.sum(dim=1)


@final
@dataclass(frozen=True, slots=True)
class CrammerSinger(Loss):
    r"""``max(0, m - (z_y - max_{j != y} z_j))``, K >= 2 logits (Crammer and Singer 2001).

    Where it is positive the gradient is -1 at y and, over the j that attain the maximum, non-negative numbers that sum
    to 1, whose norm is at most 1: L = sqrt(2), attained wherever the maximum is attained once, so in every ball.
    """

    margin: Positive = 1.0

    def __post_init__(self) -> None:
        check_positive("margin", self.margin)

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses for (B,) labels or (B, K) soft labels."""
        if target_B.dim() == 2:
            return _soft(self, logits_BK, target_B)
        own_B = logits_BK.gather(1, target_B[:, None])[:, 0]
        others_B = logits_BK.masked_fill(_own(target_B, logits_BK), -inf).amax(dim=1)
        return (self.margin - own_B + others_B).clamp(min=0.0)


@loss_rule(WestonWatkins, "weston-watkins")
def _weston_watkins(loss: WestonWatkins, logits: int, logit_norm: float) -> float:
    del logit_norm  # attained at z = 0
    _check_logits("weston-watkins", logits)
    return loss.reduction.share(logits) * sqrt(logits * (logits - 1))


@loss_rule(CrammerSinger, "crammer-singer")
def _crammer_singer(loss: CrammerSinger, logits: int, logit_norm: float) -> float:
    del loss, logit_norm  # approached at z = 0
    _check_logits("crammer-singer", logits)
    return sqrt(2.0)


def _check_logits(name: str, logits: int) -> None:
    if logits < 2:
        raise ValueError(f"Expected at least 2 logits for {name}, got {logits}; use hinge")


def _own(target_B: "Tensor", logits_BK: "Tensor") -> "Tensor":
    import torch

    return torch.arange(logits_BK.shape[1], device=logits_BK.device) == target_B[:, None]


def _soft(loss: WestonWatkins | CrammerSinger, logits_BK: "Tensor", target_BK: "Tensor") -> "Tensor":
    import torch

    rows, logits = logits_BK.shape
    every = torch.arange(logits, device=logits_BK.device)
    losses_BK = loss(logits_BK.repeat_interleave(logits, dim=0), every.repeat(rows)).view(rows, logits)
    return (target_BK.to(logits_BK.dtype) * losses_BK).sum(dim=1)
