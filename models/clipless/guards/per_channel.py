r"""Guards of parameters whose gradient has one entry, or a few, per channel.

One example's gradient of such a parameter is no larger than one row of activations, so it is formed, measured exactly
and scaled by ``min(1, Delta / n_i)`` before rows are summed: for a bias the cotangent summed over positions, for the
weight a of ``a x + (1 - a) f`` the inner product ``<g, x - f>``, for Householder angles one inner product per pair.
The cotangents of the other operands pass unscaled: each layer has a guard of its own.

Rows that are not finite are selected away. What may never happen here: a result that depends on more than the row, a
row that is multiplied by zero instead of being selected away.

Shape letters: B batch, K entries of the parameter, C channels, P pairs of channels.
"""

from typing import Any

import torch
from torch import Tensor

from clipless.guards.exact_sums import row_norms
from clipless.guards.guard import Guard


def guarded_bias(y: Tensor, bias_K: Tensor, axis: int, guard: Guard) -> Tensor:
    """``y`` plus a bias along ``axis`` (1 or -1) whose gradient is guarded.

    Under `Guard.normalise` nothing is divided: the gradient of a bias does not grow with the input.
    """
    shifted: Tensor = _GuardedBias.apply(y, bias_K, axis, guard)  # type: ignore[no-untyped-call]
    return shifted


def guarded_mix(x: Tensor, f: Tensor, weight_1: Tensor, guard: Guard) -> Tensor:
    """``a x + (1 - a) f`` with a of shape (1,), whose gradient is guarded; `Guard.normalise` divides by |x - f|."""
    mixed: Tensor = _GuardedMix.apply(x, f, weight_1, guard)  # type: ignore[no-untyped-call]
    return mixed


def guarded_householder(x_BC: Tensor, angle_P: Tensor, guard: Guard) -> Tensor:
    """`householder` whose gradient in the angles is guarded; `Guard.normalise` divides by |x|."""
    y_BC: Tensor = _GuardedHouseholder.apply(x_BC, angle_P, guard)  # type: ignore[no-untyped-call]
    return y_BC


def along(values_K: Tensor, axis: int, like: Tensor) -> Tensor:
    """``values_K`` shaped to broadcast along ``axis`` of ``like``."""
    shape = [1] * like.dim()
    shape[axis] = -1
    return values_K.view(shape)


def householder(x_BC: Tensor, angle_P: Tensor) -> Tensor:
    r"""Reflect the pairs ``(x_p, x_{p + C/2})`` that lie on one side of a line at half the angle theta.

    A pair z stays where ``z_1 sin(theta/2) > z_2 cos(theta/2)`` and becomes ``R z`` elsewhere, with the reflection
    ``R = [[cos theta, sin theta], [sin theta, -cos theta]]`` (Singla, Singla and Feizi 2022, arXiv 2108.04062, eq. 8).
    """
    first, second = x_BC.chunk(2, dim=1)
    kept = _select_rows(first, second, angle_P)
    cos, sin = along(angle_P.cos(), 1, x_BC), along(angle_P.sin(), 1, x_BC)
    turned = cos * first + sin * second, sin * first - cos * second
    return torch.cat((torch.where(kept, first, turned[0]), torch.where(kept, second, turned[1])), dim=1)


def _select_rows(first: Tensor, second: Tensor, angle_P: Tensor) -> Tensor:
    half_P = angle_P.detach() / 2
    return along(half_P.sin(), 1, first) * first > along(half_P.cos(), 1, first) * second


class _GuardedBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, bias_K: Tensor, axis: int, guard: Guard) -> Tensor:
        ctx.axis, ctx.guard = axis, guard
        return y + along(bias_K, axis, y)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        ctx.guard.add_rows(g.movedim(ctx.axis, 1).flatten(2).sum(dim=2) if g.dim() > 2 else g)
        return g, None, None, None


class _GuardedMix(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, f: Tensor, weight_1: Tensor, guard: Guard) -> Tensor:
        ctx.guard = guard
        ctx.save_for_backward(x, f, weight_1)
        return weight_1 * x + (1.0 - weight_1) * f

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, f, weight_1 = ctx.saved_tensors
        apart = x - f
        own_B1 = (g * apart).flatten(1).sum(dim=1, keepdim=True)
        ctx.guard.add_rows(own_B1, row_norms(apart))
        return weight_1 * g, (1.0 - weight_1) * g, None, None


class _GuardedHouseholder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, angle_P: Tensor, guard: Guard) -> Tensor:
        ctx.guard = guard
        ctx.save_for_backward(x, angle_P)
        return householder(x, angle_P)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, angle_P = ctx.saved_tensors
        (first, second), (g1, g2) = x.chunk(2, dim=1), g.chunk(2, dim=1)
        kept = _select_rows(first, second, angle_P)
        cos, sin = along(angle_P.cos(), 1, x), along(angle_P.sin(), 1, x)
        grad_x = torch.cat(
            (torch.where(kept, g1, cos * g1 + sin * g2), torch.where(kept, g2, sin * g1 - cos * g2)), dim=1
        )
        slope = g1 * (cos * second - sin * first) + g2 * (cos * first + sin * second)
        own_BP = torch.where(kept, 0.0, slope)
        own_BP = own_BP.flatten(2).sum(dim=2) if own_BP.dim() > 2 else own_BP
        ctx.guard.add_rows(own_BP, row_norms(x))
        return grad_x, None, None
