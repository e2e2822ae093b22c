"""Optimisers and projections of a stack, for all members at once.

The arithmetic is that of `clipless.training.optimizers.Descent`. Weights of one constraint set are projected together.

Shape letters: M members, D all trainable entries of one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

import torch
from torch import Tensor, nn

from clipless.guards.guard import GuardedLayer
from clipless.layers import Conv1d, Conv2d, ConvexPotential, Dense
from clipless.network import Network
from clipless.projections import Orthogonal, Standardised
from clipless.training.optimizers import SGD, Adam, Optimizer


def carried_names(settings: Optimizer) -> tuple[str, ...]:
    """Return the names of the tensors that an optimiser carries from step to step beside each weight."""
    match settings:
        case SGD():
            return ("momentum_buffer",)
        case Adam():
            return ("exp_avg", "exp_avg_sq")
        case _:
            assert_never(settings)


def stored_names(settings: Optimizer) -> tuple[str, ...]:
    """Return which of `carried_names` a checkpoint holds, as that of a training alone."""
    return () if isinstance(settings, SGD) and settings.momentum == 0.0 else carried_names(settings)


@torch.no_grad()
def descend(
    weights_MD: Tensor,
    gradients_MD: Tensor,
    carried: Mapping[str, Tensor],
    settings: Sequence[Optimizer],
    learning_rates: Sequence[float],
    steps: Sequence[int],
    resting_MD: Tensor | None = None,
) -> None:
    """Take one step of every member, in place.

    Args:
        weights_MD: the members' weights, one member a row.
        gradients_MD: with noise already.
        carried: (M, D) tensors by the names of `carried_names`; zeros before the first step.
        settings: of each member, all of one kind.
        learning_rates: of this step.
        steps: the number of this step for each member, counted from 1.
        resting_MD: entries that neither move nor change what they carry.
    """
    moved = [weights_MD, *carried.values()]
    before = None if resting_MD is None else [tensor.clone() for tensor in moved]
    if isinstance(settings[0], Adam):
        _adam(weights_MD, gradients_MD, carried, settings, learning_rates, steps)
    else:
        _sgd(weights_MD, gradients_MD, carried, settings, learning_rates)
    if before is not None and resting_MD is not None:
        for tensor, old in zip(moved, before, strict=True):
            tensor.copy_(torch.where(resting_MD, old, tensor))


def _sgd(
    weights: Tensor,
    gradients: Tensor,
    carried: Mapping[str, Tensor],
    settings: Sequence[Optimizer],
    learning_rates: Sequence[float],
) -> None:
    momenta = [one.momentum for one in settings if isinstance(one, SGD)]
    rate_M1, momentum_M1 = _columns(weights, zip(learning_rates, momenta, strict=True))
    buffer = carried["momentum_buffer"].mul_(momentum_M1).add_(gradients)
    weights.sub_(buffer * rate_M1)


def _adam(
    weights: Tensor,
    gradients: Tensor,
    carried: Mapping[str, Tensor],
    settings: Sequence[Optimizer],
    learning_rates: Sequence[float],
    steps: Sequence[int],
) -> None:
    rows = [
        (
            1.0 - one.beta1,
            one.beta2,
            1.0 - one.beta2,
            (1.0 - one.beta2**step) ** 0.5,
            one.epsilon,
            rate / (1.0 - one.beta1**step),
        )
        for one, rate, step in zip(settings, learning_rates, steps, strict=True)
        if isinstance(one, Adam)
    ]
    new1, old2, new2, root, epsilon, size = _columns(weights, rows)
    first = carried["exp_avg"].lerp_(gradients, new1)
    second = carried["exp_avg_sq"].mul_(old2).addcmul_(gradients * new2, gradients)
    weights.sub_((first * size).div_(second.sqrt().div_(root).add_(epsilon)))


def _columns(like_MD: Tensor, rows: Iterable[Sequence[float]]) -> Sequence[Tensor]:
    """Return (M, 1) columns of numbers of each member."""
    table = torch.tensor([list(row) for row in rows], dtype=like_MD.dtype).to(like_MD.device, non_blocking=True)
    return table.unsqueeze(-1).unbind(1)


_OF_SEVERAL = (Orthogonal, Standardised)  # which project several matrices at once, quicker than by vmap


class StackedProjection:
    """Projects the trained weights of the members of a stack.

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
    kinds = (Dense, ConvexPotential, Conv1d, Conv2d)
    if type(first) not in kinds or first.bias is not None or getattr(first, "groups", 1) != 1:
        return False
    trained = all(parameter.requires_grad for layer in layers for parameter in layer.parameters())
    return trained and all(layer.constraint == first.constraint for layer in layers)
