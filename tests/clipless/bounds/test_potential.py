"""The bounds of convex potential layers on a thousand random instances, against SVD, autograd and gradient ascent."""

import pytest
import torch
from torch.func import grad, jacrev, vmap

from clipless import Network, TauCCE, make_plan
from clipless.bounds import Signal, WeightNorms, bound_layer, bound_network
from clipless.certificates.certify import float64_logits
from clipless.guards.potential import potential
from clipless.layers import ConvexPotential, Dense, InputBall, Shift
from clipless.plans.method import Method
from clipless.projections import SpectralBall
from clipless.training.optimizers import Adam, Descent
from tests.clipless.factories import random, seeded

N, STEPS = 1000, 40


def instances(hidden, features, norm, bias):
    """Weights of one spectral norm, biases of one length, inputs and cotangents of norm 1; float64."""
    weight = random(N, hidden, features, dtype=torch.float64)
    weight *= norm / torch.linalg.matrix_norm(weight, 2)[:, None, None]
    shift = random(N, hidden, seed=1, dtype=torch.float64)
    shift *= bias / shift.norm(dim=1, keepdim=True)
    return weight, shift, *(random(N, features, seed=seed, dtype=torch.float64) for seed in (2, 3))


def bound_of(hidden, features, norm, bias):
    layer = ConvexPotential(features, hidden, SpectralBall(norm), bias=bias > 0, bias_norm=bias or 1.0)
    return bound_layer(layer, Signal((features,), 1.0))


def gradients(weight, shift, x, g):
    """Gradients of <g, y> in weight and bias, one instance a row."""

    def inner(weight, shift, x, g):
        return (potential(x[None], weight, shift)[0] * g).sum()

    return vmap(grad(inner, argnums=(0, 1)))(weight, shift, x, g)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("norm", "bias"), [(1.0, 0.0), (1.0, 0.5), (0.3, 0.0), (1.6, 0.2)])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (6, 4)])
def test_no_instance_exceeds_a_bound_however_inputs_and_cotangents_are_chosen(shape, norm, bias):
    weight, shift, x, g = instances(*shape, norm, bias)
    bound = bound_of(*shape, norm, bias)
    jacobians = vmap(jacrev(lambda x, *given: potential(x[None], *given)[0]))(x, weight, shift)
    assert torch.linalg.matrix_norm(jacobians, 2).max() <= bound.input_gain * (1 + 1e-9)
    x, g = x.requires_grad_(), g.requires_grad_()
    descent, reached = Descent(Adam(0.2), [x, g]), {}
    for _ in range(STEPS):
        with torch.no_grad():
            for t in (x, g):
                t /= t.norm(dim=1, keepdim=True).clamp(min=1e-12)
        of_weight, of_shift = gradients(weight, shift, x, g)
        found = {
            "output": vmap(lambda *given: potential(given[0][None], *given[1:])[0])(x, weight, shift).norm(dim=1),
            "weight": of_weight.flatten(1).norm(dim=1),
            "bias": of_shift.norm(dim=1),
        }
        limits = {"output": bound.output.norm, "weight": bound.parameter_gains["weight"], "bias": 2.0 * norm}
        for name, values in found.items():
            reached[name] = max(reached.get(name, 0.0), (values.max() / limits[name]).item())
        x.grad, g.grad = torch.autograd.grad(-found["weight"].sum(), [x, g])
        descent.step()
    assert max(reached.values()) <= 1 + 1e-9, reached
    if shape == (1, 1) and norm == 1.0:
        assert reached["weight"] > 0.99


def test_every_bound_is_attained_by_one_hidden_feature():
    """D = H = 1, W = 1, x = X, b = B, g = 1: the gradient of the weight is -2 (X + B) - 2 X."""
    layer = ConvexPotential(1, constraint=SpectralBall(1.0), bias=True, bias_norm=0.5)
    with torch.no_grad():
        layer.weight.fill_(1.0), layer.bias.fill_(0.5)
    x = torch.full((1, 1), 2.0)
    layer(x).backward(torch.ones(1, 1))
    bound = bound_layer(layer, Signal((1,), 2.0))
    assert layer.weight.grad.item() == pytest.approx(-bound.parameter_gains["weight"], rel=1e-6)
    assert layer.bias.grad.item() == pytest.approx(-bound.parameter_gains["bias"], rel=1e-6)
    assert bound.normalised_gains["weight"] == pytest.approx(4.0)
    plain = bound_layer(ConvexPotential(1), Signal((1,), 2.0))
    assert (plain.output.norm, plain.input_gain, plain.parameter_gains["weight"]) == (2.0, 1.0, 8.0)


def test_a_zero_weight_is_the_identity_and_an_orthogonal_one_preserves_norms():
    x = random(7, 6)
    layer = ConvexPotential(6, generator=seeded())
    torch.testing.assert_close(layer(x).norm(dim=1), x.norm(dim=1))
    with torch.no_grad():
        layer.weight.zero_()
    assert torch.equal(layer(x), x)


