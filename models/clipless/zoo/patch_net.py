"""Patch networks: every convolution has stride = kernel, so that its patches do not overlap."""

from collections.abc import Sequence

import torch
from torch import nn

from clipless.layers import Conv2d, Dense, Flatten, GroupSort, InputBall
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
    constraint: Constraint | None = None,
    generator: torch.Generator | None = None,
) -> Network:
    """Convolutions on disjoint patches with GroupSort, then two dense layers.

    With orthogonal weights whose rows do not outnumber their columns each layer is norm-preserving backwards,
    and the guard's product bound is exact for one patch; the gain to a kernel has no factor for overlaps.

    Args:
        input_shape: (C, H, W) of one example.
        outputs: number of logits.
        input_norm: radius of the input ball.
        width: channels of the first convolution; they grow by ``patch**2`` per convolution. Even.
        depth: number of convolutions; each divides the map by ``patch``.
        patch: side of a patch.
        hidden: features between the two dense layers; even.
        constraint: of every weight; `Orthogonal` by default.
        generator: draws the initial weights.
    """
    parts.check_maps(tuple(input_shape), patch**depth, f"patch={patch} and depth={depth}")
    channels, height, size = input_shape
    layers: list[nn.Module] = [InputBall(input_norm)]
    for block in range(depth):
        out = width * patch ** (2 * block)
        layers += [
            Conv2d(channels, out, patch, stride=patch, constraint=constraint, generator=generator),
            GroupSort(),
        ]
        channels, height, size = out, height // patch, size // patch
    layers += [Flatten(), Dense(channels * height * size, hidden, constraint, generator), GroupSort()]
    layers.append(Dense(hidden, outputs, constraint, generator))
    return Network(layers, input_shape)
