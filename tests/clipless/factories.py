"""Networks, rows, plans, events and sources of randomness that the tests of several folders build."""

import numpy as np
import torch
from scipy import optimize, stats

from clipless import TauCCE, make_plan, zoo
from clipless.datasets import Split
from clipless.layers import (
    Abs,
    ClipGradient,
    Conv2d,
    ConvexPotential,
    Dense,
    Flatten,
    GroupNorm,
    GroupSort,
    Householder,
    InputBall,
    LayerCentering,
    MaxPool2d,
    ReLU,
    Residual,
    Shift,
    Sigmoid,
    Softplus,
    SpaceToDepth,
    SwapAxes,
    Tanh,
    Tokens,
)
from clipless.plans.method import Method
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.projections import SpectralBall, Standardised
from clipless.testing import SeededSource
from clipless.training.batch_sums import sum_gradients


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random(*shape, seed=0, dtype=None):
    return torch.randn(*shape, generator=seeded(seed), dtype=dtype)


def mlp(features=6, classes=3, width=8, seed=0):
    return zoo.mlp((features,), classes, input_norm=2.0, width=width, generator=seeded(seed))


def rows(count=40, features=6, classes=3, seed=1):
    generator = seeded(seed)
    x = torch.randn(count, features, generator=generator)
    return Split(x, torch.randint(0, classes, (count,), generator=generator))


def zeros(count, features=16):
    return Split(torch.zeros(count, features), torch.zeros(count, dtype=torch.int64))


def images(count=12, seed=1, scale=1.0):
    """Rows of 1 x 8 x 8, and labels of four classes."""
    generator = seeded(seed)
    return torch.randn(count, 1, 8, 8, generator=generator) * scale, torch.randint(0, 4, (count,), generator=generator)


def plan_for(model, data, loss=None, **options):
    """A plan whose batches hold all rows; every number may be given."""
    numbers = {"batch_size": len(data), "delta": 1e-6, "noise_multiplier": 1.0, "epochs": 1}
    return make_plan(model, loss or TauCCE(0.1), population=len(data), **(numbers | options))


def plan_of_step(model, loss=None, **options):
    """A plan of ten steps on a thousand rows; of any method, with what that method needs."""
    numbers = {"population": 1000, "batch_size": 100, "delta": 1e-4, "noise_multiplier": 1.0, "epochs": 1} | options
    if numbers.get("method") is Method.DP_SGD:
        numbers.setdefault("clip_norm", 1.0)
    return make_plan(model, loss or TauCCE(0.1), **numbers)


def maps():
    g = seeded()
    return [
        InputBall(3.0),
        SpaceToDepth(2),
        Conv2d(4, 6, 3, padding=1, generator=g, bias=True, bias_norm=0.5),
        Householder(6),
        Residual(
            [
                Conv2d(6, 6, 3, padding=1, padding_mode="circular", generator=g, bias=True),
                GroupSort(),
                LayerCentering(),
            ],
            0.5,
            learned=True,
        ),
        Residual([Conv2d(6, 6, 3, padding=1, groups=3, generator=g), Residual([Conv2d(6, 6, 1, generator=g)])], 0.25),
        GroupNorm(2, alpha=0.5),
        MaxPool2d(2),
        Flatten(),
        Dense(24, 4, generator=g, bias=True),
    ]


def tokens():
    g = seeded()
    return [
        InputBall(3.0),
        Conv2d(1, 4, 2, stride=2, generator=g),
        Abs(),
        Tokens(),
        Dense(4, 6, generator=g, bias=True),
        GroupSort(axis=-1),
        SwapAxes(),
        Residual([Dense(16, 16, generator=g, bias=True), Softplus()]),
        ClipGradient(0.3),
        Flatten(),
        Tanh(),
        Dense(96, 4, Standardised(), generator=g),
    ]


def series():
    g = seeded()
    return [
        InputBall(3.0),
        Flatten(),
        Dense(64, 24, SpectralBall(1.5), generator=g),
        Sigmoid(),
        Dense(24, 24, generator=g, bias=True, bias_norm=2.0),
        ReLU(),
        Dense(24, 4, generator=g, bias=True),
        ClipGradient(0.5),
    ]


def potentials():
    g = seeded()
    return [
        InputBall(3.0),
        SpaceToDepth(2),
        Shift(),
        Tokens(),
        ConvexPotential(4, 6, generator=g, bias=True),
        Residual([ConvexPotential(4, constraint=SpectralBall(1.5), generator=g)], 0.5),
        Flatten(),
        ConvexPotential(64, 20, generator=g, bias=True, bias_norm=0.5),
        Dense(64, 4, generator=g),
    ]


BLOCKS = {"maps": maps, "tokens": tokens, "series": series, "potentials": potentials}
"""Networks of 1 x 8 x 8 and four classes, of every kind of layer."""


def event(noise_multiplier=2.0, sampling_rate=0.1, steps=10, relation=Relation.ADD_OR_REMOVE_ONE):
    return PoissonGaussian(
        noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, steps=steps, relation=relation
    )


def gaussian_epsilon(mu, delta):
    """Balle and Wang 2018, theorem 8."""

    def excess(epsilon):
        tail = np.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu))
        return stats.norm.cdf(mu / 2 - epsilon / mu) - tail - delta

    return optimize.brentq(excess, 0.0, mu * mu + 10 * mu, xtol=1e-12) if excess(0.0) > 0 else 0.0


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


class Loud(Dense):  # type: ignore[misc]
    """A subclass that would inherit a wrong bound."""

    def forward(self, x):
        return 10 * super().forward(x)


class RecordingSource(SeededSource):  # type: ignore[misc]
    """A repeatable source that remembers what was drawn from it; ``scale`` multiplies its normals."""

    def __init__(self, seed=0, scale=1.0):
        super().__init__(seed)
        self._scale = scale
        self.normals, self.masks, self.rates = [], [], []

    @property
    def batches(self):
        return len(self.masks)

    def normal(self, count, device="cpu"):
        self.normals.append(super().normal(count, device) * self._scale)
        return self.normals[-1]

    def bernoulli(self, count, probability):
        self.masks.append(super().bernoulli(count, probability))
        self.rates.append(probability)
        return self.masks[-1]


def accumulate_gradients(model, loss, x, y, plan, *, ghost=False, exact=False):
    """Add what `sum_gradients` makes of one batch to ``parameter.grad``, rounded once."""
    totals = {n: torch.zeros_like(p, dtype=torch.float64) for n, p in model.named_parameters() if p.requires_grad}
    before = {name: model.get_parameter(name).grad for name in totals}
    model.zero_grad()
    sum_gradients(model, loss, x, y, plan, totals, ghost=ghost, exact=exact)
    for name, total in totals.items():
        parameter, held = model.get_parameter(name), before[name]
        parameter.grad = total.to(parameter.dtype) if held is None else held.add_(total)


def gradients(function, inputs, cotangent):
    inputs = [t.clone().requires_grad_() for t in inputs]
    return torch.autograd.grad(function(*inputs), inputs, cotangent)


def held(function, inputs, cotangent, guard):
    """Gradients in the operands, and the guard's sum for the parameter, which stands last and gets no gradient."""
    inputs = [t.clone().requires_grad_() for t in inputs]
    function(*inputs, guard).backward(cotangent)
    *operands, parameter = inputs
    assert parameter.grad is None
    return *(t.grad for t in operands), guard.total.view_as(parameter)
