"""Bounds of layers that only rearrange."""

from math import prod

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule
from clipless.layers import Flatten


@bound_rule(Flatten)
def bound_flatten(layer: Flatten, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Everything is preserved."""
    del layer, weights
    return LayerBound(output=Signal((prod(signal.shape),), signal.norm), input_gain=1.0)
