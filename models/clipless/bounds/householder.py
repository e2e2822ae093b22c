r"""Bound of the Householder activation.

Each pair z of features stays or is reflected, so norms are preserved, and the map is continuous where the two pieces
meet. The derivative of the reflected pair in its angle has norm ``|z|``: with ``z_p`` all values of pair p in one
example and ``g_p`` their cotangents, ``|dL/dtheta_p| <= |z_p| |g_p|``, and ``|dL/dtheta| <= |x| |g|`` by
Cauchy-Schwarz.
"""

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule
from clipless.errors import InvalidBoundError
from clipless.layers import Householder


@bound_rule(Householder)
def bound_householder(layer: Householder, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Norm-preserving; gain X to the angles."""
    del weights
    if signal.shape[0] != layer.features:
        raise InvalidBoundError(f"Expected {layer.features} features, got shape {signal.shape} (Householder)")
    return LayerBound(
        output=signal,
        input_gain=1.0,
        parameter_gains={"angle": signal.norm},
        normalised_gains={"angle": 1.0},
    )
