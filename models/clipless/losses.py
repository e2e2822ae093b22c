r"""Losses of one example, each with its Lipschitz constant computed for the form actually used.

``temperature`` T *divides* the logits everywhere. (The package lip-dp multiplies by tau: T = 1 / tau.)

Shape letters: B batch, K logits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any, Protocol, TypeVar, final

import torch.nn.functional as F
from torch import Tensor

from clipless.errors import UnsupportedError


class Loss(Protocol):
    """A loss of one example: (B, K) logits and (B,) int64 targets to (B,) losses."""

    def __call__(self, logits_BK: Tensor, target_B: Tensor) -> Tensor:
        """Return one loss per example; row i depends on row i alone."""
        ...

    def output_size(self, classes: int) -> int:
        """Return K for a number of classes."""
        ...


@final
@dataclass(frozen=True, slots=True)
class TauCCE:
    r"""Categorical cross-entropy with temperature, ``T * CE(z / T)``, K >= 2 logits.

    Its gradient is ``softmax(z / T) - e_y``. With p_y = 1 - s, its squared norm is ``s^2 + sum_{j != y} p_j^2
    <= 2 s^2 <= 2``, so L = sqrt(2), approached as T -> 0 or for confident mistakes (Bethune et al. 2024,
    Table 1).
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check_temperature(self.temperature)

    def __call__(self, logits_BK: Tensor, target_B: Tensor) -> Tensor:
        """Return (B,) losses."""
        scaled_BK = logits_BK / self.temperature
        return self.temperature * F.cross_entropy(scaled_BK, target_B, reduction="none")

    def output_size(self, classes: int) -> int:
        """One logit per class."""
        return classes


@final
@dataclass(frozen=True, slots=True)
class TauBCE:
    r"""Binary cross-entropy with temperature on one logit, ``T * BCE(z / T)``; targets 0 and 1.

    Its derivative is ``sigmoid(z / T) - y``, in [-1, 1]: L = 1.
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        _check_temperature(self.temperature)

    def __call__(self, logits_BK: Tensor, target_B: Tensor) -> Tensor:
        """Return (B,) losses of (B, 1) logits."""
        scaled_B = logits_BK[:, 0] / self.temperature
        target_B = target_B.to(scaled_B.dtype)
        return self.temperature * F.binary_cross_entropy_with_logits(scaled_B, target_B, reduction="none")

    def output_size(self, classes: int) -> int:
        """One logit, for two classes only."""
        if classes != 2:
            raise ValueError(f"Expected two classes for tau-bce, got {classes}; use tau-cce")
        return 1


LossRule = Callable[[Any, int], float]
R = TypeVar("R", bound=LossRule)
_RULES: dict[type, LossRule] = {}
LOSSES: dict[str, type[TauCCE] | type[TauBCE]] = {"tau-cce": TauCCE, "tau-bce": TauBCE}


def loss_rule(loss_type: type) -> Callable[[R], R]:
    """Enter the Lipschitz constant of a loss type in the table; a second entry is an error."""

    def register(rule: R) -> R:
        if loss_type in _RULES:
            raise ValueError(f"{loss_type.__name__} already has a Lipschitz constant")
        _RULES[loss_type] = rule
        return rule

    return register


def loss_lipschitz(loss: Loss, logits: int) -> float:
    """Largest norm of the gradient of one example's loss in its logits.

    Args:
        loss: a loss of a type in the table, found by exact type.
        logits: K.

    Raises:
        UnsupportedError: no rule for exactly this type.
    """
    rule = _RULES.get(type(loss))
    if rule is None:
        known = ", ".join(sorted(t.__name__ for t in _RULES))
        raise UnsupportedError(f"No Lipschitz constant for loss {type(loss).__name__}; losses with one: {known}")
    return rule(loss, logits)


@loss_rule(TauCCE)
def _tau_cce(loss: TauCCE, logits: int) -> float:
    del loss
    if logits < 2:
        raise ValueError(f"Expected at least 2 logits for tau-cce, got {logits}; use tau-bce")
    return sqrt(2.0)


@loss_rule(TauBCE)
def _tau_bce(loss: TauBCE, logits: int) -> float:
    del loss
    if logits != 1:
        raise ValueError(f"Expected 1 logit for tau-bce, got {logits}; use tau-cce")
    return 1.0


def _check_temperature(temperature: float) -> None:
    if not 0 < temperature < float("inf"):
        raise ValueError(f"Expected 0 < temperature < inf, got temperature={temperature!r}")
