"""Networks of convex potential layers, and of shifts.

Each layer is held 1-Lipschitz by the projection of one matrix, and preserves norms where that matrix is orthogonal: no
bound is lost over the depth, and no kernel's patches overlap.
"""

from math import prod
from typing import TYPE_CHECKING

from clipless import layers
from clipless.option_types import Count, Even
from clipless.zoo._base import architecture
from clipless.zoo._options import LayerMaker, Pooling, check_maps, pool

if TYPE_CHECKING:
    from torch import nn


@architecture
def cpl(
    input_shape: tuple[int, ...], outputs: int, make: LayerMaker, *, width: Even = 64, depth: Count = 2
) -> "list[nn.Module]":
    """A dense layer, convex potential layers of its width, and a dense layer onto the logits.

    There is no activation beside the ReLU inside (Meunier et al. 2022, arXiv 2110.12690).

    Options:
        width: features of the convex potential layers.
        depth: number of convex potential layers.
    """
    potentials = [make.potential(width) for _ in range(depth)]
    return [layers.Flatten(), make.dense(prod(input_shape), width), *potentials, make.dense(width, outputs)]


@architecture
def shift_net(
    input_shape: tuple[int, ...],
    outputs: int,
    make: LayerMaker,
    *,
    width: Even = 16,
    depth: Count = 2,
    convolutions: Count = 1,
    hidden: Even = 128,
    pooling: Pooling = "l2",
) -> "list[nn.Module]":
    """Blocks of shifts, dense maps of the channels with activations and one pooling, then two dense layers.

    A `vgg` whose 3x3 convolutions are a shift and a 1x1 convolution each: a ninth of the parameters, and norms are kept
    where a kernel on overlapping patches is divided by their number's root. In front of all stands a 2x2 convolution
    with stride 2.

    Options:
        width: channels of the first block; they double from block to block.
        depth: number of blocks; the first halves the map twice, each other one once.
        convolutions: shifts in one block.
        hidden: features between the two dense layers.
        pooling: a key of `clipless.zoo.POOLINGS`.
    """
    check_maps(input_shape, 2 ** (depth + 1), f"depth={depth}")
    channels, height, size = input_shape
    stack: list[nn.Module] = [make.convolution(channels, width, 2, stride=2), make.activation(width)]
    channels, height, size = width, height // 2, size // 2
    for block in range(depth):
        out = width * 2**block
        for _ in range(convolutions):
            stack += [layers.Shift(), make.convolution(channels, out, 1), make.activation(out)]
            channels = out
        stack.append(pool(pooling, 2))
        height, size = height // 2, size // 2
    stack += [layers.Flatten(), make.dense(channels * height * size, hidden), make.activation(hidden)]
    return [*stack, make.dense(hidden, outputs)]
