"""Bound of the input ball: the projection onto a convex set is non-expansive."""

from clipless.bounds._rules import LayerBound, Rounding, Signal, WeightNorms, bound_rule
from clipless.layers import InputBall
from clipless.scalars import smaller


@bound_rule(InputBall, Rounding.RELATIVE)
def bound_input_ball(layer: InputBall, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Output at most ``min(X, radius)``; gain 1."""
    return LayerBound(output=Signal(signal.shape, smaller(signal.norm, layer.radius)), input_gain=1.0)
