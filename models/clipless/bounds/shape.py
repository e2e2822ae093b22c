"""Bounds of layers that only rearrange: everything is preserved, or zeros take the place of some entries.

A shift moves the map of each channel by one offset: an entry goes to one place or drops out, no two go to the same, and
zeros come in. Its matrix has at most one 1 in each row and in each column, and zeros elsewhere, so that ``|y| <= |x|``
with equality for what stays inside; its transpose moves cotangents back.
"""

from math import prod

from clipless.bounds._rules import LayerBound, Rounding, Signal, WeightNorms, bound_rule
from clipless.errors import InvalidBoundError
from clipless.layers import Flatten, Shift, SpaceToDepth, SwapAxes, Tokens


@bound_rule(Flatten, Rounding.EXACT)
def bound_flatten(layer: Flatten, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Everything is preserved."""
    return LayerBound(output=Signal((prod(signal.shape),), signal.norm), input_gain=1.0)


@bound_rule(SpaceToDepth, Rounding.EXACT)
def bound_space_to_depth(layer: SpaceToDepth, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Everything is preserved; blocks must tile the map."""
    if len(signal.shape) != 3 or any(n % layer.block for n in signal.shape[1:]):
        raise InvalidBoundError(
            f"Expected a (C, H, W) map that blocks of {layer.block} tile, got {signal.shape} (SpaceToDepth)"
        )
    channels, height, width = signal.shape
    shape = (channels * layer.block**2, height // layer.block, width // layer.block)
    return LayerBound(output=Signal(shape, signal.norm), input_gain=1.0)


@bound_rule(Tokens, Rounding.EXACT)
def bound_tokens(layer: Tokens, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Everything is preserved."""
    if len(signal.shape) != 3:
        raise InvalidBoundError(f"Expected a (C, H, W) map, got {signal.shape} (Tokens)")
    channels, height, width = signal.shape
    return LayerBound(output=Signal((height * width, channels), signal.norm), input_gain=1.0)


@bound_rule(SwapAxes, Rounding.EXACT)
def bound_swap_axes(layer: SwapAxes, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Everything is preserved."""
    if len(signal.shape) != 2:
        raise InvalidBoundError(f"Expected tokens (T, C), got {signal.shape} (SwapAxes)")
    return LayerBound(output=Signal((signal.shape[1], signal.shape[0]), signal.norm), input_gain=1.0)


@bound_rule(Shift, Rounding.EXACT)
def bound_shift(layer: Shift, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1; what leaves the map is dropped."""
    if len(signal.shape) != 3:
        raise InvalidBoundError(f"Expected a (C, H, W) map, got {signal.shape} (Shift)")
    return LayerBound(output=Signal(signal.shape, signal.norm), input_gain=1.0)
