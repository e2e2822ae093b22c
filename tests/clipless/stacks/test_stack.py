"""A stacked member is the training it would be alone, whatever else is in the stack."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import clipless
from clipless import scalars
from clipless.layers import ClipGradient, ScaleByQuantile, Standardise
from clipless.losses import HKR, KCosine, MulticlassHinge, TauCCE
from clipless.plans.clipping import AdaptiveClipping
from clipless.plans.freezing import Freezing
from clipless.plans.method import Schedule
from clipless.stacks import Member, fit_stack
from clipless.training.augmentation import Augmentation
from clipless.training.averaging import PolynomialAverage
from tests.clipless.factories import RecordingSource

from .members import ARCHITECTURES, apart, member, split, trained_alone

NEAR = 1e-6


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "architecture",
    [pytest.param(one, marks=[pytest.mark.long] * (one in ("resnet", "wide-resnet", "vgg"))) for one in ARCHITECTURES],
)
def test_a_member_is_the_training_it_would_be_alone(architecture: str) -> None:
    data = split()
    count = 3 if architecture == "mlp" else 2
    alone = [trained_alone(member(seed, architecture=architecture), data) for seed in range(count)]
    members = [member(seed, architecture=architecture) for seed in range(count)]
    epochs = [(place, epoch.epoch) for place, epoch in fit_stack(members, data)]
    assert epochs == sorted(epochs, key=lambda told: (told[1], told[0]))
    assert [place for place, _ in epochs].count(1) == 3
    for one, model in zip(members, alone, strict=True):
        assert apart(one.model, model) <= NEAR


OPTIONS: dict[str, dict[str, Any]] = {
    "momentum": {"optimizer": clipless.SGD(0.003, 0.9)},
    "no momentum": {"optimizer": clipless.SGD(0.01)},
    "schedule": {"schedule": Schedule.COSINE},
    "average": {"averaging": 0.8, "averages": {"late": PolynomialAverage(4)}},
    "weights followed": {"follow_weights": True},
    "normalised": {"method": clipless.Method.LIP_DP_SGD},
    "exact norms": {"exact_norms": True, "architecture": "lenet"},
    "exact norms of tokens": {"exact_norms": True, "architecture": "mixer"},
    "layers that rest": {"freezing": Freezing(layers=1, after=0.5)},
    "convolutions that rest": {"freezing": Freezing(layers=2, after=0.3), "architecture": "lenet"},
    "free of the ball": {"loss": KCosine(0.5)},
    "copies": {"augmentation": Augmentation(copies=2, flip=True, shift=1), "architecture": "lenet"},
}
SLOW = ("convolutions that rest", "exact norms of tokens")  # beside layers that rest and exact norms


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in SLOW)) for name in OPTIONS])
def test_whatever_a_training_may_be_told_a_member_may(name: str) -> None:
    alone = [trained_alone(member(seed, **OPTIONS[name]), split()) for seed in range(2)]
    members = [member(seed, **OPTIONS[name]) for seed in range(2)]
    for _ in fit_stack(members, split()):
        pass
    for one, model in zip(members, alone, strict=True):
        assert apart(one.model, model) <= NEAR


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.long
def test_members_may_be_told_different_things() -> None:
    every: list[dict[str, Any]] = [
        {"loss": HKR(), "schedule": Schedule.LINEAR, "averaging": 0.5},
        {"loss": MulticlassHinge(), "follow_weights": True},
        {"loss": TauCCE(2.0), "freezing": Freezing(layers=1, after=0.5)},
        {"averages": {"all": PolynomialAverage(0)}, "optimizer": clipless.Adam(0.002, beta1=0.5, epsilon=1e-3)},
    ]
    alone = [trained_alone(member(seed, **told), split()) for seed, told in enumerate(every)]
    members = [member(seed, **told) for seed, told in enumerate(every)]
    for _ in fit_stack(members, split()):
        pass
    for one, model in zip(members, alone, strict=True):
        assert apart(one.model, model) <= NEAR


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "clipping", [Schedule.LINEAR, AdaptiveClipping(quantile=0.5, share=0.1, rate=1.0)], ids=["scheduled", "adaptive"]
)
@pytest.mark.parametrize("growth", [1.0, 4.0])
def test_each_member_clips_to_its_own_norm(growth: float, clipping: Any) -> None:
    def one(seed: int) -> Member:
        return member(seed, behind=ClipGradient(0.05 * growth**seed), clipping=clipping)

    alone = [trained_alone(one(seed), split()) for seed in range(3)]
    members = [one(seed) for seed in range(3)]
    for _ in fit_stack(members, split()):
        pass
    for found, model in zip(members, alone, strict=True):
        assert apart(found.model, model) <= NEAR


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "kind",
    [lambda: ScaleByQuantile(0.5, 20.0, releases=2), lambda: Standardise(1, 4.0, 0.1)],
    ids=["quantile", "standardised"],
)
def test_each_member_has_private_statistics_of_its_own(kind: Any) -> None:
    alone = [trained_alone(member(seed, front=[kind()], input_norm=4.0), split()) for seed in range(2)]
    members = [member(seed, front=[kind()], input_norm=4.0) for seed in range(2)]
    for _ in fit_stack(members, split()):
        pass
    for one, model in zip(members, alone, strict=True):
        assert apart(one.model, model) <= NEAR


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", clipless.projections.CONSTRAINTS)
@pytest.mark.parametrize("architecture", [pytest.param("mlp", marks=pytest.mark.long), "lenet"])
def test_weights_of_every_constraint_set_are_projected(name: str, architecture: str) -> None:
    if name == "free":  # has no bounds
        return
    constraint = clipless.projections.CONSTRAINTS[name]()
    alone = [trained_alone(constrained(seed, architecture, constraint), split()) for seed in range(2)]
    members = [constrained(seed, architecture, constraint) for seed in range(2)]
    for _ in fit_stack(members, split()):
        pass
    for one, model in zip(members, alone, strict=True):
        assert apart(one.model, model) <= NEAR


def constrained(seed: int, architecture: str, constraint: Any) -> Member:
    def settle(layer: torch.nn.Module) -> None:
        if hasattr(layer, "constraint"):
            layer.constraint = constraint

    return member(seed, architecture=architecture, epochs=2, prepare=settle, options={"bias": False})


def test_batches_and_noise_are_bit_by_bit_those_of_the_training_alone() -> None:
    alone, stacked = ([RecordingSource(seed) for seed in range(3)] for _ in range(2))
    for seed, source in enumerate(alone):
        trained_alone(member(seed, source=source), split())
    for _ in fit_stack([member(seed, source=source) for seed, source in enumerate(stacked)], split()):
        pass
    for ours, theirs in zip(stacked, alone, strict=True):
        assert ours.batches == theirs.batches
        assert len(ours.normals) == len(theirs.normals)
        assert all(torch.equal(a, b) for a, b in zip(ours.normals, theirs.normals, strict=True))


@pytest.mark.long
def test_the_averages_that_are_followed_are_shown_on_request() -> None:
    def shown(epochs: Any, model: Any) -> list[torch.Tensor]:
        found = []
        for epoch in epochs:
            with epoch.averages["late"]():
                found.append(next(model.parameters()).detach().clone())
        return found

    one, other = (member(1, averages={"late": PolynomialAverage(4)}) for _ in range(2))
    theirs = shown(
        clipless.fit(
            one.model, one.loss, split(), one.plan, optimizer=one.optimizer, averages=one.averages, source=one.source
        ),
        one.model,
    )
    ours = shown((epoch for place, epoch in fit_stack([other, member(2)], split()) if place == 0), other.model)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("optimizer", [clipless.Adam(0.001), clipless.SGD(0.003, 0.9), clipless.SGD(0.01)])
def test_a_checkpoint_serves_the_stack_and_the_training_alone(optimizer: Any, tmp_path: Path) -> None:
    def one(seed: int, file: str) -> Member:
        freezing = Freezing(layers=1, after=0.3)
        return member(seed, optimizer=optimizer, averaging=0.5, checkpoint=tmp_path / file, freezing=freezing)

    def begun_alone(file: str) -> None:
        begun = one(1, file)
        epochs = clipless.fit(
            begun.model,
            begun.loss,
            split(),
            begun.plan,
            optimizer=optimizer,
            averaging=0.5,
            source=begun.source,
            checkpoint=begun.checkpoint,
        )
        assert [next(epochs).epoch, next(epochs).epoch] == [1, 2]

    def begun_stacked(file: str) -> None:
        stack = iter(fit_stack([one(1, file), member(2, optimizer=optimizer)], split()))
        assert [next(stack)[1].epoch for _ in range(3)] == [1, 1, 2]

    for begin in (begun_alone, begun_stacked):
        for name in ("a", "b"):
            begin(f"{begin.__name__}-{name}")
    ends = []
    for begin in (begun_alone, begun_stacked):
        alone, stacked = one(1, f"{begin.__name__}-a"), one(1, f"{begin.__name__}-b")
        trained_alone(alone, split())
        told = [e.epoch for p, e in fit_stack([stacked, member(3, optimizer=optimizer)], split()) if p == 0]
        assert told == [2, 3]
        ends += [alone.model, stacked.model]
    assert max(apart(end, ends[0]) for end in ends) <= NEAR


def test_a_checkpoint_holds_a_clipping_norm_that_only_the_device_knows(monkeypatch, tmp_path) -> None:
    def clipped() -> Member:
        return member(
            0, behind=ClipGradient(0.3), clipping=AdaptiveClipping(share=0.1), epochs=2, checkpoint=tmp_path / "state"
        )

    monkeypatch.setattr(scalars, "_HOST", "elsewhere")
    next(iter(fit_stack([clipped()], split())))
    assert [epoch.epoch for _, epoch in fit_stack([replace(clipped(), resumes_from=1)], split())] == [1, 2]
