"""Patch networks: every convolution has stride = kernel, so that its patches do not overlap."""

from collections.abc import Sequence

import torch
from torch import nn

from clipless.layers import Conv2d, Dense, Flatten, InputBall
from clipless.network import Network
from clipless.projections import Constraint
from clipless.zoo import parts


def patch_net(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    width: int = 16,
    depth: int = 2,
    patch: int = 2,
    hidden: int = 128,
    activation: str = "groupsort",
    pooling: str | None = None,
    bias: bool = False,
    bias_norm: float = 1.0,
    constraint: Constraint | None = None,
    generator: torch.Generator | None = None,
) -> Network:
    """Convolutions on disjoint patches with an activation each, then two dense layers.

    With orthogonal weights whose rows do not outnumber their columns and an activation that preserves norms each layer
    is norm-preserving backwards, and the guard's product bound is exact for one patch; the gain to a kernel has no
    factor for overlaps.

    Args:
        input_shape: (C, H, W) of one example.
        outputs: number of logits.
        input_norm: radius of the input ball.
        width: channels of the first convolution; they grow by ``patch**2`` per convolution. Even.
        depth: number of convolutions; each divides the map by ``patch``, and by 2 where it is pooled.
        patch: side of a patch.
        hidden: features between the two dense layers; even.
        activation: a key of `clipless.zoo.ACTIVATIONS`.
        pooling: of 2x2 windows after each activation, a key of `clipless.zoo.POOLINGS`; left out, none.
        bias: whether convolutions and dense layers have one.
        bias_norm: radius of the ball that each bias is kept in. A public number.
        constraint: of every weight; `Orthogonal` by default.
        generator: draws the initial weights.
    """
    shrink = patch if pooling is None else 2 * patch
    parts.check_maps(tuple(input_shape), shrink**depth, f"patch={patch}, pooling={pooling} and depth={depth}")
    channels, height, size = input_shape

    def dense(features: int, out: int) -> Dense:
        return Dense(features, out, constraint, generator, bias=bias, bias_norm=bias_norm)

    layers: list[nn.Module] = [InputBall(input_norm)]
    for block in range(depth):
        out = width * patch ** (2 * block)
        layers.append(Conv2d(channels, out, patch, patch, 0, constraint, generator, bias=bias, bias_norm=bias_norm))
        layers.append(parts.activation(activation, out))
        if pooling is not None:
            layers.append(parts.pooling(pooling, 2))
        channels, height, size = out, height // patch, size // patch
        if pooling is not None:
            height, size = height // 2, size // 2
    layers += [Flatten(), dense(channels * height * size, hidden), parts.activation(activation, hidden)]
    return Network([*layers, dense(hidden, outputs)], input_shape)
