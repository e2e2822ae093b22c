"""Constraint sets of weights, and pure maps onto (or into) them.

A module of this folder that declares a `constraint` is found without being listed. Importing it imports no torch.
"""

from clipless.imports import import_modules
from clipless.projections._base import CONSTRAINTS, Constraint, build_constraint, constraint, initial_gain
from clipless.projections.free import Free
from clipless.projections.orthogonal import Orthogonal, Standardised, orthogonal
from clipless.projections.spectral import FixedNorm, SpectralBall, fixed_norm, spectral_ball

_FILES = tuple(import_modules(__name__, __path__))  # each enters its constraints in the table

__all__ = [
    "CONSTRAINTS",
    "Constraint",
    "FixedNorm",
    "Free",
    "Orthogonal",
    "SpectralBall",
    "Standardised",
    "build_constraint",
    "constraint",
    "fixed_norm",
    "initial_gain",
    "orthogonal",
    "spectral_ball",
]
