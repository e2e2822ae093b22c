"""Layers that rest: from a step that is fixed in advance on, the first layers keep their weights.

Which parameters a step trains is public, so a step that trains fewer of them releases fewer of them: its noise
multiplier is shared among those, and each receives less noise at the same price.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import final

from torch import nn

from clipless.errors import PlanError
from clipless.network import Network


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Freezing:
    """Freeze the first layers (as Brock et al. 2017, arXiv 1706.04983, do to save time)."""

    layers: int = 1  # how many of the layers with trained parameters rest, counted from the input
    after: float = 0.5  # share of the planned steps after which they rest, in (0, 1)

    def __post_init__(self) -> None:
        if type(self.layers) is not int or self.layers < 1:
            raise PlanError(f"Expected a whole number of layers >= 1, got layers={self.layers!r} (Freezing)")
        if not 0 < self.after < 1:
            raise PlanError(f"Expected 0 < after < 1, got after={self.after!r} (Freezing)")

    def resting(self, network: Network, step: int, steps: int) -> frozenset[str]:
        """Return the names of the parameters that rest at ``step``, from 0, of ``steps``."""
        first = [] if step < self.after * steps else _trained_layers(network)[: self.layers]
        return frozenset(chain.from_iterable(first))

    def check(self, network: Network) -> None:
        """Raise PlanError for a network of which nothing would be left to train."""
        trained = len(_trained_layers(network))
        if not self.layers < trained:
            raise PlanError(
                f"Expected to freeze fewer than the {trained} layers that have trained parameters, got "
                f"layers={self.layers} (Freezing; freeze_layers in a spec)"
            )


@contextmanager
def frozen(network: nn.Module, names: frozenset[str]) -> Iterator[None]:
    """Form no gradient of the named parameters inside the block, and project none of them."""
    parameters = [parameter for name, parameter in network.named_parameters() if name in names] if names else []
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


def _trained_layers(network: Network) -> list[list[str]]:
    every = (
        [f"{prefix}.{name}" for name, parameter in layer.named_parameters() if parameter.requires_grad]
        for prefix, layer in network.named_layers()
    )
    return [names for names in every if names]
