"""Bounds of activations: GroupSort permutes, so it preserves every norm."""

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule
from clipless.errors import InvalidBoundError
from clipless.layers import GroupSort


@bound_rule(GroupSort)
def bound_group_sort(layer: GroupSort, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1; the groups must divide the features."""
    del weights
    if signal.shape[0] % layer.group_size:
        raise InvalidBoundError(
            f"Expected a number of features divisible by {layer.group_size}, got {signal.shape[0]} (GroupSort)"
        )
    return LayerBound(output=signal, input_gain=1.0)
