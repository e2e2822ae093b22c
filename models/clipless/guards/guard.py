r"""The guard: per-example scaling in the backward pass, on which privacy rests.

For a layer that applies ``W`` linearly, example i contributes ``g_i (x) patches(x_i)`` to the gradient of
``W``, where ``g_i`` is the cotangent of its output. Its norm is at most

    n_i = scale * |patches(x_i)| * |g_i|                                                        (1)

(exact for a dense layer on one vector), computed from tensors at hand. The guard multiplies the
contribution by ``min(1, Delta / n_i)``, so that the summed gradient changes by at most ``Delta`` when one
example is added or removed, whatever the weights, the input and the loss are. The cotangent passed on to earlier
layers is not scaled (each layer has a guard of its own), but a row that one guard selects away has a zero
cotangent from there on.

The sum is an exact one (`clipless.guards.exact_sums`): operands become whole numbers, (1) is taken of these, and the
sum gathers in double precision beside the parameter, not in ``parameter.grad``, whose float32 additions would round.

No per-example gradient is formed for that. On maps and tokens (1) is several times the true norm, though, and
a small Delta then clips more than it must: ``exact`` forms each example's gradient, a few rows at a time, and
clips by its own norm.

LIP-DP-SGD divides each contribution by the norm of its own input first (``normalise``): (1) without
``|patches(x_i)|`` then bounds it. (Barczewski 2025, Algorithm 8, divides by the largest input norm *of the
batch*; one example then moves the contributions of all the others.)

Rows where a norm is not finite are *selected away* from both operands, never multiplied by zero:
``0 * nan`` is ``nan``. What may never happen here: a result that depends on more than the row, a parameter whose
gradient is formed outside these functions.

Shape letters: B batch, I inputs, O outputs, C channels, G groups, H height, W width, K rows and places, N kept.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipless.errors import PlanError
from clipless.guards.exact_sums import (
    QuantisedOperand,
    WeightedSum,
    grid,
    linear_product,
    outer_grid,
    outer_sum,
    row_norms,
    row_sum,
    select_rows,
)
from clipless.scalars import Scalar, on_host

Step = TypeVar("Step", bound=Scalar)  # a grid for all rows, or each row's own
OuterProduct = tuple[QuantisedOperand, Tensor]  # digits of one operand, and the other one, finite

# Entries of the per-example gradients that are formed at once where norms are exact.
_FORMED_ENTRIES = 2**22


@dataclass(slots=True, eq=False)
class Guard:
    """How one parameter's gradient is guarded, and where the sum of one backward pass goes.

    Attributes:
        sensitivity: Delta, what one example may contribute at most.
        normalise: divide each contribution by the norm of the example's own input first.
        exact: take the norm of the contribution itself instead of its bound (1).
        total: float64, shaped like the parameter; the sum is added to it.
        bounds: with a list, what contributions are taken to have as norms, and what they were divided by, is appended
            for each part of a pass. Depends on the rows: for looking at public ones.
    """

    sensitivity: Scalar
    normalise: bool = False
    exact: bool = False
    total: Tensor | None = None
    bounds: list[tuple[Tensor, Tensor]] | None = None
    _formed: bool = field(default=False, init=False)

    def add(self, parts: Iterable[WeightedSum]) -> None:
        """Take in the sum of one pass.

        Raises:
            PlanError: there was one already: a row that counts twice would contribute twice the sensitivity.
        """
        if self._formed:
            raise PlanError("Expected one backward pass of each guarded layer, got a second one; pass the batch once")
        self._formed = True
        for part, weight in parts:
            if self.total is None:
                self.total = torch.zeros_like(part, dtype=torch.float64)
            if on_host(weight):
                self.total.add_(part.view_as(self.total), alpha=weight)
            else:
                self.total.addcmul_(part.view_as(self.total).double(), torch.as_tensor(weight))

    def scales(self, norm_B: Tensor, input_norm_B: Tensor | None = None, rounding_B: Tensor | float = 0.0) -> Tensor:
        """Return the factors by which no contribution exceeds Delta, float64; 0 for one that is not finite.

        Args:
            norm_B: upper bounds of the contributions' norms.
            input_norm_B: what `normalise` divides by; None for nothing.
            rounding_B: what rounding may add to the scaled contributions' norms.
        """
        norm_B = norm_B.double()
        divisor_B = None if input_norm_B is None or not self.normalise else input_norm_B.double()
        if self.bounds is not None:
            by_B = torch.ones_like(norm_B) if divisor_B is None else divisor_B
            self.bounds.append((norm_B / by_B, by_B))
        return clipping_scales(self.sensitivity, norm_B, divisor_B, rounding_B)

    def outer_step(self, digits: int, others: int) -> Scalar:
        """Return the grid of `outer_grid`."""
        return outer_grid(self.sensitivity, digits, others)

    def add_linear(self, scale_B: Tensor, step: Scalar, *terms: OuterProduct) -> None:
        """Take in the sum over terms, rows and places of ``scale * g (x) digits``."""
        self.add(chain.from_iterable(outer_sum(digits, g, scale_B, step, linear_product) for digits, g in terms))

    def add_rows(self, rows_BD: Tensor, input_norm_B: Tensor | None = None) -> None:
        """Take in contributions that are formed row by row; rows that are not finite count as zero."""
        self.add([(self.sum_of(rows_BD, row_norms(rows_BD), input_norm_B), 1.0)])

    def sum_of(self, rows_BD: Tensor, norm_B: Tensor, input_norm_B: Tensor | None = None) -> Tensor:
        """Return the exact sum of contributions held to Delta by the given bounds of their norms."""
        scale_B = self.scales(norm_B, input_norm_B)
        return row_sum(select_rows(norm_B.isfinite(), rows_BD), scale_B, grid(self.sensitivity))


class LinearGuard(Protocol[Step]):
    """A guard of linear maps: `Guard`, with one step for all rows, or the guard of a stack."""

    def outer_step(self, digits: int, others: int) -> Step:
        """Return the grid of contributions, for operands of so many entries."""

    def scales(self, norm_B: Tensor, input_norm_B: Tensor | None, rounding_B: Tensor | float) -> Tensor:
        """Return the factor of each contribution."""

    def add_linear(self, scale_B: Tensor, step: Step, *terms: OuterProduct) -> None:
        """Take in the sum of all terms of a pass; a second call is refused."""


def clipping_scales(
    sensitivity: Scalar, norm_B: Tensor, divisor_B: Tensor | None, rounding_B: Tensor | float
) -> Tensor:
    """Return the scales of `Guard.scales`, with one sensitivity for all rows or each row's own."""
    margin_B = (sensitivity - torch.as_tensor(rounding_B, dtype=torch.float64)).clamp(min=0.0)
    if divisor_B is None:
        return torch.where(norm_B.isfinite(), (margin_B / norm_B).clamp(max=1.0), 0.0)
    scale_B = torch.minimum(margin_B / norm_B, 1.0 / divisor_B)
    return torch.where(norm_B.isfinite() & divisor_B.isfinite(), scale_B, 0.0)


