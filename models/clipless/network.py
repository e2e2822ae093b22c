"""A network as a sequence of layers with a declared input shape. Shape letters: B batch, K logits."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import final

import torch
from torch import Tensor, nn

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
