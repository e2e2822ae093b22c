r"""Kantorovich-Rubinstein losses, one class against all others, with class priors fixed in advance.

With the prior pi_k of class k, the expectation of ``1[y = k] z_k / pi_k - 1[y != k] z_k / (1 - pi_k)`` is the
difference of the means of z_k over class k and over all others, which a 1-Lipschitz z_k can raise to the Wasserstein
distance of the two (Serrurier et al. 2021, arXiv 2006.06520). Published code takes pi from the counts of the batch,
which makes the loss of one example depend on the others: here pi is public and fixed.

Shape letters: B batch, K logits.
"""

from dataclasses import dataclass
from math import hypot, inf
from typing import TYPE_CHECKING, Annotated, final

from clipless.losses._rules import loss_rule
from clipless.losses.arguments import Reduction, check_positive, constants, parse_reduction, target_rows
from clipless.losses.margins import hinge_terms
from clipless.option_types import NonNegative, Positive, Probabilities

if TYPE_CHECKING:
    from torch import Tensor

Priors = Annotated[tuple[float, ...], Probabilities()] | None


@final
@dataclass(frozen=True, slots=True)
class KR:
    r"""Kantorovich-Rubinstein loss, ``sum_k -t_k z_k / pi_k + (1 - t_k) z_k / (1 - pi_k)``; linear in the logits.

    The gradient of label y has the entry ``1 / pi_y`` at y and ``1 / (1 - pi_k)`` elsewhere; it is linear in t, so
    its norm is largest at a label::

        L = share * max_y sqrt(pi_y^-2 + sum_{k != y} (1 - pi_k)^-2),     share = 1 (sum) or 1 / K (mean)

    Balanced, mean: sqrt(K / (K - 1)), 1.414 at K = 2 and 1.054 at K = 10. One logit, of prior pi for class 1:
    L = max(1 / pi, 1 / (1 - pi)), 2 if balanced. Attained at every z.

    The priors of the classes are public and sum to 1; left out, they are balanced.
    """

    priors: Priors = None
    reduction: Reduction = Reduction.MEAN

    def __post_init__(self) -> None:
        object.__setattr__(self, "priors", _check_priors(self.priors))
        object.__setattr__(self, "reduction", parse_reduction(self.reduction))

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses."""
        terms_BK = _kr_terms(logits_BK, target_rows(target_B, logits_BK), self.priors)
        return self.reduction.share(logits_BK.shape[1]) * terms_BK.sum(dim=1)

    def output_size(self, classes: int) -> int:
        """One logit per class."""
        return _check_classes(self.priors, classes)


@final
@dataclass(frozen=True, slots=True)
class HKR:
    r"""Hinge-regularised Kantorovich-Rubinstein loss, ``KR + alpha * hinge`` (Serrurier et al. 2021).

    Hinge as in `clipless.losses.MulticlassHinge`, KR as in `clipless.losses.KR`, with one reduction. Where every
    hinge term is active (z = 0), both gradients have the same signs, and no other z has larger entries::

        L = share * max_y sqrt((1 / pi_y + alpha)^2 + sum_{k != y} (1 / (1 - pi_k) + alpha)^2) <= L_KR + alpha L_hinge

    Attained at z = 0; for one logit, ``max(1 / pi, 1 / (1 - pi)) + alpha``. A soft label gives, for each pattern of
    active terms, a gradient linear in t: largest at a label.

    Attributes:
        alpha: weight of the hinge, >= 0.
        priors: public prior of each class, summing to 1; balanced if left out.
    """

    alpha: NonNegative = 10.0
    margin: Positive = 1.0
    priors: Priors = None
    reduction: Reduction = Reduction.MEAN

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < inf:
            raise ValueError(f"Expected 0 <= alpha < inf, got alpha={self.alpha!r}")
        check_positive("margin", self.margin)
        object.__setattr__(self, "priors", _check_priors(self.priors))
        object.__setattr__(self, "reduction", parse_reduction(self.reduction))

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return (B,) losses."""
        target_BK = target_rows(target_B, logits_BK)
        hinge_BK = hinge_terms(logits_BK, target_BK, self.margin)
        terms_BK = _kr_terms(logits_BK, target_BK, self.priors) + self.alpha * hinge_BK
        return self.reduction.share(logits_BK.shape[1]) * terms_BK.sum(dim=1)

    def output_size(self, classes: int) -> int:
        """One logit per class."""
        return _check_classes(self.priors, classes)


@loss_rule(KR, "kr")
def _kr(loss: KR, logits: int, logit_norm: float) -> float:
    del logit_norm  # linear in the logits
    return loss.reduction.share(logits) * _largest_gradient(loss.priors, logits, 0.0)


@loss_rule(HKR, "hkr")
def _hkr(loss: HKR, logits: int, logit_norm: float) -> float:
    del logit_norm  # attained at z = 0
    return loss.reduction.share(logits) * _largest_gradient(loss.priors, logits, loss.alpha)


def _largest_gradient(priors: Priors, logits: int, hinge: float) -> float:
    own, other = (tuple(c + hinge for c in factors) for factors in _factors(priors, logits))
    if logits == 1:
        return max(own[0], other[0])
    return max(hypot(own[y], *other[:y], *other[y + 1 :]) for y in range(logits))


def _kr_terms(logits_BK: "Tensor", target_BK: "Tensor", priors: Priors) -> "Tensor":
    logits = logits_BK.shape[1]
    if priors is None:
        balanced_own, balanced_other = _factors(priors, logits)
        factor_BK = (1.0 - target_BK) * balanced_other[0] - target_BK * balanced_own[0]
    else:
        own_K, other_K = (constants(factors, logits_BK) for factors in _factors(priors, logits))
        factor_BK = (1.0 - target_BK) * other_K - target_BK * own_K
    return logits_BK * factor_BK


def _factors(priors: Priors, logits: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return 1 / pi_k and 1 / (1 - pi_k) for each logit."""
    classes = max(logits, 2)
    if priors is not None and len(priors) != classes:
        raise ValueError(f"Expected {classes} priors for {logits} logits, got {len(priors)}")
    every = priors or (1.0 / classes,) * classes
    of_logit = every if logits > 1 else every[1:]
    return tuple(1.0 / p for p in of_logit), tuple(1.0 / (1.0 - p) for p in of_logit)


def _check_priors(priors: Priors) -> Priors:
    if priors is None:
        return None
    priors = tuple(priors)
    if not (len(priors) >= 2 and all(0 < p < 1 for p in priors) and abs(sum(priors) - 1.0) <= 1e-6):
        raise ValueError(f"Expected two or more priors between 0 and 1 that sum to 1, got priors={priors!r}")
    return priors


def _check_classes(priors: Priors, classes: int) -> int:
    if priors is not None and len(priors) != classes:
        raise ValueError(f"Expected {len(priors)} classes, one for each prior, got {classes}")
    return classes
