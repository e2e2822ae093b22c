"""Bounds of the dense layer ``y = W x + b``, on one vector or on T tokens, and of any bias.

For one example with input x (one vector, or T vectors as rows) and cotangent g of y::

    |y| <= |W| |x| + sqrt(T) |b|        |dL/dx| <= |W| |g|
    |dL/dW|_F = |g^T x|_F <= |g| |x|    |dL/db| = |sum_t g_t| <= sqrt(T) |g|

with Frobenius norms over the tokens; the third is an equality for one vector (Bethune et al. 2024,
arXiv 2305.16202, section 3).

A bias with ``|b| <= B`` that is added at n positions adds at most ``sqrt(n) B`` to the output. Its gradient is the
cotangent summed over the positions, at most ``sqrt(n) |g|``, attained by a cotangent that is the same everywhere. It
does not depend on the input, so that normalised training has the same gain.
"""

from collections.abc import Mapping
from math import sqrt

from torch import Tensor

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule
from clipless.errors import InvalidBoundError
from clipless.layers import Dense
from clipless.layers._base import BiasedLayer
from clipless.norms import current_norm, spectral_norm_upper
from clipless.scalars import Scalar, smaller


def largest_norm(matrix: Tensor, radius: Scalar, weights: WeightNorms) -> Scalar:
    """Return the largest spectral norm of a matrix that is kept within ``radius``, for these weights."""
    if weights is WeightNorms.CURRENT:
        return smaller(current_norm(matrix), radius)
    return spectral_norm_upper(matrix) if weights is WeightNorms.MEASURED else radius


def bias_bounds(layer: BiasedLayer, positions: int, weights: WeightNorms) -> tuple[Scalar, Mapping[str, Scalar]]:
    """Return the bias's share of the output norm, and the gains to it; nothing without a bias."""
    if layer.bias_norm is None or layer.bias is None:
        return 0.0, {}
    largest = largest_norm(layer.bias[None], layer.bias_norm, weights)
    return sqrt(positions) * largest, {"bias": sqrt(positions)}


@bound_rule(Dense)
def bound_dense(layer: Dense, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Bound a dense layer; exact for the weight's gradient on one vector."""
    if len(signal.shape) not in (1, 2) or signal.shape[-1] != layer.in_features:
        raise InvalidBoundError(
            f"Expected an input of shape ({layer.in_features},) or (T, {layer.in_features}), got {signal.shape} (Dense)"
        )
    norm = largest_norm(layer.weight, layer.constraint.radius, weights)
    tokens = signal.shape[0] if len(signal.shape) == 2 else 1
    shift, gains = bias_bounds(layer, tokens, weights)
    return LayerBound(
        output=Signal((*signal.shape[:-1], layer.out_features), norm * signal.norm + shift),
        input_gain=norm,
        parameter_gains={"weight": signal.norm, **gains},
        normalised_gains={"weight": 1.0, **gains},
    )
