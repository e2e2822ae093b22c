"""Bounds of layers applied one after the other.

With ``L_j`` the input gains, the gradient of a parameter of layer k is at most its own gain times the product of
``L_j`` over the layers j behind it, per unit of the last cotangent.
"""

from collections.abc import Iterable, Sequence
from math import inf

from torch import nn

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_layer
from clipless.errors import InvalidBoundError
from clipless.norms import at_least_normal
from clipless.scalars import Scalar

NamedBounds = tuple[tuple[str, LayerBound], ...]


def bound_sequence(layers: Iterable[tuple[str, nn.Module]], signal: Signal, weights: WeightNorms) -> NamedBounds:
    """Bound each layer over every output of the layers before it.

    Raises:
        UnsupportedError: a layer without a rule.
        InvalidBoundError: shapes that do not fit, or a bound that is not finite.
    """
    bounds: list[tuple[str, LayerBound]] = []
    for name, layer in layers:
        bound = bound_layer(layer, signal, weights)
        bounds.append((name, bound))
        signal = bound.output
    return tuple(bounds)


def compose(bounds: Sequence[tuple[str, LayerBound]]) -> LayerBound:
    """Bound at least one layer as one; parameters are called by the layer's name, a dot and their own.

    Raises:
        InvalidBoundError: a layer that clips cotangents. Its bound is absolute, not per unit of cotangent; outside of
            the sequence it can be used.
    """
    parameters: dict[str, Scalar] = {}
    normalised: dict[str, Scalar] = {}
    gain: Scalar = 1.0
    for name, bound in reversed(bounds):
        if bound.cotangent_bound is not None:
            raise InvalidBoundError(f"Expected no clipping inside a block, got {name}; put it outside")
        for found, own in ((parameters, bound.parameter_gains), (normalised, bound.normalised_gains)):
            found.update({f"{name}.{parameter}": gain * value for parameter, value in own.items()})
        gain = at_least_normal(gain * bound.input_gain)
    return LayerBound(
        output=bounds[-1][1].output,
        input_gain=gain,
        parameter_gains=parameters,
        normalised_gains=normalised,
        depth=sum(bound.depth for _, bound in bounds),
        error=composed_error(bounds),
    )


def composed_error(bounds: Sequence[tuple[str, LayerBound]]) -> Scalar:
    """Bound the distance of a float64 forward pass from the exact output: layers enlarge the errors before them."""
    error: Scalar = 0.0
    for _, bound in bounds:
        error = error * bound.input_gain + (inf if bound.error is None else bound.error)
    return error
