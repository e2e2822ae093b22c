"""Multi-layer perceptrons."""

from collections.abc import Sequence

import torch
from torch import nn

from clipless.layers import Dense, Flatten, InputBall
from clipless.network import Network
from clipless.projections import Constraint
from clipless.zoo import parts


def mlp(
    input_shape: Sequence[int],
    outputs: int,
    *,
    input_norm: float,
    width: int = 64,
    depth: int = 2,
    activation: str = "groupsort",
    bias: bool = False,
    bias_norm: float = 1.0,
    constraint: Constraint | None = None,
    generator: torch.Generator | None = None,
) -> Network:
    """Dense layers with activations between them: ``depth`` of them in all, the last one onto the logits.

    Args:
        input_shape: shape of one example; flattened.
        outputs: number of logits.
        input_norm: radius of the input ball.
        width: features of the hidden layers; even.
        depth: number of dense layers, at least 1.
        activation: a key of `clipless.zoo.ACTIVATIONS`.
        bias: whether dense layers have one.
        bias_norm: radius of the ball that each bias is kept in. A public number.
        constraint: of every weight; `Orthogonal` by default.
        generator: draws the initial weights.
    """
    if depth < 1:
        raise ValueError(f"Expected depth >= 1, got depth={depth!r} (mlp)")
    features = torch.Size(input_shape).numel()
    layers: list[nn.Module] = [InputBall(input_norm), Flatten()]
    for _ in range(depth - 1):
        layers += [
            Dense(features, width, constraint, generator, bias=bias, bias_norm=bias_norm),
            parts.activation(activation, width),
        ]
        features = width
    layers.append(Dense(features, outputs, constraint, generator, bias=bias, bias_norm=bias_norm))
    return Network(layers, input_shape)
