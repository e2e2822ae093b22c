r"""The guard: per-example scaling in the backward pass, on which privacy rests.

For a layer that applies ``W`` linearly, example i contributes ``g_i (x) patches(x_i)`` to the gradient of
``W``, where ``g_i`` is the cotangent of its output. Its norm is at most

    n_i = scale * |patches(x_i)| * |g_i|                                                        (1)

(exact for a dense layer on one vector), computed from tensors at hand. The guard multiplies the
contribution by ``min(1, Delta / n_i)``, so that the summed gradient changes by at most ``Delta`` when one
example is added or removed, whatever the weights, the input and the loss are. The cotangent passed on to earlier
layers is not scaled (each layer has a guard of its own), but a row that one guard selects away has a zero
cotangent from there on.

No per-example gradient is formed for that. On maps and tokens (1) is several times the true norm, though, and
a small Delta then clips more than it must: ``exact`` forms each example's gradient, a few rows at a time, and
clips by its own norm.

LIP-DP-SGD divides each contribution by the norm of its own input first (``normalise``): (1) without
``|patches(x_i)|`` then bounds it. (Barczewski 2025, Algorithm 8, divides by the largest input norm *of the
batch*; one example then moves the contributions of all the others.)

Rows where a norm is not finite are *selected away* from both operands, never multiplied by zero:
``0 * nan`` is ``nan``. What may never happen here: a result that depends on more than the row, a parameter whose
gradient is formed outside these functions.

Shape letters: B batch, I inputs, O outputs, C channels, H height, W width.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipless.errors import PlanError

# Entries of the per-example gradients that are formed at once where norms are exact.
_FORMED_ENTRIES = 2**22

# Squares below the smallest normal float32 may be flushed to zero; this much norm per root element is added
# back.
_BLOCK = 4096
_UNDERFLOW_NORM = 1.2e-19

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Guard:
    """How one parameter's gradient is guarded.

    Attributes:
        sensitivity: Delta, what one example may contribute at most.
        normalise: divide each contribution by the norm of the example's own input first.
        exact: take the norm of the contribution itself instead of its bound (1).
    """

    sensitivity: float
    normalise: bool = False
    exact: bool = False


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
    model: nn.Module, sensitivities: Mapping[str, float], *, normalise: bool = False, exact: bool = False
) -> Iterator[None]:
    """Arm the guard of every parameter of ``model`` for the backward passes inside the block.

    Args:
        model: its trainable parameters must all belong to guarded layers.
        sensitivities: Delta of each parameter by its name in ``model``.
        normalise: see `Guard`.
        exact: see `Guard`.

    Raises:
        PlanError: a trainable parameter without a sensitivity or without a guard, or a sensitivity that is
            not positive and finite.

    Guarantees:
        Inside the block, the gradient of each parameter, summed over the batch, changes by at most its
        Delta (times the rounding of float32 sums) when any one row of the batch is replaced by a row with
        zero contribution. Holds for NaN and infinite inputs, weights and cotangents.
    """
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, GuardedLayer)}
    guards: dict[str, dict[str, Guard]] = {name: {} for name in layers}
    for path, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        owner, _, name = path.rpartition(".")
        delta = sensitivities.get(path)
        if owner not in layers:
            raise PlanError(f"Expected a guarded layer to own {path}, got {type(model.get_submodule(owner)).__name__}")
        if delta is None or not 0 < delta < float("inf"):
            raise PlanError(f"Expected a positive, finite sensitivity for {path}, got {delta!r}")
        guards[owner][name] = Guard(delta, normalise, exact)
    try:
        for name, layer in layers.items():
            layer.guards = guards[name]
        yield
    finally:
        for layer in layers.values():
            layer.guards = None


def guarded_linear(x_BI: Tensor, weight_OI: Tensor, guard: Guard) -> Tensor:
    """``x W^T`` on (B, I) or (B, T, I) whose weight gradient is guarded."""
    y: Tensor = _GuardedLinear.apply(  # type: ignore[no-untyped-call]
        x_BI, weight_OI, guard
    )
    return y


def guarded_conv2d(
    x_BCHW: Tensor, weight_OIHW: Tensor, scale: float, stride: Pair, padding: Pair, guard: Guard, groups: int = 1
) -> Tensor:
    """Zero-padded convolution with ``scale * weight`` whose gradient in ``weight`` is guarded.

    With groups, (1) for the whole input and cotangent bounds the norm of all groups together (Cauchy-Schwarz).
    """
    y: Tensor = _GuardedConv2d.apply(  # type: ignore[no-untyped-call]
        x_BCHW, weight_OIHW, scale, stride, padding, guard, groups
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
        grad_weight = None
        if ctx.needs_input_grad[1]:
            if ctx.guard.exact and x.dim() == 3:
                g, grad_weight = _exact_sum(g, x, lambda g_BTO, x_BTI: g_BTO.mT @ x_BTI, row_norms(x), ctx.guard)
            else:  # on one vector (1) is exact
                x, g = _guard_rows(x, g, row_norms(x), row_norms(g), ctx.guard)
                grad_weight = g.flatten(0, -2).mT @ x.flatten(0, -2)
        grad_x = g @ weight_OI if ctx.needs_input_grad[0] else None
        return grad_x, grad_weight, None


class _GuardedConv2d(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, scale: float, stride: Pair, padding: Pair, guard: Guard, groups: int
    ) -> Tensor:
        ctx.scale, ctx.stride, ctx.padding, ctx.guard, ctx.groups = scale, stride, padding, guard, groups
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight * scale, stride=stride, padding=padding, groups=groups)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        exact_sum = None
        if needs_weight:
            kernel = tuple(weight.shape[-2:])
            patch_norm_B = _patch_norms(x, kernel, ctx.stride, ctx.padding)
            if ctx.guard.exact:

                def gradients(g_BOHW: Tensor, x_BCHW: Tensor) -> Tensor:
                    patches = F.unfold(x_BCHW, kernel, padding=ctx.padding, stride=ctx.stride)
                    g_BGOL, x_BGPL = (t.unflatten(1, (ctx.groups, -1)) for t in (g_BOHW.flatten(2), patches))
                    rows: Tensor = ctx.scale * (g_BGOL @ x_BGPL.mT)
                    return rows

                g, exact_sum = _exact_sum(g, x, gradients, patch_norm_B, ctx.guard)
            else:
                x, g = _guard_rows(x, g, patch_norm_B, ctx.scale * row_norms(g), ctx.guard)
        grad_x, grad_weight, _ = torch.ops.aten.convolution_backward(
            g,
            x,
            weight * ctx.scale,
            None,
            ctx.stride,
            ctx.padding,
            (1, 1),
            False,
            (0, 0),
            ctx.groups,
            [needs_x, needs_weight and exact_sum is None, False],
        )
        if exact_sum is not None:
            grad_weight = exact_sum.view_as(weight)
        elif needs_weight:
            grad_weight = grad_weight * ctx.scale
        return grad_x, grad_weight, None, None, None, None, None


def _guard_rows(
    x: Tensor, g: Tensor, input_norm_B: Tensor, cotangent_norm_B: Tensor, guard: Guard
) -> tuple[Tensor, Tensor]:
    """Select rows with a non-finite norm away from both operands, and scale the rows of ``x``.

    The scale sits on the input, so that the same cotangent serves the input's gradient, unscaled.
    """
    bound_B = input_norm_B * cotangent_norm_B
    finite_B = bound_B.isfinite()
    if guard.normalise:
        scale_B = (guard.sensitivity / cotangent_norm_B).clamp(max=1.0) / input_norm_B
    else:
        scale_B = (guard.sensitivity / bound_B).clamp(max=1.0)
    scale_B = torch.where(finite_B, scale_B, 0.0)
    return select_rows(finite_B, x) * column_of(scale_B, x), select_rows(finite_B, g)


def _exact_sum(
    g: Tensor, x: Tensor, gradients: Callable[[Tensor, Tensor], Tensor], input_norm_B: Tensor, guard: Guard
) -> tuple[Tensor, Tensor]:
    """Sum per-example gradients that are clipped by their own norms; rows that are not finite are left out.

    Args:
        g: (B, ...) cotangents.
        x: (B, ...) inputs.
        gradients: of rows of ``g`` and ``x``, (B, ...) with what belongs to an example in its row.
        input_norm_B: norms of the inputs, for ``guard.normalise``.
        guard: of the parameter.

    Returns:
        The cotangents without the rows left out, and the sum.
    """
    entries = gradients(g[:1], x[:1]).numel() or 1
    total, kept = gradients(g[:0], x[:0]).sum(dim=0), []
    parts = (t.split(max(1, _FORMED_ENTRIES // entries)) for t in (g, x, input_norm_B))
    for g_part, x_part, input_norm_part in zip(*parts, strict=True):
        rows = gradients(g_part, x_part)
        unit = 1.0 / input_norm_part if guard.normalise else torch.ones_like(input_norm_part)
        norm_B = row_norms(rows) * unit
        finite_B = norm_B.isfinite()
        scale_B = torch.where(finite_B, (guard.sensitivity / norm_B).clamp(max=1.0) * unit, 0.0)
        total += torch.tensordot(scale_B, select_rows(finite_B, rows), dims=1)
        kept.append(finite_B)
    return select_rows(torch.cat(kept), g), total


def select_rows(keep_B: Tensor, x: Tensor) -> Tensor:
    """Rows of ``x`` where ``keep_B``, zeros elsewhere: by masking bits, in one pass and whatever the row holds.

    Where looking at the answer costs nothing (a CPU waits for no device), the pass is saved if every row is kept.
    """
    if x.device.type == "cpu" and bool(keep_B.all()):
        return x
    bits = torch.int32 if x.dtype == torch.float32 else torch.int64
    mask_B = -keep_B.to(bits)
    selected: Tensor = x.contiguous().view(bits) & column_of(mask_B, x)
    return selected.view(x.dtype)


def column_of(values_B: Tensor, like: Tensor) -> Tensor:
    """One value for each row of ``like``, shaped so that it multiplies the whole row."""
    return values_B.view(-1, *[1] * (like.dim() - 1))


def row_norms(x: Tensor) -> Tensor:
    """Euclidean norm of each row over everything but the batch axis, never below the true one by underflow."""
    return _norms(x.flatten(1)) + _UNDERFLOW_NORM * sqrt(x[0].numel())


def _norms(x_BN: Tensor) -> Tensor:
    """Norms of rows by blocks: one running float32 sum of millions of like squares comes out too small."""
    whole = x_BN.shape[1] - x_BN.shape[1] % _BLOCK
    if whole == 0:
        norm_B: Tensor = torch.linalg.vector_norm(x_BN, dim=1)
        return norm_B
    blocks_BK = torch.linalg.vector_norm(x_BN[:, :whole].unflatten(1, (-1, _BLOCK)), dim=2)
    rest_B1 = torch.linalg.vector_norm(x_BN[:, whole:], dim=1, keepdim=True)
    return _norms(torch.cat([blocks_BK, rest_B1], dim=1))


def _patch_norms(x_BCHW: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    """Norm of all patches of an example together: each element counts once per patch that contains it."""
    size = (x_BCHW.shape[-2], x_BCHW.shape[-1])
    return row_norms(x_BCHW * _patch_weights(size, kernel, stride, padding, x_BCHW.device, x_BCHW.dtype))


@lru_cache(maxsize=256)
def _patch_weights(
    size: Pair, kernel: Pair, stride: Pair, padding: Pair, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Root of the patch counts, on the device where it is needed step after step."""
    return patch_counts(size, kernel, stride, padding).to(device, dtype).sqrt()


@lru_cache(maxsize=256)
def patch_counts(size: Pair, kernel: Pair, stride: Pair, padding: Pair) -> Tensor:
    """How many patches contain each input element, by folding ones: float32 (H, W) on the CPU."""
    ones = torch.ones(1, 1, *size)
    patches = F.unfold(ones, kernel, padding=padding, stride=stride)
    folded = F.fold(torch.ones_like(patches), size, kernel, padding=padding, stride=stride)
    return folded[0, 0]
