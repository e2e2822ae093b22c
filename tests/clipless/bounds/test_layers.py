"""Every layer's rule: refuted by no input or cotangent that a search finds, attained where it is tight."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from clipless.bounds import Signal, WeightNorms, bound_layer, bound_network, bound_rule, bounded_types
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
    L2Pool2d,
    LayerCentering,
    MaxPool2d,
    ReLU,
    Residual,
    ScaleByQuantile,
    Scattering2d,
    Shift,
    Sigmoid,
    Softplus,
    SpaceToDepth,
    Standardise,
    SwapAxes,
    Tanh,
    Tokens,
)
from clipless.network import Network
from clipless.projections import SpectralBall
from clipless.testing import worst_ratios
from tests.clipless.factories import Loud

SEED = torch.Generator().manual_seed(3)


def biased(layer):
    """A bias of its full radius, pointing anywhere."""
    with torch.no_grad():
        layer.bias.normal_(generator=SEED)
        layer.bias.mul_(layer.bias_norm / layer.bias.norm())
    return layer


def turned(layer):
    with torch.no_grad():
        layer.angle.uniform_(-4.0, 4.0, generator=SEED)
    return layer


# layer, input shape, ratios that the search must reach: a tight rule is attained to 90 %.
def learned(layer):
    """The layer with constants as if they had been learned."""
    with torch.no_grad():
        if isinstance(layer, Standardise):
            layer.mean[0], layer.scale[0], layer.scale[1:] = -1.0, 0.5, 0.6
        else:
            layer.scale.fill_(0.7)
    return layer


CASES = {
    "input-ball": (InputBall(1.0), (6,), {"output": 0.999, "input": 0.95}),
    "dense": (Dense(7, 4, generator=SEED), (7,), {"output": 0.95, "input": 0.95, "weight": 0.999}),
    "dense-wide-ball": (
        Dense(5, 8, SpectralBall(2.0), generator=SEED),
        (5,),
        {"output": 0.95, "input": 0.95, "weight": 0.999},
    ),
    "dense-tokens": (Dense(4, 3, generator=SEED), (5, 4), {"output": 0.95, "input": 0.95, "weight": 0.9}),
    "conv-3x3-padded": (Conv2d(2, 3, 3, padding=1, generator=SEED), (2, 24, 24), {"output": 0.9, "weight": 0.9}),
    "conv-3x3-stride-2": (Conv2d(2, 4, 3, stride=2, padding=1, generator=SEED), (2, 9, 9), {}),
    "conv-5x3-unpadded": (Conv2d(1, 2, (5, 3), generator=SEED), (1, 44, 36), {"weight": 0.9}),
    "conv-patches": (
        Conv2d(2, 6, 2, stride=2, generator=SEED),
        (2, 6, 6),
        {"output": 0.95, "input": 0.95, "weight": 0.9},
    ),
    "conv-sparse": (Conv2d(1, 2, 2, stride=3, generator=SEED), (1, 7, 7), {"weight": 0.9}),
    "group-sort": (GroupSort(), (6,), {"output": 0.999, "input": 0.999}),
    "group-sort-3-maps": (GroupSort(3), (6, 3, 3), {"output": 0.999, "input": 0.999}),
    "l2-pool": (L2Pool2d(2), (2, 4, 4), {"output": 0.999, "input": 0.95}),
    "l2-pool-odd": (L2Pool2d(2), (1, 5, 5), {"output": 0.95, "input": 0.95}),
    "scattering": (Scattering2d((8, 8), 1, 2, (1.0, 0.1)), (1, 8, 8), {"output": 0.9}),
    "dense-bias": (
        biased(Dense(7, 4, generator=SEED, bias=True, bias_norm=0.5)),
        (7,),
        {"output": 0.7, "input": 0.95, "weight": 0.999, "bias": 0.999},
    ),
    "dense-bias-tokens": (
        biased(Dense(4, 3, generator=SEED, bias=True)),
        (5, 4),
        {"input": 0.95, "weight": 0.9, "bias": 0.999},
    ),
    "conv-bias": (biased(Conv2d(1, 2, 3, padding=1, generator=SEED, bias=True)), (1, 9, 9), {"bias": 0.999}),
    "conv-circular": (
        Conv2d(2, 3, 3, padding=1, padding_mode="circular", generator=SEED),
        (2, 6, 6),
        {"output": 0.95, "input": 0.95, "weight": 0.95},
    ),
    "conv-circular-7x5": (
        Conv2d(1, 2, (3, 5), padding=(1, 2), padding_mode="circular", generator=SEED),
        (1, 7, 5),
        {"output": 0.9, "weight": 0.95},
    ),
    "conv-depthwise": (
        Conv2d(3, 3, 3, padding=1, groups=3, generator=SEED),
        (3, 20, 20),
        {"output": 0.8, "input": 0.8},
    ),
    "conv-grouped": (
        biased(Conv2d(4, 6, 2, stride=2, groups=2, generator=SEED, bias=True)),
        (4, 6, 6),
        {"input": 0.95, "bias": 0.95},
    ),
    "conv-1d": (Conv1d(2, 3, 3, padding=1, generator=SEED), (2, 40), {"output": 0.9, "weight": 0.9}),
    "conv-1d-circular": (
        biased(Conv1d(2, 4, 5, padding=2, padding_mode="circular", groups=2, generator=SEED, bias=True)),
        (2, 12),
        {"input": 0.85, "bias": 0.95},
    ),
    "conv-1d-stride": (Conv1d(1, 2, 3, stride=3, generator=SEED), (1, 12), {"output": 0.95, "weight": 0.95}),
    "full-sort": (GroupSort(None), (6,), {"output": 0.999, "input": 0.999}),
    "group-sort-tokens": (GroupSort(axis=-1), (3, 4), {"output": 0.999, "input": 0.999}),
    "full-sort-tokens": (GroupSort(None, axis=-1), (3, 4), {"output": 0.999, "input": 0.999}),
    "relu": (ReLU(), (6,), {"output": 0.999, "input": 0.999}),
    "abs": (Abs(), (6,), {"output": 0.999, "input": 0.999}),
    "tanh": (Tanh(), (6,), {"output": 0.999, "input": 0.95}),
    "sigmoid": (Sigmoid(), (2, 3), {"output": 0.999, "input": 0.95}),
    "softplus": (Softplus(), (6,), {"output": 0.8, "input": 0.6}),
    "householder": (turned(Householder(6)), (6,), {"output": 0.999, "input": 0.999, "angle": 0.9}),
    "householder-maps": (turned(Householder(4)), (4, 3, 3), {"output": 0.999, "input": 0.999, "angle": 0.9}),
    "max-pool": (MaxPool2d(2), (2, 4, 4), {"output": 0.95, "input": 0.95}),
    "max-pool-odd": (MaxPool2d(3), (1, 7, 7), {"output": 0.9, "input": 0.95}),
    "average-pool": (AvgPool2d(2), (2, 4, 4), {"output": 0.999, "input": 0.95}),
    "average-pool-scaled": (AvgPool2d(2, scaled=True), (2, 4, 4), {"output": 0.999, "input": 0.95}),
    "global-l2-pool": (GlobalL2Pool2d(), (3, 4, 4), {"output": 0.999, "input": 0.95}),
    "space-to-depth": (SpaceToDepth(2), (2, 4, 6), {"output": 0.999, "input": 0.999}),
    "tokens": (Tokens(), (2, 3, 3), {"output": 0.999, "input": 0.999}),
    "swap-axes": (SwapAxes(), (3, 4), {"output": 0.999, "input": 0.999}),
    "layer-centering": (LayerCentering(), (6,), {"output": 0.95, "input": 0.95}),
    "group-norm": (GroupNorm(2, alpha=0.7), (4, 3, 3), {"output": 0.95, "input": 0.95}),
    "group-norm-saturated": (GroupNorm(1, alpha=0.01), (6,), {"output": 0.999}),
    "residual": (Residual([Dense(4, 4, generator=SEED)]), (4,), {}),
    "residual-identity": (Residual([Conv2d(1, 1, 1)]), (1, 3, 3), {"layers.0.weight": 0.9}),
    "residual-convex": (
        Residual([Dense(4, 4, generator=SEED), GroupSort(), Dense(4, 4, generator=SEED)], 0.25),
        (4,),
        {"layers.0.weight": 0.95, "layers.2.weight": 0.95},
    ),
    "residual-learned": (
        Residual([Dense(4, 4, generator=SEED, bias=True)], 0.4, learned=True),
        (4,),
        {"layers.0.weight": 0.95, "layers.0.bias": 0.95, "mix": 0.9},
    ),
    "residual-nested": (
        Residual([Residual([Dense(4, 4, SpectralBall(2.0), generator=SEED)], 0.5), GroupSort()], 0.5, learned=True),
        (4,),
        {"layers.0.layers.0.weight": 0.9},
    ),
    "clip-gradient": (ClipGradient(1e9), (6,), {"output": 0.999, "input": 0.999}),
    "standardise": (learned(Standardise(6, 3.0, 0.1)), (6,), {"output": 0.9, "input": 0.85}),
    "standardise-maps": (learned(Standardise(2, 3.0, 0.1)), (2, 3, 3), {"output": 0.9, "input": 0.85}),
    "scale-by-quantile": (learned(ScaleByQuantile(0.1, 4.0)), (2, 3), {"output": 0.999, "input": 0.999}),
    "potential": (
        ConvexPotential(4, generator=SEED),
        (4,),
        {"output": 0.999, "input": 0.99, "weight": 0.95},
    ),
    "potential-bias": (
        biased(ConvexPotential(4, 3, SpectralBall(0.7), generator=SEED, bias=True, bias_norm=0.5)),
        (4,),
        {"input": 0.95, "bias": 0.9},
    ),
    "potential-wide-ball": (ConvexPotential(3, 5, SpectralBall(2.0), generator=SEED), (3,), {"output": 0.9}),
    "potential-tokens": (
        ConvexPotential(4, 3, generator=SEED),
        (5, 4),
        {"output": 0.999, "input": 0.95, "weight": 0.9},
    ),
    "potential-tokens-bias": (biased(ConvexPotential(2, 3, generator=SEED, bias=True)), (4, 2), {"bias": 0.8}),
    "shift": (Shift(), (9, 3, 3), {"output": 0.999, "input": 0.999}),
    "shift-few-channels": (Shift(5), (2, 4, 3), {"output": 0.999, "input": 0.999}),
    "flatten": (Flatten(), (2, 3, 3), {"output": 0.999, "input": 0.999}),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES)
def test_no_search_exceeds_a_bound_and_tight_ones_are_attained(case):
    layer, shape, attained = CASES[case]
    found = worst_ratios(layer, shape, norm=1.0, starts=4, steps=120)
    assert max(found.values()) <= 1 + 1e-6, found
    for name, least in attained.items():
        assert found[name] >= least, (name, found)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", CASES)
def test_no_rule_looks_at_a_norm_that_only_a_device_knows(case):
    """On torch's ``meta`` device, which holds no numbers, whatever would make the host wait raises."""
    layer, shape, _ = CASES[case]
    norm = torch.tensor(1.0, dtype=torch.float64, device="meta")
    try:
        bound = bound_layer(deepcopy(layer).to("meta"), Signal(shape, norm), WeightNorms.CURRENT)
    except (RuntimeError, NotImplementedError) as error:
        pytest.fail(
            f"The rule of {type(layer).__name__} looks at a norm: use the functions of clipless.scalars ({error})"
        )
    assert bound.output.norm.device.type == "meta"


