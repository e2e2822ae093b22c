"""Convolutional networks with overlapping patches."""

from typing import TYPE_CHECKING

from clipless import layers
from clipless.option_types import Count, Even
from clipless.zoo._base import architecture
from clipless.zoo._options import LayerMaker, Pooling, check_maps, pool

if TYPE_CHECKING:
    from torch import nn


@architecture
def convnet(
    input_shape: tuple[int, ...],
    outputs: int,
    make: LayerMaker,
    *,
    width: Even = 16,
    depth: Count = 2,
    hidden: Even = 128,
    pooling: Pooling = "l2",
) -> "list[nn.Module]":
    """Blocks of 3x3 convolution, activation and pooling, then two dense layers.

    Options:
        width: channels of the first block; they double from block to block.
        depth: number of blocks; each halves the map.
        hidden: features between the two dense layers.
        pooling: a key of `clipless.zoo.POOLINGS`.
    """
    check_maps(input_shape, 2**depth, f"depth={depth}")
    channels, height, size = input_shape
    stack: list[nn.Module] = []
    for block in range(depth):
        out = width * 2**block
        stack += [make.convolution(channels, out, 3, padding=1), make.activation(out)]
        stack.append(pool(pooling, 2))
        channels, height, size = out, height // 2, size // 2
    stack += [layers.Flatten(), make.dense(channels * height * size, hidden), make.activation(hidden)]
    return [*stack, make.dense(hidden, outputs)]
