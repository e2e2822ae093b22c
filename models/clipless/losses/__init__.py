"""Losses of one example, each with its Lipschitz constant computed for the form actually used.

``temperature`` T *divides* the logits wherever a loss has one. (The package lip-dp multiplies by tau: T = 1 / tau.)
A target is a label, or a row of the simplex (a soft label); every constant holds for both. Importing this package
enters every constant in the table.
"""

from clipless.losses._rules import Loss, loss_lipschitz, loss_rule
from clipless.losses.absolute import MAE
from clipless.losses.cosine import KCosine
from clipless.losses.cross_entropy import TauBCE, TauCCE
from clipless.losses.hinge import MulticlassHinge
from clipless.losses.kantorovich import HKR, KR
from clipless.losses.reduction import Reduction
from clipless.losses.weighted import ClassWeighted

NamedLoss = TauCCE | TauBCE | MulticlassHinge | KR | HKR | KCosine | MAE

LOSSES: dict[str, type[NamedLoss]] = {
    "tau-cce": TauCCE,
    "tau-bce": TauBCE,
    "hinge": MulticlassHinge,
    "kr": KR,
    "hkr": HKR,
    "k-cosine": KCosine,
    "mae": MAE,
}

__all__ = [
    "HKR",
    "KR",
    "LOSSES",
    "MAE",
    "ClassWeighted",
    "KCosine",
    "Loss",
    "MulticlassHinge",
    "NamedLoss",
    "Reduction",
    "TauBCE",
    "TauCCE",
    "loss_lipschitz",
    "loss_rule",
]
