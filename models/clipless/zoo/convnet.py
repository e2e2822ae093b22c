"""Convolutional networks with overlapping patches."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clipless import layers
from clipless.option_types import Count, Even
from clipless.zoo._base import architecture
from clipless.zoo._options import DEFAULT_OPTIONS, LayerOptions, Pooling, check_maps, pool

if TYPE_CHECKING:
    from torch import Generator, nn


@architecture
def convnet(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    width: Even = 16,
    depth: Count = 2,
    hidden: Even = 128,
    pooling: Pooling = "l2",
    options: LayerOptions = DEFAULT_OPTIONS,
    generator: "Generator | None" = None,
) -> "list[nn.Module]":
    """Blocks of 3x3 convolution, activation and pooling, then two dense layers.

    Args:
        input_shape: (C, H, W) of one example.
        outputs: number of logits.
        input_norm: radius of the input ball.
        width: channels of the first block; they double from block to block.
        depth: number of blocks; each halves the map.
        hidden: features between the two dense layers.
        pooling: a key of `clipless.zoo.POOLINGS`.
        options: activation, biases and constraint of the layers.
        generator: draws the initial weights.
    """
    check_maps(input_shape, 2**depth, f"depth={depth}")
    channels, height, size = input_shape
    stack: list[nn.Module] = [layers.InputBall(input_norm)]
    for block in range(depth):
        out = width * 2**block
        stack += [options.convolution(channels, out, 3, generator, padding=1), options.activate(out)]
        stack.append(pool(pooling, 2))
        channels, height, size = out, height // 2, size // 2
    stack += [layers.Flatten(), options.dense(channels * height * size, hidden, generator), options.activate(hidden)]
    return [*stack, options.dense(hidden, outputs, generator)]
