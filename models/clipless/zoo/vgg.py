"""VGG-like networks: blocks of several 3x3 convolutions (Simonyan and Zisserman 2015, arXiv 1409.1556)."""

from collections.abc import Sequence

import torch
from torch import nn

from clipless.layers import Conv2d, Dense, Flatten, InputBall
from clipless.network import Network
from clipless.projections import Constraint
from clipless.zoo import parts


def vgg(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    width: int = 16,
    depth: int = 2,
    convolutions: int = 2,
    hidden: int = 128,
    activation: str = "groupsort",
    pooling: str = "l2",
    bias: bool = False,
    bias_norm: float = 1.0,
    constraint: Constraint | None = None,
    generator: torch.Generator | None = None,
) -> Network:
    """Blocks of 3x3 convolutions with activations and one pooling, then two dense layers.

    Args:
        input_shape: (C, H, W) of one example.
        outputs: number of logits.
        input_norm: radius of the input ball.
        width: channels of the first block; they double from block to block. Even.
        depth: number of blocks; each halves the map.
        convolutions: in one block.
        hidden: features between the two dense layers; even.
        activation: a key of `clipless.zoo.ACTIVATIONS`.
        pooling: a key of `clipless.zoo.POOLINGS`.
        bias: whether convolutions and dense layers have one.
        bias_norm: radius of the ball that each bias is kept in. A public number.
        constraint: of every weight; `Orthogonal` by default.
        generator: draws the initial weights.
    """
    parts.check_maps(tuple(input_shape), 2**depth, f"depth={depth}")
    channels, height, size = input_shape
    layers: list[nn.Module] = [InputBall(input_norm)]
    for block in range(depth):
        out = width * 2**block
        for _ in range(convolutions):
            layers += [
                Conv2d(
                    channels,
                    out,
                    3,
                    padding=1,
                    constraint=constraint,
                    generator=generator,
                    bias=bias,
                    bias_norm=bias_norm,
                ),
                parts.activation(activation, out),
            ]
            channels = out
        layers.append(parts.pooling(pooling, 2))
        height, size = height // 2, size // 2
    layers += [
        Flatten(),
        Dense(channels * height * size, hidden, constraint, generator, bias=bias, bias_norm=bias_norm),
        parts.activation(activation, hidden),
        Dense(hidden, outputs, constraint, generator, bias=bias, bias_norm=bias_norm),
    ]
    return Network(layers, input_shape)
