"""Operator norms from above, for certificates. Power iteration is a lower bound and never appears here.

Entries are divided by a power of two first, so that no square overflows or underflows.

Shape letters: I inputs or input channels, O outputs or output channels, H height, W width, F frequencies, G groups.
"""

from math import frexp, inf, ldexp

import torch
from torch import Tensor

from clipless.scalars import Scalar, entry, larger, lies_on_host

Pair = tuple[int, int]

LEAST: float = torch.finfo(torch.float64).tiny
_LARGEST_EXPONENT = 1022  # of a power of two whose inverse is a normal number too
"""Smallest normal number. A product that rounds to less is replaced by it: rounding there is not relative."""


def spectral_norm_upper(weight_OI: Tensor) -> float:
    """Upper bound on the largest singular value, rounding included; inf for a non-finite weight.

    Largest eigenvalue of the smaller Gram matrix in float64.
    """
    matrix, scale = _scale(weight_OI)
    if not scale < inf:
        return inf
    if matrix.shape[0] > matrix.shape[1]:
        matrix = matrix.mT
    largest: float = torch.linalg.eigvalsh(matrix @ matrix.mT)[-1].item()
    return _round_up(max(largest, 0.0) ** 0.5, matrix.numel(), scale)


def current_norm(weight_OI: Tensor) -> Scalar:
    """Return a quick upper bound of the spectral norm: a number of the weight's device, for which the host never waits.

    ``weight_OI`` may have axes in front: then the largest norm of the matrices.
    """
    if not lies_on_host(weight_OI):
        return entry(spectral_norm_by_powers(weight_OI).amax())
    matrices = weight_OI if weight_OI.dim() > 2 else weight_OI[None]
    return max(map(spectral_norm_upper, matrices))


def spectral_norm_by_powers(weight_OI: Tensor, squarings: int = 16) -> Tensor:
    """Upper bounds on the largest singular values of matrices, without an eigensolver; NaN for an undefined weight.

    ``|G^p|_F^(1/p)``, with G the smaller Gram matrix and p = 2^squarings, is at least its largest eigenvalue and at
    most ``d^(1/2p)`` times that (Delattre et al. 2023, arXiv 2305.16173). With 16 squarings the norm of 1,024 rows is
    right to 3e-5, with 24 to 2e-7.
    """
    matrix = weight_OI.detach().double()
    matrix = matrix if matrix.shape[-2] <= matrix.shape[-1] else matrix.mT
    peak = matrix.abs().amax(dim=(-2, -1), keepdim=True).clamp(min=LEAST)
    power = (matrix / peak) @ (matrix / peak).mT
    logarithm = torch.zeros_like(peak)
    for squaring in range(squarings + 1):
        norm = torch.linalg.matrix_norm(power, keepdim=True).clamp(min=LEAST)
        logarithm += norm.log() * 0.5**squaring
        power = power / norm
        if squaring < squarings:
            power = power @ power
    bound = (logarithm / 2).exp() * peak * (1.0 + 4.0 * _relative(matrix.shape[-2] * matrix.shape[-1])) + LEAST
    return bound[..., 0, 0]


def conv2d_norm_upper(
    kernel_OIHW: Tensor, size: Pair, stride: Pair, *, groups: int = 1, circular: bool = False
) -> float:
    """Upper bound on the operator norm of a convolution on H x W maps, zero-padded or circular.

    The smaller of two bounds: ``sqrt(m)`` times the norm of the reshaped kernel, m the largest number of
    patches that contain one input element; and the largest spectral norm over the frequencies of a grid. For zero
    padding the grid is at least (H + h - 1) x (W + w - 1), where the zero-padded convolution is a crop of a circular
    one (Sedghi et al. 2019, arXiv 1805.10408; a smaller grid is not a bound). Striding only
    drops outputs, and more zeros around the map only crop the same circular convolution elsewhere. For circular
    padding it is exactly H x W, and the bound is the norm (another grid, larger or smaller, is not a bound). Groups
    make the operator block diagonal: the largest norm of a group.

    ``kernel_OIHW`` is the kernel applied, with the I input channels of one group; circular maps have stride 1.
    """
    kernel, scale = _scale(kernel_OIHW)
    if not scale < inf:
        return inf
    window = (kernel.shape[-2], kernel.shape[-1])
    overlaps = 1
    for k, s in zip(window, stride, strict=True):
        overlaps *= -(-k // s)
    kernel_GOIHW = kernel.unflatten(0, (groups, -1))
    reshaped: float = max(spectral_norm_upper(group.flatten(1)) for group in kernel_GOIHW) * overlaps**0.5
    if overlaps == 1 or (circular and any(k > n for n, k in zip(size, window, strict=True))):
        return _round_up(reshaped, 0, scale)
    grid = list(size) if circular else [n + k - 1 for n, k in zip(size, window, strict=True)]
    response_FGOI = torch.fft.rfft2(kernel_GOIHW, s=grid).flatten(3).permute(3, 0, 1, 2)
    if response_FGOI.shape[2] > response_FGOI.shape[3]:
        response_FGOI = response_FGOI.mT
    gram_F = response_FGOI @ response_FGOI.mH
    largest: float = torch.linalg.eigvalsh(gram_F)[..., -1].amax().item()
    found = _round_up(max(largest, 0.0) ** 0.5, kernel.numel(), 1.0)
    return _round_up(min(reshaped, found), 0, scale)


def lengths_upper(rows_MI: Tensor) -> Tensor:
    """Upper bounds (M,) on the Euclidean norms of rows, rounding included; positive."""
    rows = rows_MI.detach().double()
    exponent_M = torch.frexp(rows.abs().amax(dim=-1)).exponent.clamp(-_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    scale_M = torch.exp2(exponent_M.double())  # of each row: no square of its peak underflows
    lengths: Tensor = (rows / scale_M[..., None]).norm(dim=-1) * (1.0 + _relative(rows.shape[-1])) * scale_M
    return lengths.nan_to_num(nan=inf, posinf=inf).clamp(min=LEAST)


def at_least_normal(bound: Scalar) -> Scalar:
    """Return an upper bound that stays one if it was rounded down among the denormal numbers, or to 0."""
    return larger(bound, LEAST)


def _scale(weight: Tensor) -> tuple[Tensor, float]:
    """Return the weight in float64 over a power of two, largest entry in [1, 2), and that power; inf if not finite."""
    weight = weight.detach().double()
    peak = float(weight.abs().max())
    if not 0.0 < peak < inf:
        return weight, 1.0 if peak == 0.0 else inf
    scale = ldexp(1.0, frexp(peak)[1] - 1)
    return weight / scale, scale


def _relative(terms: int) -> float:
    return (terms + 64) * torch.finfo(torch.float64).eps


def _round_up(norm: float, terms: int, scale: float) -> float:
    return float(norm * (1.0 + _relative(terms)) * scale + LEAST)
