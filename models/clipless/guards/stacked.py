r"""The guard of a stack: networks of one shape trained as one, each member's rows held to its own sensitivity.

The rows of all members lie one behind the other, the same number for each. Whatever the guard computes for a row
(`clipless.guards.guard`) is computed for all of them at once, with the member's sensitivity and grid beside each row;
the sums are taken member by member, over its rows alone, and are the sums of the member's own guard, bit by bit.

What may never happen here: a sum over rows of two members, a sensitivity or a grid of a neighbour.

Shape letters: M members, R rows of all members, B rows of one, D entries of a contribution, I inputs, O outputs,
K rows and places.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from clipless.errors import PlanError
from clipless.guards.exact_sums import (
    BASE,
    grid,
    integer_product,
    linear_digits,
    outer_grid,
    row_norms,
    select_rows,
    whole_operand,
    whole_rows,
)
from clipless.guards.guard import OuterProduct, add_linear_sum, clipping_scales
from clipless.scalars import Scalar, on_host


@dataclass(slots=True, eq=False)
class StackedGuard:
    """How the gradients of one parameter of every member are guarded, and where the sums of one pass go.

    Raises:
        PlanError: a sensitivity that is not positive and finite, or totals and rows that do not fit the members.
    """

    sensitivities: tuple[Scalar, ...]  # Delta of each member; numbers of a device are not looked at
    rows: int  # R, of all members together, those of the padding included
    total: Tensor  # (M, *shape of the parameter), float64; each member's sum is added to its entry
    normalise: bool = False  # see `clipless.guards.guard.Guard`
    _formed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        members = len(self.sensitivities)
        if not all(0 < delta < float("inf") for delta in self.sensitivities if on_host(delta)):
            raise PlanError(f"Expected positive, finite sensitivities, got {self.sensitivities!r}")
        if len(self.total) != members or self.rows % members or self.total.dtype != torch.float64:
            raise PlanError(f"Expected totals and rows of {members} members, got {len(self.total)} and {self.rows}")

    def scales(self, norm_R: Tensor, input_norm_R: Tensor | None = None, rounding_R: Tensor | float = 0.0) -> Tensor:
        """Return the factors by which no contribution exceeds its member's Delta; as `Guard.scales`."""
        divisor_R = None if input_norm_R is None or not self.normalise else input_norm_R.double()
        return clipping_scales(self._by_row(self.sensitivities), norm_R.double(), divisor_R, rounding_R)

    def outer_step(self, digits: int, others: int) -> Tensor:
        """Return each row's grid of `clipless.guards.exact_sums.outer_grid`."""
        return self._by_row(tuple(outer_grid(delta, digits, others) for delta in self.sensitivities))

    def add_linear(self, scale_R: Tensor, step: Tensor, *terms: OuterProduct) -> None:
        """Take in each member's sum over terms, rows and places of ``scale * g (x) digits``."""
        wholes = ((digits.values, whole_operand(digits, g, scale_R, step)) for digits, g in terms)
        self._add(torch.stack([self._products(*operands) for operands in wholes]).sum(dim=0), step)

    def _products(self, values: Tensor, whole: Tensor) -> Tensor:
        """Return each member's sum over rows and places of whole numbers, (M, O, I) float64."""
        members = zip(*(t.chunk(len(self.sensitivities)) for t in linear_digits(values, whole)), strict=True)
        high, low = torch.stack([integer_product(g_K2O.mT, x_KI) for x_KI, g_K2O in members]).chunk(2, dim=1)
        return high.double().mul_(BASE).add_(low)

    def add_rows(self, rows_RD: Tensor, input_norm_R: Tensor | None = None) -> None:
        """Take in contributions that are formed row by row; rows that are not finite count as zero."""
        norm_R = row_norms(rows_RD)
        scale_R = self.scales(norm_R, input_norm_R)
        step_R = self._by_row(tuple(grid(delta) for delta in self.sensitivities))
        whole_RD = whole_rows(select_rows(norm_R.isfinite(), rows_RD), scale_R, step_R)
        self._add(whole_RD.unflatten(0, (len(self.total), -1)).sum(dim=1, dtype=torch.float64), step_R)

    def _add(self, sums: Tensor, step_R: Tensor) -> None:
        """Add whole numbers of steps, (M, ...) float64: exact, as steps are powers of two."""
        if self._formed:
            raise PlanError("Expected one backward pass of each guarded layer, got a second one; pass the batch once")
        self._formed = True
        step_M = step_R[:: self.rows // len(self.total)]
        self.total.add_(sums.view_as(self.total) * step_M.view(-1, *[1] * (self.total.dim() - 1)))

    def _by_row(self, values: tuple[Scalar, ...]) -> Tensor:
        times, device = self.rows // len(values), self.total.device
        if all(map(on_host, values)):
            return _repeat(values, times, device)
        placed = [
            value if isinstance(value, Tensor) else torch.full((), value, dtype=torch.float64, device=device)
            for value in values
        ]
        return torch.stack(placed).repeat_interleave(times)


@lru_cache(maxsize=256)
def _repeat(values: tuple[Scalar, ...], times: int, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=device).repeat_interleave(times)


def stacked_linear(x_RI: Tensor, weight_MOI: Tensor, guard: StackedGuard | None) -> Tensor:
    """``x W^T`` on (R, I) or (R, T, I), each member's rows with its own weight, whose gradient is guarded.

    ``weight_MOI`` requires a gradient and receives none. Without a guard, as in checks, it is not looked for.
    """
    y: Tensor = _StackedLinear.apply(x_RI, weight_MOI, guard)  # type: ignore[no-untyped-call]
    return y


def stacked_bias(y: Tensor, bias_MK: Tensor, axis: int, guard: StackedGuard | None) -> Tensor:
    """``y`` (R, ...) plus each member's bias along ``axis`` (1 or -1), whose gradient is guarded."""
    shifted: Tensor = _StackedBias.apply(y, bias_MK, axis, guard)  # type: ignore[no-untyped-call]
    return shifted


class _StackedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_MOI: Tensor, guard: StackedGuard | None) -> Tensor:
        ctx.guard = guard
        ctx.save_for_backward(x, weight_MOI)
        return by_member(x, weight_MOI.mT)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_MOI = ctx.saved_tensors
        g = g.contiguous()
        if ctx.guard is not None:
            g = add_linear_sum(ctx.guard, g, x)
        return by_member(g, weight_MOI) if ctx.needs_input_grad[0] else None, None, None


class _StackedBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, bias_MK: Tensor, axis: int, guard: StackedGuard | None) -> Tensor:
        ctx.axis, ctx.guard = axis, guard
        shape = [len(bias_MK)] + [1] * y.dim()
        shape[axis + 1 if axis > 0 else axis] = -1
        shifted: Tensor = (y.unflatten(0, (len(bias_MK), -1)) + bias_MK.view(shape)).flatten(0, 1)
        return shifted

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.guard is not None:
            ctx.guard.add_rows(g.movedim(ctx.axis, 1).flatten(2).sum(dim=2) if g.dim() > 2 else g)
        return g, None, None, None


def by_member(x_RI: Tensor, matrix_MIO: Tensor) -> Tensor:
    """Multiply each member's rows with its matrix."""
    x_MKI = x_RI.reshape(len(matrix_MIO), -1, x_RI.shape[-1])
    y_MKO: Tensor = torch.bmm(x_MKI, matrix_MIO)
    return y_MKO.view(*x_RI.shape[:-1], matrix_MIO.shape[2])
