"""Bounds of pooling with stride = window: windows do not overlap, so norms of windows add up to the norm."""

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule
from clipless.errors import InvalidBoundError
from clipless.layers import L2Pool2d


@bound_rule(L2Pool2d)
def bound_l2_pool(layer: L2Pool2d, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Output norm is the input norm, less what fills no window; gain 1."""
    del weights
    if len(signal.shape) != 3 or min(signal.shape[1:]) < layer.window:
        raise InvalidBoundError(f"Expected a (C, H, W) map of at least {layer.window}, got {signal.shape} (L2Pool2d)")
    channels, height, width = signal.shape
    shape = (channels, height // layer.window, width // layer.window)
    return LayerBound(output=Signal(shape, signal.norm), input_gain=1.0)
