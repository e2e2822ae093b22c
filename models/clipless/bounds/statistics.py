"""Bounds of layers with learned constants: affine maps, entry by entry."""

from math import prod, sqrt

from clipless.bounds._rules import LayerBound, Rounding, Signal, WeightNorms, bound_rule, learned
from clipless.errors import InvalidBoundError
from clipless.layers import ScaleByQuantile, Standardise


@bound_rule(Standardise, Rounding.RELATIVE_IF_EXACT)
def bound_standardise(layer: Standardise, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1 over the smallest standard deviation; for plans, which come before it is learned, over the floor.

    The output has no bound before the mean is learned: an `InputBall` has to follow.
    """
    if signal.shape[:1] != (layer.features,):  # broadcasting would change the shape or repeat the mean
        raise InvalidBoundError(f"Expected {layer.features} features or channels, got {signal.shape} (Standardise)")
    if weights is WeightNorms.CONSTRAINED:
        return LayerBound(output=Signal(signal.shape), input_gain=1.0 / layer.floor)
    gain = 1.0 / learned(layer.scale.double().min(), weights)
    moved = signal.norm + sqrt(prod(signal.shape[1:])) * learned(layer.mean.double().norm(), weights)
    return LayerBound(output=Signal(signal.shape, gain * moved), input_gain=gain)


@bound_rule(ScaleByQuantile, Rounding.RELATIVE)
def bound_scale_by_quantile(layer: ScaleByQuantile, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1 over the divisor; for plans over the smallest one."""
    divisor = layer.low if weights is WeightNorms.CONSTRAINED else learned(layer.scale.double(), weights)
    return LayerBound(output=Signal(signal.shape, signal.norm / divisor), input_gain=1.0 / divisor)
