r"""Bounds of the zero-padded convolution with kernel ``c K``.

With m the largest number of patches that contain one input element, the patches of an example have norm at
most ``sqrt(m) |x|``. For a cotangent g of the output::

    |y| <= c |K|_op |x|        |dL/dx| <= c |K|_op |g|        |dL/dK| <= c sqrt(m) |x| |g|

and ``c |K|_op <= c sqrt(m) |K reshaped|``. Published code leaves sqrt(m) out of the last gain, or divides by
averages over the zero padding, which is not a bound.
"""

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule
from clipless.errors import InvalidBoundError
from clipless.guard import patch_counts
from clipless.layers import Conv2d
from clipless.norms import conv2d_norm_upper


@bound_rule(Conv2d)
def bound_conv2d(layer: Conv2d, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Bound a convolution; a constant map under a constant cotangent approaches the kernel's gain as maps grow."""
    if len(signal.shape) != 3 or signal.shape[0] != layer.in_channels:
        raise InvalidBoundError(f"Expected an input of shape ({layer.in_channels}, H, W), got {signal.shape} (Conv2d)")
    size = (signal.shape[1], signal.shape[2])
    heights, widths = (
        (n + 2 * p - k) // s + 1
        for n, p, k, s in zip(size, layer.padding, layer.kernel_size, layer.stride, strict=True)
    )
    if heights < 1 or widths < 1:
        raise InvalidBoundError(f"Expected a map of at least {layer.kernel_size}, got {size} (Conv2d)")
    most_patches = float(patch_counts(size, layer.kernel_size, layer.stride, layer.padding).max())
    patches_gain = layer.scale * most_patches**0.5
    if weights is WeightNorms.CONSTRAINED:
        norm = patches_gain * layer.constraint.radius
    else:
        norm = conv2d_norm_upper(layer.weight.detach().double() * layer.scale, size, layer.stride)
    return LayerBound(
        output=Signal((layer.out_channels, heights, widths), norm * signal.norm),
        input_gain=norm,
        parameter_gains={"weight": patches_gain * signal.norm},
    )