def test_every_rule_has_a_case_here():
    own = {kind for kind in bounded_types() if kind.__module__.startswith("clipless")}
    missing = sorted(kind.__name__ for kind in own - {type(layer) for layer, _, _ in CASES.values()})
    assert not missing, f"CASES of tests/clipless/bounds/test_layers.py has no case of {', '.join(missing)}"


def test_convolution_gain_carries_the_root_of_the_patch_count():
    layer = Conv2d(1, 2, 3, padding=1)
    gain = bound_layer(layer, Signal((1, 8, 8), 1.0)).parameter_gains["weight"]
    assert gain == pytest.approx(layer.scale * 3.0)


def test_a_strided_convolution_attains_its_gain_on_a_comb():
    """Only every second element lies in four patches, which a search from smooth starts does not find."""
    layer = Conv2d(1, 1, 3, stride=2, padding=1)
    x = torch.zeros(1, 1, 41, 41)
    x[..., 1::2, 1::2] = 1.0
    y = layer(x)
    y.backward(torch.ones_like(y))
    gain = bound_layer(layer, Signal((1, 41, 41), 1.0)).parameter_gains["weight"]
    assert 0.9 <= (layer.weight.grad.norm() / (gain * x.norm() * y.numel() ** 0.5)).item() <= 1


