"""In front of the input ball there is no bound of signals: what rounds in units of them certifies nothing."""

from fractions import Fraction

import pytest
import torch

from clipless import Network, zoo
from clipless.bounds._rules import Rounding, rounding_of_unbounded
from clipless.certificates.certify import certify, decisions, float64_logits, forward_error, measured_bounds
from clipless.layers import (
    AvgPool2d,
    Dense,
    Flatten,
    GroupNorm,
    GroupSort,
    InputBall,
    L2Pool2d,
    LayerCentering,
    MaxPool2d,
    ReLU,
    Residual,
    ScaleByQuantile,
    SpaceToDepth,
    Standardise,
)
from clipless.layers.scattering import Scattering2d
from tests.clipless.bounds.test_layers import CASES
from tests.clipless.stacks.members import ARCHITECTURES

EXACT = [case for case, (layer, *_) in CASES.items() if rounding_of_unbounded(layer) is Rounding.EXACT]
RELATIVE = [case for case, (layer, *_) in CASES.items() if rounding_of_unbounded(layer) is Rounding.RELATIVE]
IF_EXACT = [case for case, (layer, *_) in CASES.items() if rounding_of_unbounded(layer) is Rounding.RELATIVE_IF_EXACT]
LEAST = 1e-30  # of float32 passes, in place of 1e-130 of float64 ones


def inputs(shape):
    """Numbers of float32 over 16 orders of magnitude, large ones that are nearly the same, and those with both signs."""
    generator = torch.Generator().manual_seed(0)
    mixed = 10.0 ** (16.0 * torch.rand((40, *shape), generator=generator) - 8.0)
    near = 2.0**23 + torch.randint(-4, 5, (40, *shape), generator=generator)
    sign = torch.randint(2, (40, *shape), generator=generator) * 2.0 - 1.0
    return torch.cat([mixed * sign, near, near * sign])


def is_relative(found, exact, share):
    return bool(((found.double() - exact).abs() <= share * exact.abs() + LEAST).all())


def rounds_relatively(layer, shape):
    x = inputs(shape)
    return is_relative(layer(x), _float64(layer, x.double()), 32 * torch.finfo(torch.float32).eps)


def _float64(layer, x):
    try:
        return layer.double()(x)
    finally:
        layer.float()


@pytest.mark.parametrize("case", [*EXACT, *RELATIVE, *IF_EXACT])
def test_each_entry_is_off_by_a_small_part_of_itself(case):
    layer, shape, _ = CASES[case]
    assert rounds_relatively(layer, shape)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", EXACT)
def test_entries_are_those_of_the_input_or_none(case):
    layer, shape, _ = CASES[case]
    for row in inputs(shape):
        known = torch.cat([row.flatten().abs(), torch.zeros(1)])
        assert torch.isin(layer(row[None]).abs(), known).all()


@pytest.mark.parametrize("case", [*EXACT, *RELATIVE])
def test_relative_errors_of_entries_do_not_grow(case):
    layer, shape, _ = CASES[case]
    x = inputs(shape).double()
    sign = torch.randint(2, x.shape, generator=torch.Generator().manual_seed(1)) * 2.0 - 1.0
    assert is_relative(_float64(layer, x * (1.0 + 1e-6 * sign)), _float64(layer, x), 4e-6)


@pytest.mark.parametrize("layer", [LayerCentering(), GroupNorm(1, 4.0), AvgPool2d(2)])
def test_cancelling_layers_are_told_apart(layer):
    assert rounding_of_unbounded(layer) is Rounding.CANCELLING
    assert not rounds_relatively(layer, (1, 4, 4))


def network(*front):
    layers = [*front, Flatten()]
    size = Network(layers, (1, 8, 8))(torch.zeros(1, 1, 8, 8)).shape[1]
    return Network([*layers, Dense(size, 2, generator=torch.Generator().manual_seed(0))], (1, 8, 8))


def radii_of(model):
    x = torch.randn(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    return certify(model, x, decisions(float64_logits(model, x)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "front",
    [
        [LayerCentering()],
        [AvgPool2d(2)],
        [Scattering2d((8, 8), scales=1)],
        [Residual([ReLU()])],
        [Flatten(), LayerCentering()],
        [ScaleByQuantile(0.1, 1.0), Standardise(1, 1.0, 0.1)],
        [L2Pool2d(2), Standardise(1, 1.0, 0.1)],
    ],
)
def test_what_cancels_in_front_of_the_ball_certifies_nothing(front):
    model, behind = network(*front, InputBall(2.0)), network(InputBall(2.0), *front)
    assert forward_error(model, measured_bounds(model)) == torch.inf
    assert forward_error(behind, measured_bounds(behind)) < 1e-6
    assert (radii_of(model) == 0).all()


def test_group_normalisation_without_a_ball_certifies_nothing():
    model = network(GroupNorm(1, 4.0))
    assert measured_bounds(model).layers[0][1].error == torch.inf
    assert forward_error(model, measured_bounds(model)) == torch.inf
    assert (radii_of(model) == 0).all()


@pytest.mark.parametrize(
    "front",
    [
        [Standardise(1, 1.0, 0.1), ScaleByQuantile(0.1, 1.0)],
        [SpaceToDepth(2), GroupSort(2), Standardise(4, 1.0, 0.1)],
        [MaxPool2d(2), L2Pool2d(2), ScaleByQuantile(0.1, 1.0)],
        [Flatten()],
    ],
)
def test_what_rounds_in_units_of_its_output_may_stand_in_front_of_the_ball(front):
    model = network(*front, InputBall(2.0))
    assert 0.0 < forward_error(model, measured_bounds(model)) < 1e-9
    assert (radii_of(model) > 0).any()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_certifies_behind_statistics_too(architecture):
    model = zoo.build(architecture, (1, 8, 8), 3, input_norm=4.0, **ARCHITECTURES[architecture])
    for front in ([], [Standardise(1, 1.0, 0.1), ScaleByQuantile(0.1, 1.0)]):
        whole = Network([*front, *model.layers], model.input_shape)
        assert forward_error(whole, measured_bounds(whole)) < 1e-3


def test_the_error_of_centred_inputs_is_not_that_of_what_centring_leaves():
    """Inputs near 2^52: their mean is off by a unit, ten orders more than rounding of what is left would be."""
    model = Network([LayerCentering(), InputBall(1000.0), Dense(48, 1)], (48,))
    x = 2.0**52 + torch.randint(-9, 10, (20, 48), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight = [Fraction(w) for w in model.layers[2].weight[0].tolist()]
    exact = []
    for row in ([Fraction(entry) for entry in one] for one in x.tolist()):
        mean = sum(row) / 48
        exact.append(float(sum(w * (entry - mean) for w, entry in zip(weight, row, strict=True))))
    off = (float64_logits(model, x)[:, 0] - torch.tensor(exact, dtype=torch.float64)).abs()
    assert 1e-3 < off.max() <= forward_error(model, measured_bounds(model))
