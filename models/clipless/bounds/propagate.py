"""Backpropagation for bounds (Bethune et al. 2024, arXiv 2305.16202, Algorithm 1).

Norms of signals go forward, gains of cotangents go backward from the Lipschitz constant of the loss. Each
step is rounded up by one slack per dtype and layer, which compounds over the depth.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from clipless.bounds._rules import LayerBound, Signal, WeightNorms, bound_layer
from clipless.network import Network

# What one layer's rounding may add, relative: sums of up to 1e6 terms in float32, of any size in float64.
ROUNDING_SLACK: Mapping[torch.dtype, float] = {torch.float32: 1e-5, torch.float64: 1e-9}


@dataclass(frozen=True, slots=True)
class NetworkBounds:
    """Bounds of every layer of a network, in order.

    Attributes:
        layers: (name, bound) of each layer.
        slack: rounding added per layer, relative.
    """

    layers: tuple[tuple[str, LayerBound], ...]
    slack: float

    @property
    def output(self) -> Signal:
        """Shape and norm bound of the network's output."""
        last = self.layers[-1][1].output
        return Signal(last.shape, last.norm * (1.0 + self.slack) ** len(self.layers))

    def lipschitz(self, skip_last: int = 0) -> float:
        """Lipschitz constant of the network without its last ``skip_last`` layers."""
        constant = 1.0
        for _, bound in self.layers[: len(self.layers) - skip_last]:
            constant *= bound.input_gain * (1.0 + self.slack)
        return constant

    def sensitivities(self, cotangent_norm: float) -> dict[str, float]:
        """Largest norm of one example's gradient, by parameter, for an output cotangent of ``cotangent_norm``."""
        found: dict[str, float] = {}
        reach = cotangent_norm
        for depth, (name, bound) in reversed(list(enumerate(self.layers))):
            forward_slack = (1.0 + self.slack) ** (depth + 1)
            for parameter, gain in bound.parameter_gains.items():
                found[f"{name}.{parameter}"] = reach * gain * forward_slack
            reach *= bound.input_gain * (1.0 + self.slack)
        return dict(reversed(found.items()))


def bound_network(
    network: Network, weights: WeightNorms = WeightNorms.CONSTRAINED, dtype: torch.dtype = torch.float32
) -> NetworkBounds:
    """Bound every layer of ``network`` over all inputs.

    Args:
        network: layers with rules, an input ball before the first parameters.
        weights: see `WeightNorms`.
        dtype: arithmetic of the forward and backward pass that the bounds are for.

    Raises:
        UnsupportedError: a layer without a rule.
        InvalidBoundError: no input ball in front, shapes that do not fit, non-finite weights.
    """
    signal = Signal(network.input_shape)
    bounds: list[tuple[str, LayerBound]] = []
    for name, layer in network.named_layers():
        bound = bound_layer(layer, signal, weights)
        bounds.append((name, bound))
        signal = bound.output
    return NetworkBounds(tuple(bounds), ROUNDING_SLACK[dtype])