def test_a_bias_that_is_the_same_everywhere_attains_the_output_bound():
    layer = Conv2d(1, 2, 1, bias=True, bias_norm=0.5)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor([0.3, 0.4]))
    zeros = torch.zeros(1, 1, 6, 6)
    for weights in WeightNorms:
        bound = bound_layer(layer, Signal((1, 6, 6), 0.0), weights)
        assert layer(zeros).norm().item() == pytest.approx(bound.output.norm, rel=1e-6)
        assert bound.output.norm == pytest.approx(6 * 0.5, rel=1e-6)
    tokens = bound_layer(Dense(4, 3, bias=True, bias_norm=2.0), Signal((9, 4), 1.0))
    assert tokens.output.norm == pytest.approx(1.0 + 3.0 * 2.0)
    assert tokens.parameter_gains == pytest.approx({"weight": 1.0, "bias": 3.0})
    assert tokens.normalised_gains == pytest.approx({"weight": 1.0, "bias": 3.0})


def test_an_input_ball_handles_what_is_not_finite_and_what_is_huge():
    x = torch.tensor([[3.0, 4.0], [float("nan"), 1.0], [float("inf"), 0.0], [3e38, 3e38], [1e-30, 0.0]])
    y = InputBall(1.0)(x)
    assert torch.equal(y[1:3], torch.zeros(2, 2))
    assert y[0].norm().item() == pytest.approx(1.0, rel=1e-6)
    assert y[3].norm().item() == pytest.approx(1.0, rel=1e-6)
    assert torch.equal(y[4], x[4])


