"""Members for the tests of stacks, and what they would be alone."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import clipless
from clipless.datasets import Split
from clipless.losses import Loss, TauCCE
from clipless.network import Network
from clipless.stacks import Member
from clipless.testing import SeededSource

ROWS, BATCH = 90, 20
PLANNED = ("method", "follow_weights", "clipping", "freezing", "epochs", "noise_multiplier")
# What a network of each architecture is built from, small; images are 1 x 8 x 8.
ARCHITECTURES = {
    "mlp": {"width": 12, "depth": 3, "bias": True},
    "convnet": {},
    "lenet": {"width": 2, "hidden": 12, "bias": True},
    "vgg": {},
    "resnet": {},
    "wide-resnet": {},
    "mixer": {},
    "patch-net": {},
    "scattering": {"hidden": 8},
    "cpl": {"width": 12, "bias": True},
    "shift-net": {"width": 4, "hidden": 12},
}


def split(seed: int = 0, classes: int = 3) -> Split:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand((ROWS, 1, 8, 8), generator=generator)
    return Split(x, torch.randint(classes, (ROWS,), generator=generator))


def member(
    seed: int,
    *,
    architecture: str = "mlp",
    loss: Loss | None = None,
    front: list[nn.Module] | None = None,
    behind: nn.Module | None = None,
    input_norm: float | None = None,
    classes: int = 3,
    prepare: Callable[[nn.Module], None] = lambda _: None,
    options: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Member:
    """Every setting that may differ between members does; layers go in front of the network and before its last."""
    generator = torch.Generator().manual_seed(seed)
    chosen = {**ARCHITECTURES[architecture], **(options or {})}
    input_norm = 4.0 + seed if input_norm is None else input_norm
    model = clipless.zoo.build(architecture, (1, 8, 8), classes, input_norm=input_norm, generator=generator, **chosen)
    model.apply(prepare)
    if front is not None:
        model = Network([*front, *model.layers], (1, 8, 8))
    if behind is not None:
        model = Network([*list(model.layers)[:-1], behind, model.layers[-1]], (1, 8, 8))
    loss = loss or TauCCE(0.3 + 0.2 * seed)
    planned: dict[str, Any] = {"noise_multiplier": 1.0 + 0.5 * seed, "epochs": 4 - seed % 2}
    planned |= {name: changes.pop(name) for name in PLANNED if name in changes}
    plan = clipless.make_plan(
        model, loss, population=ROWS, batch_size=BATCH, delta=1e-3, sensitivity_fraction=1.0 / (1 + seed), **planned
    )
    settings = {"optimizer": clipless.Adam(0.001 * (1 + seed)), "source": SeededSource(seed), **changes}
    return Member(model=model, loss=loss, plan=plan, **settings)


def trained_alone(one: Member, data: Split) -> Network:
    for _ in clipless.fit(
        one.model,
        one.loss,
        data,
        one.plan,
        optimizer=one.optimizer,
        schedule=one.schedule,
        averaging=one.averaging,
        averages=one.averages,
        exact_norms=one.exact_norms,
        augmentation=one.augmentation,
        source=one.source,
        checkpoint=one.checkpoint,
    ):
        pass
    return one.model


def apart(a: Network, b: Network) -> float:
    """Distance of two networks' weights, relative to their norm.

    A product of another shape may round another way, and with it a digit of an operand: a bit of a sum. Rounded as
    coarsely as it is released, that would become a 64th of a deviation of the noise where a sum is near the middle.
    """
    ours, theirs = weights(a), weights(b)
    return float((ours - theirs).norm() / theirs.norm())


def weights(model: Network) -> Tensor:
    return torch.cat([entry.detach().flatten().clone() for entry in model.state_dict().values()])
