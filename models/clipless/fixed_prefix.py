"""The fixed prefix of a network: leading layers without parameters, applied once instead of at every step.

Each example's features depend on that example alone, so computing them beforehand changes neither what is
released nor its price. They are as sensitive as the examples themselves: they stay in memory, in the place of
the examples. Bounds, plans and certificates still belong to the whole network.

Shape letters: B batch.
"""

from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from clipless.datasets import Split
from clipless.errors import UnsupportedError
from clipless.guards.exact_sums import padded
from clipless.network import Network

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
    for start in range(0, len(split), _CHUNK):
        rows = split.x[start : start + _CHUNK]
        part = prefix(padded(rows, _CHUNK))[: len(rows)]
        if features is None:
            features = part.new_empty((len(split), *part.shape[1:]))
        features[start : start + len(part)] = part
    return split if features is None else replace(split, x=features)
