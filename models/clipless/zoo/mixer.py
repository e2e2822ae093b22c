"""MLP-Mixers (Tolstikhin et al. 2021, arXiv 2105.01601) of square layers."""

from typing import TYPE_CHECKING

from clipless import layers
from clipless.option_types import Count, Share
from clipless.zoo._base import architecture
from clipless.zoo._options import LayerMaker, check_maps

if TYPE_CHECKING:
    from torch import nn


@architecture
def mixer(
    input_shape: tuple[int, ...],
    outputs: int,
    make: LayerMaker,
    *,
    patch: Count = 4,
    depth: Count = 2,
    skip: Share = 0.0,
) -> "list[nn.Module]":
    """Patches by space-to-depth, then layers that mix tokens and channels in turn, then one dense layer.

    Every mixing layer is square. With orthogonal weights, ``skip`` 0, no bias and an activation that preserves norms
    (groupsort, fullsort, abs, householder) everything before the last layer preserves norms exactly, forwards and
    backwards: no bound is lost.

    Options:
        patch: side of a patch; T = (H / patch)(W / patch) tokens of C patch^2 features.
        depth: number of blocks, each of two token-mixing and two channel-mixing layers.
        skip: a, share of the identity around each pair of layers; 0 for none.
    """
    check_maps(input_shape, patch, f"patch={patch}")
    channels, height, size = input_shape
    if height % patch or size % patch:
        raise ValueError(f"Expected maps that patches of {patch} tile, got {input_shape} (mixer)")
    tokens, features = (height // patch) * (size // patch), channels * patch**2

    def pair(mixed: int) -> "list[nn.Module]":
        """Two square layers on the last axis with an activation along it, which axis 1 is after a swap."""
        between = [layers.SwapAxes(), make.activation(mixed), layers.SwapAxes()]
        inside: list[nn.Module] = [make.dense(mixed, mixed), *between, make.dense(mixed, mixed)]
        return [layers.Residual(inside, skip)] if skip else inside

    stack: list[nn.Module] = [layers.SpaceToDepth(patch), layers.Tokens()]
    for _ in range(depth):
        stack += [layers.SwapAxes(), *pair(tokens), layers.SwapAxes(), *pair(features)]
    return [*stack, layers.Flatten(), make.dense(tokens * features, outputs)]
