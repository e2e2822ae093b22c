"""Clipping of cotangents between layers. Shape letters: B batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import Tensor

from clipless.guards.exact_sums import row_norms
from clipless.layers._base import Layer
from clipless.scalars import Scalar, on_host


@final
class ClipGradient(Layer):
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
        self._factor: Scalar = 1.0
        self._indicators: list[Tensor] | None = None

    @property
    def current_norm(self) -> Scalar:
        """The norm that cotangents are clipped to now: C, or less inside `lowered`."""
        return self.norm * self._factor

    @contextmanager
    def lowered(self, factor: Scalar, *, counting: bool = False) -> Iterator[None]:
        """Clip to ``factor`` C inside the block.

        Args:
            factor: in (0, 1].
            counting: keep, for `take_indicators`, whether each row stayed below. Depends on the rows: to be released
                with noise only, see `clipless.plans.clipping`.
        """
        if on_host(factor) and not 0 < factor <= 1:
            raise ValueError(f"Expected 0 < factor <= 1, got factor={factor!r} (ClipGradient)")
        self._factor, self._indicators = factor, [] if counting else None
        try:
            yield
        finally:
            self._factor, self._indicators = 1.0, None

    def take_indicators(self) -> list[Tensor]:
        """Return and forget, for each backward pass, (B,) values: 1/2 where the norm was at most C, -1/2 elsewhere."""
        taken, self._indicators = self._indicators or [], []
        return taken

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` (B, ...)."""
        y: Tensor = _ClipRows.apply(x, self.current_norm, self._indicators)  # type: ignore[no-untyped-call]
        return y


class _ClipRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: Scalar, indicators: list[Tensor] | None) -> Tensor:
        ctx.norm, ctx.indicators = norm, indicators
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        norm_B = row_norms(g)
        finite_B = norm_B.isfinite()
        if ctx.indicators is not None:
            ctx.indicators.append(torch.where(norm_B <= ctx.norm, 0.5, -0.5))  # NaN is not below
        scale_B = torch.where(finite_B, (ctx.norm / norm_B).clamp(max=1.0), 0.0)
        column = (-1, *[1] * (g.dim() - 1))
        return torch.where(finite_B.view(column), g, 0.0) * scale_B.view(column), None, None
