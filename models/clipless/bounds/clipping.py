"""Bound of the gradient-clipping layer: the identity forwards; backwards no cotangent leaves with more than C."""

from clipless.bounds._rules import LayerBound, Rounding, Signal, WeightNorms, bound_rule
from clipless.layers import ClipGradient


@bound_rule(ClipGradient, Rounding.EXACT)
def bound_clip_gradient(layer: ClipGradient, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1, and C, or what it is lowered to, as an absolute bound of what reaches the layers before."""
    return LayerBound(output=signal, input_gain=1.0, cotangent_bound=layer.current_norm)
