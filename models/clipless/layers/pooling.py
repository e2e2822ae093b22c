"""Pooling. Shape letters: B batch, C channels, H height, W width."""

from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Below this root, squares have lost their digits to underflow: the gradient there is set to zero.
_SMALLEST_ROOT = 1e-15


@final
class L2Pool2d(nn.Module):
    """Euclidean norm of each window, stride = window; rows and columns that fill no window are dropped.

    Args:
        window: side of the square window.
    """

    def __init__(self, window: int = 2) -> None:
        super().__init__()
        if not window >= 1:
            raise ValueError(f"Expected window >= 1, got window={window!r} (L2Pool2d)")
        self.window = window

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"window": self.window}

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Pool (B, C, H, W) to (B, C, H // window, W // window)."""
        y: Tensor = _L2Pool2d.apply(x_BCHW, self.window)  # type: ignore[no-untyped-call]
        return y


class _L2Pool2d(torch.autograd.Function):
    """The derivative x / y is 0/0 at y = 0; it is taken as 0 there, by selection."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, window: int) -> Tensor:
        return F.avg_pool2d(x.square(), window, divisor_override=1).sqrt_()

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        x, ctx.window = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    def backward(ctx, g):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN205
        x, y = ctx.saved_tensors
        ratio = torch.where(y > _SMALLEST_ROOT, g / y, 0.0)
        spread = ratio.repeat_interleave(ctx.window, dim=-2).repeat_interleave(ctx.window, dim=-1)
        missing = [x.shape[-1] - spread.shape[-1], x.shape[-2] - spread.shape[-2]]
        if any(missing):
            spread = F.pad(spread, (0, missing[0], 0, missing[1]))
        return x * spread, None
