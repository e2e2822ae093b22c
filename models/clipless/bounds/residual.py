r"""Bounds of a residual block around layers f, composed from the rules of those layers.

With X the bound of ``|x|``, F that of ``|f(x)|`` and L the Lipschitz constant of f::

    x + f(x):              output X + F                gain 1 + L                cotangent into f: g
    a x + (1 - a) f(x):    output a X + (1 - a) F      gain a + (1 - a) L        cotangent into f: (1 - a) g

A learned a may lie anywhere in [0, 1] during training, so that each factor takes its largest value over a:
``max(X, F)``, ``max(1, L)`` and 1. Its own gradient is ``<g, x - f(x)>``, at most ``(X + F) |g|``.
"""

from math import inf

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule, learned_number, rounding
from clipless.bounds.composition.compose import bound_sequence, compose
from clipless.errors import InvalidBoundError
from clipless.layers import Residual
from clipless.scalars import Scalar, larger, modulus


@bound_rule(Residual)
def bound_residual(layer: Residual, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Compose the inner bounds and mix them with the identity."""
    named = [(f"layers.{index}", inner) for index, inner in enumerate(layer.layers)]
    inside = compose(bound_sequence(named, signal, weights))
    if inside.output.shape != signal.shape:
        raise InvalidBoundError(
            f"Expected layers that keep the shape {signal.shape}, got {inside.output.shape} (Residual)"
        )
    passed, norm, gain = _mix(layer, weights, signal.norm, inside)
    parameters = {name: passed * value for name, value in inside.parameter_gains.items()}
    normalised = {name: passed * value for name, value in inside.normalised_gains.items()}
    if layer.learned:
        parameters["mix"] = signal.norm + inside.output.norm
        normalised["mix"] = 1.0
    return LayerBound(
        output=Signal(signal.shape, norm),
        input_gain=gain,
        parameter_gains=parameters,
        normalised_gains=normalised,
        depth=inside.depth + 1,
        error=(inf if inside.error is None else inside.error)
        + 2.0 * rounding(layer, signal.shape, signal.shape, signal.norm + norm),
    )


def _mix(layer: Residual, weights: WeightNorms, norm: Scalar, inside: LayerBound) -> tuple[Scalar, Scalar, Scalar]:
    """Factor of the cotangent into f, output norm and gain to the input."""
    if layer.mix is not None and weights is WeightNorms.CONSTRAINED:
        return 1.0, larger(norm, inside.output.norm), larger(1.0, inside.input_gain)
    if layer.weight is None:
        return 1.0, norm + inside.output.norm, 1.0 + inside.input_gain
    share: Scalar = layer.weight if layer.mix is None else learned_number(layer.mix, weights)
    kept, passed = modulus(share), modulus(1.0 - share)
    return passed, kept * norm + passed * inside.output.norm, kept + passed * inside.input_gain
