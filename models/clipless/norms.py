"""Operator norms from above, for certificates. Power iteration is a lower bound and never appears here.

Shape letters: I inputs or input channels, O outputs or output channels, H height, W width, F frequencies.
"""

import torch
from torch import Tensor

Pair = tuple[int, int]


def spectral_norm_upper(weight_OI: Tensor) -> float:
    """Upper bound on the largest singular value, rounding included; inf for a non-finite weight.

    Largest eigenvalue of the smaller Gram matrix in float64.
    """
    matrix = weight_OI.detach().double()
    if not bool(matrix.isfinite().all()):
        return float("inf")
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.mT
    largest: float = torch.linalg.eigvalsh(matrix @ matrix.mT)[-1].item()
    return _rounded_up(max(largest, 0.0) ** 0.5, matrix.numel())


def conv2d_norm_upper(kernel_OIHW: Tensor, size: Pair, stride: Pair) -> float:
    """Upper bound on the operator norm of a zero-padded convolution on H x W maps.

    The smaller of two bounds: ``sqrt(m)`` times the norm of the reshaped kernel, m the largest number of
    patches that contain one input element; and the largest spectral norm over the frequencies of a grid of at
    least (H + h - 1) x (W + w - 1), where the zero-padded convolution is a crop of a circular one (Sedghi et
    al. 2019, arXiv 1805.10408; a smaller grid is not a bound). Striding only
    drops outputs, and more zeros around the map only crop the same circular convolution elsewhere.
    """
    kernel = kernel_OIHW.detach().double()
    if not bool(kernel.isfinite().all()):
        return float("inf")
    overlaps = 1
    for k, s in zip(kernel.shape[-2:], stride, strict=True):
        overlaps *= -(-k // s)
    reshaped: float = spectral_norm_upper(kernel.flatten(1)) * overlaps**0.5
    if overlaps == 1:
        return reshaped
    grid = [n + k - 1 for n, k in zip(size, kernel.shape[-2:], strict=True)]
    response_FOI = torch.fft.rfft2(kernel, s=grid).flatten(2).permute(2, 0, 1)
    if response_FOI.shape[1] > response_FOI.shape[2]:
        response_FOI = response_FOI.mT
    gram_F = response_FOI @ response_FOI.mH
    largest: float = torch.linalg.eigvalsh(gram_F)[:, -1].amax().item()
    return min(reshaped, _rounded_up(max(largest, 0.0) ** 0.5, kernel.numel()))


def _rounded_up(norm: float, terms: int) -> float:
    return float(norm * (1.0 + (terms + 64) * torch.finfo(torch.float64).eps) + torch.finfo(torch.float64).tiny)
