"""Fixed scattering features with a small trained head."""

from math import prod
from typing import TYPE_CHECKING, Annotated

from clipless import layers
from clipless.option_types import Ge, Le, MultipleOf, NonNegative, Positive
from clipless.zoo._base import architecture
from clipless.zoo._options import LayerMaker

if TYPE_CHECKING:
    from torch import nn


@architecture
def scattering(
    input_shape: tuple[int, ...],
    outputs: int,
    make: LayerMaker,
    *,
    scales: Annotated[int, Ge(1), Le(4)] = 2,
    orientations: Annotated[int, Ge(1), Le(32)] = 8,
    order: Annotated[int, Ge(1), Le(2)] = 1,
    order0_gain: NonNegative = 0.2,
    order2_gain: NonNegative = 1.0,
    feature_groups: Annotated[int, Ge(0)] = 0,
    feature_floor: Positive = 0.01,
    feature_clip: Positive | None = None,
    hidden: Annotated[int, Ge(0), MultipleOf(2)] = 0,
) -> "list[nn.Module]":
    """Scattering features, optionally normalised by groups and clipped in norm, then one dense layer, or two.

    Filters are fixed by formulas, so that the features cost no privacy and are computed once; the transform's
    computed constant enters every certificate, which therefore holds in the units of the image (before private
    training: Tramer and Boneh 2021, arXiv 2011.11660).

    Options:
        scales: J, octaves; the features' grid is coarser by ``2**scales``.
        orientations: angles of the wavelets.
        order: largest number of moduli, 1 or 2.
        order0_gain: factor of the averages, whose norm is otherwise most of the norm of all features and drowns
            the rest once norms are clipped. A public number.
        order2_gain: factor of the channels of second order, whose norm is small. A public number.
        feature_groups: groups of neighbouring channels, each of which is brought to mean 0 and deviation 1, image by
            image; 0 for none. Every image then has about the same norm, and weak channels count as strong ones do.
        feature_floor: smallest deviation that a group is divided by, a public number: the smaller it is, the less a
            certificate says.
        feature_clip: radius of the ball that features are projected onto; left out, the bound of their norm.
        hidden: features between two dense layers; 0 for one dense layer.
    """
    if len(input_shape) != 3:
        raise ValueError(f"Expected (C, H, W) maps, got {input_shape} (scattering)")
    if order not in (1, 2):
        raise ValueError(f"Expected order 1 or 2, got order={order!r} (scattering)")
    channels, height, width = input_shape
    transform = layers.Scattering2d((height, width), scales, orientations, (order0_gain, 1.0, order2_gain)[: order + 1])
    maps = transform.output_shape(channels)
    stack: list[nn.Module] = [transform]
    if feature_groups:
        if maps[0] % feature_groups:
            raise ValueError(
                f"Expected feature_groups to divide the {maps[0]} channels, got {feature_groups} (scattering)"
            )
        stack.append(layers.GroupNorm(feature_groups, feature_floor))
    stack.append(layers.Flatten())
    if feature_clip is not None:
        stack.append(layers.InputBall(feature_clip))
    features = prod(maps)
    if hidden:
        stack += [make.dense(features, hidden), make.activation(hidden)]
        features = hidden
    return [*stack, make.dense(features, outputs)]
