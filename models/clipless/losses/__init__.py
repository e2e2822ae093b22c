"""Losses of one example, each with its Lipschitz constant computed for the form actually used.

``temperature`` T *divides* the logits wherever a loss has one. (The package lip-dp multiplies by tau: T = 1 / tau.)
A target is a label, or a row of the simplex (a soft label); every constant holds for both. Importing this package
enters the constants of every module of this folder in the table, without torch.
"""

from collections.abc import Sequence
from typing import Any

from clipless.errors import UnsupportedError
from clipless.imports import import_modules
from clipless.losses._rules import LOSSES, Loss, loss_lipschitz, loss_rule
from clipless.losses.absolute import MAE
from clipless.losses.arguments import Reduction
from clipless.losses.cosine import KCosine
from clipless.losses.cross_entropy import MultilabelBCE, TauBCE, TauCCE
from clipless.losses.kantorovich import HKR, KR
from clipless.losses.margins import CrammerSinger, MulticlassHinge, WestonWatkins
from clipless.losses.squared import Squared
from clipless.losses.weighted import ClassWeighted
from clipless.spelling import did_you_mean

_FILES = tuple(import_modules(__name__, __path__))  # each enters its losses in the tables

__all__ = [
    "HKR",
    "KR",
    "LOSSES",
    "MAE",
    "ClassWeighted",
    "CrammerSinger",
    "KCosine",
    "Loss",
    "MulticlassHinge",
    "MultilabelBCE",
    "Reduction",
    "Squared",
    "TauBCE",
    "TauCCE",
    "WestonWatkins",
    "build_loss",
    "loss_lipschitz",
    "loss_rule",
]


def build_loss(name: str, *, class_weights: Sequence[float] | None = None, **parameters: Any) -> Loss:
    """Build the loss called ``name``.

    The name is a key of `LOSSES`, the parameters are the loss's own attributes, and ``class_weights`` are public: see
    `ClassWeighted`.

    Raises:
        UnsupportedError: no such loss.
        ValueError: a parameter or weights out of range.
    """
    if name not in LOSSES:
        hint = did_you_mean(name, LOSSES, before="; ")
        raise UnsupportedError(f"Expected a loss among {', '.join(LOSSES)}, got {name!r}{hint}")
    loss = LOSSES[name](**parameters)
    return loss if class_weights is None else ClassWeighted(loss, tuple(class_weights))
