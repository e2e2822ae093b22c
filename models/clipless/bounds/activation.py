r"""Bounds of activations. n is the number of elements of one example, X the norm bound of the input.

GroupSort permutes and the modulus flips signs: both preserve every norm. For an elementwise f, ``sup |f(x)|`` over
``|x| <= X`` is the largest ``sum_i h(u_i)`` with ``h(u) = f(sqrt u)^2`` and ``sum_i u_i <= X^2``. For the sigmoid and
tanh h increases and is concave (``f f' / t`` decreases in t > 0), so that equal entries are worst (Jensen)::

    |tanh x| <= sqrt(n) tanh(X / sqrt n)        |sigmoid x| <= sqrt(n) sigmoid(X / sqrt n)

Softplus is ReLU plus ``log(1 + exp(-|t|)) <= log 2``: its norm is at most ``X + sqrt(n) log 2``.

Householder: each pair z of features stays or is reflected, so norms are preserved, and the map is continuous where
the two pieces meet. The derivative of the reflected pair in its angle has norm ``|z|``: with ``z_p`` all values of
pair p in one example and ``g_p`` their cotangents, ``|dL/dtheta_p| <= |z_p| |g_p|``, and ``|dL/dtheta| <= |x| |g|``
by Cauchy-Schwarz.
"""

from math import log, prod, sqrt

from clipless.bounds._rules import LayerBound, Rounding, Signal, WeightNorms, bound_rule
from clipless.errors import InvalidBoundError
from clipless.layers import Abs, GroupSort, Householder, ReLU, Sigmoid, Softplus, Tanh
from clipless.scalars import exponential, hyperbolic_tangent, smaller

# Relative; the closed forms are evaluated in float64, the layers in float32.
_ROUNDED_UP = 1.0 + 1e-6


@bound_rule(GroupSort, Rounding.EXACT)
def bound_group_sort(layer: GroupSort, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1; the groups must divide the features."""
    features = signal.shape[0] if layer.axis == 1 else signal.shape[-1]
    if layer.group_size is not None and features % layer.group_size:
        raise InvalidBoundError(
            f"Expected a number of features divisible by {layer.group_size}, got {features} (GroupSort)"
        )
    return LayerBound(output=signal, input_gain=1.0)


@bound_rule(ReLU, Rounding.EXACT)
@bound_rule(Abs, Rounding.EXACT)
def bound_relu_or_abs(layer: ReLU | Abs, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1, and 0 at 0; the modulus preserves norms."""
    return LayerBound(output=signal, input_gain=1.0)


@bound_rule(Tanh, Rounding.RELATIVE)
def bound_tanh(layer: Tanh, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1; saturates at ``sqrt(n)``."""
    root = sqrt(prod(signal.shape))
    norm = root * hyperbolic_tangent(signal.norm / root) * _ROUNDED_UP
    return LayerBound(output=Signal(signal.shape, smaller(norm, signal.norm)), input_gain=1.0)


@bound_rule(Sigmoid, Rounding.RELATIVE_IF_EXACT)
def bound_sigmoid(layer: Sigmoid, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1/4; the output is ``sqrt(n) / 2`` at 0 and saturates at ``sqrt(n)``."""
    root = sqrt(prod(signal.shape))
    norm = root / (1.0 + exponential(-signal.norm / root)) * _ROUNDED_UP
    return LayerBound(output=Signal(signal.shape, norm), input_gain=0.25)


@bound_rule(Softplus, Rounding.RELATIVE_IF_EXACT)
def bound_softplus(layer: Softplus, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1; the output is ``sqrt(n) log 2`` at 0."""
    norm = (signal.norm + sqrt(prod(signal.shape)) * log(2.0)) * _ROUNDED_UP
    return LayerBound(output=Signal(signal.shape, norm), input_gain=1.0)


@bound_rule(Householder)
def bound_householder(layer: Householder, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Norm-preserving; gain X to the angles."""
    if signal.shape[0] != layer.features:
        raise InvalidBoundError(f"Expected {layer.features} features, got shape {signal.shape} (Householder)")
    return LayerBound(
        output=signal, input_gain=1.0, parameter_gains={"angle": signal.norm}, normalised_gains={"angle": 1.0}
    )