class GuardedLayer(nn.Module):
    """A layer with parameters whose gradients pass the guard.

    ``guards`` (by parameter) is None outside a private step: gradients are then ordinary ones, for evaluation,
    attacks and training without a guard.
    """

    def __init__(self) -> None:
        super().__init__()
        self.guards: Mapping[str, Guard] | None = None

    def project(self) -> None:
        """Put every trained parameter of this layer itself back into its constraint set, if it has one."""


@contextmanager
def guarded(
    model: nn.Module,
    sensitivities: Mapping[str, Scalar],
    *,
    normalise: bool = False,
    exact: bool = False,
    totals: Mapping[str, Tensor] | None = None,
    measuring: bool = False,
) -> Iterator[dict[str, Guard]]:
    """Arm the guard of every parameter of ``model`` for one backward pass inside the block.

    Args:
        model: its trainable parameters must all belong to guarded layers.
        sensitivities: Delta of each parameter by its name in ``model``.
        normalise: see `Guard`.
        exact: see `Guard`.
        totals: float64 tensors by parameter that the sums are added to; by default new ones.
        measuring: keep `Guard.bounds`.

    Returns:
        The guards by parameter, which hold the sums afterwards; ``parameter.grad`` receives nothing.

    Raises:
        PlanError: a trainable parameter without a sensitivity or without a guard, or a sensitivity that is
            not positive and finite.

    Guarantees:
        The computed sum of each parameter's gradient over the batch changes by at most its Delta when any one row of
        the batch is replaced by a row with zero contribution, for up to 2^21 rows in all passes that share ``totals``,
        whatever the order of additions. Holds for NaN and infinite inputs, weights and cotangents. It needs passes in
        which what is computed for a row does not depend on what other rows hold, of any precision.
    """
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, GuardedLayer)}
    guards: dict[str, dict[str, Guard]] = {name: {} for name in layers}
    armed: dict[str, Guard] = {}
    for path, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        owner, _, name = path.rpartition(".")
        delta = sensitivities.get(path)
        if owner not in layers:
            raise PlanError(f"Expected a guarded layer to own {path}, got {type(model.get_submodule(owner)).__name__}")
        if delta is None or (on_host(delta) and not 0 < delta < float("inf")):
            raise PlanError(f"Expected a positive, finite sensitivity for {path}, got {delta!r}")
        total = torch.zeros_like(parameter, dtype=torch.float64) if totals is None else totals[path]
        armed[path] = guards[owner][name] = Guard(delta, normalise, exact, total, [] if measuring else None)
    try:
        for name, layer in layers.items():
            layer.guards = guards[name]
        yield armed
    finally:
        for layer in layers.values():
            layer.guards = None


