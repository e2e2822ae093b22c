"""Wide residual networks (Zagoruyko and Komodakis 2016, arXiv 1605.07146)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clipless.option_types import Count, Even, Share
from clipless.zoo._base import architecture
from clipless.zoo._options import DEFAULT_OPTIONS, LayerOptions
from clipless.zoo.resnet import resnet

if TYPE_CHECKING:
    from torch import Generator, nn


@architecture
def wide_resnet(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    width: Even = 8,
    widening: Count = 4,
    depth: Count = 2,
    blocks: Count = 1,
    skip: Share = 0.5,
    learned_skip: bool = False,
    options: LayerOptions = DEFAULT_OPTIONS,
    generator: "Generator | None" = None,
) -> "list[nn.Module]":
    """A `resnet` with ``width * widening`` channels, few blocks deep.

    Args:
        input_shape: (C, H, W) of one example.
        outputs: number of logits.
        input_norm: radius of the input ball.
        width: channels of the first stage before widening.
        widening: factor of the channels.
        depth: number of stages.
        blocks: residual blocks in one stage.
        skip: a, share of the identity in a block.
        learned_skip: whether a is trained, from ``skip`` on.
        options: activation, biases and constraint of the layers.
        generator: draws the initial weights.
    """
    wide = resnet(
        input_shape,
        outputs,
        input_norm=input_norm,
        width=width * widening,
        depth=depth,
        blocks=blocks,
        skip=skip,
        learned_skip=learned_skip,
        options=options,
        generator=generator,
    )
    return list(wide.layers)
