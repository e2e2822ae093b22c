"""Augmentation multiplicity: several random copies of each drawn row (De et al. 2022, arXiv 2204.13650).

Every copy passes the guard, or the clipping, on its own, and the summed gradient is divided by the fixed number of
copies. So one row contributes at most the mean of its copies, which is within the sensitivity of one: copies cost time
and no privacy.

Copies with Gaussian noise (Cohen et al. 2019, arXiv 1902.02918) train a model for smoothed certificates. Noise
enlarges a norm, so that each noisy copy is put back into the ball that bounds the rows.

Shape letters: B batch, K copies, C channels, H height, W width.
"""

from dataclasses import dataclass
from math import inf
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from clipless.guards.exact_sums import column_of
from clipless.privacy.keystream import Purpose
from clipless.privacy.randomness import RandomSource


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Augmentation:
    """Random flips and shifts of images, and Gaussian noise on rows of any shape, drawn anew for each copy.

    Guarantees:
        No copy of a row within ``input_norm`` leaves it by more than the rounding of its type.
    """

    copies: int = 1  # K, of each drawn row; a public number
    flip: bool = False  # mirror left and right with probability 1/2
    shift: int = 0  # largest shift, in pixels, up or down and left or right; zeros come in
    noise: float = 0.0  # standard deviation in every entry, in units of the network's input tensor
    input_norm: float = inf  # public bound of the norms of rows, to which noisy copies are scaled down; noise needs one

    def __post_init__(self) -> None:
        if type(self.copies) is not int or self.copies < 1:
            raise ValueError(f"Expected a whole number copies >= 1, got copies={self.copies!r} (Augmentation)")
        if type(self.shift) is not int or self.shift < 0:
            raise ValueError(f"Expected a whole number shift >= 0, got shift={self.shift!r} (Augmentation)")
        if not 0.0 <= self.noise < inf:
            raise ValueError(f"Expected 0 <= noise < inf, got noise={self.noise!r} (Augmentation)")
        if self.noise and not 0.0 < self.input_norm < inf:
            raise ValueError(
                f"Expected a finite input_norm > 0 with noise, got input_norm={self.input_norm!r} (Augmentation)"
            )
        if not (self.flip or self.shift or self.noise):
            raise ValueError("Expected flip, shift or noise, got none: copies would all be the same (Augmentation)")

    def apply(self, x: Tensor, source: RandomSource) -> Tensor:
        """Return the copies (B K, ...) of rows (B, ...), those of one row one after the other.

        ``source`` draws what happens to each copy, which depends on no row.

        Guarantees:
            Every copy has words of its own from the source, under a key of 256 bits: which row stands in which place
            cannot be read off the copies. A generator with a short seed has few streams, each of which tells that.

        Raises:
            ValueError: rows to flip or shift that are no images.
        """
        if (self.flip or self.shift) and x.dim() != 4:
            raise ValueError(f"Expected images (B, C, H, W) to flip or shift, got shape {tuple(x.shape)}")
        copies = x.repeat_interleave(self.copies, dim=0)
        if not len(copies):
            return copies
        moved = self._move(copies, source) if self.flip or self.shift else copies
        return self._add_noise(moved, source) if self.noise else moved

    def _move(self, copies: Tensor, source: RandomSource) -> Tensor:
        words_3N = source.words(3 * len(copies), copies.device, Purpose.BATCHES).view(3, -1)
        if self.flip:
            copies = torch.where((words_3N[0] < 0).view(-1, 1, 1, 1), copies.flip(3), copies)
        return self._shift(copies, words_3N[1:] % (2 * self.shift + 1)) if self.shift else copies

    def _shift(self, x_NCHW: Tensor, offsets_2N: Tensor) -> Tensor:
        height, width = x_NCHW.shape[2:]
        rows_NH, columns_NW = (
            offset_N[:, None] + torch.arange(size, device=x_NCHW.device)
            for offset_N, size in zip(offsets_2N, (height, width), strict=True)
        )
        padded = F.pad(x_NCHW, (self.shift,) * 4)
        rows = rows_NH[:, None, :, None].expand(-1, x_NCHW.shape[1], -1, padded.shape[3])
        return padded.gather(2, rows).gather(3, columns_NW[:, None, None, :].expand(-1, *x_NCHW.shape[1:3], -1))

    def _add_noise(self, x: Tensor, source: RandomSource) -> Tensor:
        """Add noise to each copy, and scale it down into the ball where it has left that; no copy looks at another."""
        noise = source.normal(x.numel(), x.device).view(x.shape)
        noisy = x.double() + self.noise * noise
        norm_N = noisy.flatten(1).norm(dim=1)
        return (noisy * column_of((self.input_norm / norm_N).clamp(max=1.0), noisy)).to(x.dtype)
