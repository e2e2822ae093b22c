"""The guard of a weight that is used twice: both uses, held together, against gradients of automatic differentiation."""

import pytest
import torch

from clipless import Network, TauCCE
from clipless.errors import PlanError
from clipless.guards.guard import Guard, guarded
from clipless.guards.potential import guarded_potential, potential
from clipless.guards.stacked import StackedGuard
from clipless.layers import ConvexPotential, Dense, InputBall
from clipless.plans.method import Method
from clipless.testing import neighbour_ratios
from tests.clipless.factories import plan_of_step, random

M, B, D, H, T = 3, 32, 6, 4, 5
NAN, INF = float("nan"), float("inf")


def operands(tokens, seed=0, members=1):
    places = (T,) if tokens else ()
    x, g = (random(members * B, *places, D, seed=seed + i) for i in range(2))
    sizes = 10.0 ** torch.randint(-3, 3, (members * B,), generator=torch.Generator().manual_seed(seed))
    return x, g * sizes.view(-1, *[1] * (g.dim() - 1)), random(members, H, D, seed=seed + 2), random(members, H, seed=3)


def guarded_sums(x, g, weight, bias, weight_guard, offset=0.0):
    """Sums of weight and bias, and the cotangent of the input."""
    kind = type(weight_guard)
    bias_guard = kind(1e5) if kind is Guard else kind((1e5,) * M, len(x), torch.zeros(M, H, dtype=torch.float64))
    x, weight, bias = (t.clone().requires_grad_() for t in (x, weight, bias))
    guarded_potential(x, weight, bias, {"weight": weight_guard, "bias": bias_guard}, offset).backward(g)
    assert weight.grad is None, "a gradient was formed beside the guard"
    assert bias.grad is None
    return weight_guard.total.view_as(weight), bias_guard.total, x.grad


def own_gradients(x, g, weight, bias):
    """Each row's gradients in weight and bias, float64."""
    found = []
    for i in range(len(x)):
        moved = [t.double().requires_grad_() for t in (weight, bias)]
        y = potential(x[i : i + 1].double(), *moved)
        found.append(torch.autograd.grad(y, moved, g[i : i + 1].double()))
    return found


