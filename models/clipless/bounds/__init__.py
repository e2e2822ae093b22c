"""Rigorous bounds of layers and networks; importing this package enters the rules of every module in the table."""

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_layer, bound_rule, bounded_types
from clipless.bounds.composition.propagate import NetworkBounds, bound_network
from clipless.imports import import_modules

_RULE_FILES = tuple(import_modules(__name__, __path__))  # each enters its rules in the table

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
