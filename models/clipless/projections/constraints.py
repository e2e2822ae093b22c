"""Constraint sets as frozen values: what a layer's weight is projected onto after each step."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from clipless.projections.orthogonal import orthogonal
from clipless.projections.spectral import spectral_ball


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
        if not 0 < self.radius < float("inf"):
            raise ValueError(f"Expected 0 < radius < inf, got radius={self.radius!r} (SpectralBall)")

    def project(self, weight_OI: Tensor) -> Tensor:
        """Return the projection of a matrix."""
        return spectral_ball(weight_OI, self.radius)


Constraint = Orthogonal | SpectralBall
CONSTRAINTS: dict[str, type[Constraint]] = {"orthogonal": Orthogonal, "spectral_ball": SpectralBall}