def test_pooling_of_zeros_has_a_finite_gradient():
    x = torch.zeros(2, 1, 4, 4, requires_grad=True)
    L2Pool2d(2)(x).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


@pytest.mark.parametrize("size", [2, 3])
def test_group_sort_sorts_each_group(size):
    x = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    groups = GroupSort(size)(x).unflatten(1, (size, -1))
    assert torch.equal(groups, x.unflatten(1, (size, -1)).sort(dim=1).values)


def test_a_subclass_does_not_inherit_the_rule():
    with pytest.raises(UnsupportedError, match="No bound rule for layer Loud"):
        bound_layer(Loud(2, 2), Signal((2,), 1.0))


def test_an_instance_with_another_forward_is_refused():
    layer = Dense(2, 2)
    layer.forward = lambda x: 10 * x
    with pytest.raises(UnsupportedError, match="forward of this Dense was replaced"):
        bound_layer(layer, Signal((2,), 1.0))


def test_a_second_rule_is_refused():
    with pytest.raises(ValueError, match="already has a bound rule"):
        bound_rule(Dense)(lambda *_: None)


@pytest.mark.parametrize("norm", [float("nan"), -1.0])
def test_bad_norms_are_refused(norm):
    with pytest.raises(InvalidBoundError, match="norm"):
        Signal((2,), norm)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Dense(3, 2), (4,)),
        (Dense(3, 2), (1, 2, 3)),
        (Conv2d(1, 2, 3), (2, 5, 5)),
        (Conv2d(1, 2, 3), (9,)),
        (Conv2d(1, 2, 5), (1, 4, 4)),
        (GroupSort(), (3,)),
        (L2Pool2d(3), (1, 2, 2)),
        (L2Pool2d(2), (4,)),
        (MaxPool2d(3), (1, 2, 5)),
        (AvgPool2d(2), (4, 4)),
        (GlobalL2Pool2d(), (4,)),
        (SpaceToDepth(2), (1, 4, 5)),
        (SpaceToDepth(2), (4,)),
        (Tokens(), (4,)),
        (SwapAxes(), (4,)),
        (Shift(), (4, 4)),
        (ConvexPotential(4), (3,)),
        (ConvexPotential(4), (4, 4, 4)),
        (GroupSort(2, axis=-1), (2, 3)),
        (GroupNorm(2), (3, 4, 4)),
        (Householder(4), (6,)),
        (Conv1d(1, 2, 3), (1, 2)),
        (Conv1d(1, 2, 3), (2, 9)),
        (Conv2d(1, 2, 5, padding=2, padding_mode="circular"), (1, 4, 6)),
        (Residual([Dense(4, 3)]), (4,)),
        (Residual([ClipGradient(1.0)]), (4,)),
        (Standardise(5, 1.0, 0.1), (1,)),
        (Standardise(5, 1.0, 0.1), (1, 6)),
        (Standardise(1, 1.0, 0.1), (4, 2, 2)),
        (Standardise(3, 1.0, 0.1), (4,)),
        (Standardise(1, 1.0, 0.1), ()),
    ],
)
def test_shapes_that_do_not_fit_are_refused(layer, shape):
    with pytest.raises(InvalidBoundError, match="Expected"):
        bound_layer(layer, Signal(shape, 1.0))


