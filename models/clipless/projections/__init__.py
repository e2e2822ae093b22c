"""Constraint sets of weights, and pure maps onto (or into) them."""

from clipless.projections.constraints import (
    CONSTRAINTS,
    Constraint,
    FixedNorm,
    Free,
    Orthogonal,
    SpectralBall,
    Standardised,
    build_constraint,
    initial_gain,
)
from clipless.projections.orthogonal import orthogonal
from clipless.projections.spectral import fixed_norm, spectral_ball

__all__ = [
    "CONSTRAINTS",
    "Constraint",
    "FixedNorm",
    "Free",
    "Orthogonal",
    "SpectralBall",
    "Standardised",
    "build_constraint",
    "fixed_norm",
    "initial_gain",
    "orthogonal",
    "spectral_ball",
]
