"""Small trainings to audit."""

from itertools import count

import pytest
import torch

from clipless import SGD, Method, TauCCE, make_plan
from clipless.audits.audited_training import AuditedTraining, make_random_rows
from clipless.layers import Dense, GroupSort, InputBall
from clipless.network import Network
from clipless.testing import SeededSource

METHODS = {
    "clipless": {"method": Method.CLIPLESS},
    "lip-dp-sgd": {"method": Method.LIP_DP_SGD},
    "dp-sgd": {"method": Method.DP_SGD, "clip_norm": 0.7},
}


def dense_network(width=24):
    generator = torch.Generator().manual_seed(0)
    layers = [
        InputBall(10.0),
        Dense(width, width, generator=generator, bias=True, bias_norm=0.1),
        GroupSort(2),
        Dense(width, width, generator=generator),
    ]
    return Network(layers, (width,))


@pytest.fixture
def training():
    """Make a training at epsilon 3 in eight steps, whose noise follows the seed."""

    def make(method="clipless", seed=0, model=None, **options):
        model, loss, seeds = model or dense_network(), TauCCE(1.0), count(10_000 + 100 * seed)
        settings = {"population": 1000, "batch_size": 250, "delta": 1e-5, "epsilon": 3.0, "epochs": 2}
        fields = {name: options.pop(name) for name in ("source", "exact_norms", "ghost_clipping") if name in options}
        plan = make_plan(model, loss, **{**settings, **METHODS[method], **options})
        return AuditedTraining(
            subject=method,
            model=model,
            loss=loss,
            plan=plan,
            rows=make_random_rows(model, 2, 32),
            optimizer=SGD(0.1),
            **{"source": lambda: SeededSource(next(seeds)), **fields},
        )

    return make
