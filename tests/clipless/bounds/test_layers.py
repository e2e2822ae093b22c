"""Every layer's rule: refuted by no input or cotangent that a search finds, attained where it is tight."""

import pytest
import torch
from torch import nn

from clipless.bounds import Signal, WeightNorms, bound_layer, bound_network, bound_rule, bounded_types
from clipless.errors import InvalidBoundError, UnsupportedError
from clipless.layers import Conv2d, Dense, Flatten, GroupSort, InputBall, L2Pool2d
from clipless.network import Network
from clipless.projections import SpectralBall
from clipless.testing import worst_ratios

SEED = torch.Generator().manual_seed(3)

# layer, input shape, ratios that the search must reach: a tight rule is attained to 90 %.
CASES = {
    "input-ball": (InputBall(1.0), (6,), {"output": 0.999, "input": 0.95}),
    "dense": (Dense(7, 4, generator=SEED), (7,), {"output": 0.95, "input": 0.95, "weight": 0.999}),
    "dense-wide-ball": (
        Dense(5, 8, SpectralBall(2.0), generator=SEED),
        (5,),
        {"output": 0.95, "input": 0.95, "weight": 0.999},
    ),
    "dense-tokens": (Dense(4, 3, generator=SEED), (5, 4), {"output": 0.95, "input": 0.95, "weight": 0.9}),
    "conv-3x3-padded": (
        Conv2d(2, 3, 3, padding=1, generator=SEED),
        (2, 24, 24),
        {"output": 0.9, "weight": 0.9},
    ),
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
    "flatten": (Flatten(), (2, 3, 3), {"output": 0.999, "input": 0.999}),
}


@pytest.mark.parametrize("case", CASES)
def test_no_search_exceeds_a_bound_and_tight_ones_are_attained(case):
    layer, shape, attained = CASES[case]
    found = worst_ratios(layer, shape, norm=1.0, starts=4, steps=120)
    assert max(found.values()) <= 1 + 1e-6, found
    for name, least in attained.items():
        assert found[name] >= least, (name, found)


def test_every_rule_has_a_case_here():
    assert {type(layer) for layer, _, _ in CASES.values()} >= {
        t for t in bounded_types() if t.__module__.startswith("clipless")
    }


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


class Loud(Dense):  # type: ignore[misc]
    def forward(self, x):
        return 10 * super().forward(x)


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
    ],
)
def test_shapes_that_do_not_fit_are_refused(layer, shape):
    with pytest.raises(InvalidBoundError, match="Expected"):
        bound_layer(layer, Signal(shape, 1.0))


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
    [lambda: InputBall(0.0), lambda: InputBall(float("nan")), lambda: GroupSort(1), lambda: L2Pool2d(0)],
)
def test_bad_arguments_are_refused(build):
    with pytest.raises(ValueError, match="Expected"):
        build()
