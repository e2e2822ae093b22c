"""Utility and certified robustness of a model on rows that may be looked at.

Where a privacy unit has several rows, these share the weight of one: a score is the mean over units of the mean over
their rows, and an AUROC weighs a pair of rows by both of theirs.

Shape letters: B batch, K logits.

What is computed here on private rows is a release: the caller declares which rows these are.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from clipless.attacks import PGD, EvasionAttack
from clipless.certificates.certify import binary_scores, certified_auroc, decisions, float64_logits
from clipless.certificates.outputs import Outputs, encoding_error
from clipless.certificates.radii import parse_radius
from clipless.datasets import Split
from clipless.network import Network


def evaluate(
    model: Network,
    split: Split,
    radii: Iterable[str] = (),
    input_gain: float = 1.0,
    *,
    classes: int | None = None,
    features: Tensor | None = None,
    outputs: Outputs | None = None,
) -> dict[str, float]:
    """Score ``model`` on ``split`` in float64.

    Args:
        model: a network with one logit (binary) or K.
        split: rows that are public, paid for, or marked exploratory.
        radii: as written, ``"36/255"``; in raw units.
        input_gain: Lipschitz constant of the fixed maps between raw units and the tensor.
        classes: their number, to score each of them too.
        features: `clipless.certificates.certify.float64_features` of the rows, which save the fixed prefix's part.
        outputs: on these rows, where they are known; the model is not looked at then, and may hold other weights.

    Returns:
        ``accuracy``, ``certified@R`` for each radius, and with two classes ``auroc`` and ``certified-auroc@R``,
        all in [0, 1]; the last two are NaN where a class is absent. With ``classes`` also ``recall@C`` of each class C
        that has rows, and their mean ``balanced_accuracy``.

    Raises:
        ValueError: a gain or radius out of range, or rows of another shape than the network's.

    Guarantees:
        What is certified holds for every row within the radius, encoded again (`encoding_error`).
    """
    if not 0 < input_gain < float("inf"):
        raise ValueError(f"Expected 0 < input_gain < inf, got input_gain={input_gain!r}")
    outputs = outputs or Outputs.of(model, split, features)
    logits_BK, raw_radius_B = outputs.logits, outputs.radii / input_gain
    weight_B = split.weights()
    hits_B = decisions(logits_BK) == split.y
    scores = {"accuracy": _mean(hits_B, weight_B)}
    if classes is not None:
        recalls = {
            f"recall@{label}": _mean(hits_B[own_B], weight_B[own_B])
            for label in range(classes)
            if bool((own_B := split.y == label).any())
        }
        scores |= {"balanced_accuracy": sum(recalls.values()) / max(len(recalls), 1), **recalls}
    parsed = {text: parse_radius(text) for text in radii}
    scores |= {f"certified@{text}": _mean(raw_radius_B > radius, weight_B) for text, radius in parsed.items()}
    if logits_BK.shape[1] <= 2:
        scores["auroc"] = _auroc(logits_BK, split.y, weight_B)
        reach = [radius * input_gain for radius in parsed.values()]
        moved = [one + float(encoding_error(split.x, one).amax()) if len(split) else one for one in reach]
        certified = certified_auroc(model, logits_BK, split.y, moved, weights_B=weight_B, measured=outputs.measured)
        scores |= {f"certified-auroc@{text}": value for text, value in zip(parsed, certified, strict=True)}
    return scores


def attacked_accuracy(
    model: Network, split: Split, radius: str, input_gain: float = 1.0, *, attack: EvasionAttack | None = None
) -> float:
    """Share of rows that are decided correctly and stay so under an attack: an upper side of ``certified@R``.

    The attack moves in the tensor, by at most the radius times ``input_gain``: every move of at most the radius in raw
    units is among these.

    Arguments are those of `evaluate`; the attack is `clipless.attacks.PGD` by default.

    Raises:
        ValueError: a radius or gain out of range, or an attack that leaves the ball.

    Guarantees:
        ``certified@R <= attacked <= accuracy`` on the same rows, as `evaluate` scores them.
    """
    if not 0 < input_gain < float("inf"):
        raise ValueError(f"Expected 0 < input_gain < inf, got input_gain={input_gain!r}")
    reach = parse_radius(radius) * input_gain
    moved = (attack or PGD())(model, split.x, split.y, reach)
    farthest = float((moved - split.x.double()).nan_to_num(0.0).flatten(1).norm(dim=1).amax())
    if not farthest <= reach * (1.0 + 1e-9):
        raise ValueError(f"Expected moves of at most {reach}, got one of {farthest}")
    holds_B = decisions(float64_logits(model, split.x)) == split.y
    return _mean(holds_B & (decisions(float64_logits(model, moved)) == split.y), split.weights())


def _auroc(logits_BK: Tensor, target_B: Tensor, weight_B: Tensor) -> float:
    from sklearn.metrics import roc_auc_score  # half a second that data of many classes need not pay

    score_B = binary_scores(logits_BK)
    if len(target_B.unique()) < 2 or not bool(score_B.isfinite().all()):
        return float("nan")
    score, weight = score_B.cpu().numpy(), weight_B.cpu().numpy()
    return float(roc_auc_score(target_B.cpu().numpy(), score, sample_weight=weight))


def _mean(hits_B: Tensor, weight_B: Tensor) -> float:
    """Return the share of the weight; sums of more hits are never less, rounding included."""
    return float(torch.where(hits_B, weight_B, 0.0).sum() / weight_B.sum())
