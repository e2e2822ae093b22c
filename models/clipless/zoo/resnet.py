"""Residual networks (He et al. 2016, arXiv 1512.03385).

Each block is ``a x + (1 - a) f(x)``, so that a network of 1-Lipschitz layers is 1-Lipschitz whatever its depth; the
plain sum would double the constant block by block.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clipless import layers
from clipless.option_types import Count, Even, Share
from clipless.zoo._base import architecture
from clipless.zoo._options import DEFAULT_OPTIONS, LayerOptions, check_maps

if TYPE_CHECKING:
    from torch import Generator, nn


@architecture
def resnet(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    width: Even = 16,
    depth: Count = 2,
    blocks: Count = 1,
    skip: Share = 0.5,
    learned_skip: bool = False,
    options: LayerOptions = DEFAULT_OPTIONS,
    generator: "Generator | None" = None,
) -> "list[nn.Module]":
    """A 3x3 convolution, stages of residual blocks (convolution, activation, convolution), one dense layer.

    Between stages a 2x2 convolution with stride 2 halves the map and doubles the channels.

    Args:
        input_shape: (C, H, W) of one example.
        outputs: number of logits.
        input_norm: radius of the input ball.
        width: channels of the first stage.
        depth: number of stages.
        blocks: residual blocks in one stage.
        skip: a, share of the identity in a block.
        learned_skip: whether a is trained, from ``skip`` on.
        options: activation, biases and constraint of the layers.
        generator: draws the initial weights.
    """
    check_maps(input_shape, 2 ** (depth - 1), f"depth={depth}")
    channels, height, size = input_shape
    stack: list[nn.Module] = [
        layers.InputBall(input_norm),
        options.convolution(channels, width, 3, generator, padding=1),
    ]
    stack.append(options.activate(width))
    for stage in range(depth):
        out = width * 2**stage
        if stage:
            stack += [options.convolution(out // 2, out, 2, generator, stride=2), options.activate(out)]
            height, size = height // 2, size // 2
        for _ in range(blocks):
            first, second = (options.convolution(out, out, 3, generator, padding=1) for _ in range(2))
            stack.append(layers.Residual([first, options.activate(out), second], skip, learned=learned_skip))
            stack.append(options.activate(out))
    features = width * 2 ** (depth - 1) * height * size
    return [*stack, layers.Flatten(), options.dense(features, outputs, generator)]
