"""Clipping of cotangents between layers. Shape letters: B batch."""

from typing import Any, final

import torch
from torch import Tensor, nn

from clipless.guard import row_norms


@final
class ClipGradient(nn.Module):
    """The identity, whose backward scales each example's cotangent to a norm of at most C.

    This *is* gradient clipping, once per example and not per example and parameter: it biases gradients wherever it
    acts. In return the sensitivities of all layers before it start from ``min(reach, C)``, and the noise falls with
    them. Certificates are not touched: forwards it is the identity. Label results as clipped.

    Args:
        norm: C, positive and finite. A public number.

    Guarantees:
        Each row of the cotangent depends on that row alone and has norm at most C up to rounding; a row that is not
        finite becomes zero.
    """

    def __init__(self, norm: float) -> None:
        super().__init__()
        if not 0 < norm < float("inf"):
            raise ValueError(f"Expected 0 < norm < inf, got norm={norm!r} (ClipGradient)")
        self.norm = float(norm)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"norm": self.norm}

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` (B, ...)."""
        y: Tensor = _ClipRows.apply(x, self.norm)  # type: ignore[no-untyped-call]
        return y


class _ClipRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: float) -> Tensor:
        ctx.norm = norm
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        norm_B = row_norms(g)
        finite_B = norm_B.isfinite()
        scale_B = torch.where(finite_B, (ctx.norm / norm_B).clamp(max=1.0), 0.0)
        column = (-1, *[1] * (g.dim() - 1))
        return torch.where(finite_B.view(column), g, 0.0) * scale_B.view(column), None
