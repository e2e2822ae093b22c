"""The guard of convolutions: the gradient of a kernel, summed exactly from digits of maps and of cotangents.

(1) and the symbols are those of `clipless.guards.guard`. An input entry that belongs to several patches counts as often
in norms and in what rounding may add.

Shape letters: B batch, C, I input channels, O output channels, H, W positions, G groups, P patch entries, L places,
K summed, N kept.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clipless.guards.exact_sums import (
    QuantisedOperand,
    WeightedSum,
    integer_product,
    outer_grid,
    outer_sum,
    row_norms,
    select_rows,
    two_digits,
)
from clipless.guards.guard import Guard, add_formed

# Digits of patches and cotangents that are multiplied at once: they stay in the caches.
_DIGITS_AT_ONCE = 2**23

Pair = tuple[int, int]


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
        if ctx.needs_input_grad[1]:
            g = _conv_sum(ctx, g, x, (weight.shape[-2], weight.shape[-1]))
        grad_x = None
        if ctx.needs_input_grad[0]:
            geometry = ctx.stride, ctx.padding, (1, 1), False, (0, 0), ctx.groups
            wanted = [True, False, False]
            grad_x, _, _ = torch.ops.aten.convolution_backward(g, x, weight * ctx.scale, None, *geometry, wanted)
        return grad_x, None, None, None, None, None, None


def _conv_sum(ctx: Any, g: Tensor, x: Tensor, kernel: Pair) -> Tensor:
    """Give the guard of a convolution its sum; return the cotangents without the rows left out."""
    stride, padding, guard, groups = ctx.stride, ctx.padding, ctx.guard, ctx.groups
    weights = _patch_weights((x.shape[-2], x.shape[-1]), kernel, stride, padding, x.device, x.dtype)
    if not guard.exact and groups == 1:
        parts = zip(*(t.split(rows_at_once(g, x, kernel)) for t in (g, x)), strict=True)
        sums, kept = zip(*(_conv_part(ctx, g_n, x_n, kernel, weights) for g_n, x_n in parts), strict=True)
        guard.add(chain.from_iterable(sums))
        return select_rows(torch.cat(kept), g)

    def gradients(g_BOHW: Tensor, x_BCHW: Tensor) -> Tensor:
        patches = F.unfold(x_BCHW, kernel, padding=padding, stride=stride)
        g_BGOL, x_BGPL = (t.unflatten(1, (groups, -1)) for t in (g_BOHW.flatten(2), patches))
        rows: Tensor = ctx.scale * (g_BGOL @ x_BGPL.mT)
        return rows

    patch_norm_B = row_norms(x * weights)
    bound_B = None if guard.exact else patch_norm_B.double() * row_norms(g).double() * ctx.scale
    return add_formed(guard, g, x, gradients, patch_norm_B, bound_B)


def rows_at_once(g_BOHW: Tensor, x_BIHW: Tensor, kernel: Pair) -> int:
    """Return of how many rows the digits of patches and cotangents stay in the caches."""
    patches = g_BOHW[0, 0].numel() * kernel[0] * kernel[1] * x_BIHW.shape[1]
    return max(1, _DIGITS_AT_ONCE // (2 * patches + g_BOHW[0].numel()))


def _conv_part(ctx: Any, g: Tensor, x: Tensor, kernel: Pair, weights: Tensor) -> tuple[list[WeightedSum], Tensor]:
    """Return the sum of some rows, and which of them are finite."""
    patch_entries = g[0, 0].numel() * kernel[0] * kernel[1] * x.shape[1]
    step = outer_grid(ctx.guard.sensitivity, g[0].numel(), patch_entries)
    digits, patch_norm_B = QuantisedOperand(g), row_norms(x * weights).double()
    keep_B = digits.finite_B & patch_norm_B.isfinite()
    bound_B = torch.where(keep_B, digits.norm_B * digits.step_B * patch_norm_B * ctx.scale, float("inf"))
    scale_B = ctx.guard.scales(bound_B, patch_norm_B, digits.rounding(step, patch_entries)) * ctx.scale

    def product(g_BOHW: Tensor, x_BIHW: Tensor) -> Sequence[Tensor]:
        return conv_product(g_BOHW, x_BIHW, kernel, ctx.stride, ctx.padding)

    return outer_sum(digits, select_rows(keep_B, x), scale_B, step, product), keep_B


def conv_product(g_BOHW: Tensor, x_BIHW: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Sequence[Tensor]:
    """Products of digits g and the digits of x over patches, (O, I, kernel height, kernel width) each."""
    (channels, *_), size = x_BIHW.shape[1:], list(g_BOHW.shape[2:])
    digits = x_BIHW.new_empty((len(x_BIHW), 2 * channels, *x_BIHW.shape[2:]), dtype=torch.int8)
    two_digits(x_BIHW, *digits.chunk(2, dim=1))
    g_OBHW = digits.new_empty((g_BOHW.shape[1], len(g_BOHW), *size)).copy_(g_BOHW.transpose(0, 1))
    g_OK = g_OBHW.flatten(1)
    if channels * kernel[1] < 16:
        patches_KN = _rows_of_maps(digits, kernel, stride, padding, size)
        sums = integer_product(g_OK, patches_KN).unflatten(1, (2 * channels, *kernel))
        return sums[:, :channels], sums[:, channels:]
    patches_KN = _rows_of_channels(digits, kernel, stride, padding, size)
    sums = integer_product(g_OK, patches_KN).unflatten(1, (*kernel, -1)).movedim(3, 1)
    return sums[:, :channels], sums[:, channels:]


def _rows_of_maps(x_BCHW: Tensor, kernel: Pair, stride: Pair, padding: Pair, size: list[int]) -> Tensor:
    """Patches as (K, N), N in the order channel, row, column: copied along rows of maps, quick with few channels."""
    batch, channels = x_BCHW.shape[:2]
    padded_CBHW = F.pad(x_BCHW.transpose(0, 1), (padding[1], padding[1], padding[0], padding[0]))
    patches = x_BCHW.new_empty((channels, *kernel, batch, *size))
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            rows = slice(i, i + stride[0] * (size[0] - 1) + 1, stride[0])
            columns = slice(j, j + stride[1] * (size[1] - 1) + 1, stride[1])
            patches[:, i, j] = padded_CBHW[:, :, rows, columns]
    return patches.view(channels * kernel[0] * kernel[1], -1).mT


def _rows_of_channels(x_BCHW: Tensor, kernel: Pair, stride: Pair, padding: Pair, size: list[int]) -> Tensor:
    """Patches as (K, N), N in the order row, column, channel: copied along channels, quick with many of them."""
    padded_BHWC = F.pad(x_BCHW.permute(0, 2, 3, 1), (0, 0, padding[1], padding[1], padding[0], padding[0]))
    (_, height, width, entries), flat = padded_BHWC.shape, padded_BHWC.flatten()
    if entries % 8 == 0:
        flat, entries = flat.view(torch.int64), entries // 8  # eight at once
    line = width * entries
    shape = (len(x_BCHW), *size, kernel[0], kernel[1] * entries)
    strides = (height * line, stride[0] * line, stride[1] * entries, line, 1)
    return flat.as_strided(shape, strides).reshape(-1, kernel[0] * shape[4]).view(torch.int8)


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
