"""Per-example gradients: those of automatic differentiation row by row, and those of Opacus, the peer."""

import os
import warnings
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from clipless import TauCCE, zoo
from clipless.errors import PlanError, UnsupportedError
from clipless.layers import (
    Conv1d,
    Conv2d,
    ConvexPotential,
    Dense,
    Flatten,
    GroupSort,
    Householder,
    InputBall,
    ReLU,
    Residual,
    Tokens,
)
from clipless.network import Network
from clipless.projections import Free
from clipless.training.layer_gradients import layer_gradients
from clipless.training.per_example import accumulate_clipped

needs_opacus = pytest.mark.skipif(
    find_spec("opacus") is None and os.environ.get("SWEEPER_NO_SKIP") != "1", reason="opacus is not installed"
)


class Scale(nn.Module):
    """A layer of a user's own: no rule knows it."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor([0.5, -2.0, 3.0]))
        self.inside = nn.Linear(3, 3)

    def forward(self, x):
        return self.inside(x * self.factor).tanh()


LAYERS = {
    "dense": (lambda: Dense(5, 4, bias=True), (5,)),
    "tokens": (lambda: Dense(5, 4, bias=True), (3, 5)),
    "potential": (lambda: ConvexPotential(5, 4, bias=True), (5,)),
    "potential of tokens": (lambda: ConvexPotential(5, 4), (3, 5)),
    "conv1d": (lambda: Conv1d(4, 6, 3, padding=1, stride=2, groups=2, bias=True), (4, 9)),
    "conv2d": (lambda: Conv2d(2, 3, 3, padding=1, bias=True), (2, 6, 5)),
    "circular": (lambda: Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 6, 5)),
    "grouped": (lambda: Conv2d(4, 6, 2, stride=2, groups=2), (4, 6, 6)),
    "mix": (lambda: Residual([Dense(5, 5), ReLU()], 0.3, learned=True), (5,)),
    "householder": (lambda: Householder(6), (6, 4)),
    "a user's own": (Scale, (3,)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_the_gradients_of_a_layer_are_those_of_each_row_alone(kind):
    build, shape = LAYERS[kind]
    layer = build()
    generator = torch.Generator().manual_seed(0)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, generator=generator)
    x = torch.randn(7, *shape, generator=generator)
    g = torch.randn(layer(x).shape, generator=generator)
    own = list(layer.parameters(recurse=False))
    with torch.no_grad():
        found = layer_gradients(layer, x, g)
    assert list(found) == own
    for i in range(len(x)):
        for parameter, row in zip(own, torch.autograd.grad((layer(x[i : i + 1]) * g[i]).sum(), own), strict=True):
            assert (found[parameter][i] - row).norm() <= 1e-6 * row.norm()


def every_kind():
    layers = [
        *(InputBall(3.0), Conv2d(1, 4, 3, padding=1, bias=True, constraint=Free()), Householder(4)),
        *(Residual([Conv2d(4, 4, 3, padding=1, groups=2)]), Tokens(), Dense(4, 6, bias=True), Flatten()),
        *(Dense(384, 8, bias=True), GroupSort(), Dense(8, 4, Free())),
    ]
    return Network(layers, (1, 8, 8))


NETWORKS = {
    "convnet": lambda: zoo.convnet((1, 8, 8), 4, input_norm=8.0),
    "mlp": lambda: zoo.mlp((1, 8, 8), 4, input_norm=8.0, width=16),
    "mixer": lambda: zoo.mixer((1, 8, 8), 4, input_norm=8.0),
    "every kind": every_kind,
}


@needs_opacus
@pytest.mark.parametrize("ghost", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_clipped_sum_is_that_of_the_gradients_that_opacus_forms(name, ghost):
    from opacus import GradSampleModule

    model, loss = NETWORKS[name](), TauCCE(0.1)
    generator = torch.Generator().manual_seed(1)
    x, y = torch.rand(9, 1, 8, 8, generator=generator), torch.randint(0, 4, (9,), generator=generator)
    hooked = GradSampleModule(model, loss_reduction="sum", strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss(hooked(x), y).sum().backward()
    rows = {path: p.grad_sample.double() for path, p in model.named_parameters()}
    hooked.remove_hooks()
    clip_norm = 2.0 * torch.cat([own.flatten(1) for own in rows.values()], dim=1).norm(dim=1).max().item()  # clips none
    found = {path: torch.zeros_like(p, dtype=torch.float64) for path, p in model.named_parameters()}
    accumulate_clipped(model, lambda: loss(model(x), y).sum().backward(), clip_norm, found, ghost=ghost)
    slack = 1e-2 if ghost else 1e-6  # ghost sums are rounded to eight bits of one operand
    for path, own in rows.items():
        expected = own.sum(dim=0)
        assert (found[path] - expected).norm() <= slack * expected.norm()


@pytest.mark.parametrize("ghost", [False, True])
def test_a_batch_that_is_passed_back_twice_is_refused(ghost):
    model, loss = NETWORKS["mlp"](), TauCCE(0.1)
    x, y = torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2])
    totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}

    def twice():
        value = loss(model(x), y).sum()
        value.backward(retain_graph=True)
        value.backward()

    with pytest.raises(PlanError, match="Expected one backward pass of each Dense"):
        accumulate_clipped(model, twice, 1.0, totals, ghost=ghost)
    assert not any(total.any() for total in totals.values())
    assert not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize("ghost", [False, True])
def test_a_layer_that_is_applied_twice_is_refused(ghost):
    dense = Dense(4, 4)
    model = Network([dense, dense], (4,))
    totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
    with pytest.raises(PlanError, match="Expected one backward pass of each Dense"):
        accumulate_clipped(model, lambda: model(torch.rand(3, 4)).sum().backward(), 1.0, totals, ghost=ghost)
    assert not any(total.any() for total in totals.values())


@pytest.mark.parametrize("ghost", [False, True])
def test_totals_are_no_part_of_a_graph(ghost):
    model = Network([Residual([Dense(4, 4)], 0.5, learned=True)], (4,))
    totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
    accumulate_clipped(model, lambda: model(torch.rand(3, 4)).sum().backward(), 1.0, totals, ghost=ghost)
    assert not any(total.requires_grad for total in totals.values())


def test_parameters_that_rest_gather_nothing():
    model, loss = NETWORKS["mlp"](), TauCCE(0.1)
    (_, resting), *trained = model.named_parameters()
    resting.requires_grad_(False)
    totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in trained}
    x, y = torch.rand(3, 1, 8, 8), torch.tensor([0, 1, 2])
    accumulate_clipped(model, lambda: loss(model(x), y).sum().backward(), 1.0, totals)
    assert all(total.any() for total in totals.values())


def test_what_a_layer_of_a_kind_without_a_rule_gives_is_clipped_too():
    model = nn.Sequential(Scale())
    totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
    x = torch.randn(5, 3) * 100.0
    accumulate_clipped(model, lambda: model(x).sum().backward(), 0.1, totals)
    norms = torch.cat([total.flatten() for total in totals.values()])
    assert 0.0 < norms.norm() <= 0.5
    assert totals["0.factor"].any()
    assert totals["0.inside.weight"].any()


def test_a_layer_that_the_loss_does_not_reach_is_named():
    model = Network([Dense(4, 4), Dense(4, 2)], (4,))
    totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
    with pytest.raises(UnsupportedError, match=r"gradients of layers\.0\.weight, the pass formed none"):
        accumulate_clipped(model, lambda: model.layers[1](torch.rand(3, 4)).sum().backward(), 1.0, totals)
