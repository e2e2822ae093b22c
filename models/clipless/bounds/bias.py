r"""Bounds of a bias that is added at n positions, with ``|b| <= B``.

The output grows by at most ``sqrt(n) B``, and the gradient of b is the cotangent summed over the positions: at most
``sqrt(n) |g|``, attained by a cotangent that is the same everywhere. It does not depend on the input, so that
normalised training has the same gain.
"""

from collections.abc import Mapping
from math import sqrt

from clipless.bounds._rules import WeightNorms
from clipless.layers import Conv1d, Conv2d, Dense
from clipless.norms import current_norm, spectral_norm_upper
from clipless.scalars import smaller


def bias_bounds(
    layer: Dense | Conv1d | Conv2d, positions: int, weights: WeightNorms
) -> tuple[float, Mapping[str, float]]:
    """Return what the bias adds to the output norm, and the gains to it; nothing without one."""
    if layer.bias_norm is None or layer.bias is None:
        return 0.0, {}
    largest = layer.bias_norm
    if weights is WeightNorms.CURRENT:
        largest = smaller(current_norm(layer.bias[None]), largest)
    elif weights is WeightNorms.MEASURED:
        largest = spectral_norm_upper(layer.bias[None])
    return sqrt(positions) * largest, {"bias": sqrt(positions)}
