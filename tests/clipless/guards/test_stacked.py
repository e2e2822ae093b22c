"""The guard of a stack: each member's sums are those of its own guard, whatever its neighbours hold."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from clipless.errors import PlanError
from clipless.guards.guard import Guard, guarded_linear
from clipless.guards.per_channel import guarded_bias
from clipless.guards.stacked import StackedGuard, stacked_bias, stacked_linear

M, B, T, IN, OUT = 3, 40, 5, 7, 6
DELTAS = (0.5, 3e-3, 20.0)
ODD = {"nan": float("nan"), "inf": float("inf"), "huge": 3e38, "tiny": 1e-42}


def operands(seed: int, *, tokens: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs (M B, [T,] IN), weights (M, OUT, IN) and cotangents of very different sizes."""
    generator = torch.Generator().manual_seed(seed)
    places = (T,) if tokens else ()
    x = torch.randn((M * B, *places, IN), generator=generator)
    g = torch.randn((M * B, *places, OUT), generator=generator)
    sizes = 10.0 ** torch.randint(-6, 3, (M * B,), generator=generator)
    return x, torch.randn((M, OUT, IN), generator=generator), g * sizes.view(-1, *[1] * (g.dim() - 1))


def stacked_sums(x: Tensor, weight: Tensor, g: Tensor, *, normalise: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return the sums for weights and biases, (M, ...), and the cotangents of the inputs."""
    weight_guard = StackedGuard(DELTAS, len(x), torch.zeros((M, OUT, IN), dtype=torch.float64), normalise)
    bias_guard = StackedGuard(DELTAS, len(x), torch.zeros((M, OUT), dtype=torch.float64), normalise)
    x = x.clone().requires_grad_()
    y = stacked_linear(x, weight.clone().requires_grad_(), weight_guard)
    y = stacked_bias(y, torch.zeros((M, OUT)).requires_grad_(), -1, bias_guard)
    y.backward(g)
    return weight_guard.total, bias_guard.total, torch.as_tensor(x.grad)


def own_sums(x: Tensor, weight: Tensor, g: Tensor, delta: float, *, normalise: bool = False) -> tuple[Tensor, Tensor]:
    guards = Guard(delta, normalise), Guard(delta, normalise)
    y = guarded_linear(x.clone().requires_grad_(), weight.clone().requires_grad_(), guards[0])
    guarded_bias(y, torch.zeros(OUT).requires_grad_(), -1, guards[1]).backward(g)
    return torch.as_tensor(guards[0].total), torch.as_tensor(guards[1].total)


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_sums_are_bit_by_bit_those_of_the_members_own_guards(tokens: bool, normalise: bool) -> None:
    for seed in range(5):
        x, weight, g = operands(seed, tokens=tokens)
        for place, value in enumerate(ODD.values()):
            x[7 + place * 31].view(-1)[0] = value
            g[3 + place * 31].view(-1)[-1] = value
        found = stacked_sums(x, weight, g, normalise=normalise)
        for m, (own_x, own_g) in enumerate(zip(x.chunk(M), g.chunk(M), strict=True)):
            expected = own_sums(own_x, weight[m], own_g, DELTAS[m], normalise=normalise)
            assert all(torch.equal(ours[m], theirs) for ours, theirs in zip(found[:2], expected, strict=True))


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
@pytest.mark.parametrize("tokens", [False, True])
def test_nothing_that_neighbours_hold_moves_a_members_sums_or_cotangents(value: float, tokens: bool) -> None:
    x, weight, g = operands(0, tokens=tokens)
    before = stacked_sums(x, weight, g)
    for m in range(M):
        others = torch.arange(M * B) // B != m
        moved_x, moved_g, moved_weight = x.clone(), g.clone(), weight.clone()
        moved_x[others], moved_g[others] = value, value
        moved_weight[torch.arange(M) != m] = value
        after = stacked_sums(moved_x, moved_weight, moved_g)
        assert all(torch.equal(a[m], b[m]) for a, b in zip(before[:2], after[:2], strict=True))
        assert torch.equal(before[2].chunk(M)[m], after[2].chunk(M)[m])


@pytest.mark.parametrize("tokens", [False, True])
def test_one_row_moves_the_sums_of_its_member_by_at_most_its_own_sensitivity_and_no_others(tokens: bool) -> None:
    x, weight, g = operands(1, tokens=tokens)
    full = stacked_sums(x, weight, g * 1e4)
    reached = []
    for row in range(0, M * B, 11):
        without = g * 1e4
        without[row] = 0.0
        fewer = stacked_sums(x, weight, without)
        for all_rows, left in zip(full[:2], fewer[:2], strict=True):
            moved_M = (all_rows - left).flatten(1).norm(dim=1)
            assert moved_M[row // B] <= DELTAS[row // B] * (1 + 1e-12)
            assert all(moved_M[m] == 0.0 for m in range(M) if m != row // B)
            reached.append(float(moved_M[row // B] / DELTAS[row // B]))
    assert max(reached) > 0.9


def test_rows_with_zero_cotangents_contribute_exactly_nothing() -> None:
    x, weight, g = operands(2, tokens=False)
    g[B:] = 0.0
    total, bias_total, _ = stacked_sums(x, weight, g)
    assert not total[1:].any()
    assert not bias_total[1:].any()


def refused(make: Callable[[], object], match: str) -> None:
    with pytest.raises(PlanError, match=match):
        make()


def test_what_does_not_fit_is_refused() -> None:
    total = torch.zeros((M, OUT), dtype=torch.float64)
    refused(lambda: StackedGuard((1.0, 0.0, 1.0), M * B, total), "positive, finite")
    refused(lambda: StackedGuard((1.0, float("nan"), 1.0), M * B, total), "positive, finite")
    refused(lambda: StackedGuard((1.0, 1.0), M * B, total), "of 2 members")
    refused(lambda: StackedGuard(DELTAS, M * B + 1, total), "of 3 members")
    refused(lambda: StackedGuard(DELTAS, M * B, total.float()), "of 3 members")


def test_a_second_pass_is_refused() -> None:
    guard = StackedGuard(DELTAS, M * B, torch.zeros((M, OUT), dtype=torch.float64))
    guard.add_rows(torch.ones((M * B, OUT)))
    refused(lambda: guard.add_rows(torch.ones((M * B, OUT))), "one backward pass")
