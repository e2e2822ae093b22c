"""LeNet-like networks: 5x5 convolutions and three dense layers (LeCun et al. 1998)."""

from collections.abc import Sequence

import torch
from torch import nn

from clipless.layers import Conv2d, Dense, Flatten, InputBall
from clipless.network import Network
from clipless.projections import Constraint
from clipless.zoo import parts


def lenet(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    width: int = 6,
    hidden: int = 120,
    activation: str = "groupsort",
    pooling: str = "l2",
    bias: bool = False,
    bias_norm: float = 1.0,
    constraint: Constraint | None = None,
    generator: torch.Generator | None = None,
) -> Network:
    """Two blocks of padded 5x5 convolution, activation and pooling, then three dense layers.

    Args:
        input_shape: (C, H, W) of one example, at least 4 x 4.
        outputs: number of logits.
        input_norm: radius of the input ball.
        width: channels of the first block; the second has 8/3 as many (6 and 16). Even.
        hidden: features of the first dense layer; the second has 7/10 of them (120 and 84). Even.
        activation: a key of `clipless.zoo.ACTIVATIONS`.
        pooling: a key of `clipless.zoo.POOLINGS`.
        bias: whether convolutions and dense layers have one.
        bias_norm: radius of the ball that each bias is kept in. A public number.
        constraint: of every weight; `Orthogonal` by default.
        generator: draws the initial weights.
    """
    parts.check_maps(tuple(input_shape), 4, "two poolings")
    channels, height, size = input_shape
    layers: list[nn.Module] = [InputBall(input_norm)]
    for out in (width, 2 * round(width * 4 / 3)):
        layers += [
            Conv2d(
                channels, out, 5, padding=2, constraint=constraint, generator=generator, bias=bias, bias_norm=bias_norm
            ),
            parts.activation(activation, out),
            parts.pooling(pooling, 2),
        ]
        channels, height, size = out, height // 2, size // 2
    layers.append(Flatten())
    features = channels * height * size
    for out in (hidden, 2 * round(hidden * 0.35)):
        layers += [
            Dense(features, out, constraint, generator, bias=bias, bias_norm=bias_norm),
            parts.activation(activation, out),
        ]
        features = out
    layers.append(Dense(features, outputs, constraint, generator, bias=bias, bias_norm=bias_norm))
    return Network(layers, input_shape)
