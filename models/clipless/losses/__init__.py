"""Losses of one example, each with its Lipschitz constant computed for the form actually used.

``temperature`` T *divides* the logits wherever a loss has one. (The package lip-dp multiplies by tau: T = 1 / tau.)
A target is a label, or a row of the simplex (a soft label); every constant holds for both. Importing this package
enters every constant in the table.
"""

from clipless.losses._rules import Loss, loss_lipschitz, loss_rule
from clipless.losses.absolute import MAE
from clipless.losses.binary import MultilabelBCE
from clipless.losses.cosine import KCosine
from clipless.losses.cross_entropy import TauBCE, TauCCE
from clipless.losses.hinge import MulticlassHinge
from clipless.losses.kantorovich import HKR, KR
from clipless.losses.margins import CrammerSinger, WestonWatkins
from clipless.losses.named import LOSSES, NamedLoss, build_loss
from clipless.losses.reduction import Reduction
from clipless.losses.weighted import ClassWeighted

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
    "NamedLoss",
    "Reduction",
    "TauBCE",
    "TauCCE",
    "WestonWatkins",
    "build_loss",
    "loss_lipschitz",
    "loss_rule",
]
