"""Losses by name."""

from collections.abc import Sequence
from typing import Any

from clipless.errors import UnsupportedError
from clipless.losses._rules import LOSSES, Loss
from clipless.losses.weighted import ClassWeighted


def build_loss(name: str, *, class_weights: Sequence[float] | None = None, **parameters: Any) -> Loss:
    """Build the loss called ``name``.

    Args:
        name: a key of `LOSSES`.
        class_weights: public weight of each class, see `ClassWeighted`; left out, none.
        parameters: the loss's own attributes.

    Raises:
        UnsupportedError: no such loss.
        ValueError: a parameter or weights out of range.
    """
    if name not in LOSSES:
        raise UnsupportedError(f"Expected a loss among {', '.join(LOSSES)}, got {name!r}")
    loss = LOSSES[name](**parameters)
    return loss if class_weights is None else ClassWeighted(loss, tuple(class_weights))
