"""Projections of a stack: each member's weights back into their constraint sets, those of one set at once."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clipless.guards.guard import GuardedLayer
from clipless.layers import Conv1d, Conv2d, Dense
from clipless.network import Network
from clipless.projections import Orthogonal, Standardised

_OF_SEVERAL = (Orthogonal, Standardised)  # which project several matrices at once, quicker than by vmap


class StackedProjection:
    """Projects what the members of a stack train.

    Args:
        networks: of the members, whose parameters are views of ``weights``.
        weights: (M, *shape) by parameter.
    """

    def __init__(self, networks: Sequence[Network], weights: Mapping[str, Tensor]) -> None:
        self._together: list[tuple[Any, Tensor]] = []
        self._apart: list[GuardedLayer] = []
        owners = zip(*(network.named_modules() for network in networks), strict=True)
        for members in owners:
            layers = [layer for _, layer in members]
            if _one_set(layers):
                self._together.append((layers[0].constraint, weights[f"{members[0][0]}.weight"]))
            else:
                self._apart += [layer for layer in layers if isinstance(layer, GuardedLayer)]

    @torch.no_grad()
    def __call__(self) -> None:
        """Project every member's weights, in place."""
        for constraint, weight in self._together:
            project = constraint.project if isinstance(constraint, _OF_SEVERAL) else torch.vmap(constraint.project)
            projected = project(weight.flatten(2))
            weight.copy_(projected.view(weight.shape))
        for layer in self._apart:
            layer.project()


def _one_set(layers: Sequence[nn.Module]) -> bool:
    """Whether the layers have one matrix each, and nothing else, in one constraint set."""
    first: Any = layers[0]
    if type(first) not in (Dense, Conv1d, Conv2d) or first.bias is not None or getattr(first, "groups", 1) != 1:
        return False
    trained = all(parameter.requires_grad for layer in layers for parameter in layer.parameters())
    return trained and all(layer.constraint == first.constraint for layer in layers)
