"""Residual networks (He et al. 2016, arXiv 1512.03385), wide ones too (Zagoruyko and Komodakis 2016, arXiv 1605.07146).

Each block is ``a x + (1 - a) f(x)``, so that a network of 1-Lipschitz layers is 1-Lipschitz whatever its depth; the
plain sum would double the constant block by block.
"""

from typing import TYPE_CHECKING

from clipless import layers
from clipless.option_types import Count, Even, Share
from clipless.zoo._base import architecture
from clipless.zoo._options import LayerMaker, check_maps

if TYPE_CHECKING:
    from torch import nn


@architecture
def resnet(
    input_shape: tuple[int, ...],
    outputs: int,
    make: LayerMaker,
    *,
    width: Even = 16,
    depth: Count = 2,
    blocks: Count = 1,
    skip: Share = 0.5,
    learned_skip: bool = False,
) -> "list[nn.Module]":
    """A 3x3 convolution, stages of residual blocks (convolution, activation, convolution), one dense layer.

    Between stages a 2x2 convolution with stride 2 halves the map and doubles the channels.

    Options:
        width: channels of the first stage.
        depth: number of stages.
        blocks: residual blocks in one stage.
        skip: a, share of the identity in a block.
        learned_skip: whether a is trained, from ``skip`` on.
    """
    check_maps(input_shape, 2 ** (depth - 1), f"depth={depth}")
    channels, height, size = input_shape
    stack: list[nn.Module] = [make.convolution(channels, width, 3, padding=1), make.activation(width)]
    for stage in range(depth):
        out = width * 2**stage
        if stage:
            stack += [make.convolution(out // 2, out, 2, stride=2), make.activation(out)]
            height, size = height // 2, size // 2
        for _ in range(blocks):
            first, second = (make.convolution(out, out, 3, padding=1) for _ in range(2))
            stack.append(layers.Residual([first, make.activation(out), second], skip, learned=learned_skip))
            stack.append(make.activation(out))
    features = width * 2 ** (depth - 1) * height * size
    return [*stack, layers.Flatten(), make.dense(features, outputs)]


@architecture
def wide_resnet(
    input_shape: tuple[int, ...],
    outputs: int,
    make: LayerMaker,
    *,
    width: Even = 8,
    widening: Count = 4,
    depth: Count = 2,
    blocks: Count = 1,
    skip: Share = 0.5,
    learned_skip: bool = False,
) -> "list[nn.Module]":
    """A `resnet` with ``width * widening`` channels, few blocks deep.

    Options:
        width: channels of the first stage before widening.
        widening: factor of the channels.
        depth: number of stages.
        blocks: residual blocks in one stage.
        skip: a, share of the identity in a block.
        learned_skip: whether a is trained, from ``skip`` on.
    """
    return resnet.builder(
        input_shape,
        outputs,
        make,
        width=width * widening,
        depth=depth,
        blocks=blocks,
        skip=skip,
        learned_skip=learned_skip,
    )