def test_a_step_that_leaves_the_ball_is_projected_back_and_the_layer_stays_1_lipschitz():
    layer = ConvexPotential(5, 7, SpectralBall(1.0), generator=seeded(), bias=True, bias_norm=0.25)
    with torch.no_grad():
        layer.weight.normal_(generator=seeded()).mul_(10.0)
        layer.bias.fill_(3.0)
    layer.project()
    assert torch.linalg.matrix_norm(layer.weight.detach().double(), 2) <= 1.0 + 1e-6
    assert layer.bias.norm() <= 0.25 + 1e-6
    assert bound_layer(layer, Signal((5,), 1.0), WeightNorms.MEASURED).input_gain <= 1.0 + 1e-5


def test_sensitivities_that_follow_a_small_weight_are_as_small():
    layer = ConvexPotential(4, constraint=SpectralBall(1.0), generator=seeded())
    with torch.no_grad():
        layer.weight.mul_(0.25)
    followed = bound_layer(layer, Signal((4,), 3.0), WeightNorms.CURRENT)
    assert followed.parameter_gains["weight"] == pytest.approx(3.0, rel=1e-3)
    assert followed.normalised_gains["weight"] == pytest.approx(1.0, rel=1e-3)


def test_rounding_of_the_forward_pass_stays_below_its_bound():
    from mpmath import matrix, mp, mpf

    layer = ConvexPotential(24, 40, SpectralBall(1.0), generator=seeded(), bias=True).double()
    with torch.no_grad():
        layer.bias.normal_(generator=seeded()).div_(layer.bias.norm())
    x = 1e6 * random(1, 24, dtype=torch.float64)
    error = bound_layer(layer, Signal((24,), x.norm().item()), WeightNorms.MEASURED).error
    with mp.workdps(40):
        weight = matrix(layer.weight.tolist())
        hidden = weight * matrix(x[0].tolist()) + matrix(layer.bias.tolist())
        exact = matrix(x[0].tolist()) - 2 * weight.T * hidden.apply(lambda t: max(t, mpf(0)))
        off = sum((a - mpf(b)) ** 2 for a, b in zip(exact, layer(x)[0].tolist(), strict=True)) ** 0.5
    assert 0 < off <= error < 1e-3


def test_a_network_of_them_is_1_lipschitz_and_its_logits_can_be_certified():
    layers = [InputBall(2.0), Dense(9, 6, generator=seeded()), *(ConvexPotential(6, generator=seeded()) for _ in "abc")]
    model = Network([*layers, Dense(6, 3, generator=seeded())], (9,))
    bounds = bound_network(model)
    assert bounds.lipschitz() <= 1.001
    assert bounds.output.norm <= 2.001
    x = 10 * random(64, 9)
    logits = float64_logits(model, x)
    apart = (logits[:32] - logits[32:]).norm(dim=1) / (x[:32] - x[32:]).norm(dim=1)
    assert apart.max() <= 1.0
    plan = make_plan(model, TauCCE(0.1), population=100, batch_size=10, delta=1e-3, noise_multiplier=1.0, epochs=1)
    reach = plan.sensitivities["layers.5.weight"] / 2.0  # that of the last dense layer, of inputs of norm 2
    assert plan.sensitivities["layers.2.weight"] == pytest.approx(8.0 * reach, rel=1e-3)
    normalised = make_plan(
        *(model, TauCCE(0.1)),
        population=100,
        batch_size=10,
        delta=1e-3,
        noise_multiplier=1.0,
        epochs=1,
        method=Method.LIP_DP_SGD,
    )
    assert normalised.sensitivities["layers.2.weight"] == pytest.approx(4.0 * reach, rel=1e-3)


@pytest.mark.parametrize("window", [1, 3, 5])
def test_a_shift_moves_each_group_by_its_offset_and_lets_zeros_in(window):
    layer = Shift(window)
    offsets = layer.offsets()
    assert len(set(offsets)) == window**2
    assert offsets[0] == (0, 0)
    channels = 2 * len(offsets)
    x = random(2, channels, 4, 6)
    y = layer(x)
    for c in range(channels):
        down, right = offsets[c // 2]
        for i in range(4):
            for j in range(6):
                inside = 0 <= i - down < 4 and 0 <= j - right < 6
                assert torch.equal(y[:, c, i, j], x[:, c, i - down, j - right] if inside else torch.zeros(2))


def test_the_matrix_of_a_shift_is_a_partial_permutation():
    matrix = torch.autograd.functional.jacobian(lambda x: Shift()(x[None])[0], torch.zeros(10, 3, 4))
    matrix = matrix.reshape(120, 120)
    assert set(matrix.unique().tolist()) == {0.0, 1.0}
    assert matrix.sum(dim=0).max() == matrix.sum(dim=1).max() == 1.0
    assert matrix.sum() < 120
    assert torch.linalg.matrix_norm(matrix, 2) <= 1.0 + 1e-6


@pytest.mark.parametrize("window", [0, 2, -3, float("nan")])
def test_a_window_that_has_no_centre_is_refused(window):
    with pytest.raises(ValueError, match="odd window"):
        Shift(window)
