"""Networks of blocks, biases and clipping: nested bounds, guards, projections, inspection and files."""

from math import sqrt

import pytest
import torch
from torch import nn

import clipless
from clipless import Network, TauCCE
from clipless.bounds import WeightNorms, bound_layer, bound_network
from clipless.bounds._rules import Signal
from clipless.certificates.certify import certified_radii, float64_logits
from clipless.errors import InvalidBoundError, UnsupportedError
from clipless.layers import (
    Abs,
    AvgPool2d,
    ClipGradient,
    Conv1d,
    Conv2d,
    ConvexPotential,
    Dense,
    Flatten,
    GlobalL2Pool2d,
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
    Tanh,
    Tokens,
)
from clipless.plans.method import Method
from clipless.plans.trainable import check_trainable
from clipless.projections import CONSTRAINTS, SpectralBall, Standardised
from clipless.saving import architecture
from clipless.testing import broken_weights, coupled_rows, neighbour_ratios
from clipless.training.per_example import accumulate_clipped
from tests.clipless.factories import BLOCKS, images, plan_of_step, seeded

ROUNDING = 1 + 1e-4
NAN, INF = float("nan"), float("inf")


def network(name):
    return Network(BLOCKS[name](), (1, 8, 8))


LAYERS = {
    "relu": ReLU(),
    "abs": Abs(),
    "tanh": Tanh(),
    "sigmoid": Sigmoid(),
    "softplus": Softplus(),
    "full-sort": GroupSort(None),
    "householder": Householder(4),
    "max": MaxPool2d(2),
    "average": AvgPool2d(2),
    "global": GlobalL2Pool2d(),
    "space": SpaceToDepth(2),
    "centering": LayerCentering(),
    "group-norm": GroupNorm(2, alpha=1e-3),
    "circular": Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
    "depthwise": Conv2d(4, 4, 3, padding=1, groups=4),
    "clip": ClipGradient(1.0),
    "shift": Shift(),
    "residual": Residual([Conv2d(4, 4, 1), GroupNorm(1)], 0.5, learned=True),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("replacement", [0.0, NAN, INF, 3e38])
def test_a_layer_alone_never_couples_rows_forwards_or_backwards(name, replacement):
    x = torch.randn(5, 4, 4, 4, generator=seeded())
    assert coupled_rows(LAYERS[name], x, 2, torch.full_like(x[2], replacement)) == []
    changed = x.clone()
    changed[2] = replacement
    others = [0, 1, 3, 4]
    found = []
    for rows in (x, changed):
        rows = rows.clone().requires_grad_()
        y = LAYERS[name](rows)
        (gradient,) = torch.autograd.grad(y, rows, torch.ones_like(y))
        found.append(gradient[others])
    assert torch.equal(*found)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("value", [0.0, 1e-30, 1e15, -1e15])
def test_finite_inputs_have_finite_gradients(name, value):
    x = torch.full((2, 4, 4, 4), value, requires_grad=True)
    y = LAYERS[name](x)
    y.backward(torch.ones_like(y))
    assert x.grad.isfinite().all()


def test_the_gains_of_a_block_compose():
    inner = [Dense(4, 4, SpectralBall(2.0)), ReLU(), Dense(4, 4, SpectralBall(3.0))]
    bound = bound_layer(Residual(inner, 0.25), Signal((4,), 1.0))
    assert bound.output.norm == pytest.approx(0.25 + 0.75 * 6)
    assert bound.input_gain == pytest.approx(0.25 + 0.75 * 6)
    assert bound.parameter_gains == pytest.approx({"layers.0.weight": 0.75 * 3, "layers.2.weight": 0.75 * 2})
    assert bound.normalised_gains == pytest.approx({"layers.0.weight": 0.75 * 3, "layers.2.weight": 0.75})
    assert bound.depth == 4
    learned = bound_layer(Residual(inner, 0.25, learned=True), Signal((4,), 1.0))
    assert (learned.output.norm, learned.input_gain) == pytest.approx((6.0, 6.0))
    assert learned.parameter_gains["mix"] == pytest.approx(7.0)
    plain = bound_layer(Residual(inner), Signal((4,), 1.0))
    assert (plain.output.norm, plain.input_gain) == pytest.approx((7.0, 7.0))


def test_a_block_counts_the_rounding_of_the_layers_inside():
    flat = Network([InputBall(1.0), Dense(4, 4), Dense(4, 4), Dense(4, 2)], (4,))
    nested = Network([InputBall(1.0), Residual([Dense(4, 4), Dense(4, 4)], 0.0), Dense(4, 2)], (4,))
    bounds = [bound_network(model) for model in (flat, nested)]
    assert bounds[1].lipschitz() >= bounds[0].lipschitz() > 1.0
    assert bounds[1].output.norm >= bounds[0].output.norm
    flat_values, nested_values = (list(b.sensitivities(1.0).values()) for b in bounds)
    assert all(n >= f for n, f in zip(nested_values, flat_values, strict=True))


def test_clipping_lowers_the_sensitivities_before_it_and_no_other():
    layers = [InputBall(2.0), Dense(4, 4), GroupSort(), Dense(4, 4), Dense(4, 3)]
    plain = bound_network(Network(layers, (4,))).sensitivities(sqrt(2.0))
    for place in (2, 4, 5):
        clipped = bound_network(Network([*layers[:place], ClipGradient(0.1), *layers[place:]], (4,))).sensitivities(
            sqrt(2.0)
        )
        for (name, before), after in zip(plain.items(), clipped.values(), strict=True):
            expected = before * 0.1 / sqrt(2.0) if int(name.split(".")[1]) < place else before
            assert after == pytest.approx(expected, rel=1e-3)
    idle = bound_network(Network([*layers, ClipGradient(10.0)], (4,))).sensitivities(sqrt(2.0))
    assert list(idle.values()) == pytest.approx(list(plain.values()), rel=1e-3)


def test_clipping_lowers_the_noise_of_a_plan():
    def plan(layers):
        return plan_of_step(Network([InputBall(2.0), Dense(4, 4), Dense(4, 3), *layers], (4,)), TauCCE())

    free, clipped = plan([]), plan([ClipGradient(0.1)])
    constant = free.sensitivities["layers.2.weight"] / 2.0  # of the loss, for logits in the ball of radius 2
    assert 1.0 < constant <= sqrt(2.0) * 1.001
    for name, std in clipped.noise_stds.items():
        assert clipped.sensitivities[name] == pytest.approx(0.1 * 2.0, rel=1e-3)
        assert std == pytest.approx(free.noise_stds[name] * 0.1 / constant, rel=1e-3)


def test_a_clipped_cotangent_has_at_most_the_norm_and_rows_of_their_own():
    x = torch.randn(6, 3, 4, generator=seeded()).requires_grad_()
    g = torch.randn(6, 3, 4, generator=seeded()) * torch.tensor([1e-3, 1.0, 1e6, NAN, INF, 1e-30])[:, None, None]
    y = ClipGradient(0.5)(x)
    assert torch.equal(y, x)
    (found,) = torch.autograd.grad(y, x, g)
    torch.testing.assert_close(found[0], g[0])
    assert found.flatten(1).norm(dim=1).tolist()[1:] == pytest.approx([0.5, 0.5, 0.0, 0.0, 0.0], abs=1e-6)
    assert (found.flatten(1).norm(dim=1) <= 0.5 * ROUNDING).all()


def test_clipping_inside_a_block_is_refused_by_name():
    with pytest.raises(InvalidBoundError, match=r"no clipping inside a block, got layers\.1"):
        bound_network(Network([InputBall(1.0), Residual([ReLU(), ClipGradient(1.0)])], (4,)))


def test_clipping_leaves_certificates_alone():
    g = seeded()
    layers = [InputBall(2.0), Dense(4, 4, generator=g), GroupSort(), Dense(4, 1, generator=g)]
    x, y = torch.randn(6, 4, generator=g), torch.tensor([0, 1] * 3)
    plain, clipped = Network(layers, (4,)), Network([*layers[:2], ClipGradient(0.1), *layers[2:]], (4,))
    radii = [certified_radii(m, float64_logits(m, x), y) for m in (plain, clipped)]
    torch.testing.assert_close(*radii, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", BLOCKS)
def test_certificates_of_nested_networks_are_finite(name):
    model = network(name)
    x, _ = images(20)
    logits = float64_logits(model, x)
    radii = certified_radii(model, logits, logits.argmax(dim=1))
    assert radii.isfinite().all()
    assert (radii > 0).any()


@pytest.mark.parametrize("name", BLOCKS)
def test_projection_reaches_every_parameter_inside(name):
    model = network(name)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(50.0).add_(10.0)
    model.project()
    measured = bound_network(model, WeightNorms.MEASURED)
    constrained = bound_network(model)
    assert measured.lipschitz() <= constrained.lipschitz() * 1.001
    assert measured.output.norm <= constrained.output.norm * 1.001


def test_projection_leaves_frozen_parameters_alone():
    model = network("maps")
    model.requires_grad_(False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(50.0)
    before = [p.clone() for p in model.parameters()]
    model.project()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("value", [1e-30, 1.0, 1e30])
def test_a_bias_is_projected_onto_its_ball(value):
    layer = Dense(3, 5, bias=True, bias_norm=0.5)
    with torch.no_grad():
        layer.bias.fill_(value)
    layer.project()
    assert layer.bias.double().norm().item() == pytest.approx(min(0.5, value * sqrt(5.0)), rel=1e-6, abs=1e-35)


@pytest.mark.parametrize("value", [-3.0, 0.3, 7.0])
def test_a_learned_weight_is_projected_onto_the_interval(value):
    block = Residual([ReLU()], 0.5, learned=True)
    with torch.no_grad():
        block.mix.fill_(value)
    unprojected = bound_layer(block, Signal((3,), 1.0), WeightNorms.MEASURED)
    assert unprojected.input_gain == pytest.approx(abs(value) + abs(1 - value), rel=1e-6)
    block.project()
    assert block.mix.item() == pytest.approx(min(1.0, max(0.0, value)))


@pytest.mark.parametrize("name", BLOCKS)
def test_a_saved_network_comes_back_bit_for_bit(name, tmp_path):
    model = network(name)
    path = tmp_path / "model.safetensors"
    clipless.save(model, path)
    loaded = clipless.load(path)
    x, _ = images()
    assert torch.equal(loaded(x), model(x))
    assert architecture(loaded) == architecture(model)


def test_a_time_series_network_is_guarded_and_saved(tmp_path):
    g = seeded()
    layers = [
        InputBall(2.0),
        Conv1d(2, 4, 3, padding=1, generator=g, bias=True),
        GroupSort(),
        Conv1d(4, 4, 5, padding=2, padding_mode="circular", groups=2, generator=g, bias=True),
        Conv1d(4, 6, 3, stride=3, generator=g),
        Flatten(),
        Dense(24, 4, generator=g),
    ]
    model, loss = Network(layers, (2, 12)), TauCCE(0.1)
    plan = plan_of_step(model, loss, sensitivity_fraction=0.3)
    x = torch.randn(6, 2, 12, generator=g) * 5
    x[0] = NAN
    for row in (0, 1):
        with broken_weights(model, 30.0):
            ratios = neighbour_ratios(model, loss, x, torch.zeros(6, dtype=torch.int64), plan, row)
        assert max(ratios.values()) <= ROUNDING
    clipless.save(model, tmp_path / "m")
    assert torch.equal(clipless.load(tmp_path / "m")(x[1:]), model(x[1:]))


def refused(layers, match):
    with pytest.raises(UnsupportedError, match=match):
        check_trainable(Network([InputBall(1.0), *layers, Dense(4, 2)], (4,)))


def test_what_is_inside_a_block_is_inspected_too():
    shared = Dense(4, 4)
    refused([shared, Residual([shared])], "one layer object in two places")
    refused([Residual([nn.ReLU()])], "No bound rule for layer ReLU")
    tied = Residual([Dense(4, 4), Dense(4, 4)])
    tied.layers[1].weight = tied.layers[0].weight
    refused([tied], "tied to")
    replaced = Residual([Dense(4, 4)])
    replaced.layers[0].forward = lambda x: x
    refused([replaced], "forward of this Dense was replaced")
    inner = Residual([Householder(4)])
    inner.layers[0].project = lambda: None
    refused([inner], "project of this Householder was replaced")
    hooked = Residual([Dense(4, 4)])
    hooked.layers[0].register_forward_hook(lambda *_: None)
    refused([hooked], r"no hooks on layers\.1\.layers\.0")
    added = Residual([Dense(4, 4)])
    added.layers[0].bias = nn.Parameter(torch.zeros(4))
    refused([added], r"layers\.1\.layers\.0\.bias")


def test_without_bounds_what_is_inside_a_block_needs_a_rule_all_the_same():
    model = Network([InputBall(1.0), Residual([nn.ReLU()]), Dense(4, 2)], (4,))
    with pytest.raises(UnsupportedError, match="No bound rule"):
        check_trainable(model, bounded=False)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_standardised_weights_have_rows_of_mean_zero_and_norm_at_most_one(shape):
    weight = torch.randn(shape, generator=seeded()) * 3 + 1
    for _ in range(3):
        weight = Standardised(4).project(weight)
    assert weight.mean(dim=1).abs().max() <= 1e-6
    assert torch.linalg.matrix_norm(weight.double(), 2) <= 1 + 1e-6
    if shape[0] < shape[1]:
        torch.testing.assert_close(weight.norm(dim=1), torch.ones(shape[0]), atol=1e-3, rtol=0)


def test_standardised_needs_iterations():
    with pytest.raises(ValueError, match="iterations >= 1"):
        Standardised(0)


FRONTS = {
    "householder": lambda: [Flatten(), Householder(64), Dense(64, 3)],
    "bias": lambda: [Conv2d(1, 2, 3, padding=1, bias=True), Flatten(), Dense(128, 3, bias=True)],
    "circular": lambda: [Conv2d(1, 2, 3, padding=1, padding_mode="circular", bias=True), Flatten(), Dense(128, 3)],
    "groups": lambda: [Conv2d(1, 4, 3), Conv2d(4, 4, 3, stride=2, groups=2), Flatten(), Dense(16, 3)],
    "series": lambda: [
        SpaceToDepth(4),
        Tokens(),
        Conv1d(4, 6, 3, padding=1, groups=2, padding_mode="circular", bias=True),
        Flatten(),
        Dense(96, 3),
    ],
    "potential": lambda: [Flatten(), ConvexPotential(64, 20, bias=True), Dense(64, 3)],
    "potential of tokens": lambda: [SpaceToDepth(4), Tokens(), ConvexPotential(16, bias=True), Flatten(), Dense(64, 3)],
    "blocks": lambda: [
        Conv2d(1, 4, 3, padding=1),
        Residual(
            [
                Residual([Conv2d(4, 4, 3, padding=1, groups=2, bias=True), GroupSort()], 0.3, learned=True),
                Householder(4),
            ],
            0.5,
            learned=True,
        ),
        Flatten(),
        Dense(256, 3),
    ],
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FRONTS)
@pytest.mark.parametrize("ghost", [False, True])
def test_per_example_clipping_knows_every_parameter(name, ghost):
    """Without clipping its sum is the ordinary gradient; with it no row moves the sum by more than the norm."""
    model, loss = Network([InputBall(3.0), *FRONTS[name]()], (1, 8, 8)), TauCCE(0.1)
    x, y = images(6)
    y = y % 3

    def clipped(norm, rows):
        totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
        accumulate_clipped(model, lambda: loss(model(x[rows]), y[rows]).sum().backward(), norm, totals, ghost=ghost)
        return list(totals.values())

    everything = torch.arange(6)
    expected = torch.autograd.grad(loss(model(x), y).sum(), list(model.parameters()))
    for a, b in zip(clipped(20.0, everything), expected, strict=True):
        assert (a - b).norm() <= 1e-2 * b.norm()
    pairs = zip(clipped(0.1, everything), clipped(0.1, everything[1:]), strict=True)
    assert sum((a - b).square().sum() for a, b in pairs).sqrt() <= 0.1 * ROUNDING  # other shapes, other roundings


@pytest.mark.parametrize("name", BLOCKS)
def test_normalised_training_holds_every_parameter_too(name):
    model, loss = network(name), TauCCE(0.1)
    plan = plan_of_step(model, loss, method=Method.LIP_DP_SGD)
    x, y = images()
    x[0] *= 1e6
    with broken_weights(model, 30.0):
        ratios = neighbour_ratios(model, loss, x, y, plan)
    assert max(ratios.values()) <= ROUNDING


@pytest.mark.parametrize("name", [name for name in CONSTRAINTS if name != "free"])
def test_every_group_is_projected_onto_the_constraint(name):
    layer = Conv2d(4, 8, 3, groups=2, constraint=CONSTRAINTS[name]())
    with torch.no_grad():
        layer.weight[:4] *= 7.0
        layer.weight[4:] += 0.3
    expected = [layer.constraint.project(group.flatten(1)) for group in layer.weight.detach().chunk(2)]
    layer.project()
    for group, alone in zip(layer.weight.detach().chunk(2), expected, strict=True):
        torch.testing.assert_close(group.flatten(1), alone)
        assert torch.linalg.matrix_norm(group.flatten(1).double(), 2) <= 1 + 1e-6


@pytest.mark.parametrize("name", BLOCKS)
def test_bounds_that_follow_the_weights_are_no_larger_than_those_of_the_constraints(name):
    model = network(name)
    planned, now = (bound_network(model, weights) for weights in (WeightNorms.CONSTRAINED, WeightNorms.CURRENT))
    for parameter, value in now.sensitivities(1.0).items():
        assert value <= planned.sensitivities(1.0)[parameter]
    assert now.lipschitz() <= planned.lipschitz()
