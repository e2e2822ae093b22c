r"""A fixed bank of Morlet-like wavelets, and the constant of the scattering map that is built from it.

The scattering map of order m (Bruna and Mallat 2013, arXiv 1203.1513) averages an image, the moduli of its
wavelet coefficients, the moduli of their wavelet coefficients, and so on up to m moduli. On the grid of scale
j, 2^j times coarser than the image, let P_j average down to the coarsest grid, 2^J times coarser, and let
W_{j,k} be the wavelets of scale k > j with stride 2^(k-j). The map of a path that has seen n moduli is

    T_{n,j}(u) = ( gain_n P_j u,  T_{n+1,k}(|W_{j,k} u|) for every k > j )                                 (1)

and moduli do not enlarge distances, so that L_{n,j}, a Lipschitz constant of T_{n,j}, may be taken from

    L_{n,j}^2 = | gain_n^2 P_j' P_j + sum_k L_{n+1,k}^2 W_{j,k}' W_{j,k} |,   a spectral norm.             (2)

A strided, zero-padded convolution is a crop of a circular one on a grid of at least H + h - 1, which couples
frequencies only with their aliases: (2) is at most the largest eigenvalue of one small matrix per group of
aliases, computed in float64 from the very numbers that are applied and rounded up. The usual statement that
scattering is non-expansive holds for no particular discretisation (1.35 for a common one that pads by
reflection and multiplies by 2^J).

Filters come from closed formulas, in float64, and are rounded to float32 once, so that float32 and float64
networks apply the same map. Nothing here reads data.

Shape letters: K filters, h side of a filter, Q groups of aliases, A aliases in a group.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import ceil, pi, sqrt

import torch
from torch import Tensor

Pair = tuple[int, int]

# Of the mother wavelet, as usual in image scattering: centre frequency, width in pixels at the finest scale.
_FREQUENCY, _WIDTH = 3.0 * pi / 4.0, 0.8
_AMPLITUDE = 1.0
# Relative error of FFTs and eigenvalues in float64 is below 1e-12 at the sizes that are accepted.
_ROUNDING = 1e-10


def wavelet_radius(scale: int, orientations: int) -> int:
    """Return (h - 1) / 2 of the wavelets ``scale`` octaves below the grid they are applied on."""
    return ceil(2.5 * _WIDTH * 2.0**scale / _slant(orientations))


def average_padding(octaves: int) -> int:
    """Return the padding of the average that is ``octaves`` octaves coarser than the grid; its h is three strides."""
    return int(2**octaves)


@lru_cache(maxsize=64)
def wavelets(scale: int, orientations: int) -> Tensor:
    """Return the wavelets of one scale: (2 K, 1, h, h), float32; K real parts, then K imaginary parts.

    A Gaussian envelope, elongated across the wave, times a plane wave less the constant that makes the sum
    zero. Its gain includes the stride ``2**scale`` that it is applied with, ``scale`` octaves below the grid; angles
    are in [0, pi).
    """
    sigma, slant, radius = _WIDTH * 2.0**scale, _slant(orientations), wavelet_radius(scale, orientations)
    axis = torch.arange(-radius, radius + 1, dtype=torch.float64)
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    filters = []
    for k in range(orientations):
        angle = torch.tensor(pi * k / orientations, dtype=torch.float64)
        along = columns * angle.cos() + rows * angle.sin()
        across = rows * angle.cos() - columns * angle.sin()
        envelope = torch.exp(-(along.square() + (slant * across).square()) / (2.0 * sigma**2))
        wave = torch.polar(envelope, along * (_FREQUENCY / 2.0**scale))
        filters.append(wave - envelope * (wave.sum() / envelope.sum()))
    bank = torch.stack(filters)[:, None] * (_AMPLITUDE * slant / (2.0 * pi * sigma**2) * 2.0**scale)
    return torch.cat([bank.real, bank.imag]).float()


@lru_cache(maxsize=64)
def average(octaves: int) -> Tensor:
    """Return the Gaussian average onto a grid ``octaves`` octaves coarser: (1, 1, h, h), float32.

    Its taps add up to the stride ``2**octaves``, so that a constant image keeps its norm.
    """
    stride, padding = 2**octaves, average_padding(octaves)
    axis = torch.arange(stride + 2 * padding, dtype=torch.float64) - (stride - 1) / 2.0 - padding
    taps = torch.exp(-axis.square() / (2.0 * (_WIDTH * stride / 2.0) ** 2))
    taps = taps / taps.sum()
    filters: Tensor = taps[:, None] * taps[None, :] * stride
    return filters[None, None].float()


@lru_cache(maxsize=64)
def scattering_lipschitz(size: Pair, scales: int, orientations: int, gains: Sequence[float]) -> float:
    """Upper bound on the Lipschitz constant of the scattering map, rounding included.

    Args:
        size: (H, W), multiples of ``2**scales``.
        scales: J.
        orientations: K.
        gains: factor of the channels of each order, the order being ``len(gains) - 1``.
    """
    return sqrt(_square(size, 0, scales, orientations, tuple(gains), 0)) * (1.0 + _ROUNDING)


def _square(size: Pair, level: int, scales: int, orientations: int, gains: tuple[float, ...], order: int) -> float:
    """Return L_{n,j}^2 of (2) for n = order and j = level; wavelets of the level's own scale only at the input."""
    octaves = scales - level
    finest = level if order == 0 else level + 1
    deeper = range(finest, scales) if order + 1 < len(gains) else range(0)
    below = {k: _square(size, k, scales, orientations, gains, order + 1) for k in deeper}
    radii = [wavelet_radius(k - level, orientations) for k in below]
    side = max([2 * r + 1 for r in radii] + [2**octaves + 2 * average_padding(octaves)])
    grid = [_multiple(n // 2**level + side - 1, 2**octaves) for n in size]
    gram_QAA = gains[order] ** 2 * _gram(average(octaves), average_padding(octaves), octaves, octaves, grid)
    for k, weight in below.items():
        filters, radius = wavelets(k - level, orientations), wavelet_radius(k - level, orientations)
        gram_QAA = gram_QAA + weight * _gram(filters, radius, k - level, octaves, grid)
    return float(torch.linalg.eigvalsh(gram_QAA)[:, -1].amax().item()) * (1.0 + _ROUNDING)


def _gram(filters: Tensor, padding: int, stride_octaves: int, octaves: int, grid: Sequence[int]) -> Tensor:
    """Return A'A of a strided circular convolution in the Fourier basis, (Q, A, A): one block per alias group.

    A group holds the ``4**octaves`` frequencies that a stride of ``2**octaves`` would merge; this convolution,
    with its smaller stride, couples those of them that it merges.
    """
    side, stride, merged = filters.shape[-1], 2**stride_octaves, 2**octaves
    placed = torch.zeros(len(filters), *grid, dtype=torch.float64)
    rows, columns = ((torch.arange(side) - padding) % n for n in grid)
    placed[:, rows[:, None], columns[None, :]] = filters[:, 0].double()
    response = torch.fft.fft2(placed) / stride
    groups = response.unflatten(2, (merged, -1)).unflatten(1, (merged, -1))  # K, alias, group, alias, group
    response_QKA = groups.permute(2, 4, 0, 1, 3).flatten(3).flatten(0, 1)
    alias = torch.arange(merged) % (merged // stride)
    coupled = (alias[:, None, None, None] == alias[None, None, :, None]) & (
        alias[None, :, None, None] == alias[None, None, None, :]
    )
    gram_QAA: Tensor = (response_QKA.mH @ response_QKA) * coupled.reshape(merged**2, merged**2)
    return gram_QAA


def _multiple(number: int, of: int) -> int:
    return -(-number // of) * of


def _slant(orientations: int) -> float:
    return min(1.0, 4.0 / orientations)
