"""Certified private training without gradient clipping.

Build a network, choose a budget, fit::

    model = clipless.zoo.mlp((1, 8, 8), 10, input_norm=8.0)
    loss = clipless.TauCCE(temperature=0.25)
    data = clipless.datasets.load("digits")
    plan = clipless.make_plan(
        model, loss, population=len(data.train), batch_size=256, delta=1e-4, epsilon=3.0, epochs=30
    )
    for epoch in clipless.fit(model, loss, data.train, plan):
        print(epoch, clipless.evaluate(model, data.validation, radii=["0.25"]))
"""

if __name__ != "clipless":  # e.g. ``models.clipless``: a second copy of every class
    raise ImportError(f"import this package as 'clipless', not {__name__!r}")

from clipless import datasets, zoo
from clipless.evaluation import evaluate
from clipless.losses import TauBCE, TauCCE
from clipless.network import Network
from clipless.optimizers import SGD, Adam
from clipless.plan import Plan, make_plan
from clipless.saving import load, save
from clipless.training import Epoch, fit

__all__ = [
    "SGD",
    "Adam",
    "Epoch",
    "Network",
    "Plan",
    "TauBCE",
    "TauCCE",
    "datasets",
    "evaluate",
    "fit",
    "load",
    "make_plan",
    "save",
    "zoo",
]
