r"""Bounds of the convex potential layer ``y = x - 2 W^T s``, ``s = relu(W x + b)``, on one vector or on T tokens.

With ``w = |W|``, ``|x| <= X``, ``|b| <= B`` and D the diagonal matrix of ``1[s > 0]``, the Jacobian is
``I - 2 W^T D W``. ``0 <= W^T D W <= w^2 I``, so that its eigenvalues lie in ``[1 - 2 w^2, 1]``: the layer is
``max(1, 2 w^2 - 1)``-Lipschitz, 1 for ``w <= 1`` (Meunier et al. 2022, arXiv 2110.12690). On the way from 0 to x the
output moves by at most that times X from ``-2 W^T relu(b)``::

    |y| <= max(1, 2 w^2 - 1) X + 2 w sqrt(T) B          |s| <= |W x + b| <= w X + sqrt(T) B

For a cotangent g of y, ``h = D W (-2 g)`` is that of ``W x + b``, and W is used twice::

    dL/dW = h x^T + s (-2 g)^T      |dL/dW| <= |h| |x| + 2 |s| |g| <= (4 w X + 2 sqrt(T) B) |g|
    dL/db = sum over tokens of h    |dL/db| <= sqrt(T) |h| <= 2 w sqrt(T) |g|

in Frobenius norms over tokens. All are attained at once by D = H = 1, W = 1, x = X, b = B, g = 1. Normalised training
divides a contribution by ``|x| + sqrt(T) B``: at most ``(4 w |x| + 2 sqrt(T) B) / (|x| + sqrt(T) B) <= 2 max(2 w, 1)``,
and 4 w without a bias.

In a forward pass both products, and the difference, are off by a share of ``X + 2 w |s|`` each.
"""

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule, rounding
from clipless.bounds.linear import bias_bounds, largest_norm
from clipless.errors import InvalidBoundError
from clipless.layers import ConvexPotential
from clipless.scalars import larger


@bound_rule(ConvexPotential)
def bound_convex_potential(layer: ConvexPotential, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain 1 for a norm of at most 1; the weight counts for both of its uses."""
    if len(signal.shape) not in (1, 2) or signal.shape[-1] != layer.features:
        raise InvalidBoundError(
            f"Expected an input of shape ({layer.features},) or (T, {layer.features}), got {signal.shape} "
            "(ConvexPotential)"
        )
    norm = largest_norm(layer.weight, layer.constraint.radius, weights)
    tokens = signal.shape[0] if len(signal.shape) == 2 else 1
    shift, roots = bias_bounds(layer, tokens, weights)
    gain = larger(1.0, 2.0 * norm * norm - 1.0)
    gains = {name: 2.0 * norm * root for name, root in roots.items()}
    hidden = norm * signal.norm + shift
    return LayerBound(
        output=Signal(signal.shape, gain * signal.norm + 2.0 * norm * shift),
        input_gain=gain,
        parameter_gains={"weight": 2.0 * norm * signal.norm + 2.0 * hidden, **gains},
        normalised_gains={"weight": 4.0 * norm if not gains else 2.0 * larger(2.0 * norm, 1.0), **gains},
        depth=2,
        error=2.0 * rounding(layer, signal.shape, signal.shape, signal.norm + 2.0 * norm * hidden),
    )
