"""The scattering transform, fixed by formulas. Shape letters: B batch, C channels, H height, W width, K features."""

from collections.abc import Sequence
from math import ceil, isfinite
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor

from clipless.layers._base import Layer
from clipless.layers._wavelets import average, average_padding, scattering_lipschitz, wavelet_radius, wavelets

# Below this root squares lose digits to underflow; dividing by it instead keeps the Jacobian's norm under one.
_SMALLEST_ROOT = 1e-15
# Entries of the largest map held at once: rows beyond them wait, which bounds memory and suits the caches.
_ENTRIES = 2**22


@final
class Scattering2d(Layer):
    """Averages of an image, of its wavelet moduli and of theirs, on a grid coarser by ``2**scales``.

    Has no parameters: filters follow from the arguments (`clipless.layers._wavelets`). Images are padded with zeros,
    never by reflection, which enlarges norms. Each input channel is treated alone. Channels of the output, of
    each input channel: the average; for each scale from fine to coarse its ``orientations`` first-order
    moduli, each followed by those of second order that come from it. (Bruna and Mallat 2013, arXiv 1203.1513;
    as a front for private training: Tramer and Boneh 2021, arXiv 2011.11660.)

    Args:
        size: (H, W) of the images.
        scales: J, octaves; the output has ``ceil(H / 2**J) x ceil(W / 2**J)`` positions.
        orientations: angles of the wavelets.
        gains: factor of the channels of each order, from order 0 up to the highest one computed, 1 or 2; public
            numbers, at least 0 and not all 0.

    Guarantees:
        ``lipschitz`` bounds from above how far the map can enlarge a distance; row i of the output depends on
        row i of the input alone; the gradient of a modulus at 0 is 0, never NaN.
    """

    def __init__(
        self, size: Sequence[int], scales: int = 2, orientations: int = 8, gains: Sequence[float] = (1.0, 1.0, 1.0)
    ) -> None:
        super().__init__()
        self.size = _check_size(size)
        self.scales = _check_integer("scales", scales, 1, 4)
        self.orientations = _check_integer("orientations", orientations, 1, 32)
        self.gains = _check_gains(gains)
        for scale in range(scales):
            self.register_buffer(f"wavelets_{scale}", wavelets(scale, orientations).clone(), persistent=False)
            self.register_buffer(f"average_{scale + 1}", average(scale + 1).clone(), persistent=False)

    @property
    def order(self) -> int:
        """The largest number of moduli on a path."""
        return len(self.gains) - 1

    @property
    def lipschitz(self) -> float:
        """Upper bound on the Lipschitz constant from images to features, gains included."""
        return scattering_lipschitz(self._padded_size(), self.scales, self.orientations, self.gains)

    def output_shape(self, channels: int) -> tuple[int, int, int]:
        """Shape of the features of one image with ``channels`` channels."""
        paths = 1 + self.scales * self.orientations
        if self.order == 2:
            paths += self.orientations**2 * self.scales * (self.scales - 1) // 2
        height, width = (n // 2**self.scales for n in self._padded_size())
        return channels * paths, height, width

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """Return the features (B, C K, ceil(H / 2**J), ceil(W / 2**J)).

        Raises:
            ValueError: images of another size than the constructor was told.
        """
        if x_BCHW.dim() != 4 or tuple(x_BCHW.shape[2:]) != self.size:
            raise ValueError(f"Expected images of size {self.size}, got shape {tuple(x_BCHW.shape)} (Scattering2d)")
        height, width = self._padded_size()
        x_BCHW = F.pad(x_BCHW, (0, width - self.size[1], 0, height - self.size[0]))
        channels = x_BCHW.shape[1]
        rows = max(1, _ENTRIES // (channels * 2 * self.orientations * height * width))
        features = torch.cat([self._paths(part.flatten(0, 1)[:, None], 0, 0) for part in x_BCHW.split(rows)])
        merged: Tensor = features.unflatten(0, (-1, channels)).flatten(1, 2)
        return merged

    def _padded_size(self) -> tuple[int, int]:
        height, width = (ceil(n / 2**self.scales) * 2**self.scales for n in self.size)
        return height, width

    def _paths(self, u_N1HW: Tensor, level: int, order: int) -> Tensor:
        """Return the features of every path that continues from ``u``, a map on the grid of scale ``level``."""
        octaves = self.scales - level
        smooth: Tensor = self.get_buffer(f"average_{octaves}")
        found = [F.conv2d(u_N1HW, smooth, stride=2**octaves, padding=average_padding(octaves)) * self.gains[order]]
        finest = level if order == 0 else level + 1
        for scale in range(finest, self.scales) if order < self.order else ():
            step = scale - level
            bank: Tensor = self.get_buffer(f"wavelets_{step}")
            radius = wavelet_radius(step, self.orientations)
            parts = F.conv2d(u_N1HW, bank, stride=2**step, padding=radius).chunk(2, dim=1)
            moduli: Tensor = _Modulus.apply(*parts)  # type: ignore[no-untyped-call]
            deeper = self._paths(moduli.flatten(0, 1)[:, None], scale, order + 1)
            found.append(deeper.unflatten(0, (-1, self.orientations)).flatten(1, 2))
        return torch.cat(found, dim=1)


class _Modulus(torch.autograd.Function):
    """``sqrt(a^2 + b^2)``, whose derivative is 0/0 at 0; with the root bounded from below it is 0 there."""

    @staticmethod
    def forward(ctx: Any, real: Tensor, imaginary: Tensor) -> Tensor:
        y = torch.hypot(real, imaginary)
        ctx.save_for_backward(real, imaginary, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        real, imaginary, y = ctx.saved_tensors
        ratio = g / y.clamp(min=_SMALLEST_ROOT)
        return real * ratio, imaginary * ratio


def _check_integer(name: str, value: int, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"Expected an integer {low} <= {name} <= {high}, got {name}={value!r} (Scattering2d)")
    return value


def _check_size(size: Sequence[int]) -> tuple[int, int]:
    if not (isinstance(size, tuple | list) and len(size) == 2 and all(type(n) is int and 1 <= n <= 256 for n in size)):
        raise ValueError(f"Expected size=(H, W), integers from 1 to 256, got size={size!r} (Scattering2d)")
    return size[0], size[1]


def _check_gains(gains: Sequence[float]) -> tuple[float, ...]:
    numbers = isinstance(gains, tuple | list) and all(type(gain) in (int, float) for gain in gains)
    if not (numbers and len(gains) in (2, 3) and all(g >= 0 and isfinite(g) for g in gains) and max(gains) > 0):
        raise ValueError(
            f"Expected two or three gains >= 0, one for each order, not all 0, got gains={gains!r} (Scattering2d)"
        )
    return tuple(float(gain) for gain in gains)
