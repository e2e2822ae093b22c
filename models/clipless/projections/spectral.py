"""The ball and the sphere of the spectral norm. Shape letters: O rows, I columns."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from clipless.projections._base import check_radius, constraint
from clipless.scalars import lies_on_host

if TYPE_CHECKING:
    from torch import Tensor

# Times the radius: a larger matrix is scaled down first, since its Gram matrix would drown what is near the radius.
_LARGEST = 1e4
_LARGEST_FOR_PRODUCTS = 1e3  # their iterations settle what is near the radius up to here


@constraint("spectral_ball")
@final
@dataclass(frozen=True, slots=True)
class SpectralBall:
    """Spectral norm at most ``radius``; smaller singular values are left alone."""

    radius: float = 1.0

    def __post_init__(self) -> None:
        check_radius(self)

    def project(self, weight_OI: "Tensor") -> "Tensor":
        """Return the projection of a matrix."""
        return spectral_ball(weight_OI, self.radius)


@constraint("fixed_norm")
@final
@dataclass(frozen=True, slots=True)
class FixedNorm:
    """Spectral norm exactly ``radius``, up to rounding: the weight is divided by its norm (Barczewski 2025, 5.3)."""

    radius: float = 1.0

    def __post_init__(self) -> None:
        check_radius(self)

    def project(self, weight_OI: "Tensor") -> "Tensor":
        """Return the multiple of a matrix that lies on the sphere; a zero matrix stays."""
        return fixed_norm(weight_OI, self.radius)


def spectral_ball(weight_OI: "Tensor", radius: float) -> "Tensor":
    """Nearest matrix of spectral norm at most ``radius``: ``argmin |W - V|_F  s.t.  |V|_2 <= radius``.

    Only the singular values above ``radius`` change. Computed in float64 from the eigenvectors of the smaller Gram
    matrix; on other devices than the host, where an eigensolver would make it wait, by products alone.

    Guarantees:
        The spectral norm of the result is at most ``radius`` up to rounding of the weight's dtype (1e-6
        relative in float32), for every finite input.
    """
    import torch

    wide = weight_OI.shape[0] <= weight_OI.shape[1]
    matrix = (weight_OI if wide else weight_OI.mT).double()
    largest = _LARGEST if lies_on_host(matrix) else _LARGEST_FOR_PRODUCTS
    matrix = matrix * (largest * radius / torch.linalg.matrix_norm(matrix)).clamp(max=1.0)
    clipped = _by_eigenvectors(matrix, radius) if lies_on_host(matrix) else _by_products(matrix, radius)
    return (clipped if wide else clipped.mT).to(weight_OI.dtype)


def _by_eigenvectors(matrix: "Tensor", radius: float) -> "Tensor":
    import torch

    squares, vectors = torch.linalg.eigh(matrix @ matrix.mT)
    factors = (radius / squares.clamp(min=radius**2).sqrt()).clamp(max=1.0)
    clipped: Tensor = matrix - (vectors * (1.0 - factors)) @ (vectors.mT @ matrix)
    return clipped


def _by_products(matrix: "Tensor", radius: float) -> "Tensor":
    from clipless.projections._products import ball_by_products

    return ball_by_products(matrix, radius)


def fixed_norm(weight_OI: "Tensor", radius: float) -> "Tensor":
    """The positive multiple of a matrix whose spectral norm is ``radius``; zero for the zero matrix.

    Guarantees:
        The spectral norm of the result is at most ``radius`` up to rounding of the weight's dtype (1e-6
        relative in float32), for every finite input.
    """
    import torch

    from clipless.norms import spectral_norm_by_powers

    matrix = (weight_OI if weight_OI.shape[0] <= weight_OI.shape[1] else weight_OI.mT).double()
    peak = matrix.abs().max().clamp(min=torch.finfo(torch.float64).tiny)
    matrix = matrix / peak  # the Gram matrix of huge or tiny entries would leave the range
    if lies_on_host(matrix):
        norm = torch.linalg.eigvalsh(matrix @ matrix.mT)[-1].clamp(min=torch.finfo(torch.float64).tiny).sqrt()
    else:
        norm = spectral_norm_by_powers(matrix, squarings=24)
    scaled: Tensor = weight_OI.double() / peak * (radius / norm)
    return scaled.to(weight_OI.dtype)
