"""Bounds of the normalisation of one example, n elements: centring is an orthogonal projection.

Group normalisation is centring, division by alpha and the projection onto a ball of radius ``sqrt(N)`` for each group
of N elements; the squares of the G radii add up to n.
"""

from math import prod, sqrt

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule
from clipless.errors import InvalidBoundError
from clipless.layers import GroupNorm, LayerCentering
from clipless.scalars import smaller


@bound_rule(LayerCentering)
def bound_layer_centering(layer: LayerCentering, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Nothing grows."""
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
