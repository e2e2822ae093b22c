r"""Towards the matrices with orthonormal rows or columns (Bjorck and Bowie 1971).

One iteration ``W -> 1.5 W - 0.5 W W^T W`` maps every singular value s to ``1.5 s - 0.5 s^3``: values in [0,
2] land in [0, 1], and values in (0, sqrt 3) move towards 1. It solves ``min |W - Q|_F`` over orthonormal Q in
the limit; after any number of iterations the spectral norm is at most 1.

Shape letters: O rows, I columns.
"""

import torch
from torch import Tensor


def orthogonal(weight_OI: Tensor, iterations: int = 1) -> Tensor:
    """Bjorck iterations on ``weight_OI``, started where they are certain to shrink what exceeds 1.

    Guarantees:
        The spectral norm of the result is at most 1 up to rounding (3e-7 in float32), for every finite input:
        before the first iteration the matrix is divided by half of a certified bound of its norm (the largest
        absolute row sum of the Gram matrix), where that exceeds 1. A non-finite weight stays non-finite.
    """
    wide = weight_OI.shape[0] <= weight_OI.shape[1]
    matrix = weight_OI if wide else weight_OI.mT
    matrix = matrix * (2.0 / matrix.abs().amax()).clamp(max=1.0)  # squares of larger entries could overflow
    gram = matrix @ matrix.mT
    norm_bound = gram.abs().sum(dim=1).amax().sqrt()
    shrink = (1.999 / norm_bound).clamp(max=1.0)
    gram, matrix = gram * shrink**2, matrix * shrink
    for iteration in range(iterations):
        if iteration:
            gram = matrix @ matrix.mT
        matrix = torch.addmm(matrix, gram, matrix, beta=1.5, alpha=-0.5)
    return matrix if wide else matrix.mT
