"""MLP-Mixers (Tolstikhin et al. 2021, arXiv 2105.01601) of square layers."""

from collections.abc import Sequence

import torch
from torch import nn

from clipless.layers import Dense, Flatten, InputBall, Residual, SpaceToDepth, SwapAxes, Tokens
from clipless.network import Network
from clipless.projections import Constraint
from clipless.zoo import parts


def mixer(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    patch: int = 4,
    depth: int = 2,
    skip: float = 0.0,
    activation: str = "groupsort",
    bias: bool = False,
    bias_norm: float = 1.0,
    constraint: Constraint | None = None,
    generator: torch.Generator | None = None,
) -> Network:
    """Patches by space-to-depth, then layers that mix tokens and channels in turn, then one dense layer.

    Every mixing layer is square. With orthogonal weights, ``skip`` 0, no bias and an activation that preserves norms
    (groupsort, fullsort, abs, householder) everything before the last layer preserves norms exactly, forwards and
    backwards: no bound is lost.

    Args:
        input_shape: (C, H, W) of one example; patches must tile the map.
        outputs: number of logits.
        input_norm: radius of the input ball.
        patch: side of a patch; T = (H / patch)(W / patch) tokens of C patch^2 features.
        depth: number of blocks, each of two token-mixing and two channel-mixing layers.
        skip: a, share of the identity around each pair of layers, in [0, 1); 0 for none.
        activation: between the two layers of a pair, a key of `clipless.zoo.ACTIVATIONS`.
        bias: whether dense layers have one.
        bias_norm: radius of the ball that each bias is kept in. A public number.
        constraint: of every weight; `Orthogonal` by default.
        generator: draws the initial weights.
    """
    parts.check_maps(tuple(input_shape), patch, f"patch={patch}")
    channels, height, size = input_shape
    if height % patch or size % patch:
        raise ValueError(f"Expected maps that patches of {patch} tile, got {tuple(input_shape)} (mixer)")
    tokens, features = (height // patch) * (size // patch), channels * patch**2

    def pair(mixed: int) -> list[nn.Module]:
        """Two square layers on the last axis with an activation along it, which axis 1 is after a swap."""
        inside: list[nn.Module] = [
            Dense(mixed, mixed, constraint, generator, bias=bias, bias_norm=bias_norm),
            SwapAxes(),
            parts.activation(activation, mixed),
            SwapAxes(),
            Dense(mixed, mixed, constraint, generator, bias=bias, bias_norm=bias_norm),
        ]
        return [Residual(inside, skip)] if skip else inside

    layers: list[nn.Module] = [InputBall(input_norm), SpaceToDepth(patch), Tokens()]
    for _ in range(depth):
        layers += [SwapAxes(), *pair(tokens), SwapAxes(), *pair(features)]
    layers += [Flatten(), Dense(tokens * features, outputs, constraint, generator, bias=bias, bias_norm=bias_norm)]
    return Network(layers, input_shape)
