"""Patch networks: every convolution has stride = kernel, so that its patches do not overlap."""

from typing import TYPE_CHECKING

from clipless import layers
from clipless.option_types import Count, Even
from clipless.zoo._base import architecture
from clipless.zoo._options import LayerMaker, Pooling, check_maps, pool

if TYPE_CHECKING:
    from torch import nn


@architecture
def patch_net(
    input_shape: tuple[int, ...],
    outputs: int,
    make: LayerMaker,
    *,
    width: Even = 16,
    depth: Count = 2,
    patch: Count = 2,
    hidden: Even = 128,
    pooling: Pooling | None = None,
) -> "list[nn.Module]":
    """Convolutions on disjoint patches with an activation each, then two dense layers.

    With orthogonal weights whose rows do not outnumber their columns and an activation that preserves norms each layer
    is norm-preserving backwards, and the guard's product bound is exact for one patch; the gain to a kernel has no
    factor for overlaps.

    Options:
        width: channels of the first convolution; they grow by ``patch**2`` per convolution.
        depth: number of convolutions; each divides the map by ``patch``, and by 2 where it is pooled.
        patch: side of a patch.
        hidden: features between the two dense layers.
        pooling: of 2x2 windows after each activation, a key of `clipless.zoo.POOLINGS`; left out, none.
    """
    window = 1 if pooling is None else 2
    check_maps(input_shape, (window * patch) ** depth, f"patch={patch}, pooling={pooling} and depth={depth}")
    channels, height, size = input_shape
    stack: list[nn.Module] = []
    for block in range(depth):
        out = width * patch ** (2 * block)
        stack += [make.convolution(channels, out, patch, stride=patch), make.activation(out)]
        if pooling is not None:
            stack.append(pool(pooling, window))
        channels, height, size = out, height // patch // window, size // patch // window
    stack += [layers.Flatten(), make.dense(channels * height * size, hidden), make.activation(hidden)]
    return [*stack, make.dense(hidden, outputs)]
