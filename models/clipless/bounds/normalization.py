"""Bounds of the layers that limit norms: the input ball, normalisation, learned constants and gradient clipping.

The projection onto a convex set, such as the input ball, does not enlarge distances. Centring the n elements of an
example is an orthogonal projection. Group normalisation is centring, division by alpha and the projection onto a ball
of radius ``sqrt(N)`` for each group of N elements; the squares of the G radii add up to n. Learned constants make
affine maps, entry by entry. Gradient clipping is the identity forwards; backwards no cotangent leaves with more than C.
"""

from math import prod, sqrt

from clipless.bounds._rules import LayerBound, Rounding, Signal, WeightNorms, bound_rule, learned_number
from clipless.errors import InvalidBoundError
from clipless.layers import ClipGradient, GroupNorm, InputBall, LayerCentering, ScaleByQuantile, Standardise
from clipless.scalars import smaller


@bound_rule(InputBall, Rounding.RELATIVE)
def bound_input_ball(layer: InputBall, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Output at most ``min(X, radius)``; gain 1."""
    return LayerBound(output=Signal(signal.shape, smaller(signal.norm, layer.radius)), input_gain=1.0)


@bound_rule(LayerCentering)
def bound_layer_centering(layer: LayerCentering, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1; no norm grows."""
    return LayerBound(output=signal, input_gain=1.0)


@bound_rule(GroupNorm)
def bound_group_norm(layer: GroupNorm, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Output at most ``min(X / alpha, sqrt(n))``; gain ``1 / alpha``."""
    if signal.shape[0] % layer.groups:
        raise InvalidBoundError(
            f"Expected a number of channels divisible by {layer.groups}, got {signal.shape[0]} (GroupNorm)"
        )
    norm = smaller(signal.norm / layer.alpha, sqrt(prod(signal.shape)))
    return LayerBound(output=Signal(signal.shape, norm), input_gain=1.0 / layer.alpha)


@bound_rule(Standardise, Rounding.RELATIVE_IF_EXACT)
def bound_standardise(layer: Standardise, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1 over the smallest standard deviation; for plans, which come before it is learned, over the floor.

    The output has no bound before the mean is learned: an `InputBall` has to follow.
    """
    if signal.shape[:1] != (layer.features,):  # broadcasting would change the shape or repeat the mean
        raise InvalidBoundError(f"Expected {layer.features} features or channels, got {signal.shape} (Standardise)")
    if weights is WeightNorms.CONSTRAINED:
        return LayerBound(output=Signal(signal.shape), input_gain=1.0 / layer.floor)
    gain = 1.0 / learned_number(layer.scale.double().min(), weights)
    moved = signal.norm + sqrt(prod(signal.shape[1:])) * learned_number(layer.mean.double().norm(), weights)
    return LayerBound(output=Signal(signal.shape, gain * moved), input_gain=gain)


@bound_rule(ScaleByQuantile, Rounding.RELATIVE)
def bound_scale_by_quantile(layer: ScaleByQuantile, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1 over the divisor; for plans over the smallest one."""
    divisor = layer.low if weights is WeightNorms.CONSTRAINED else learned_number(layer.scale.double(), weights)
    return LayerBound(output=Signal(signal.shape, signal.norm / divisor), input_gain=1.0 / divisor)


@bound_rule(ClipGradient, Rounding.EXACT)
def bound_clip_gradient(layer: ClipGradient, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1, and C, or its lowered value, as an absolute bound of the cotangent that reaches the layers before."""
    return LayerBound(output=signal, input_gain=1.0, cotangent_bound=layer.current_norm)
