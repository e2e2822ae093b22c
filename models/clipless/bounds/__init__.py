"""Rigorous bounds of layers and networks; importing this package enters every rule in the table."""

from clipless.bounds import (  # noqa: F401
    activation,
    clipping,
    conv,
    input,
    linear,
    normalization,
    pooling,
    residual,
    scattering,
    shape,
    statistics,
)
from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_layer, bound_rule, bounded_types
from clipless.bounds.propagate import NetworkBounds, bound_network

__all__ = [
    "LayerBound",
    "NetworkBounds",
    "Signal",
    "WeightNorms",
    "bound_layer",
    "bound_network",
    "bound_rule",
    "bounded_types",
]
