"""Membership inference: can the rows that a model was trained on be told from others?

On public data only: the attacks read the rows that a model was trained on, and their scores are releases. A privacy
audit of a mechanism lives elsewhere; these attacks compare models, they bound no epsilon.

Shape letters: B rows, K logits, F features.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
    """Call rows of small loss members (Yeom et al. 2018, arXiv 1709.01604), at every threshold.

    Args:
        model: the model under attack.
        loss: any loss; that of its training is usual.
        members: rows that the model was trained on; public.
        others: rows of the same kind that it has not seen; public.

    Raises:
        ValueError: no rows on one side, or losses that are not finite.
    """
    inside, outside = (-_losses(model, loss, split) for split in (members, others))
    return _score(inside, outside)


def shadow_attack(
    model: Network,
    loss: Loss,
    members: Split,
    others: Split,
    shadows: Sequence[tuple[Network, Split, Split]],
) -> MembershipScore:
    """Learn from shadow models what members look like (Shokri et al. 2017, arXiv 1610.05820), and call those members.

    A logistic regression on each row's loss, its margin, and its logits in falling order, fitted to the rows of models
    whose members the attacker knows, then applied to the model under attack.

    Args:
        model: the model under attack.
        loss: as for `threshold_attack`.
        members: rows that the model was trained on; public.
        others: rows that it has not seen; public.
        shadows: models trained like ``model`` on other rows, each with its own members and others.

    Raises:
        ValueError: no shadow model, no rows on one side, or logits that are not finite.
    """
    if not shadows:
        raise ValueError("Expected at least one shadow model, got none")
    parts, labels = [], []
    for shadow, its_members, its_others in shadows:
        for split, label in ((its_members, 1), (its_others, 0)):
            parts.append(_features(shadow, loss, split))
            labels.append(np.full(len(split), label))
    from sklearn.linear_model import LogisticRegression  # half a second that other trials need not pay
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    attacker = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    attacker.fit(np.concatenate(parts), np.concatenate(labels))
    inside, outside = (attacker.decision_function(_features(model, loss, split)) for split in (members, others))
    return _score(inside, outside)


@torch.no_grad()
def _losses(model: Network, loss: Loss, split: Split) -> FloatArray:
    return _finite(loss(float64_logits(model, split.x), split.y))


@torch.no_grad()
def _features(model: Network, loss: Loss, split: Split) -> FloatArray:
    """Return (B, F) features: loss, margin, logits in falling order."""
    logits_BK = float64_logits(model, split.x)
    losses_B = loss(logits_BK, split.y)
    if logits_BK.shape[1] == 1:
        margin_B = logits_BK[:, 0] * (2.0 * split.y.double() - 1.0)
        features = [losses_B, margin_B, margin_B.abs()]
        return _finite(torch.stack(features, dim=1))
    own_B = logits_BK.gather(1, split.y[:, None])[:, 0]
    margin_B = own_B - logits_BK.scatter(1, split.y[:, None], -torch.inf).amax(dim=1)
    sorted_BK = logits_BK.sort(dim=1, descending=True).values
    return _finite(torch.cat([losses_B[:, None], margin_B[:, None], sorted_BK], dim=1))


def _finite(values: Tensor) -> FloatArray:
    if not bool(values.isfinite().all()):
        raise ValueError("Expected finite losses and logits, got some that are not")
    found: FloatArray = values.cpu().numpy()
    return found


def _score(inside: FloatArray, outside: FloatArray) -> MembershipScore:
    if not (len(inside) and len(outside)):
        raise ValueError(f"Expected rows on both sides, got {len(inside)} members and {len(outside)} others")
    truth = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
    values = np.concatenate([inside, outside])
    from sklearn.metrics import roc_auc_score, roc_curve

    false_rate, true_rate, _ = roc_curve(truth, values)
    return MembershipScore(float(roc_auc_score(truth, values)), float((true_rate - false_rate).max()))
