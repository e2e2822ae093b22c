"""Convolutions.

Shape letters: B batch, G groups, I input channels, O output channels, H height, W width, T time steps, L places.
"""

from math import ceil
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clipless.guards.convolution import Pair, guarded_conv2d
from clipless.layers._base import BiasedLayer, add_bias, add_bias_parameter, bias_config, project_bias
from clipless.projections import Constraint, Orthogonal, initial_gain


class Convolution(BiasedLayer):
    """The base of `Conv1d` and `Conv2d`: geometry as pairs, the kernel's scale, guard and projection.

    With groups, each group's reshaped kernel is in the constraint set; the operator is block diagonal, so that its
    norm is the largest of the groups' norms.
    """

    weight: nn.Parameter

    def __init__(
        self, in_channels: int, out_channels: int, constraint: Constraint | None, groups: int, padding_mode: str
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if not (groups >= 1 and in_channels % groups == 0 and out_channels % groups == 0):
            raise ValueError(
                f"Expected groups that divide {in_channels} and {out_channels} channels, got groups={groups!r} ({name})"
            )
        if padding_mode not in ("zeros", "circular"):
            raise ValueError(f"Expected padding_mode 'zeros' or 'circular', got {padding_mode!r} ({name})")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.constraint = constraint or Orthogonal()
        self.groups = groups
        self.padding_mode = padding_mode

    def _set_geometry(
        self, kernel: Pair, stride: Pair, padding: Pair, generator: torch.Generator | None, bias_norm: float | None
    ) -> None:
        """Draw the kernel once the geometry is known; the order of arguments is (height, width)."""
        if self.padding_mode == "circular" and not (
            stride == (1, 1) and all(2 * p == k - 1 for k, p in zip(kernel, padding, strict=True))
        ):
            raise ValueError(
                "Expected stride 1 and padding (kernel_size - 1) / 2 for circular padding, got "
                f"kernel_size={kernel}, stride={stride}, padding={padding} ({type(self).__name__})"
            )
        self.geometry = kernel, stride, padding
        overlaps = [ceil(k / s) for k, s in zip(kernel, stride, strict=True)]
        self.scale = float((overlaps[0] * overlaps[1]) ** -0.5)
        for group in self.weight.detach().chunk(self.groups):
            nn.init.orthogonal_(group, gain=initial_gain(self.constraint), generator=generator)
        add_bias_parameter(self, self.out_channels, bias_norm)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments; those of later versions only where they are used."""
        names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "constraint")
        config: dict[str, Any] = {**{name: getattr(self, name) for name in names}, **bias_config(self)}
        if self.groups != 1:
            config["groups"] = self.groups
        if self.padding_mode != "zeros":
            config["padding_mode"] = self.padding_mode
        return config

    def _convolve(self, x_BIHW: Tensor, weight_OIHW: Tensor) -> Tensor:
        _, stride, padding = self.geometry
        if self.padding_mode == "circular":
            x_BIHW, padding = _wrap(x_BIHW, padding), (0, 0)
        if self.guards is None or not self.weight.requires_grad:
            y = F.conv2d(x_BIHW, weight_OIHW * self.scale, stride=stride, padding=padding, groups=self.groups)
        else:
            guard = self.guards["weight"]
            y = guarded_conv2d(x_BIHW, weight_OIHW, self.scale, stride, padding, guard, self.groups)
        return add_bias(self, y, axis=1)

    def patches(self, x: Tensor) -> Tensor:
        """Return the patches of G groups at L places, (B, G, patch entries, L), for reshaped kernels."""
        kernel, stride, padding = self.geometry
        x_BIHW = x if x.dim() == 4 else x.unsqueeze(2)
        if self.padding_mode == "circular":
            x_BIHW, padding = _wrap(x_BIHW, padding), (0, 0)
        patches: Tensor = F.unfold(x_BIHW, kernel, padding=padding, stride=stride).unflatten(1, (self.groups, -1))
        return patches

    @torch.no_grad()
    def project(self) -> None:
        """Put the reshaped kernel of each group, and the bias, back into their constraint sets."""
        if self.weight.requires_grad:
            matrices = self.weight.view(self.groups, self.out_channels // self.groups, -1)
            if self.groups == 1:
                projected = self.constraint.project(matrices[0])
            else:
                projected = torch.vmap(self.constraint.project)(matrices)
            self.weight.copy_(projected.view_as(self.weight))
        project_bias(self)


@final
class Conv2d(Convolution):
    r"""Convolution with the kernel ``K / sqrt(m)`` (reshaped-kernel form, RKO).

    ``m = ceil(h / s) ceil(w / s)`` bounds the number of patches that contain one input element, so the
    operator norm is at most the spectral norm of ``K`` reshaped to (O, I h w), which the constraint keeps
    small. With stride = kernel, m is 1 and an orthogonal ``K`` gives an orthogonal layer.

    Args:
        kernel_size: (h, w), or one number for both.
        stride: step, or one number for both directions.
        padding: entries added on each side, or one number for both directions.
        constraint: the set that the reshaped kernel is projected onto after each step.
        generator: draws the initial kernel; a public generator.
        groups: groups of channels that are convolved apart; I for a depthwise convolution.
        padding_mode: ``zeros``, or ``circular`` at stride 1 where the size is kept.
        bias: whether each output channel has a bias; they start at 0.
        bias_norm: radius of the ball that the biases are projected onto after each step. A public number.
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
        *,
        groups: int = 1,
        padding_mode: str = "zeros",
        bias: bool = False,
        bias_norm: float = 1.0,
    ) -> None:
        super().__init__(in_channels, out_channels, constraint, groups, padding_mode)
        self.kernel_size = _pair(kernel_size)
        self.stride = _pair(stride)
        self.padding = _pair(padding)
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels // groups, *self.kernel_size))
        self._set_geometry(self.kernel_size, self.stride, self.padding, generator, bias_norm if bias else None)

    def forward(self, x_BIHW: Tensor) -> Tensor:
        """Apply the layer; inside a private step the gradients of kernel and bias pass their guards."""
        return self._convolve(x_BIHW, self.weight)


@final
class Conv1d(Convolution):
    """`Conv2d` along one axis, for time series: the same arguments, with one number where that takes a pair."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        constraint: Constraint | None = None,
        generator: torch.Generator | None = None,
        *,
        groups: int = 1,
        padding_mode: str = "zeros",
        bias: bool = False,
        bias_norm: float = 1.0,
    ) -> None:
        super().__init__(in_channels, out_channels, constraint, groups, padding_mode)
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels // groups, kernel_size))
        self._set_geometry((1, kernel_size), (1, stride), (0, padding), generator, bias_norm if bias else None)

    def forward(self, x_BIT: Tensor) -> Tensor:
        """Apply the layer; inside a private step the gradients of kernel and bias pass their guards."""
        return self._convolve(x_BIT.unsqueeze(2), self.weight.unsqueeze(2)).squeeze(2)


def _pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def _wrap(x_BIHW: Tensor, padding: Pair) -> Tensor:
    """Continue the map periodically by ``padding`` on each side; the padding is smaller than the map."""
    for axis, width in zip((2, 3), padding, strict=True):
        if width:
            size = x_BIHW.shape[axis]
            ends = x_BIHW.narrow(axis, size - width, width), x_BIHW.narrow(axis, 0, width)
            x_BIHW = torch.cat((ends[0], x_BIHW, ends[1]), dim=axis)
    return x_BIHW
