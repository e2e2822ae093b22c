"""Optimiser settings: what they build, and what they refuse."""

import pytest
import torch
from torch import nn

from clipless import SGD, Adam
from clipless.errors import UnsupportedError
from clipless.optimizers import build_optimizer


def parameter(value=1.0, gradient=0.5):
    p = nn.Parameter(torch.tensor([value]))
    p.grad = torch.tensor([gradient])
    return p


def test_sgd_moves_by_the_learning_rate_times_the_gradient():
    p = parameter()
    build_optimizer(SGD(0.2), [p]).step()
    assert p.item() == pytest.approx(0.9)


def test_momentum_accumulates():
    p = parameter()
    optimizer = build_optimizer(SGD(0.2, momentum=0.5), [p])
    optimizer.step()
    optimizer.step()
    assert p.item() == pytest.approx(1.0 - 0.1 - 0.15)


def test_adam_moves_by_the_learning_rate_at_first():
    p = parameter()
    build_optimizer(Adam(0.01), [p]).step()
    assert p.item() == pytest.approx(0.99)


def test_every_setting_reaches_the_optimiser():
    (group,) = build_optimizer(Adam(0.1, beta1=0.7, beta2=0.8, epsilon=0.01), [parameter()]).param_groups
    assert (group["lr"], group["betas"], group["eps"]) == (0.1, (0.7, 0.8), 0.01)
    assert (group["weight_decay"], group["amsgrad"], group["maximize"]) == (0, False, False)
    (group,) = build_optimizer(SGD(0.1, momentum=0.9), [parameter()]).param_groups
    assert (group["lr"], group["momentum"], group["nesterov"]) == (0.1, 0.9, False)


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
        build_optimizer(settings, [parameter()])