@pytest.mark.parametrize("weights", WeightNorms)
def test_a_mean_of_more_features_than_there_are_is_not_spread_over_the_only_channel(weights):
    """The output would have five channels where the rule says one, and a mean five times as long."""
    with pytest.raises(InvalidBoundError, match=r"Expected 5 features or channels, got \(1, 6\)"):
        bound_layer(learned(Standardise(5, 3.0, 0.1)), Signal((1, 6), 1.0), weights)


def test_parameters_before_an_input_ball_are_refused():
    with pytest.raises(InvalidBoundError, match="InputBall"):
        bound_network(Network([Dense(3, 2)], (3,)))


def test_weights_that_are_not_finite_certify_nothing():
    layer = Dense(3, 2)
    with torch.no_grad():
        layer.weight[0, 0] = float("nan")
    with pytest.raises(InvalidBoundError):
        bound_layer(layer, Signal((3,), 1.0), WeightNorms.MEASURED)


def test_a_layer_of_torch_has_no_rule():
    with pytest.raises(UnsupportedError, match="No bound rule for layer ReLU"):
        bound_network(Network([InputBall(1.0), nn.ReLU()], (3,)))


@pytest.mark.parametrize(
    "build",
    [
        lambda: InputBall(0.0),
        lambda: InputBall(float("nan")),
        lambda: GroupSort(1),
        lambda: GroupSort(2, axis=0),
        lambda: L2Pool2d(0),
        lambda: MaxPool2d(0),
        lambda: AvgPool2d(0),
        lambda: SpaceToDepth(0),
        lambda: GroupNorm(0),
        lambda: GroupNorm(1, alpha=0.0),
        lambda: GroupNorm(1, alpha=float("nan")),
        lambda: Householder(3),
        lambda: Householder(0),
        lambda: ClipGradient(0.0),
        lambda: ClipGradient(float("nan")),
        lambda: Dense(2, 2, bias=True, bias_norm=0.0),
        lambda: Dense(2, 2, bias=True, bias_norm=float("nan")),
        lambda: Conv2d(2, 3, 3, groups=2),
        lambda: Conv2d(2, 2, 3, groups=0),
        lambda: Conv2d(1, 1, 3, padding_mode="reflect"),
        lambda: Conv2d(1, 1, 3, padding_mode="circular"),
        lambda: Conv2d(1, 1, 3, stride=2, padding=1, padding_mode="circular"),
        lambda: Conv2d(1, 1, 4, padding=2, padding_mode="circular"),
        lambda: Conv1d(1, 1, 3, padding=2, padding_mode="circular"),
        lambda: Residual([]),
        lambda: Residual([ReLU()], 1.5),
        lambda: Residual([ReLU()], 1.0),
        lambda: Residual([ReLU()], float("nan")),
        lambda: Residual([ReLU()], learned=True),
    ],
)
def test_bad_arguments_are_refused(build):
    with pytest.raises(ValueError, match="Expected"):
        build()
