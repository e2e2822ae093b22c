"""Bounds of pooling with stride = window: windows do not overlap, so norms of windows add up to the norm.

In one window of p elements the Euclidean norm and the maximum are 1-Lipschitz and 0 at 0; the mean is a linear map of
norm ``1 / sqrt(p)``.
"""

from clipless.bounds._rules import LayerBound, Rounding, Signal, WeightNorms, bound_rule
from clipless.errors import InvalidBoundError
from clipless.layers import AvgPool2d, GlobalL2Pool2d, L2Pool2d, MaxPool2d


@bound_rule(L2Pool2d, Rounding.RELATIVE)
@bound_rule(MaxPool2d, Rounding.EXACT)
def bound_l2_or_max_pool(layer: L2Pool2d | MaxPool2d, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1, and 0 at 0; entries that fill no window are dropped."""
    return LayerBound(output=Signal(_pooled_shape(layer, signal), signal.norm), input_gain=1.0)


@bound_rule(AvgPool2d)
def bound_average_pool(layer: AvgPool2d, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain ``1 / window``, 1 if scaled."""
    gain = 1.0 if layer.scaled else 1.0 / layer.window
    return LayerBound(output=Signal(_pooled_shape(layer, signal), gain * signal.norm), input_gain=gain)


@bound_rule(GlobalL2Pool2d, Rounding.RELATIVE)
def bound_global_l2_pool(layer: GlobalL2Pool2d, signal: Signal, weights: WeightNorms) -> LayerBound:
    """The norms of the channels have the input's norm; gain 1."""
    if len(signal.shape) != 3:
        raise InvalidBoundError(f"Expected a (C, H, W) map, got {signal.shape} (GlobalL2Pool2d)")
    return LayerBound(output=Signal(signal.shape[:1], signal.norm), input_gain=1.0)


def _pooled_shape(layer: L2Pool2d | MaxPool2d | AvgPool2d, signal: Signal) -> tuple[int, ...]:
    if len(signal.shape) != 3 or min(signal.shape[1:]) < layer.window:
        raise InvalidBoundError(
            f"Expected a (C, H, W) map of at least {layer.window}, got {signal.shape} ({type(layer).__name__})"
        )
    channels, height, width = signal.shape
    return channels, height // layer.window, width // layer.window