def guarded_linear(x_BI: Tensor, weight_OI: Tensor, guard: Guard) -> Tensor:
    """``x W^T`` on (B, I) or (B, T, I) whose weight gradient is guarded."""
    y: Tensor = _GuardedLinear.apply(  # type: ignore[no-untyped-call]
        x_BI, weight_OI, guard
    )
    return y


class _GuardedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_OI: Tensor, guard: Guard) -> Tensor:
        ctx.guard = guard
        ctx.save_for_backward(x, weight_OI)
        return F.linear(x, weight_OI)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_OI = ctx.saved_tensors
        if ctx.needs_input_grad[1]:
            guard: Guard = ctx.guard
            if guard.exact and x.dim() == 3:
                g = add_formed(guard, g, x, lambda g_BTO, x_BTI: g_BTO.mT @ x_BTI, row_norms(x))
            else:  # on one vector (1) is exact
                g = add_linear_sum(guard, g, x)
        return g @ weight_OI if ctx.needs_input_grad[0] else None, None, None


def add_linear_sum(guard: "LinearGuard[Step]", g: Tensor, x: Tensor) -> Tensor:
    """Give the guard of a linear map its sum; return the cotangents without the rows left out."""
    digits, cotangent_norm_B = QuantisedOperand(x), row_norms(g).double()
    step = guard.outer_step(x[0].numel(), g[0].numel())
    keep_B = digits.finite_B & cotangent_norm_B.isfinite()
    g = select_rows(keep_B, g)
    input_norm_B = digits.norm_B * digits.step_B
    bound_B = torch.where(keep_B, cotangent_norm_B * input_norm_B, float("inf"))
    scale_B = guard.scales(bound_B, input_norm_B, digits.rounding(step, g[0].numel()))
    guard.add_linear(scale_B, step, (digits, g))
    return g


def add_formed(
    guard: Guard,
    g: Tensor,
    x: Tensor,
    gradients: Callable[[Tensor, Tensor], Tensor],
    input_norm_B: Tensor,
    bound_B: Tensor | None = None,
) -> Tensor:
    """Give ``guard`` the sum of per-example gradients; rows that are not finite are left out.

    Args:
        guard: of the parameter.
        g: (B, ...) cotangents.
        x: (B, ...) inputs.
        gradients: of rows of ``g`` and ``x``, (B, ...) with what belongs to an example in its row.
        input_norm_B: norms of the inputs, for ``guard.normalise``.
        bound_B: upper bounds of the gradients' norms; None for taking their own.

    Returns:
        The cotangents without the rows left out.
    """
    entries = gradients(g[:1], x[:1]).numel() or 1
    total, kept = None, []
    parts = (t.split(max(1, _FORMED_ENTRIES // entries)) for t in (g, x, input_norm_B))
    bounds = None if bound_B is None else bound_B.split(max(1, _FORMED_ENTRIES // entries))
    for i, (g_part, x_part, input_norm_part) in enumerate(zip(*parts, strict=True)):
        rows = gradients(g_part, x_part).flatten(1)
        own_B = row_norms(rows)
        # the rows that are summed are those with rounding errors, which a bound of operands does not cover
        norm_B = own_B if bounds is None else torch.maximum(own_B, bounds[i])
        part = guard.sum_of(rows, norm_B, input_norm_part)
        total = part if total is None else total.add_(part)
        kept.append(norm_B.isfinite())
    guard.add([(torch.as_tensor(total), 1.0)])
    return select_rows(torch.cat(kept), g)
