"""Residual networks and wide ones (He et al. 2016, arXiv 1512.03385; Zagoruyko and Komodakis 2016, arXiv 1605.07146).

Each block is ``a x + (1 - a) f(x)``, so that a network of 1-Lipschitz layers is 1-Lipschitz whatever its depth; the
plain sum would double the constant block by block.
"""

from collections.abc import Sequence

import torch
from torch import nn

from clipless.layers import Conv2d, Dense, Flatten, InputBall, Residual
from clipless.network import Network
from clipless.projections import Constraint
from clipless.zoo import parts


def resnet(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    width: int = 16,
    depth: int = 2,
    blocks: int = 1,
    skip: float = 0.5,
    learned_skip: bool = False,
    activation: str = "groupsort",
    bias: bool = False,
    bias_norm: float = 1.0,
    constraint: Constraint | None = None,
    generator: torch.Generator | None = None,
) -> Network:
    """A 3x3 convolution, stages of residual blocks (convolution, activation, convolution), one dense layer.

    Between stages a 2x2 convolution with stride 2 halves the map and doubles the channels.

    Args:
        input_shape: (C, H, W) of one example.
        outputs: number of logits.
        input_norm: radius of the input ball.
        width: channels of the first stage. Even.
        depth: number of stages.
        blocks: residual blocks in one stage.
        skip: a, share of the identity in a block, in [0, 1).
        learned_skip: whether a is trained, from ``skip`` on.
        activation: a key of `clipless.zoo.ACTIVATIONS`.
        bias: whether convolutions and the dense layer have one.
        bias_norm: radius of the ball that each bias is kept in. A public number.
        constraint: of every weight; `Orthogonal` by default.
        generator: draws the initial weights.
    """
    parts.check_maps(tuple(input_shape), 2 ** (depth - 1), f"depth={depth}")

    def convolution(channels: int, out: int, kernel: int, stride: int, padding: int) -> Conv2d:
        return Conv2d(channels, out, kernel, stride, padding, constraint, generator, bias=bias, bias_norm=bias_norm)

    channels, height, size = input_shape
    layers: list[nn.Module] = [InputBall(input_norm), convolution(channels, width, 3, 1, 1)]
    layers.append(parts.activation(activation, width))
    for stage in range(depth):
        out = width * 2**stage
        if stage:
            layers += [convolution(out // 2, out, 2, 2, 0), parts.activation(activation, out)]
            height, size = height // 2, size // 2
        for _ in range(blocks):
            inside = [convolution(out, out, 3, 1, 1), parts.activation(activation, out), convolution(out, out, 3, 1, 1)]
            layers += [Residual(inside, skip, learned=learned_skip), parts.activation(activation, out)]
    features = width * 2 ** (depth - 1) * height * size
    layers += [Flatten(), Dense(features, outputs, constraint, generator, bias=bias, bias_norm=bias_norm)]
    return Network(layers, input_shape)


def wide_resnet(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    width: int = 8,
    widening: int = 4,
    depth: int = 2,
    blocks: int = 1,
    skip: float = 0.5,
    learned_skip: bool = False,
    activation: str = "groupsort",
    bias: bool = False,
    bias_norm: float = 1.0,
    constraint: Constraint | None = None,
    generator: torch.Generator | None = None,
) -> Network:
    """A `resnet` with ``width * widening`` channels, few blocks deep.

    Args:
        input_shape: (C, H, W) of one example.
        outputs: number of logits.
        input_norm: radius of the input ball.
        width: channels of the first stage before widening. Even.
        widening: factor of the channels.
        depth: number of stages.
        blocks: residual blocks in one stage.
        skip: a, share of the identity in a block, in [0, 1).
        learned_skip: whether a is trained, from ``skip`` on.
        activation: a key of `clipless.zoo.ACTIVATIONS`.
        bias: whether convolutions and the dense layer have one.
        bias_norm: radius of the ball that each bias is kept in. A public number.
        constraint: of every weight; `Orthogonal` by default.
        generator: draws the initial weights.
    """
    return resnet(
        input_shape,
        outputs,
        input_norm=input_norm,
        width=width * widening,
        depth=depth,
        blocks=blocks,
        skip=skip,
        learned_skip=learned_skip,
        activation=activation,
        bias=bias,
        bias_norm=bias_norm,
        constraint=constraint,
        generator=generator,
    )
