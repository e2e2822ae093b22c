"""Membership inference: can the rows that a model was trained on be told from others?

On public data only: the attack reads the rows that a model was trained on, and its score is a release. It compares
models and bounds no epsilon.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from clipless.certificates.certify import float64_logits
from clipless.datasets import Split
from clipless.losses import Loss
from clipless.network import Network

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MembershipScore:
    """How well an attack tells members from others.

    Attributes:
        auroc: 0.5 for guessing, 1 for certainty; below 0.5 the attack is systematically wrong.
        advantage: largest TPR - FPR over all thresholds, 0 for guessing (Yeom et al. 2018, arXiv 1709.01604).
    """

    auroc: float
    advantage: float


def threshold_attack(model: Network, loss: Loss, members: Split, others: Split) -> MembershipScore:
    """Predict that rows with a small loss are members (Yeom et al. 2018, arXiv 1709.01604), at every threshold.

    The model was trained on ``members`` and has not seen ``others``, rows of the same kind; both are public. Any loss
    will do; that of the training is usual.

    Raises:
        ValueError: no rows on one side, or losses that are not finite.
    """
    inside, outside = (-_losses(model, loss, split) for split in (members, others))
    if not (len(inside) and len(outside)):
        raise ValueError(f"Expected rows on both sides, got {len(inside)} members and {len(outside)} others")
    from sklearn.metrics import roc_auc_score, roc_curve

    truth = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
    values = np.concatenate([inside, outside])
    false_rate, true_rate, _ = roc_curve(truth, values)
    return MembershipScore(float(roc_auc_score(truth, values)), float((true_rate - false_rate).max()))


@torch.no_grad()
def _losses(model: Network, loss: Loss, split: Split) -> FloatArray:
    values = loss(float64_logits(model, split.x), split.y)
    if not bool(values.isfinite().all()):
        raise ValueError("Expected finite losses, got some that are not")
    found: FloatArray = values.cpu().numpy()
    return found
