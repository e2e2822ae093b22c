"""Pooling. Shape letters: B batch, C channels, H height, W width."""

from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from clipless.layers._base import Layer

# Below this root squares lose digits to underflow; dividing by it instead keeps the Jacobian's norm under one.
_SMALLEST_ROOT = 1e-15


class _Pool2d(Layer):
    """Pools square windows, stride = window; rows and columns that fill no window are dropped."""

    def __init__(self, window: int = 2) -> None:
        super().__init__()
        if not window >= 1:
            raise ValueError(f"Expected window >= 1, got window={window!r} ({type(self).__name__})")
        self.window = window


@final
class L2Pool2d(_Pool2d):
    """Euclidean norm of each window, stride = window; rows and columns that fill no window are dropped."""

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Pool (B, C, H, W) to (B, C, H // window, W // window)."""
        y: Tensor = _L2Pool2d.apply(x_BCHW, self.window)  # type: ignore[no-untyped-call]
        return y


@final
class MaxPool2d(_Pool2d):
    """Largest element of each window, stride = window; rows and columns that fill no window are dropped."""

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Pool (B, C, H, W) to (B, C, H // window, W // window)."""
        y: Tensor = F.max_pool2d(x_BCHW, self.window)
        return y


@final
class AvgPool2d(_Pool2d):
    """Mean of each window, stride = window; rows and columns that fill no window are dropped.

    Args:
        scaled: multiply by the window, which makes the operator norm 1 where that of the mean is 1 / window.
    """

    def __init__(self, window: int = 2, *, scaled: bool = False) -> None:
        super().__init__(window)
        self.scaled = scaled

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Pool (B, C, H, W) to (B, C, H // window, W // window)."""
        y = F.avg_pool2d(x_BCHW, self.window)
        scaled: Tensor = y * self.window if self.scaled else y
        return scaled


@final
class GlobalL2Pool2d(Layer):
    """Euclidean norm of each channel's whole map; the derivative of a zero map is 0."""

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Pool (B, C, H, W) to (B, C)."""
        y: Tensor = _GlobalL2Pool2d.apply(x_BCHW)  # type: ignore[no-untyped-call]
        return y


class _GlobalL2Pool2d(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y: Tensor = x.square().sum(dim=(-2, -1)).sqrt()
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, y = ctx.saved_tensors
        grad: Tensor = x * (g / y.clamp(min=_SMALLEST_ROOT))[..., None, None]
        return grad


class _L2Pool2d(torch.autograd.Function):
    """The derivative x / y is 0/0 at y = 0; with y bounded from below it is 0 there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, window: int) -> Tensor:
        columns = x.shape[-1] // window * window
        rows = x[..., : x.shape[-2] // window * window, :columns].unflatten(-2, (-1, window)).unbind(-2)
        squares = rows[0].square()
        for row in rows[1:]:
            squares.addcmul_(row, row)
        total: Tensor = squares[..., ::window].clone()
        for offset in range(1, window):
            total += squares[..., offset::window]
        ctx.window = window
        ctx.save_for_backward(x, total.sqrt_())
        return total

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, y = ctx.saved_tensors
        ratio = g / y.clamp(min=_SMALLEST_ROOT)
        ratio = torch.stack([ratio] * ctx.window, dim=-1).flatten(-2).unsqueeze(-2)
        height, width = x.shape[-2:]
        rows, columns = height // ctx.window * ctx.window, width // ctx.window * ctx.window
        grad = (x[..., :rows, :columns].unflatten(-2, (-1, ctx.window)) * ratio).flatten(-3, -2)
        return F.pad(grad, (0, width - columns, 0, height - rows)) if grad.shape != x.shape else grad, None
