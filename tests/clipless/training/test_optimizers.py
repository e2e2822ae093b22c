"""Optimiser settings: what they build, and what they refuse."""

import math

import pytest
import torch
from torch import nn

from clipless import SGD, Adam
from clipless.errors import UnsupportedError
from clipless.plans.method import Schedule
from clipless.training.optimizers import Descent


def parameter(value=1.0, gradient=0.5):
    p = nn.Parameter(torch.tensor([value]))
    p.grad = torch.tensor([gradient])
    return p


def test_sgd_moves_by_the_learning_rate_times_the_gradient():
    p = parameter()
    Descent(SGD(0.2), [p]).step()
    assert p.item() == pytest.approx(0.9)


def test_momentum_accumulates():
    p = parameter()
    optimizer = Descent(SGD(0.2, momentum=0.5), [p])
    optimizer.step()
    optimizer.step()
    assert p.item() == pytest.approx(1.0 - 0.1 - 0.15)


def test_adam_moves_by_the_learning_rate_at_first():
    p = parameter()
    Descent(Adam(0.01), [p]).step()
    assert p.item() == pytest.approx(0.99)


@pytest.mark.parametrize(
    ("settings", "theirs"),
    [
        (SGD(0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
        (SGD(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)),
        (Adam(0.1, 0.7, 0.8, 0.01), lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.7, 0.8), eps=0.01)),
    ],
)
def test_steps_are_those_of_torch(settings, theirs):
    """With gradients that are missing now and then, another learning rate halfway, and a training that goes on."""
    generator = torch.Generator().manual_seed(0)
    mine, other = ([nn.Parameter(torch.ones(3)), nn.Parameter(torch.full((2, 2), 2.0))] for _ in range(2))
    descent, reference = Descent(settings, mine), theirs(other)
    for step in range(12):
        for i, (p, q) in enumerate(zip(mine, other, strict=True)):
            p.grad = None if (step + i) % 4 == 0 else torch.randn(p.shape, generator=generator)
            q.grad = None if p.grad is None else p.grad.clone()
        if step == 6:
            descent, carried = Descent(settings, mine), descent.state
            descent.resume({i: {name: t.clone() for name, t in tensors.items()} for i, tensors in carried.items()})
            descent.learning_rate = reference.param_groups[0]["lr"] = 0.03
        descent.step()
        reference.step()
        for p, q in zip(mine, other, strict=True):
            assert torch.equal(p, q)


def test_what_has_no_gradient_stays():
    p = nn.Parameter(torch.ones(2))
    descent = Descent(Adam(0.1), [p])
    descent.step()
    assert (p.tolist(), descent.state) == ([1.0, 1.0], {})


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", [SGD, Adam])
def test_a_bad_learning_rate_is_refused(kind, bad):
    with pytest.raises(ValueError, match="learning_rate"):
        kind(bad)


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_a_bad_momentum_is_refused(momentum):
    with pytest.raises(ValueError, match="momentum"):
        SGD(0.1, momentum)


@pytest.mark.parametrize("field", ["beta1", "beta2", "epsilon"])
@pytest.mark.parametrize("bad", [0.0, 1.0, float("nan")])
def test_bad_settings_of_adam_are_refused(field, bad):
    with pytest.raises(ValueError, match=field):
        Adam(0.1, **{field: bad})


class Louder(SGD):  # type: ignore[misc]
    pass


@pytest.mark.parametrize("settings", [Louder(0.1), None, torch.optim.SGD([parameter()], lr=0.1)])
def test_other_settings_are_refused_by_name(settings):
    with pytest.raises(UnsupportedError, match=f"SGD or Adam, got {type(settings).__name__}"):
        Descent(settings, [parameter()])


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (Schedule.CONSTANT, [1.0, 1.0, 1.0, 1.0]),
        (Schedule.LINEAR, [1.0, 0.75, 0.5, 0.25]),
        (Schedule.COSINE, [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125)]),
    ],
)
def test_schedules_fall_over_the_planned_steps(schedule, factors):
    assert [schedule.factor(step, 4) for step in range(4)] == pytest.approx(factors)
