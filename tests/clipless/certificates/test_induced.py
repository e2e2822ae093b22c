"""Growth in l1 and l-infinity: Jacobians at many points and pairs of inputs never exceed a bound, and reach tight ones."""

from math import inf, prod, sqrt

import pytest
import torch

from clipless.bounds import Signal, WeightNorms
from clipless.bounds.composition.compose import bound_sequence
from clipless.certificates import induced
from clipless.certificates.induced import Reach, induced_gains, propagate_reach
from clipless.layers import (
    Abs,
    AvgPool2d,
    ClipGradient,
    Conv1d,
    Conv2d,
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
    Scattering2d,
    Sigmoid,
    Softplus,
    SpaceToDepth,
    SwapAxes,
    Tanh,
    Tokens,
)
from clipless.projections import SpectralBall
from tests.clipless.factories import Loud

SEED = torch.Generator().manual_seed(5)


def turned(layer):
    with torch.no_grad():
        layer.angle.uniform_(-4.0, 4.0, generator=SEED)
    return layer


# layer, input shape, shares of the l1 and l-infinity constants that some Jacobian must reach; 0 where it is not tight.
CASES = {
    "abs": (Abs(), (6,), (1, 1)),
    "average": (AvgPool2d(2), (2, 4, 4), (1, 1)),
    "average-scaled": (AvgPool2d(3, scaled=True), (1, 6, 7), (1, 1)),
    "clip": (ClipGradient(1e9), (6,), (1, 1)),
    "conv-1d": (Conv1d(2, 3, 3, padding=1, generator=SEED), (2, 9), (1, 1)),
    "conv": (Conv2d(2, 3, 3, padding=1, generator=SEED, bias=True), (2, 5, 5), (1, 1)),
    "conv-stride": (Conv2d(2, 3, 3, stride=2, padding=1, generator=SEED), (2, 7, 7), (1, 1)),
    "conv-sparse": (Conv2d(1, 2, 2, stride=3, generator=SEED), (1, 8, 8), (1, 1)),
    "conv-groups": (Conv2d(4, 6, 3, padding=1, groups=2, generator=SEED), (4, 4, 4), (1, 1)),
    "conv-circular": (Conv2d(2, 2, 3, padding=1, padding_mode="circular", generator=SEED), (2, 4, 4), (1, 1)),
    "dense": (Dense(7, 4, SpectralBall(2.0), generator=SEED, bias=True), (7,), (1, 1)),
    "dense-tokens": (Dense(4, 3, generator=SEED), (5, 4), (1, 1)),
    "flatten": (Flatten(), (2, 2, 2), (1, 1)),
    "full-sort": (GroupSort(None), (6,), (1, 1)),
    "global": (GlobalL2Pool2d(), (2, 3, 3), (0.9, 0.9)),
    "group-norm": (GroupNorm(2, alpha=0.3), (4, 2, 2), (0.3, 0.3)),
    "group-sort": (GroupSort(), (6,), (1, 1)),
    "householder": (turned(Householder(6)), (6,), (1, 1)),
    "input-ball": (InputBall(0.01), (6,), (0.5, 0.5)),
    "l2": (L2Pool2d(2), (1, 4, 4), (0.9, 0.9)),
    "centering": (LayerCentering(), (6,), (1, 1)),
    "max": (MaxPool2d(2), (1, 4, 4), (1, 1)),
    "relu": (ReLU(), (6,), (1, 1)),
    "sigmoid": (Sigmoid(), (6,), (0.9, 0.9)),
    "softplus": (Softplus(), (6,), (0.8, 0.8)),
    "space": (SpaceToDepth(2), (1, 4, 4), (1, 1)),
    "swap": (SwapAxes(), (3, 4), (1, 1)),
    "tanh": (Tanh(), (6,), (0.9, 0.9)),
    "tokens": (Tokens(), (2, 2, 2), (1, 1)),
}


def jacobians(layer, shape, points=60):
    """Matrices of the derivative at random points, at small ones, at ones of equal entries and of one bright entry."""
    layer = layer.double()
    for i in range(points):
        x = torch.randn(shape, dtype=torch.float64, generator=SEED)
        x = (x, 1e-3 * x, 1.0 + 1e-3 * x, x**7)[i % 4]
        found = torch.autograd.functional.jacobian(lambda z: layer(z[None])[0], x)
        yield found.reshape(-1, prod(shape))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", CASES)
def test_no_jacobian_exceeds_a_constant_and_tight_ones_are_reached(case):
    layer, shape, least = CASES[case]
    columns, rows = induced_gains(layer, shape)
    found = [(m.abs().sum(dim=0).max().item(), m.abs().sum(dim=1).max().item()) for m in jacobians(layer, shape)]
    one, largest = (max(values) for values in zip(*found, strict=True))
    assert one <= columns * (1 + 1e-9)
    assert largest <= rows * (1 + 1e-9)
    assert one >= least[0] * columns * (1 - 1e-6)
    assert largest >= least[1] * rows * (1 - 1e-6)


