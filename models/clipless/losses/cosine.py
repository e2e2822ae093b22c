"""Cosine similarity with a floor on the norm of the logits. Shape letters: B batch, K logits."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from clipless.losses._rules import Loss, loss_rule
from clipless.losses.arguments import check_positive, target_rows
from clipless.option_types import Positive

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True, slots=True)
class KCosine(Loss):
    r"""K-cosine similarity, ``1 - t . z / max(|z|, f)`` with the public floor ``f = K X_min``.

    Below the floor the gradient is ``-t / f``; above it ``-(I - v v^T) t / |z|`` with v = z / |z|, a projection of t
    over a norm of at least f. With ``|t| <= 1``, which labels and soft labels have, both are at most 1 / f: L = 1 / f =
    1 / (K X_min), attained by a label wherever ``|z| < f`` (Bethune et al. 2024, arXiv 2305.16202, Table 1; without
    the floor the cosine is not Lipschitz at 0). One logit takes t = +1 or -1; a probability p gives 2 p - 1.
    """

    floor: Positive = 1.0

    def __post_init__(self) -> None:
        check_positive("floor", self.floor)

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses."""
        import torch

        target_BK = target_rows(target_B, logits_BK)
        if logits_BK.shape[1] == 1:
            target_BK = 2.0 * target_BK - 1.0
        norm_B: Tensor = torch.linalg.vector_norm(logits_BK, dim=1)
        return 1.0 - (target_BK * logits_BK).sum(dim=1) / norm_B.clamp(min=self.floor)


@loss_rule(KCosine, "k-cosine")
def _k_cosine(loss: KCosine, logits: int, logit_norm: float) -> float:
    del logits, logit_norm  # attained at z = 0 for any K
    return 1.0 / loss.floor
