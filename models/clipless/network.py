"""A network as a sequence of layers with a declared input shape, and its fixed prefix.

Leading layers without parameters form the fixed prefix, which is applied once instead of at every step. Each example's
features depend on that example alone, so computing them beforehand changes neither what is released nor its price.
They are as sensitive as the examples themselves: they stay in memory, in the place of the examples. Bounds, plans and
certificates still belong to the whole network.

Shape letters: B batch, K logits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from clipless.datasets import Split
from clipless.errors import UnsupportedError
from clipless.guards.exact_sums import pad
from clipless.guards.guard import GuardedLayer


@final
class Network(nn.Module):
    """Layers applied one after the other.

    Args:
        layers: modules that have a bound rule; a layer without one is refused where bounds are needed, by
            name.
        input_shape: shape of one example, without the batch axis.
    """

    def __init__(self, layers: Sequence[nn.Module], input_shape: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.input_shape = tuple(input_shape)

    def named_layers(self) -> Iterator[tuple[str, nn.Module]]:
        """Yield (name, layer) in order; names prefix those of the parameters."""
        for index, layer in enumerate(self.layers):
            yield f"layers.{index}", layer

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layers to (B, *input_shape); returns logits (B, K)."""
        for layer in self.layers:
            x = layer(x)
        return x

    @torch.no_grad()
    def output_shape(self) -> tuple[int, ...]:
        """Return the shape of one example's output, by passing a row of zeros."""
        here = next(chain(self.parameters(), self.buffers()), torch.zeros(()))
        row = torch.zeros(1, *self.input_shape, dtype=here.dtype, device=here.device)
        return tuple(self(row).shape[1:])

    def project(self) -> None:
        """Put every trained weight back into its constraint set."""
        for layer in self.modules():
            if isinstance(layer, GuardedLayer):
                layer.project()


# Rows per forward pass.
_CHUNK = 1024
_SHAPES: WeakKeyDictionary[Network, tuple[int, tuple[int, ...]]] = WeakKeyDictionary()  # found by a forward pass


def prefix_depth(network: Network) -> int:
    """Return how many leading layers have no parameters; the whole network if none has any."""
    for depth, layer in enumerate(network.layers):
        if next(layer.parameters(), None) is not None:
            return depth
    return len(network.layers)


def features_shape(network: Network) -> tuple[int, ...]:
    """Return the shape of one example's features behind the fixed prefix."""
    depth = prefix_depth(network)
    known = _SHAPES.get(network)
    if known is None or known[0] != depth:
        known = _SHAPES[network] = depth, split_fixed_prefix(network)[1].input_shape
    return known[1]


def split_fixed_prefix(network: Network) -> tuple[Network, Network]:
    """Split ``network`` into its fixed prefix and the rest, which share its layers.

    Training the rest on the prefix's features trains ``network``. The rest alone has no input ball: plans and
    certificates are made for ``network``, whose parameter names begin ``prefix_depth`` layers later.

    Returns:
        (prefix, rest); either may have no layers and then changes nothing.
    """
    depth = prefix_depth(network)
    layers = list(network.layers)
    prefix = Network(layers[:depth], network.input_shape)
    return prefix, Network(layers[depth:], prefix.output_shape())


@torch.no_grad()
def precompute(prefix: Network, split: Split) -> Split:
    """Return float32 features: ``prefix``, of `split_fixed_prefix`, applied to each row alone, a chunk at a time.

    Raises:
        UnsupportedError: a layer with parameters: features would be stale after the first step.
    """
    if next(prefix.parameters(), None) is not None:
        raise UnsupportedError("Expected a prefix without parameters; split the network with split_fixed_prefix")
    if len(prefix.layers) == 0:
        return split
    features: Tensor | None = None
    for start in range(0, len(split.x), _CHUNK):
        rows = split.x[start : start + _CHUNK]
        part = prefix(pad(rows, _CHUNK))[: len(rows)]
        if features is None:
            features = part.new_empty((len(split.x), *part.shape[1:]))
        features[start : start + len(part)] = part
    return split if features is None else replace(split, x=features)
