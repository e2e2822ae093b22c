"""Constraint sets of weights, and pure maps onto (or into) them."""

from clipless.projections.constraints import CONSTRAINTS, Constraint, Orthogonal, SpectralBall
from clipless.projections.orthogonal import orthogonal
from clipless.projections.spectral import spectral_ball

__all__ = ["CONSTRAINTS", "Constraint", "Orthogonal", "SpectralBall", "orthogonal", "spectral_ball"]
