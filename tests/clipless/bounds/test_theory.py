r"""The gradient norm of deep Lipschitz networks: three regimes (Bethune et al. 2024, arXiv 2305.16202, theorem 1).

D dense layers of spectral norm alpha with biases of norm B and 1-Lipschitz activations, inputs of norm X and a loss of
Lipschitz constant L. Algorithm 1 gives, with ``X_d`` the norm before layer d + 1::

    X_d = alpha^d X + B (alpha^d - 1) / (alpha - 1)        (alpha = 1: X + d B)
    Delta(W_d) = L alpha^(D - d) X_(d-1)                   Delta(b_d) = L alpha^(D - d)

and the norm over all parameters is the root of the sum of their squares.
"""

from math import log, sqrt

import pytest
import torch

from clipless import Network
from clipless.bounds import bound_network
from clipless.layers import Dense, InputBall, ReLU
from clipless.projections import SpectralBall

CONSTANT, RADIUS = 1.3, 2.0


def sensitivities(alpha, depth, bias_norm):
    layers = [InputBall(RADIUS)]
    for _ in range(depth):
        layers += [Dense(2, 2, SpectralBall(alpha), bias=bias_norm > 0, bias_norm=bias_norm or 1.0), ReLU()]
    return bound_network(Network(layers, (2,)), dtype=torch.float64).sensitivities(CONSTANT)


def total(alpha, depth, bias_norm):
    return sqrt(sum(value**2 for value in sensitivities(alpha, depth, bias_norm).values()))


def norm_after(alpha, depth, bias_norm):
    series = depth if alpha == 1 else (alpha**depth - 1) / (alpha - 1)
    return alpha**depth * RADIUS + bias_norm * series


@pytest.mark.sampled(3)
@pytest.mark.parametrize("alpha", [0.5, 0.9, 1.0, 1.1, 2.0])
@pytest.mark.parametrize("bias_norm", [0.0, 0.3])
@pytest.mark.parametrize("depth", [1, 2, 10, 60])
def test_the_engine_agrees_with_the_closed_forms(alpha, bias_norm, depth):
    found = sensitivities(alpha, depth, bias_norm)
    for d in range(1, depth + 1):
        name = f"layers.{2 * d - 1}"
        reach = CONSTANT * alpha ** (depth - d)
        assert found[f"{name}.weight"] == pytest.approx(reach * norm_after(alpha, d - 1, bias_norm), rel=1e-6)
        if bias_norm:
            assert found[f"{name}.bias"] == pytest.approx(reach, rel=1e-6)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("depth", [1, 7, 40])
def test_without_biases_every_layer_contributes_the_same(alpha, depth):
    expected = CONSTANT * alpha ** (depth - 1) * RADIUS * sqrt(depth)
    assert total(alpha, depth, 0.0) == pytest.approx(expected, rel=1e-6)


def test_contracting_layers_make_gradients_vanish_without_biases():
    assert total(0.8, 80, 0.0) < 1e-5 * total(0.8, 5, 0.0)


def test_contracting_layers_leave_a_constant_with_biases():
    """The limit is that of the last layers, whose input has norm B / (1 - alpha)."""
    alpha, bias_norm = 0.8, 0.3
    limit = CONSTANT * sqrt((1 + (bias_norm / (1 - alpha)) ** 2) / (1 - alpha**2))
    assert total(alpha, 200, bias_norm) == pytest.approx(limit, rel=1e-6)


def growth(alpha, bias_norm, depth):
    """Exponent of the depth, between ``depth`` and twice it."""
    return log(total(alpha, 2 * depth, bias_norm) / total(alpha, depth, bias_norm)) / log(2)


@pytest.mark.long
def test_layers_of_norm_one_grow_with_a_root_or_a_power_of_three_halves():
    assert growth(1.0, 0.0, 100) == pytest.approx(0.5, abs=1e-6)
    assert growth(1.0, 0.3, 400) == pytest.approx(1.5, abs=0.02)
    depth, bias_norm = 800, 0.3
    leading = CONSTANT * bias_norm * sqrt(depth**3 / 3)
    assert total(1.0, depth, bias_norm) == pytest.approx(leading, rel=0.02)


@pytest.mark.parametrize("bias_norm", [0.0, 0.3])
def test_expanding_layers_make_gradients_explode(bias_norm):
    ratio = total(1.5, 81, bias_norm) / total(1.5, 80, bias_norm)
    assert ratio == pytest.approx(1.5, rel=0.01)