def product_bound(x, g, weight, bias):
    """``|h| |x| + 2 |s| |g|`` of one row."""
    s = (x.double() @ weight.double().mT + bias.double()).relu()
    h = torch.where(s > 0, -2.0 * (g.double() @ weight.double().mT), 0.0)
    return float(h.norm() * x.double().norm() + 2.0 * s.norm() * g.double().norm())


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("delta", [1e-2, 1.0, 1e5])
def test_both_uses_are_summed_and_each_row_is_scaled_by_one_factor(tokens, exact, delta):
    x, g, (weight,), (bias,) = operands(tokens)
    found, of_bias, of_x = guarded_sums(x, g, weight, bias, Guard(delta, exact=exact))
    expected = torch.zeros(H, D, dtype=torch.float64)
    rows = own_gradients(x, g, weight, bias)
    for i, (own, _) in enumerate(rows):
        norm = own.norm().item() if exact else product_bound(x[i], g[i], weight, bias)
        expected += own * min(1.0, delta / max(norm, 1e-300))
    assert (found - expected).norm() <= 0.02 * expected.norm() + 2e-3 * delta
    torch.testing.assert_close(of_bias, sum(bias for _, bias in rows), rtol=1e-4, atol=1e-3)
    moved = x.clone().requires_grad_()
    potential(moved, weight, bias).backward(g)
    torch.testing.assert_close(of_x, moved.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_rows_alone_keep_to_the_sensitivity_and_some_attain_it(normalise, exact):
    """A thousand in all four ways. The scale of one use alone would let the sum of both through."""
    reached = []
    for seed in range(8):
        x, g, (weight,), (bias,) = operands(seed % 2 == 1, seed=10 * seed)
        if seed % 3 == 0:  # both products point the same way, and are as large as their bound
            weight = torch.eye(H, D)
            x = torch.zeros_like(x)
            x[..., 0] = 1.0 + seed
            g = x / g.abs().amax()
            bias = torch.zeros(H)
        for i in range(B):
            alone = Guard(0.7, normalise, exact)
            total, *_ = guarded_sums(x[i : i + 1], 1e6 * g[i : i + 1], weight, bias, alone, offset=0.5)
            reached.append(total.norm().item() / 0.7)
    assert len(reached) >= 250
    assert 0.95 < max(reached) <= 1.0 + 1e-12


def test_room_is_left_for_the_rounding_of_both_uses():
    """Entries of 4,096 hidden features round alike; at the least sensitivities what they add is seen."""
    for delta in torch.linspace(1.0, 1.1, 23, dtype=torch.float64).tolist():
        own = Guard(delta)
        weight = torch.full((4096, 1), 1.0, requires_grad=True)
        guarded_potential(torch.ones(1, 1).requires_grad_(), weight, None, {"weight": own}).backward(torch.ones(1, 1))
        assert 0.99 * delta < own.total.norm() <= delta


@pytest.mark.parametrize("where", ["input", "cotangent", "weight"])
@pytest.mark.parametrize("bad", [NAN, INF, 3e38])
@pytest.mark.parametrize("exact", [False, True])
def test_a_row_that_is_not_finite_contributes_nothing_and_leaves_the_others(where, bad, exact):
    x, g, (weight,), (bias,) = operands(tokens=True)
    expected, _, of_x = guarded_sums(x[1:], g[1:], weight, bias, Guard(0.5, exact=exact))
    if where == "weight":
        total, *_ = guarded_sums(x, g, weight * bad, bias, Guard(0.5, exact=exact))
        assert total.isfinite().all()
        return
    (x if where == "input" else g)[0, 0, 0] = bad
    found, bias_found, x_found = guarded_sums(x, g, weight, bias, Guard(0.5, exact=exact))
    assert torch.equal(found, expected) or bad == 3e38 or exact
    assert (found - expected).norm() <= 0.5
    assert bias_found.isfinite().all()
    torch.testing.assert_close(x_found[1:], of_x)


def test_a_second_pass_is_refused():
    x, g, (weight,), (bias,) = operands(tokens=False)
    own = Guard(1.0)
    guarded_sums(x, g, weight, bias, own)
    with pytest.raises(PlanError, match="one backward pass"):
        guarded_sums(x, g, weight, bias, own)


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_sums_of_a_stack_are_bit_by_bit_those_of_the_members_own_guards(tokens, normalise):
    x, g, weight, bias = operands(tokens, members=M)
    x[7].view(-1)[0], g[40].view(-1)[0] = NAN, INF
    deltas = (0.5, 3e-3, 20.0)
    together = StackedGuard(deltas, len(x), torch.zeros(M, H, D, dtype=torch.float64), normalise)
    found = guarded_sums(x, g, weight, bias, together, offset=0.3)
    for m, (own_x, own_g) in enumerate(zip(x.chunk(M), g.chunk(M), strict=True)):
        alone = guarded_sums(own_x, own_g, weight[m], bias[m], Guard(deltas[m], normalise), offset=0.3)
        assert torch.equal(found[0][m], alone[0])
        torch.testing.assert_close(found[1][m], alone[1], rtol=0, atol=1e-3)


def test_the_bias_has_a_guard_of_its_own():
    x, g, (weight,), (bias,) = operands(tokens=True)
    found = Guard(1e-3)
    guarded_potential(x[:1], weight, bias.clone().requires_grad_(), {"bias": found}).backward(1e3 * g[:1])
    assert 0.999e-3 < found.total.norm() <= 1e-3


def test_inside_a_private_step_gradients_form_in_the_guards_alone():
    layer = ConvexPotential(D, H, bias=True)
    model = Network([InputBall(2.0), layer], (D,))
    x = random(8, D)
    with guarded(model, {"layers.1.weight": 1e3, "layers.1.bias": 1e3}) as guards:
        model(x).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is None
    model(x).sum().backward()
    for name, parameter in model.named_parameters():
        assert (guards[name].total - parameter.grad).norm() <= 0.05 * parameter.grad.norm() + 1.0


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("bias", [False, True])
def test_no_neighbour_moves_a_sum_by_more_than_the_plan_of_any_method_says(method, bias):
    if method is Method.NON_PRIVATE:
        return
    g = torch.Generator().manual_seed(0)
    layers = [InputBall(2.0), ConvexPotential(D, H, generator=g, bias=bias), Dense(D, 3, generator=g)]
    model, loss = Network(layers, (D,)), TauCCE(0.1)
    plan = plan_of_step(model, loss, method=method)
    x = 5.0 * random(8, D)
    x[0] *= 1e6
    ratios = neighbour_ratios(model, loss, x, torch.arange(8) % 3, plan)
    assert max(ratios.values()) <= 1.0 + 1e-4