def test_every_constant_has_a_case_here_and_every_other_layer_none():
    constants, cases = set(induced._RULES) | induced._KEEP, {type(layer) for layer, _, _ in CASES.values()}
    missing = sorted(kind.__name__ for kind in constants - cases)
    assert not missing, f"CASES of tests/clipless/certificates/test_induced.py has no case of {', '.join(missing)}"
    extra = sorted(kind.__name__ for kind in cases - constants)
    assert not extra, f"neither _KEEP nor _RULES of clipless.certificates.induced has {', '.join(extra)}"
    assert induced_gains(Scattering2d((8, 8), 1, 2), (1, 8, 8)) is None


def test_a_subclass_has_no_constant():
    assert induced_gains(Loud(2, 2), (2,)) is None


@pytest.mark.parametrize("n", [2, 7, 100])
def test_the_ball_projection_is_no_contraction_in_these_norms(n):
    """Just outside of the ball, the direction of the derivation attains (1 + sqrt n) / 2."""
    a = sqrt((1 - 1 / sqrt(n)) / 2)
    v = torch.full((n,), sqrt((1 - a * a) / (n - 1)), dtype=torch.float64)
    v[0] = a
    ball = InputBall(1.0)
    matrix = torch.autograd.functional.jacobian(lambda z: ball(z[None])[0], v * (1 + 1e-9))
    columns, rows = induced_gains(ball, (n,))
    assert columns == rows == pytest.approx((1 + sqrt(n)) / 2)
    for axis in (0, 1):
        assert 0.999 * rows <= matrix.abs().sum(dim=axis).max() <= rows * (1 + 1e-6)


NETWORKS = {
    "dense": lambda: [Dense(6, 8, generator=SEED), GroupSort(), Dense(8, 5, SpectralBall(2.0), generator=SEED)],
    "residual": lambda: [
        Residual([Dense(6, 6, generator=SEED), Abs(), Residual([Dense(6, 6, generator=SEED)])], 0.3, learned=True),
        Residual([Dense(6, 6, generator=SEED), ReLU()]),
    ],
    "maps": lambda: [
        Conv2d(1, 4, 3, padding=1, generator=SEED),
        Householder(4),
        Residual([Conv2d(4, 4, 3, padding=1, generator=SEED)], 0.5),
        L2Pool2d(2),
        GroupNorm(2, alpha=0.5),
        Flatten(),
        Dense(16, 5, generator=SEED),
    ],
    "ball": lambda: [InputBall(0.5), Dense(6, 3, generator=SEED), Softplus()],
    "front": lambda: [Scattering2d((4, 4), 1, 2), Flatten()],
}
SHAPES = {"maps": (1, 4, 4), "front": (1, 4, 4)}


def largest_growth(layers, x, norm, q, steps=60):
    """Search for the pair of inputs of distance 1 in l_norm whose outputs are farthest apart in l_q."""
    d = torch.randn(x.shape, dtype=torch.float64, generator=SEED).requires_grad_()
    best, optimizer = 0.0, torch.optim.Adam([d], lr=0.05)
    for _ in range(steps):
        scaled = d / d.flatten(1).norm(norm, dim=1).view(-1, *[1] * (x.dim() - 1))
        y, z = x + scaled, x
        for layer in layers:
            y, z = layer(y), layer(z)
        moved = (y - z).flatten(1).norm(q, dim=1)
        best = max(best, moved.max().item())
        optimizer.zero_grad()
        (-moved.sum()).backward()
        optimizer.step()
    return best


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_no_pair_of_inputs_found_by_search_grows_further_than_the_reach(name, norm):
    layers, shape = [layer.double() for layer in NETWORKS[name]()], SHAPES.get(name, (6,))
    signal = Signal(shape, 100.0)
    bounds = bound_sequence([(str(i), layer) for i, layer in enumerate(layers)], signal, WeightNorms.MEASURED)
    pairs = [(layer, bound) for layer, (_, bound) in zip(layers, bounds, strict=True)]
    reach = propagate_reach(pairs, signal, Reach.of_unit(norm, prod(shape)))
    x = torch.randn(32, *shape, dtype=torch.float64, generator=SEED)
    for q, bound in ((1.0, reach.one), (2.0, reach.two), (inf, reach.largest)):
        assert 0 < largest_growth(layers, x, norm, q) <= bound


@pytest.mark.parametrize("n", [1, 5, 64])
def test_each_norm_bounds_the_others(n):
    d = torch.randn(200, n, dtype=torch.float64, generator=SEED) ** 5
    d[0] = 1.0
    d[1] = 0.0
    d[1, 0] = 1.0
    for norm in (1.0, 2.0, inf):
        unit = d / d.norm(norm, dim=1, keepdim=True)
        reach = Reach.of_unit(norm, n)
        for q, bound in ((1.0, reach.one), (2.0, reach.two), (inf, reach.largest)):
            assert bound * 0.999 <= unit.norm(q, dim=1).max() <= bound * (1 + 1e-12)


def test_inner_products_are_bounded_by_the_best_of_three_norms():
    weight = torch.randn(7, 5, dtype=torch.float64, generator=SEED)
    for norm, dual in ((1.0, inf), (2.0, 2.0), (inf, 1.0)):
        found = Reach.of_unit(norm, 5).of_products(weight)
        torch.testing.assert_close(found, weight.norm(dual, dim=1), rtol=1e-12, atol=0)
