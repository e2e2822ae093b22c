"""Multi-layer perceptrons."""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from clipless import layers
from clipless.option_types import Count, Even
from clipless.zoo._base import architecture
from clipless.zoo._options import DEFAULT_OPTIONS, LayerOptions

if TYPE_CHECKING:
    from torch import Generator, nn


@architecture
def mlp(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    width: Even = 64,
    depth: Count = 2,
    options: LayerOptions = DEFAULT_OPTIONS,
    generator: "Generator | None" = None,
) -> "list[nn.Module]":
    """Dense layers with activations between them: ``depth`` of them in all, the last one onto the logits.

    Args:
        input_shape: shape of one example; flattened.
        outputs: number of logits.
        input_norm: radius of the input ball.
        width: features of the hidden layers.
        depth: number of dense layers, at least 1.
        options: activation, biases and constraint of the layers.
        generator: draws the initial weights.
    """
    if depth < 1:
        raise ValueError(f"Expected depth >= 1, got depth={depth!r} (mlp)")
    features = prod(input_shape)
    stack: list[nn.Module] = [layers.InputBall(input_norm), layers.Flatten()]
    for _ in range(depth - 1):
        stack += [options.dense(features, width, generator), options.activate(width)]
        features = width
    return [*stack, options.dense(features, outputs, generator)]
