"""A fixed scattering front with a small trained head."""

from collections.abc import Sequence

import torch
from torch import nn

from clipless.layers import Dense, Flatten, InputBall, Scattering2d
from clipless.network import Network
from clipless.projections import Constraint
from clipless.zoo import parts


def scattering(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    scales: int = 2,
    orientations: int = 8,
    order: int = 1,
    order0_gain: float = 0.2,
    order2_gain: float = 1.0,
    feature_clip: float | None = None,
    hidden: int = 0,
    activation: str = "groupsort",
    bias: bool = False,
    bias_norm: float = 1.0,
    constraint: Constraint | None = None,
    generator: torch.Generator | None = None,
) -> Network:
    """Scattering features, optionally clipped in norm, then one dense layer, or two.

    Filters are fixed by formulas, so the front costs no privacy and its features are computed once; its
    computed constant enters every certificate, which therefore holds in the units of the image (as a front for
    private training: Tramer and Boneh 2021, arXiv 2011.11660).

    Args:
        input_shape: (C, H, W) of one example.
        outputs: number of logits.
        input_norm: radius of the input ball.
        scales: J, octaves; the features' grid is coarser by ``2**scales``.
        orientations: angles of the wavelets.
        order: largest number of moduli, 1 or 2.
        order0_gain: factor of the averages, whose norm is otherwise most of the norm of all features and drowns
            the rest once norms are clipped. A public number.
        order2_gain: factor of the channels of second order, whose norm is small. A public number.
        feature_clip: radius of the ball that features are projected onto; left out, the bound of their norm.
        hidden: features between two dense layers, even; 0 for one dense layer.
        activation: between the two dense layers, a key of `clipless.zoo.ACTIVATIONS`.
        bias: whether dense layers have one.
        bias_norm: radius of the ball that each bias is kept in. A public number.
        constraint: of every weight; `Orthogonal` by default.
        generator: draws the initial weights.
    """
    if len(input_shape) != 3:
        raise ValueError(f"Expected (C, H, W) maps, got {tuple(input_shape)} (scattering)")
    if order not in (1, 2):
        raise ValueError(f"Expected order 1 or 2, got order={order!r} (scattering)")
    channels, height, width = input_shape
    gains = (order0_gain, 1.0, order2_gain)[: order + 1]
    front = Scattering2d((height, width), scales, orientations, gains)
    layers: list[nn.Module] = [InputBall(input_norm), front, Flatten()]
    if feature_clip is not None:
        layers.append(InputBall(feature_clip))
    features = torch.Size(front.output_shape(channels)).numel()
    if hidden:
        layers.append(Dense(features, hidden, constraint, generator, bias=bias, bias_norm=bias_norm))
        layers.append(parts.activation(activation, hidden))
        features = hidden
    layers.append(Dense(features, outputs, constraint, generator, bias=bias, bias_norm=bias_norm))
    return Network(layers, input_shape)
