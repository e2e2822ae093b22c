"""Constraint sets as frozen values: what a layer's weight is projected onto after each step."""

from dataclasses import dataclass
from math import inf, sqrt
from typing import final

from torch import Tensor

from clipless.projections.orthogonal import orthogonal
from clipless.projections.spectral import fixed_norm, spectral_ball


@final
@dataclass(frozen=True, slots=True)
class Orthogonal:
    """Spectral norm at most 1, all singular values pulled towards 1 by Bjorck iterations."""

    iterations: int = 1

    def __post_init__(self) -> None:
        if not self.iterations >= 1:
            raise ValueError(f"Expected iterations >= 1, got iterations={self.iterations!r} (Orthogonal)")

    @property
    def radius(self) -> float:
        """Upper bound of the spectral norm after a projection."""
        return 1.0

    def project(self, weight_OI: Tensor) -> Tensor:
        """Return the projection of a matrix."""
        return orthogonal(weight_OI, self.iterations)


@final
@dataclass(frozen=True, slots=True)
class SpectralBall:
    """Spectral norm at most ``radius``; smaller singular values are left alone."""

    radius: float = 1.0

    def __post_init__(self) -> None:
        _check_radius(self)

    def project(self, weight_OI: Tensor) -> Tensor:
        """Return the projection of a matrix."""
        return spectral_ball(weight_OI, self.radius)


@final
@dataclass(frozen=True, slots=True)
class FixedNorm:
    """Spectral norm exactly ``radius``, up to rounding: the weight is divided by its norm (Barczewski 2025, 5.3)."""

    radius: float = 1.0

    def __post_init__(self) -> None:
        _check_radius(self)

    def project(self, weight_OI: Tensor) -> Tensor:
        """Return the multiple of a matrix that lies on the sphere; a zero matrix stays."""
        return fixed_norm(weight_OI, self.radius)


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
        if not self.iterations >= 1:
            raise ValueError(f"Expected iterations >= 1, got iterations={self.iterations!r} (Standardised)")

    @property
    def radius(self) -> float:
        """Upper bound of the spectral norm after a projection."""
        return 1.0

    def project(self, weight_OI: Tensor) -> Tensor:
        """Return the projection of a matrix."""
        return orthogonal(weight_OI - weight_OI.mean(dim=1, keepdim=True), self.iterations)


@final
@dataclass(frozen=True, slots=True)
class Free:
    """No constraint: no bound, and so for `dp-sgd` and training without privacy alone."""

    @property
    def radius(self) -> float:
        """Nothing bounds the norm."""
        return inf

    def project(self, weight_OI: Tensor) -> Tensor:
        """Return the matrix."""
        return weight_OI


Constraint = Orthogonal | SpectralBall | FixedNorm | Standardised | Free
CONSTRAINTS: dict[str, type[Constraint]] = {
    "orthogonal": Orthogonal,
    "spectral_ball": SpectralBall,
    "fixed_norm": FixedNorm,
    "standardised": Standardised,
    "free": Free,
}


def build_constraint(name: str, radius: float | None = None) -> Constraint:
    """Return a constraint by its name in `CONSTRAINTS`, with a radius if it takes one."""
    kind = CONSTRAINTS[name]
    return kind() if radius is None else kind(radius=radius)  # type: ignore[call-arg]


def initial_gain(constraint: Constraint) -> float:
    """Return the singular values that orthogonal weights start with; sqrt(2) without a bound (He et al. 2015)."""
    return constraint.radius if constraint.radius < inf else sqrt(2.0)


def _check_radius(constraint: SpectralBall | FixedNorm) -> None:
    if not 0 < constraint.radius < inf:
        raise ValueError(f"Expected 0 < radius < inf, got radius={constraint.radius!r} ({type(constraint).__name__})")
