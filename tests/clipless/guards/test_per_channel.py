"""Guards of small parameters alone, against contributions written out in float64."""

import pytest
import torch
import torch.nn.functional as F

from clipless.guards.convolution import guarded_conv2d
from clipless.guards.guard import Guard
from clipless.guards.per_channel import along, guarded_bias, guarded_householder, guarded_mix, householder
from tests.clipless.factories import gradients, held, random

NAN, INF = float("nan"), float("inf")


# name: guarded function, the same without a guard, operands, parameter, what normalising divides by
CASES = {
    "bias": (lambda x, p, guard: guarded_bias(x, p, -1, guard), lambda x, p: x + p, (random(4, 6),), random(6), None),
    "bias-tokens": (
        lambda x, p, guard: guarded_bias(x, p, -1, guard),
        lambda x, p: x + p,
        (random(4, 5, 6),),
        random(6),
        None,
    ),
    "bias-maps": (
        lambda x, p, guard: guarded_bias(x, p, 1, guard),
        lambda x, p: x + along(p, 1, x),
        (random(4, 3, 5, 5),),
        random(3),
        None,
    ),
    "mix": (
        lambda x, f, p, guard: guarded_mix(x, f, p, guard),
        lambda x, f, p: p * x + (1 - p) * f,
        (random(4, 3, 5), random(4, 3, 5, seed=1)),
        torch.tensor([0.3]),
        lambda x, f: (x - f).norm(),
    ),
    "householder": (guarded_householder, householder, (random(4, 6),), random(3, seed=2), lambda x: x.norm()),
    "householder-maps": (
        guarded_householder,
        householder,
        (random(4, 6, 3, 3),),
        random(3, seed=2),
        lambda x: x.norm(),
    ),
}


def each_row(case, g):
    """Contribution of every row to the parameter's gradient, in float64."""
    _, free, operands, parameter, _ = CASES[case]
    return [
        gradients(
            lambda p, i=i: free(*(x[i : i + 1].double() for x in operands), p),
            [parameter.double()],
            g[i : i + 1].double(),
        )[0]
        for i in range(len(g))
    ]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("sensitivity", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("normalise", [False, True])
def test_each_row_is_scaled_by_its_own_factor(case, sensitivity, normalise):
    guarded, free, operands, parameter, divisor = CASES[case]
    g = random(*operands[0].shape, seed=9)
    *of_inputs, found = held(guarded, (*operands, parameter), g, Guard(sensitivity, normalise))
    expected = torch.zeros_like(parameter, dtype=torch.float64)
    for i, own in enumerate(each_row(case, g)):
        if normalise and divisor is not None:
            own = own / divisor(*(x[i].double() for x in operands))
        expected += own * min(1.0, sensitivity / max(own.norm().item(), 1e-300))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())
    for a, b in zip(of_inputs, gradients(lambda *t: free(*t, parameter), operands, g), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("bad", [NAN, INF, -INF, 3e38])
@pytest.mark.parametrize("where", ["operand", "cotangent"])
def test_a_row_that_is_not_finite_leaves_the_sum_of_the_others(case, normalise, bad, where):
    guarded, _, operands, parameter, _ = CASES[case]
    g = random(*operands[0].shape, seed=9)
    operands = tuple(x.clone() for x in operands)
    (operands[-1] if where == "operand" else g)[1] = bad
    others = [0, 2, 3]
    found = held(guarded, (*operands, parameter), g, Guard(0.2, normalise))[-1]
    kept = held(guarded, (*(x[others] for x in operands), parameter), g[others], Guard(0.2, normalise))[-1]
    assert found.isfinite().all()
    assert (found - kept).norm() <= 0.2


@pytest.mark.parametrize("tiny", [1e-19, 1e-21, 1e-25, 1e-30])
def test_squares_that_underflow_are_counted(tiny):
    g = torch.full((1, 6), tiny)
    operands = torch.zeros(1, 6), torch.zeros(6)
    found = held(lambda y, b, guard: guarded_bias(y, b, -1, guard), operands, g, Guard(1e-28))[-1]
    assert found.norm() <= 1e-28


@pytest.mark.parametrize("angle", [0.0, 0.7, 1.5707963, 3.0, -2.0, 9.0])
def test_the_householder_activation_preserves_norms_and_is_continuous(angle):
    x, angles = random(200, 6).double(), torch.full((3,), angle, dtype=torch.float64)
    torch.testing.assert_close(householder(x, angles).norm(dim=1), x.norm(dim=1))
    half = torch.tensor(angle, dtype=torch.float64) / 2
    edge = torch.stack((half.cos(), half.sin())).repeat_interleave(3)[None]
    step = 1e-9 * torch.stack((half.sin(), -half.cos())).repeat_interleave(3)[None]
    torch.testing.assert_close(householder(edge + step, angles), householder(edge - step, angles), atol=1e-8, rtol=0)


def test_the_householder_activation_starts_as_max_min():
    from clipless.layers import GroupSort, Householder

    x = random(20, 6)
    layer = Householder(6)
    assert torch.equal(layer(x).sort(dim=1).values, x.sort(dim=1).values) or torch.allclose(
        layer(x).unflatten(1, (2, 3)).sort(dim=1).values, GroupSort()(x).unflatten(1, (2, 3)), atol=1e-6
    )


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("sensitivity", [1e-3, 1e3])
def test_the_rows_of_a_grouped_convolution_are_held(groups, sensitivity):
    x, g, weight = random(3, 4, 6, 6), random(3, 8, 6, 6, seed=1), random(8, 4 // groups, 3, 3, seed=2)

    def convolve(maps, cotangent):
        def function(a, w, guard):
            return guarded_conv2d(a, w, 0.7, (1, 1), (1, 1), guard, groups)

        return held(function, (maps, weight), cotangent, Guard(sensitivity))

    of_input, found = convolve(x, g)
    free = gradients(lambda a, w: F.conv2d(a, 0.7 * w, padding=1, groups=groups), (x, weight), g)
    torch.testing.assert_close(of_input, free[0], rtol=1e-4, atol=1e-5)
    if sensitivity > 1:
        assert (found - free[1]).norm() <= 1e-2 * free[1].norm()
    assert found.norm() <= 3 * sensitivity
    assert convolve(x[:1], g[:1])[1].norm() <= sensitivity
