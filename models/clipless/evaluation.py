"""Utility and certified robustness of a model on rows that may be looked at.

Shape letters: B batch, K logits.

What is computed here on private rows is a release: the caller declares which rows these are.
"""

from collections.abc import Iterable

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from clipless.certificates import certified_radii, float64_logits
from clipless.datasets import Split
from clipless.network import Network
from clipless.radii import parse_radius


def evaluate(model: Network, split: Split, radii: Iterable[str] = (), input_gain: float = 1.0) -> dict[str, float]:
    """Score ``model`` on ``split`` in float64.

    Args:
        model: a network with one logit (binary) or K.
        split: rows that are public, paid for, or marked exploratory.
        radii: as written, ``"36/255"``; in raw units.
        input_gain: Lipschitz constant of the fixed maps between raw units and the tensor.

    Returns:
        ``accuracy``, ``certified@R`` for each radius, and with two classes ``auroc``, all in [0, 1].
    """
    if not 0 < input_gain < float("inf"):
        raise ValueError(f"Expected 0 < input_gain < inf, got input_gain={input_gain!r}")
    logits_BK = float64_logits(model, split.x)
    scores = {"accuracy": _mean(_decisions(logits_BK) == split.y)}
    raw_radius_B = certified_radii(model, logits_BK, split.y) / input_gain
    for text in radii:
        scores[f"certified@{text}"] = _mean(raw_radius_B > parse_radius(text))
    if logits_BK.shape[1] <= 2:
        scores["auroc"] = _auroc(logits_BK, split.y)
    return scores


def _decisions(logits_BK: Tensor) -> Tensor:
    decided_B = (logits_BK[:, 0] > 0).long() if logits_BK.shape[1] == 1 else logits_BK.argmax(dim=1)
    return torch.where(logits_BK.isfinite().all(dim=1), decided_B, -1)


def _auroc(logits_BK: Tensor, target_B: Tensor) -> float:
    score_B = logits_BK[:, 0] if logits_BK.shape[1] == 1 else logits_BK[:, 1] - logits_BK[:, 0]
    if len(target_B.unique()) < 2 or not bool(score_B.isfinite().all()):
        return float("nan")
    return float(roc_auc_score(target_B.cpu().numpy(), score_B.cpu().numpy()))


def _mean(hits_B: Tensor) -> float:
    return float(hits_B.double().mean().item())
