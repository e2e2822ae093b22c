"""Members of a stack: the arguments of one training, and the test whether trainings have one shape."""

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import final

import torch
from torch import nn

from clipless.errors import PlanError
from clipless.layers import Residual
from clipless.losses import Loss
from clipless.network import Network
from clipless.plans.method import Schedule
from clipless.plans.plan import Plan
from clipless.privacy.randomness import RandomSource
from clipless.training.augmentation import Augmentation
from clipless.training.averaging import Averaging
from clipless.training.optimizers import Adam, Optimizer


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Member:
    """One training in a stack: the arguments of `clipless.fit`, less what all members share.

    Attributes:
        model: the network that ``plan`` was made for, on the device of the data; no other member's.
        loss: the loss that ``plan`` was made for.
        plan: see `clipless.make_plan`.
        optimizer: settings.
        schedule: of the learning rate.
        averaging: decay of the average that the model holds whenever an epoch is done.
        averages: of the weights, by name, to follow beside them.
        exact_norms: see `clipless.fit`.
        augmentation: see `clipless.fit`.
        source: randomness of batches and noise; by default, and for any guarantee, a fresh `SecureSource` of its own.
        checkpoint: a file for the state after each epoch; `clipless.fit` resumes from it, and the other way round.
        resumes_from: see `clipless.fit`.
    """

    model: Network
    loss: Loss
    plan: Plan
    optimizer: Optimizer = field(default_factory=lambda: Adam(1e-3))
    schedule: Schedule = Schedule.CONSTANT
    averaging: float | None = None
    averages: Mapping[str, Averaging] | None = None
    exact_norms: bool = False
    augmentation: Augmentation | None = None
    source: RandomSource | None = None
    checkpoint: str | os.PathLike[str] | None = None
    resumes_from: int = 0

    @property
    def copies(self) -> int:
        """The number of copies of each drawn row."""
        return 1 if self.augmentation is None else self.augmentation.copies


def shape_key(member: Member) -> Hashable:
    """Return the key that members of one stack share; None for a training that is never stacked.

    Layers, the shapes of weights and of outputs, rows and batches, method, augmentation, and the kind of optimiser.
    """
    form = step_form(member)
    return None if form is None else (member.plan.population, member.plan.batch_size, form)


def step_form(member: Member) -> Hashable:
    """Return the key of a training's steps but for the number of rows; None as `shape_key`."""
    plan, model = member.plan, member.model
    if not plan.method.bounded or type(model) is not Network:
        return None
    training = (plan.method, member.exact_norms, member.augmentation, type(member.optimizer))
    return (training, model.input_shape, _layers(model))


def stackable(a: Member, b: Member) -> bool:
    """Whether two members can be trained in one stack."""
    return shape_key(a) is not None and shape_key(a) == shape_key(b)


def check_shape(member: Member, key: Hashable) -> None:
    """Raise PlanError for a member that does not fit a stack of this shape."""
    own = shape_key(member)
    if own is None or own != key:
        raise PlanError("Expected members of one shape in a stack, got another; train this one with clipless.fit")


@torch.no_grad()
def _layers(model: Network) -> Hashable:
    """Return kind, weights and output shape of every layer, blocks opened."""
    here = next(model.parameters(), torch.zeros(()))
    x = torch.zeros((1, *model.input_shape), dtype=here.dtype, device=here.device)
    found = []
    for layer in model.layers:
        x = layer(x)
        found.append((_kinds(layer), tuple(x.shape[1:])))
    return tuple(found)


def _kinds(layer: nn.Module) -> Hashable:
    inside = tuple(_kinds(one) for one in layer.layers) if isinstance(layer, Residual) else ()
    own = tuple((name, tuple(p.shape), p.requires_grad) for name, p in layer.named_parameters(recurse=False))
    return (type(layer), own, inside)
