"""Certified private training without gradient clipping.

Build a network, choose a budget, fit: about 91 % of held-out digits are read correctly at epsilon 3::

    data = clipless.datasets.load("digits")
    model = clipless.zoo.mlp((1, 8, 8), 10, input_norm=4.0, width=32)
    loss = clipless.TauCCE(temperature=0.25)
    plan = clipless.make_plan(
        model, loss, population=len(data.train), batch_size=256, delta=1e-4, epsilon=3.0, epochs=30,
        sensitivity_fraction=0.05,
    )
    for epoch in clipless.fit(model, loss, data.train, plan, optimizer=clipless.Adam(0.01), averaging=0.8):
        print(epoch, clipless.evaluate(model, data.validation, radii=["0.25"]))

Names are imported when they are first used: what only reads records need not wait for torch.
"""

if __name__ != "clipless":  # e.g. ``models.clipless``: a second copy of every class
    raise ImportError(f"import this package as 'clipless', not {__name__!r}")

import os
from typing import TYPE_CHECKING

from clipless.imports import lazy_names

# Before the first product of matrices, if not before torch: kernels of MKL that round a row alike wherever it lies in
# memory. Where it comes too late, or another library multiplies, `clipless.row_independence` finds out.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

if TYPE_CHECKING:
    from clipless import attacks, datasets, layers, losses, projections, zoo
    from clipless.certificates.certify import certified_auroc, certified_radii, certify, float64_logits
    from clipless.certificates.smoothed import Smoothing, certify_smoothed
    from clipless.conversion.convert import convert
    from clipless.evaluation import attacked_accuracy, evaluate
    from clipless.losses import (
        HKR,
        KR,
        MAE,
        ClassWeighted,
        CrammerSinger,
        KCosine,
        MulticlassHinge,
        MultilabelBCE,
        Squared,
        TauBCE,
        TauCCE,
        WestonWatkins,
    )
    from clipless.network import Network
    from clipless.plans.method import Method, Schedule
    from clipless.plans.plan import Plan, make_plan
    from clipless.privacy.allocation import NoiseAllocation
    from clipless.privacy.events import Relation
    from clipless.saving import load, save
    from clipless.training.optimizers import SGD, Adam
    from clipless.training.private_training import Epoch
    from clipless.training.trainer import fit

__all__ = [
    "HKR",
    "KR",
    "MAE",
    "SGD",
    "Adam",
    "ClassWeighted",
    "CrammerSinger",
    "Epoch",
    "KCosine",
    "Method",
    "MulticlassHinge",
    "MultilabelBCE",
    "Network",
    "NoiseAllocation",
    "Plan",
    "Relation",
    "Schedule",
    "Smoothing",
    "Squared",
    "TauBCE",
    "TauCCE",
    "WestonWatkins",
    "attacked_accuracy",
    "attacks",
    "certified_auroc",
    "certified_radii",
    "certify",
    "certify_smoothed",
    "convert",
    "datasets",
    "evaluate",
    "fit",
    "float64_logits",
    "layers",
    "load",
    "losses",
    "make_plan",
    "projections",
    "save",
    "zoo",
]

_HOMES = {
    "clipless.certificates.certify": "certified_auroc certified_radii certify float64_logits",
    "clipless.certificates.smoothed": "Smoothing certify_smoothed",
    "clipless.conversion.convert": "convert",
    "clipless.evaluation": "attacked_accuracy evaluate",
    "clipless.losses": "ClassWeighted CrammerSinger HKR KCosine KR MAE MulticlassHinge MultilabelBCE Squared TauBCE "
    "TauCCE WestonWatkins",
    "clipless.network": "Network",
    "clipless.plans.plan": "Plan make_plan",
    "clipless.plans.method": "Method Schedule",
    "clipless.privacy.allocation": "NoiseAllocation",
    "clipless.privacy.events": "Relation",
    "clipless.saving": "load save",
    "clipless.training.optimizers": "Adam SGD",
    "clipless.training.private_training": "Epoch",
    "clipless.training.trainer": "fit",
}

__getattr__ = lazy_names(__name__, _HOMES, "attacks datasets layers losses projections zoo")


def __dir__() -> list[str]:
    """Return the names that are meant for use."""
    return [*__all__, "__doc__"]
