"""Convolutional networks with overlapping patches."""

from typing import TYPE_CHECKING

from clipless.option_types import Count, Even
from clipless.zoo._base import architecture
from clipless.zoo._options import LayerMaker, Pooling
from clipless.zoo.vgg import vgg

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
    """Blocks of 3x3 convolution, activation and pooling, then two dense layers: a `vgg` of one convolution a block.

    Options:
        width: channels of the first block; they double from block to block.
        depth: number of blocks; each halves the map.
        hidden: features between the two dense layers.
        pooling: a key of `clipless.zoo.POOLINGS`.
    """
    options = {"width": width, "depth": depth, "hidden": hidden, "pooling": pooling}
    return vgg.builder(input_shape, outputs, make, convolutions=1, **options)
