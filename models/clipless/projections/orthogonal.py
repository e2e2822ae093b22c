"""Towards the matrices with orthonormal rows or columns (Bjorck and Bowie 1971), centred ones too.

One iteration ``W -> 1.5 W - 0.5 W W^T W`` maps every singular value s to ``1.5 s - 0.5 s^3``: values in [0,
2] land in [0, 1], and values in (0, sqrt 3) move towards 1. It solves ``min |W - Q|_F`` over orthonormal Q in
the limit; after any number of iterations the spectral norm is at most 1.

Shape letters: O rows, I columns.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from clipless.projections._base import check_iterations, constraint

if TYPE_CHECKING:
    from torch import Tensor


@constraint("orthogonal")
@final
@dataclass(frozen=True, slots=True)
class Orthogonal:
    """Spectral norm at most 1, all singular values pulled towards 1 by Bjorck iterations."""

    iterations: int = 1

    def __post_init__(self) -> None:
        check_iterations(self, self.iterations)

    @property
    def radius(self) -> float:
        """Upper bound of the spectral norm after a projection."""
        return 1.0

    def project(self, weight_OI: "Tensor") -> "Tensor":
        """Return the projection of a matrix."""
        return orthogonal(weight_OI, self.iterations)


def orthogonal(weight_OI: "Tensor", iterations: int = 1) -> "Tensor":
    """Bjorck iterations on ``weight_OI``, started where they are certain to shrink what exceeds 1.

    A matrix, or several of one shape, (N, O, I), each on its own.

    Guarantees:
        The spectral norm of the result is at most 1 up to rounding (3e-7 in float32), for every finite input:
        before the first iteration the matrix is divided by half of a certified bound of its norm (the largest
        absolute row sum of the Gram matrix), where that exceeds 1. A non-finite weight stays non-finite.
    """
    import torch

    wide = weight_OI.shape[-2] <= weight_OI.shape[-1]
    matrix = weight_OI if wide else weight_OI.mT
    # squares of larger entries could overflow
    matrix = matrix * (2.0 / matrix.abs().amax(dim=(-2, -1), keepdim=True)).clamp(max=1.0)
    gram = matrix @ matrix.mT
    norm_bound = gram.abs().sum(dim=-1, keepdim=True).amax(dim=-2, keepdim=True).sqrt()
    shrink = (1.999 / norm_bound).clamp(max=1.0)
    gram, matrix = gram * shrink**2, matrix * shrink
    add = torch.addmm if matrix.dim() == 2 else torch.baddbmm
    for iteration in range(iterations):
        if iteration:
            gram = matrix @ matrix.mT
        matrix = add(matrix, gram, matrix, beta=1.5, alpha=-0.5)
    return matrix if wide else matrix.mT


@constraint("standardised")
@final
@dataclass(frozen=True, slots=True)
class Standardised:
    """Weight standardisation after the step: rows of mean zero, then as `Orthogonal`, so that rows have one norm.

    Centring the rows multiplies by an orthogonal projection and enlarges no singular value; Bjorck iterations keep
    the mean. As a reparametrisation (Qiao et al. 2019, arXiv 1903.10520) its Jacobian would have no bound. Rows of
    one entry become zero.
    """

    iterations: int = 1

    def __post_init__(self) -> None:
        check_iterations(self, self.iterations)

    @property
    def radius(self) -> float:
        """Upper bound of the spectral norm after a projection."""
        return 1.0

    def project(self, weight_OI: "Tensor") -> "Tensor":
        """Return the projection of a matrix."""
        return orthogonal(weight_OI - weight_OI.mean(dim=-1, keepdim=True), self.iterations)
