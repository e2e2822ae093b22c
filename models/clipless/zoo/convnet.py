"""Convolutional networks with overlapping patches: VGG-like, of single convolutions, and LeNet-like."""

from typing import TYPE_CHECKING

from clipless import layers
from clipless.option_types import Count, Even
from clipless.zoo._base import architecture
from clipless.zoo._options import LayerMaker, Pooling, check_maps, pool

if TYPE_CHECKING:
    from torch import nn


@architecture
def vgg(
    input_shape: tuple[int, ...],
    outputs: int,
    make: LayerMaker,
    *,
    width: Even = 16,
    depth: Count = 2,
    convolutions: Count = 2,
    hidden: Even = 128,
    pooling: Pooling = "l2",
) -> "list[nn.Module]":
    """Blocks of 3x3 convolutions with activations and one pooling, then two dense layers.

    Options:
        width: channels of the first block; they double from block to block.
        depth: number of blocks; each halves the map.
        convolutions: in one block.
        hidden: features between the two dense layers.
        pooling: a key of `clipless.zoo.POOLINGS`.
    """
    check_maps(input_shape, 2**depth, f"depth={depth}")
    channels, height, size = input_shape
    stack: list[nn.Module] = []
    for block in range(depth):
        out = width * 2**block
        for _ in range(convolutions):
            stack += [make.convolution(channels, out, 3, padding=1), make.activation(out)]
            channels = out
        stack.append(pool(pooling, 2))
        height, size = height // 2, size // 2
    stack += [layers.Flatten(), make.dense(channels * height * size, hidden), make.activation(hidden)]
    return [*stack, make.dense(hidden, outputs)]


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
    """Blocks of 3x3 convolution, activation and pooling, then two dense layers: a `vgg` of one convolution a block.

    Options:
        width: channels of the first block; they double from block to block.
        depth: number of blocks; each halves the map.
        hidden: features between the two dense layers.
        pooling: a key of `clipless.zoo.POOLINGS`.
    """
    options = {"width": width, "depth": depth, "hidden": hidden, "pooling": pooling}
    return vgg.builder(input_shape, outputs, make, convolutions=1, **options)


@architecture
def lenet(
    input_shape: tuple[int, ...],
    outputs: int,
    make: LayerMaker,
    *,
    width: Even = 6,
    hidden: Even = 120,
    pooling: Pooling = "l2",
) -> "list[nn.Module]":
    """Two blocks of padded 5x5 convolution, activation and pooling, then three dense layers.

    Options:
        width: channels of the first block; the second has 8/3 as many (6 and 16).
        hidden: features of the first dense layer; the second has 7/10 of them (120 and 84).
        pooling: a key of `clipless.zoo.POOLINGS`.
    """
    check_maps(input_shape, 4, "two poolings")
    channels, height, size = input_shape
    stack: list[nn.Module] = []
    for out in (width, 2 * round(width * 4 / 3)):
        stack += [make.convolution(channels, out, 5, padding=2), make.activation(out)]
        stack.append(pool(pooling, 2))
        channels, height, size = out, height // 2, size // 2
    stack.append(layers.Flatten())
    features = channels * height * size
    for out in (hidden, 2 * round(hidden * 0.35)):
        stack += [make.dense(features, out), make.activation(out)]
        features = out
    return [*stack, make.dense(features, outputs)]
