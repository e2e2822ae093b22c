r"""Bounds of the dense layer ``y = W x + b``, on one vector or on T tokens.

For one example with input x (one vector, or T vectors as rows) and cotangent g of y::

    |y| <= |W| |x| + sqrt(T) |b|        |dL/dx| <= |W| |g|
    |dL/dW|_F = |g^T x|_F <= |g| |x|    |dL/db| = |sum_t g_t| <= sqrt(T) |g|

with Frobenius norms over the tokens; the third is an equality for one vector (Bethune et al. 2024,
arXiv 2305.16202, section 3).
"""

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule
from clipless.bounds.bias import bias_bounds
from clipless.errors import InvalidBoundError
from clipless.layers import Dense
from clipless.norms import current_norm, spectral_norm_upper
from clipless.scalars import smaller


@bound_rule(Dense)
def bound_dense(layer: Dense, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Bound a dense layer; exact for the weight's gradient on one vector."""
    if len(signal.shape) not in (1, 2) or signal.shape[-1] != layer.in_features:
        raise InvalidBoundError(
            f"Expected an input of shape ({layer.in_features},) or (T, {layer.in_features}), got {signal.shape} (Dense)"
        )
    norm = layer.constraint.radius
    if weights is WeightNorms.CURRENT:
        norm = smaller(current_norm(layer.weight), norm)
    elif weights is WeightNorms.MEASURED:
        norm = spectral_norm_upper(layer.weight)
    tokens = signal.shape[0] if len(signal.shape) == 2 else 1
    shift, gains = bias_bounds(layer, tokens, weights)
    return LayerBound(
        output=Signal((*signal.shape[:-1], layer.out_features), norm * signal.norm + shift),
        input_gain=norm,
        parameter_gains={"weight": signal.norm, **gains},
        normalised_gains={"weight": 1.0, **gains},
    )
