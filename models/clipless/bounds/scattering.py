"""Bound of the scattering transform: a constant computed from its filters (`clipless.layers._wavelets`)."""

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule
from clipless.errors import InvalidBoundError
from clipless.layers.scattering import Scattering2d


@bound_rule(Scattering2d)
def bound_scattering(layer: Scattering2d, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain as computed; the map is 0 at 0, so the output norm is at most the gain times X."""
    if len(signal.shape) != 3 or signal.shape[1:] != layer.size:
        raise InvalidBoundError(
            f"Expected a (C, {layer.size[0]}, {layer.size[1]}) map, got {signal.shape} (Scattering2d)"
        )
    gain = layer.lipschitz
    return LayerBound(output=Signal(layer.output_shape(signal.shape[0]), gain * signal.norm), input_gain=gain)
