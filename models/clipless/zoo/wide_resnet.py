"""Wide residual networks (Zagoruyko and Komodakis 2016, arXiv 1605.07146)."""

from typing import TYPE_CHECKING

from clipless.option_types import Count, Even, Share
from clipless.zoo._base import architecture
from clipless.zoo._options import LayerMaker
from clipless.zoo.resnet import resnet

if TYPE_CHECKING:
    from torch import nn


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
