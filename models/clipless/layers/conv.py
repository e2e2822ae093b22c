"""Convolutions. Shape letters: B batch, I input channels, O output channels, H height, W width."""

from math import ceil
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipless.guard import GuardedLayer, Pair, guarded_conv2d
from clipless.projections import Constraint, Orthogonal


@final
class Conv2d(GuardedLayer):
    r"""Zero-padded convolution with the kernel ``K / sqrt(m)`` (reshaped-kernel form, RKO).

    ``m = ceil(h / s) ceil(w / s)`` bounds the number of patches that contain one input element, so the
    operator norm is at most the spectral norm of ``K`` reshaped to (O, I h w), which the constraint keeps
    small. With stride = kernel, m is 1 and an orthogonal ``K`` gives an orthogonal layer.

    Args:
        in_channels: I.
        out_channels: O.
        kernel_size: (h, w), or one number for both.
        stride: step, or one number for both directions.
        padding: zeros added on each side, or one number for both directions.
        constraint: the set that the reshaped kernel is projected onto after each step.
        generator: draws the initial kernel; a public generator.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Pair,
        stride: int | Pair = 1,
        padding: int | Pair = 0,
        constraint: Constraint | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _pair(kernel_size)
        self.stride = _pair(stride)
        self.padding = _pair(padding)
        self.constraint = constraint or Orthogonal()
        overlaps = [ceil(k / s) for k, s in zip(self.kernel_size, self.stride, strict=True)]
        self.scale = (overlaps[0] * overlaps[1]) ** -0.5
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *self.kernel_size))
        nn.init.orthogonal_(self.weight, gain=self.constraint.radius, generator=generator)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {
            "in_channels": self.in_channels,
            "out_channels": self.out_channels,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": self.padding,
            "constraint": self.constraint,
        }

    def forward(self, x_BIHW: Tensor) -> Tensor:
        """Apply the layer; inside a private step the kernel's gradient passes the guard."""
        if self.sensitivities is None or not self.weight.requires_grad:
            return F.conv2d(x_BIHW, self.weight * self.scale, stride=self.stride, padding=self.padding)
        delta = self.sensitivities["weight"]
        return guarded_conv2d(x_BIHW, self.weight, self.scale, self.stride, self.padding, delta)

    @torch.no_grad()
    def project(self) -> None:
        """Put the reshaped kernel back into its constraint set."""
        matrix = self.constraint.project(self.weight.flatten(1))
        self.weight.copy_(matrix.view_as(self.weight))


def _pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
