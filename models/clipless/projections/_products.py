"""The ball of the spectral norm by matrix products alone, since eigensolvers make a host wait for its device.

With A the matrix over the radius and G its smaller Gram matrix, singular values above 1 become 1 by

    max(G, I)^(-1/2) A,     max(G, I) = (G + I + |G - I|) / 2,     |X| = X sign(X)

The sign is the limit of odd polynomials of X, scaled to norm 1: first some that raise small eigenvalues fast
(coefficients of Jordan et al. 2024, Muon), by 3.4 a time, then cubic ones that settle on 1. Eigenvalues that are not
raised far enough are below 1e-12 of the norm, and so is the error they leave. The inverse root is that of the coupled
iteration of Newton and Schulz (Higham 2008, Functions of Matrices, section 6.7).

Shape letters: R rows, I columns, R <= I.
"""

import torch
from torch import Tensor

_RAISING, _SETTLING, _ROOT = 24, 6, 24  # iterations
_RAISE = (3.4445, -4.7750, 2.0315)


def ball_by_products(matrix_RI: Tensor, radius: float) -> Tensor:
    """Return the nearest matrix of spectral norm at most ``radius``, float64; its norm is at most 1e3 times that."""
    unit_RI = matrix_RI / radius
    gram_RR = unit_RI @ unit_RI.mT
    one_RR = torch.eye(len(gram_RR), dtype=gram_RR.dtype, device=gram_RR.device)
    apart_RR = gram_RR - one_RR
    modulus_RR = apart_RR @ _sign(apart_RR / torch.linalg.matrix_norm(apart_RR, torch.inf).clamp(min=1e-300), one_RR)
    larger_RR = (gram_RR + one_RR + (modulus_RR + modulus_RR.mT) / 2) / 2
    projected: Tensor = _inverse_root(larger_RR, one_RR) @ matrix_RI
    return projected


def _sign(x_RR: Tensor, one_RR: Tensor) -> Tensor:
    first, third, fifth = _RAISE
    for _ in range(_RAISING):
        square_RR = x_RR @ x_RR
        x_RR = x_RR @ (first * one_RR + third * square_RR + fifth * (square_RR @ square_RR))
        x_RR = (x_RR + x_RR.mT) / 2
    for _ in range(_SETTLING):
        x_RR = 1.5 * x_RR - 0.5 * x_RR @ (x_RR @ x_RR)
    return x_RR


def _inverse_root(x_RR: Tensor, one_RR: Tensor) -> Tensor:
    """Return the inverse root of a matrix with eigenvalues from 1 to 1e6."""
    norm = torch.linalg.matrix_norm(x_RR, torch.inf)
    root_RR, inverse_RR = x_RR / norm, one_RR
    for _ in range(_ROOT):
        step_RR = 1.5 * one_RR - 0.5 * (inverse_RR @ root_RR)
        root_RR, inverse_RR = root_RR @ step_RR, step_RR @ inverse_RR
    return inverse_RR.div(norm.sqrt())
