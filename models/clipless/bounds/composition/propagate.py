"""Backpropagation for bounds (Bethune et al. 2024, arXiv 2305.16202, Algorithm 1).

Norms of signals go forward, gains of cotangents go backward from the Lipschitz constant of the loss. Each
step is rounded up by one slack per dtype and layer, which compounds over the depth.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from clipless.bounds._rules import LayerBound, Signal, WeightNorms
from clipless.bounds.composition.compose import bound_sequence
from clipless.network import Network
from clipless.norms import at_least_normal
from clipless.scalars import Scalar, smaller

# What one layer's rounding may add, relative: sums of up to 1e6 terms in float32, of any size in float64.
ROUNDING_SLACK: Mapping[torch.dtype, float] = {torch.float32: 1e-5, torch.float64: 1e-9}


@dataclass(frozen=True, slots=True)
class NetworkBounds:
    """Bounds (name, bound) of every layer of a network, in order, and the relative rounding added per layer."""

    layers: tuple[tuple[str, LayerBound], ...]
    slack: float

    @property
    def output(self) -> Signal:
        """Shape and norm bound of the network's output."""
        last = self.layers[-1][1].output
        depth = sum(bound.depth for _, bound in self.layers)
        return Signal(last.shape, last.norm * (1.0 + self.slack) ** depth)

    def lipschitz(self, skip_last: int = 0) -> Scalar:
        """Lipschitz constant of the network without its last ``skip_last`` layers; positive even if it underflows."""
        constant: Scalar = 1.0
        for _, bound in self.layers[: len(self.layers) - skip_last]:
            gain = at_least_normal(bound.input_gain * (1.0 + self.slack) ** bound.depth)
            constant = at_least_normal(constant * gain)
        return constant

    def sensitivities(self, cotangent_norm: Scalar, *, normalised: bool = False) -> dict[str, Scalar]:
        """Largest norm of one example's gradient, by parameter, for an output cotangent of ``cotangent_norm``.

        That norm is the Lipschitz constant of the loss. ``normalised`` gradients are divided by the norm of the
        example's input of the layer.
        """
        found: dict[str, Scalar] = {}
        reach = cotangent_norm
        depth = sum(bound.depth for _, bound in self.layers)  # layers that the forward pass has gone through
        for name, bound in reversed(self.layers):
            slack = (1.0 + self.slack) ** (depth + bound.depth - 1)  # forwards, and backwards inside a block
            for parameter, gain in (bound.normalised_gains if normalised else bound.parameter_gains).items():
                found[f"{name}.{parameter}"] = reach * gain * slack
            reach *= bound.input_gain * (1.0 + self.slack) ** bound.depth
            if bound.cotangent_bound is not None:
                reach = smaller(reach, bound.cotangent_bound * (1.0 + self.slack))
            depth -= bound.depth
        return dict(reversed(found.items()))


def bound_network(
    network: Network, weights: WeightNorms = WeightNorms.CONSTRAINED, dtype: torch.dtype = torch.float32
) -> NetworkBounds:
    """Bound every layer of ``network`` over all inputs.

    The bounds are for a forward and backward pass in ``dtype``.

    Raises:
        UnsupportedError: a layer without a rule.
        InvalidBoundError: no input ball in front, shapes that do not fit, non-finite weights.
    """
    bounds = bound_sequence(network.named_layers(), Signal(network.input_shape), weights)
    return NetworkBounds(bounds, ROUNDING_SLACK[dtype])
