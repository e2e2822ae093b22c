"""Layers that rest keep their weights; the others receive the whole noise budget of the step, and no less."""

from itertools import pairwise
from math import nan, sqrt

import pytest
import torch

from clipless import SGD, Adam, TauCCE, fit, make_plan
from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.plans.freezing import Freezing
from clipless.plans.method import Method
from clipless.plans.plan import NOISE_INFLATION
from clipless.testing import SeededSource
from clipless.training.trainer import PrivateTrainer
from tests.clipless.factories import RecordingSource, mlp, rows

HALF = Freezing(layers=1, after=0.5)
FIRST = "layers.2.weight"
PRIVATE = [
    {"method": Method.CLIPLESS},
    {"method": Method.LIP_DP_SGD},
    {"method": Method.CLIPLESS, "follow_weights": True},
    {"method": Method.DP_SGD, "clip_norm": 0.5},
]


def plan_for(model, data, freezing=HALF, **options):
    numbers = {"batch_size": len(data), "delta": 1e-6, "noise_multiplier": 1.5, "epochs": 4}
    return make_plan(model, TauCCE(), population=len(data), freezing=freezing, **(numbers | options))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("options", PRIVATE, ids=str)
@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.9), Adam(0.1)])
def test_layers_rest_from_the_planned_step_on(options, optimizer):
    model, data = mlp(), rows()
    history = []
    for _ in fit(model, TauCCE(), data, plan_for(model, data, **options), optimizer=optimizer, source=SeededSource(0)):
        history.append({name: p.detach().clone() for name, p in model.named_parameters()})
    for name in history[0]:
        moved = [not torch.equal(a[name], b[name]) for a, b in pairwise(history)]
        assert moved == ([True, False, False] if name == FIRST else [True, True, True])
    assert all(p.requires_grad for p in model.parameters())


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.parametrize("options", PRIVATE, ids=str)
def test_every_step_spends_the_same_noise_multiplier(options):
    model, data, source = mlp(), rows(), RecordingSource()
    data = Split(torch.zeros_like(data.x), data.y)
    plan = plan_for(model, data, **options)
    trainer = PrivateTrainer(model, TauCCE(), data, plan, SGD(1e-30), 64, source)
    for step, _ in enumerate(trainer.epochs()):
        resting = {FIRST} if step >= 2 else set()
        at = plan.at(model, TauCCE(), frozenset(resting))
        assert set(at.sensitivities) == set(plan.sensitivities) - resting
        if plan.method is not Method.DP_SGD:
            inverse = sum((at.sensitivities[name] / std) ** 2 for name, std in at.noise_stds.items())
            assert 1 / sqrt(inverse) == pytest.approx(1.5 * (1 + NOISE_INFLATION))
        start = 0
        for name, p in model.named_parameters():
            drawn = source.normals[-1][start : start + p.numel()]
            start += p.numel()
            if name in resting:
                assert p.grad is None
            else:  # inputs of zero: noise alone
                torch.testing.assert_close(p.grad.flatten() * plan.batch_size, (drawn * at.noise_stds[name]).float())
    assert plan.event() == plan_for(model, data, None, **options).event()


def test_resting_layers_leave_less_noise_for_the_others():
    model, data = mlp(), rows()
    plan = plan_for(model, data)
    later = plan.at(model, TauCCE(), frozenset({FIRST}))
    for name, std in later.noise_stds.items():
        assert std < 0.9 * plan.noise_stds[name]


def test_without_privacy_layers_rest_too():
    model, data = mlp(), rows()
    plan = plan_for(model, data, method=Method.NON_PRIVATE, noise_multiplier=None)
    before = None
    for epoch in fit(model, TauCCE(), data, plan, source=SeededSource(0)):
        now = model.get_parameter(FIRST).detach().clone()
        assert before is None or torch.equal(before, now) == (epoch.epoch > 2)
        before = now


def test_a_gradient_that_a_resting_layer_receives_is_refused(monkeypatch):
    model, data = mlp(), rows()
    plan = plan_for(model, data, Freezing(after=0.01))
    trainer = PrivateTrainer(model, TauCCE(), data, plan, SGD(0.1), 64, SeededSource(0))
    trainer.steps = 1
    original = trainer._accumulate

    def meddling(*arguments):
        original(*arguments)
        model.get_parameter(FIRST).grad = torch.ones(8, 6)

    monkeypatch.setattr(trainer, "_accumulate", meddling)
    with pytest.raises(PlanError, match="where the noise is added"):
        trainer.step(torch.arange(4))
    assert all(p.requires_grad for p in model.parameters())


def test_something_must_be_left_to_train():
    model, data = mlp(), rows()
    with pytest.raises(PlanError, match="fewer than the 2 layers"):
        plan_for(model, data, Freezing(layers=2))


@pytest.mark.parametrize("numbers", [{"layers": 0}, {"layers": 1.0}, {"after": 0.0}, {"after": 1.0}, {"after": nan}])
def test_settings_out_of_range_are_refused(numbers):
    with pytest.raises(PlanError, match=r"\(Freezing\)"):
        Freezing(**numbers)
