r"""The guard of a convex potential layer ``y = x - 2 W^T relu(W x + b)``, which uses its weight twice.

With ``s = relu(W x + b)``, a cotangent g of y and the cotangent ``h = 1[s > 0] * (W (-2 g))`` of ``W x + b``, one
example contributes to the gradient of W the sum of two outer products, each that of a dense layer::

    h (x) x  +  s (x) (-2 g)            norm at most  |h| |x| + 2 |s| |g|                           (1)

Both uses share one guard, one scale and one grid: a row's whole contribution, not each half, keeps to Delta, and the
halves keep their proportion. What rounding the halves may add counts for both. As everywhere the norms are those of
tensors at hand, so that (1) holds for any weights. On T tokens the products are summed over tokens; the sum of both is
then the contribution of one dense layer on 2 T tokens, and under ``exact`` it is formed as such.

What may never happen here: one use of the weight whose contribution passes beside the guard, a scale that is taken of
one use alone.

Shape letters: B batch, T tokens, D features, H hidden features, M members.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from clipless.guards.exact_sums import QuantisedOperand, row_norms, select_rows
from clipless.guards.guard import Guard, LinearGuard, add_formed
from clipless.guards.stacked import StackedGuard, by_member
from clipless.scalars import Scalar

Step = TypeVar("Step", bound=Scalar)


def potential(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``x - 2 W^T relu(W x + b)`` on (B, D) or (B, T, D); with (M, H, D) weights each member's on its own rows."""
    return x - 2.0 * _multiply(_hidden(x, weight, bias), weight)


def guarded_potential(
    x: Tensor, weight: Tensor, bias: Tensor | None, guards: Mapping[str, Guard | StackedGuard], offset: float = 0.0
) -> Tensor:
    """`potential` whose gradients in ``weight`` and ``bias`` are guarded; a parameter without a guard gets none.

    Args:
        x: (B, D) or (B, T, D).
        weight: (H, D), or (M, H, D).
        bias: (H,), or (M, H).
        guards: by "weight" and "bias".
        offset: what `Guard.normalise` adds to the norm of the example's input before it divides by it.
    """
    y: Tensor = _GuardedPotential.apply(x, weight, bias, guards, offset)  # type: ignore[no-untyped-call]
    return y


class _GuardedPotential(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        guards: Mapping[str, Guard | StackedGuard],
        offset: float,
    ) -> Tensor:
        hidden = _hidden(x, weight, bias)
        ctx.guards, ctx.offset = guards, offset
        ctx.save_for_backward(x, weight, hidden)
        return x - 2.0 * _multiply(hidden, weight)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, hidden = ctx.saved_tensors
        outer = -2.0 * g.contiguous()
        inner = torch.where(hidden > 0.0, _multiply(outer, weight.mT), 0.0)
        if "weight" in ctx.guards:
            keep_B = _add_both_uses(ctx.guards["weight"], (inner, x), (hidden, outer), ctx.offset)
            g, inner = select_rows(keep_B, g), select_rows(keep_B, inner)
        if "bias" in ctx.guards:
            ctx.guards["bias"].add_rows(inner.sum(dim=1) if inner.dim() > 2 else inner)
        return g + _multiply(inner, weight), None, None, None, None


def _add_both_uses(
    guard: LinearGuard[Step], first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], offset: float
) -> Tensor:
    """Give the guard of a weight the sum of both uses; return which rows are kept."""
    (inner, x), (hidden, outer) = first, second
    inputs, outputs = QuantisedOperand(x), QuantisedOperand(outer)
    inner_norm_B, hidden_norm_B = row_norms(inner).double(), row_norms(hidden).double()
    keep_B = inputs.finite_B & outputs.finite_B & inner_norm_B.isfinite() & hidden_norm_B.isfinite()
    input_norm_B = inputs.norm_B * inputs.step_B
    inner, hidden = select_rows(keep_B, inner), select_rows(keep_B, hidden)
    if isinstance(guard, Guard) and guard.exact:
        x, outer = select_rows(keep_B, x), select_rows(keep_B, outer)
        add_formed(guard, _as_tokens(inner, hidden), _as_tokens(x, outer), _contributions, input_norm_B + offset)
        return keep_B
    bound_B = inner_norm_B * input_norm_B + hidden_norm_B * (outputs.norm_B * outputs.step_B)
    bound_B = torch.where(keep_B, bound_B, float("inf"))
    entries = hidden[0].numel()
    step = guard.outer_step(x[0].numel(), entries)
    rounding_B = inputs.rounding(step, entries) + outputs.rounding(step, entries)
    scale_B = guard.scales(bound_B, input_norm_B + offset, rounding_B)
    guard.add_linear(scale_B, step, (inputs, inner), (outputs, hidden))
    return keep_B


def _contributions(g_BTH: Tensor, x_BTD: Tensor) -> Tensor:
    return g_BTH.mT @ x_BTD


def _as_tokens(*uses: Tensor) -> Tensor:
    """Lay the operands of both uses out as the tokens of one."""
    return torch.cat([one if one.dim() > 2 else one.unsqueeze(1) for one in uses], dim=1)


def _hidden(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    inner = _multiply(x, weight.mT)
    if bias is None:
        return inner.relu()
    if bias.dim() == 1:
        return (inner + bias).relu()
    bias = bias.view(len(bias), *[1] * (x.dim() - 1), -1)
    shifted: Tensor = inner.unflatten(0, (len(bias), -1)) + bias
    return shifted.flatten(0, 1).relu()


def _multiply(x: Tensor, matrix: Tensor) -> Tensor:
    """Rows times a matrix, or each member's rows times its own."""
    return x @ matrix if matrix.dim() == 2 else by_member(x, matrix)
