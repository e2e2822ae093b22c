"""Bounds of the convolution with kernel ``c K``, zero-padded or circular, and of the scattering transform.

With m the largest number of patches that contain one input element, the patches of an example have norm at
most ``sqrt(m) |x|``. For a cotangent g of the output::

    |y| <= c |K|_op |x|        |dL/dx| <= c |K|_op |g|        |dL/dK| <= c sqrt(m) |x| |g|

and ``c |K|_op <= c sqrt(m) |K reshaped|``. Published code leaves sqrt(m) out of the last gain, or divides by
averages over the zero padding, which is not a bound. Under circular padding every element lies in all ``h w``
places of a patch. Groups split x, g and K into blocks: the largest block norm replaces ``|K|``, and the last inequality
holds for the blocks together by Cauchy-Schwarz.

The constant of the scattering transform is computed from its filters (`clipless.layers._wavelets`).
"""

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_rule
from clipless.bounds.linear import bias_bounds
from clipless.errors import InvalidBoundError
from clipless.guards.convolution import patch_counts
from clipless.layers import Conv1d, Conv2d
from clipless.layers.scattering import Scattering2d
from clipless.norms import conv2d_norm_upper, current_norm
from clipless.scalars import smaller

Pair = tuple[int, int]


@bound_rule(Conv2d)
def bound_conv2d(layer: Conv2d, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Bound a convolution; a constant map under a constant cotangent approaches the kernel's gain as maps grow."""
    if len(signal.shape) != 3 or signal.shape[0] != layer.in_channels:
        raise InvalidBoundError(f"Expected an input of shape ({layer.in_channels}, H, W), got {signal.shape} (Conv2d)")
    return _bound(layer, signal, (signal.shape[1], signal.shape[2]), weights)


@bound_rule(Conv1d)
def bound_conv1d(layer: Conv1d, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Bound a convolution over time as one over maps of height 1."""
    if len(signal.shape) != 2 or signal.shape[0] != layer.in_channels:
        raise InvalidBoundError(f"Expected an input of shape ({layer.in_channels}, T), got {signal.shape} (Conv1d)")
    return _bound(layer, signal, (1, signal.shape[1]), weights)


def _bound(layer: Conv1d | Conv2d, signal: Signal, size: Pair, weights: WeightNorms) -> LayerBound:
    kernel, stride, padding = layer.geometry
    circular = layer.padding_mode == "circular"
    heights, widths = ((n + 2 * p - k) // s + 1 for n, p, k, s in zip(size, padding, kernel, stride, strict=True))
    if heights < 1 or widths < 1 or (circular and any(k > n for k, n in zip(kernel, size, strict=True))):
        raise InvalidBoundError(f"Expected a map of at least {kernel}, got {size} ({type(layer).__name__})")
    most_patches = kernel[0] * kernel[1] if circular else float(patch_counts(size, kernel, stride, padding).max())
    patches_gain = layer.scale * most_patches**0.5
    if weights is WeightNorms.CONSTRAINED:
        norm = patches_gain * layer.constraint.radius
    elif weights is WeightNorms.CURRENT:
        blocks = layer.weight.unflatten(0, (layer.groups, -1)).flatten(2)
        norm = patches_gain * smaller(layer.constraint.radius, current_norm(blocks))
    else:
        applied = (layer.weight.detach().double() * layer.scale).view(layer.out_channels, -1, *kernel)
        norm = conv2d_norm_upper(applied, size, stride, groups=layer.groups, circular=circular)
    shift, gains = bias_bounds(layer, heights * widths, weights)
    positions = (heights, widths) if len(signal.shape) == 3 else (widths,)
    return LayerBound(
        output=Signal((layer.out_channels, *positions), norm * signal.norm + shift),
        input_gain=norm,
        parameter_gains={"weight": patches_gain * signal.norm, **gains},
        normalised_gains={"weight": layer.scale, **gains},
    )


@bound_rule(Scattering2d)
def bound_scattering(layer: Scattering2d, signal: Signal, weights: WeightNorms) -> LayerBound:
    """Gain as computed; the map is 0 at 0, so the output norm is at most the gain times X."""
    if len(signal.shape) != 3 or signal.shape[1:] != layer.size:
        raise InvalidBoundError(
            f"Expected a (C, {layer.size[0]}, {layer.size[1]}) map, got {signal.shape} (Scattering2d)"
        )
    gain = layer.lipschitz
    return LayerBound(output=Signal(layer.output_shape(signal.shape[0]), gain * signal.norm), input_gain=gain)
