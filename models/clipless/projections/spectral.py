"""The ball and the sphere of the spectral norm. Shape letters: O rows, I columns; R rows, R <= I."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from clipless.projections._base import check_radius, constraint
from clipless.scalars import lies_on_host

if TYPE_CHECKING:
    from torch import Tensor

# Times the radius: a larger matrix is scaled down first, since its Gram matrix would drown what is near the radius.
_LARGEST = 1e4
_LARGEST_FOR_PRODUCTS = 1e3  # their iterations settle what is near the radius up to here
_RAISING, _SETTLING, _ROOT = 24, 6, 24  # iterations
_RAISE = (3.4445, -4.7750, 2.0315)


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


def _by_products(matrix_RI: "Tensor", radius: float) -> "Tensor":
    """Return the nearest matrix of spectral norm at most ``radius``, float64; its norm is at most 1e3 times that.

    With A the matrix over the radius and G its smaller Gram matrix, singular values above 1 become 1 by

        max(G, I)^(-1/2) A,     max(G, I) = (G + I + |G - I|) / 2,     |X| = X sign(X)

    The sign is the limit of odd polynomials of X, scaled to norm 1: first some that raise small eigenvalues fast
    (coefficients of Jordan et al. 2024, Muon), by 3.4 a time, then cubic ones that settle on 1. Eigenvalues that are
    not raised far enough are below 1e-12 of the norm, and so is the error they leave. The inverse root is that of the
    coupled iteration of Newton and Schulz (Higham 2008, Functions of Matrices, section 6.7).
    """
    import torch

    unit_RI = matrix_RI / radius
    gram_RR = unit_RI @ unit_RI.mT
    one_RR = torch.eye(len(gram_RR), dtype=gram_RR.dtype, device=gram_RR.device)
    apart_RR = gram_RR - one_RR
    modulus_RR = apart_RR @ _sign(apart_RR / torch.linalg.matrix_norm(apart_RR, torch.inf).clamp(min=1e-300), one_RR)
    larger_RR = (gram_RR + one_RR + (modulus_RR + modulus_RR.mT) / 2) / 2
    projected: Tensor = _inverse_root(larger_RR, one_RR) @ matrix_RI
    return projected


def _sign(x_RR: "Tensor", one_RR: "Tensor") -> "Tensor":
    first, third, fifth = _RAISE
    for _ in range(_RAISING):
        square_RR = x_RR @ x_RR
        x_RR = x_RR @ (first * one_RR + third * square_RR + fifth * (square_RR @ square_RR))
        x_RR = (x_RR + x_RR.mT) / 2
    for _ in range(_SETTLING):
        x_RR = 1.5 * x_RR - 0.5 * x_RR @ (x_RR @ x_RR)
    return x_RR


def _inverse_root(x_RR: "Tensor", one_RR: "Tensor") -> "Tensor":
    """Return the inverse root of a matrix with eigenvalues from 1 to 1e6."""
    import torch

    norm = torch.linalg.matrix_norm(x_RR, torch.inf)
    root_RR, inverse_RR = x_RR / norm, one_RR
    for _ in range(_ROOT):
        step_RR = 1.5 * one_RR - 0.5 * (inverse_RR @ root_RR)
        root_RR, inverse_RR = root_RR @ step_RR, step_RR @ inverse_RR
    return inverse_RR.div(norm.sqrt())


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
