"""Multi-layer perceptrons."""

from math import prod
from typing import TYPE_CHECKING

from clipless import layers
from clipless.option_types import Count, Even
from clipless.zoo._base import architecture
from clipless.zoo._options import LayerMaker

if TYPE_CHECKING:
    from torch import nn


@architecture
def mlp(
    input_shape: tuple[int, ...], outputs: int, make: LayerMaker, *, width: Even = 64, depth: Count = 2
) -> "list[nn.Module]":
    """Dense layers with activations between them: ``depth`` of them in all, the last one onto the logits.

    Options:
        width: features of the hidden layers.
        depth: number of dense layers, at least 1.
    """
    if depth < 1:
        raise ValueError(f"Expected depth >= 1, got depth={depth!r} (mlp)")
    features = prod(input_shape)
    stack: list[nn.Module] = [layers.Flatten()]
    for _ in range(depth - 1):
        stack += [make.dense(features, width), make.activation(width)]
        features = width
    return [*stack, make.dense(features, outputs)]
