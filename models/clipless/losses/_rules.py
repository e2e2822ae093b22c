"""The table of Lipschitz constants: one rule for each type of loss, found by exact type.

Shape letters: B batch, K logits.
"""

from collections.abc import Callable, Mapping
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from clipless.errors import UnsupportedError

if TYPE_CHECKING:
    from torch import Tensor


class Loss(Protocol):
    """A loss of one example: (B, K) logits and targets to (B,) losses.

    Targets are (B,) int64 labels or (B, K) rows on the simplex; for one logit, (B,) labels or probabilities of
    class 1.
    """

    def __call__(self, logits_BK: "Tensor", target_B: "Tensor") -> "Tensor":
        """Return one loss per example; row i depends on row i alone."""

    def output_size(self, classes: int) -> int:
        """Return K for a number of classes; one logit per class unless a loss says otherwise."""
        return classes


LossRule = Callable[[Any, int, float], float]
R = TypeVar("R", bound=LossRule)
_RULES: dict[type, LossRule] = {}
_NAMED: dict[str, Callable[..., Loss]] = {}
LOSSES: Mapping[str, Callable[..., Loss]] = MappingProxyType(_NAMED)


def loss_rule(loss_type: type, name: str | None = None) -> Callable[[R], R]:
    """Enter the Lipschitz constant of a loss type in the table; a second entry is an error.

    The decorated rule takes the loss, K, and a bound on the norm of the logits (inf if there is none).

    Args:
        loss_type: a frozen dataclass, each of whose attributes has a default and a type of `clipless.option_types`.
        name: by which a spec chooses the loss; without one it is no entry of `LOSSES`.
    """

    def register(rule: R) -> R:
        if loss_type in _RULES:
            raise ValueError(f"{loss_type.__name__} already has a Lipschitz constant")
        if name in _NAMED:
            raise ValueError(f"There is already a loss {name}")
        _RULES[loss_type] = rule
        if name is not None:
            _NAMED[name] = loss_type
        return rule

    return register


def loss_lipschitz(loss: Loss, logits: int, *, logit_norm: float = inf) -> float:
    """Largest norm of the gradient of one example's loss in its logits, over all targets.

    The Euclidean norm of no example's K ``logits`` exceeds ``logit_norm``; a loss may have a smaller constant there.
    Its rule is found by exact type.

    Raises:
        UnsupportedError: no rule for exactly this type.
        ValueError: a number of logits that the loss does not take, or a norm that is negative or not a number.
    """
    rule = _RULES.get(type(loss))
    if rule is None:
        known = ", ".join(sorted(t.__name__ for t in _RULES))
        raise UnsupportedError(f"No Lipschitz constant for loss {type(loss).__name__}; losses with one: {known}")
    if not logits >= 1:
        raise ValueError(f"Expected at least 1 logit, got logits={logits!r}")
    if not logit_norm >= 0:
        raise ValueError(f"Expected logit_norm >= 0, got logit_norm={logit_norm!r}")
    return rule(loss, logits, logit_norm)
