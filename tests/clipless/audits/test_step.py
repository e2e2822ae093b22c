"""The audit of a step: it comes near each sensitivity, never above, and sees what lets through more."""

import math

import numpy as np
import pytest
import torch

from clipless import TauBCE, make_plan, zoo
from clipless.audits import step
from clipless.audits.audited_training import AuditedTraining, make_random_rows
from clipless.audits.finding import AuditKind
from clipless.audits.step import Worst, audit_step, planted_batch
from clipless.guards import guard as guards
from clipless.layers import Dense, Householder, InputBall
from clipless.network import Network
from clipless.plans.plan import Plan
from clipless.training import per_example

METHODS = ["clipless", "lip-dp-sgd", "dp-sgd"]
NETWORKS = {
    "householder": lambda g: Network(
        [InputBall(3.0), Dense(6, 6, generator=g), Householder(6), Dense(6, 2, generator=g)], (6,)
    ),
    "convnet": lambda g: zoo.convnet((1, 8, 8), 4, input_norm=3.0, width=4, depth=2, hidden=8, generator=g),
    "tokens": lambda g: zoo.mixer((1, 4, 4), 2, input_norm=9.0, patch=2, depth=1, generator=g),
    "residual": lambda g: zoo.resnet((1, 8, 8), 4, input_norm=3.0, width=4, depth=1, generator=g),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((method, {}) for method in METHODS),
        ("clipless", {"exact_norms": True}),
        ("dp-sgd", {"ghost_clipping": True}),
        *(
            pytest.param(method, options, marks=pytest.mark.long)
            for options in ({"exact_norms": True}, {"ghost_clipping": True})
            for method in METHODS
        ),
    ],
)
def test_a_step_moves_by_its_sensitivities_and_not_more(training, method, options):
    found = audit_step(training(method, **options), seed=0)
    assert found.kind is AuditKind.STEP
    assert not found.contradicted
    assert (found.p_value, found.confidence) == (1.0, 1.0)
    assert 0.99 < found.evidence["attained sensitivity of all parameters"] <= 1.0
    assert 0.97 < found.ratio <= 1.0
    assert found.evidence["pairs of neighbours"] > 10


def test_planted_rows_alone_move_a_step_by_its_sensitivities(training):
    audited, worst = training(), Worst()
    batch = planted_batch(audited, audited.copy_model(), audited.plan, 2, np.random.default_rng(0), steady=True)
    worst.see(batch(None), batch(0), audited.plan)
    assert 0.99 < worst.joint <= 1.0
    assert min(worst.parameters.values()) > 0.99


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("network", "method"),
    [
        pytest.param(network, method, marks=[pytest.mark.long] * (place % 2 and method != "clipless"))
        for place, network in enumerate(NETWORKS)
        for method in METHODS
    ],
)
def test_every_layer_is_reached(training, network, method):
    model = NETWORKS[network](torch.Generator().manual_seed(0))
    found = audit_step(training(method, model=model), seed=0)
    shares = {name: share for name, share in found.evidence.items() if name.startswith("attained sensitivity of lay")}
    assert len(shares) == len(list(model.parameters()))
    assert not found.contradicted
    assert all(0.05 < share <= 1.0 for share in shares.values())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", ["clipless", "lip-dp-sgd"])
def test_a_guard_that_lets_through_twice_as_much_is_caught(training, method, monkeypatch):
    whole = guards.clipping_scales
    monkeypatch.setattr(guards, "clipping_scales", lambda *args: 2.0 * whole(*args))
    found = audit_step(training(method), seed=0)
    assert found.contradicted
    assert found.p_value == 0.0
    assert found.attained > 1.5 * found.epsilon


def test_clipping_to_twice_the_norm_is_caught(training, monkeypatch):
    whole = per_example._factors
    monkeypatch.setattr(per_example, "_factors", lambda *args: 2.0 * whole(*args))
    assert audit_step(training("dp-sgd"), seed=0).contradicted


@pytest.mark.sampled(3)
@pytest.mark.parametrize("method", METHODS)
def test_half_the_planned_noise_is_caught(training, method, monkeypatch):
    whole = Plan.noise_stds.fget
    monkeypatch.setattr(Plan, "noise_stds", property(lambda self: {k: 0.5 * v for k, v in whole(self).items()}))
    found = audit_step(training(method), seed=0)
    assert found.contradicted
    assert found.evidence["attained sensitivity of all parameters"] == pytest.approx(2.0, rel=0.02)


def test_a_row_that_is_scaled_by_its_batch_is_caught(training, monkeypatch):
    def shared(sensitivity, norm_B, *_):
        finite = norm_B[norm_B.isfinite()]
        scale = sensitivity / finite.max() if len(finite) else 0.0
        return torch.where(norm_B.isfinite(), torch.as_tensor(scale).double(), 0.0)

    monkeypatch.setattr(guards, "clipping_scales", shared)
    assert audit_step(training(), seed=0).contradicted


@pytest.mark.long
def test_sums_that_are_not_finite_are_contradictions(training, monkeypatch):
    whole = step.sum_gradients

    def poisoned(model, loss, x, y, plan, totals, **options):
        whole(model, loss, x, y, plan, totals, **options)
        totals["layers.1.weight"][0, 0] = float("nan")

    monkeypatch.setattr(step, "sum_gradients", poisoned)
    found = audit_step(training(), seed=0)
    assert found.contradicted
    assert math.isinf(found.attained)


@pytest.mark.long
def test_searches_repeat_by_their_seed_and_leave_the_model_as_it_is(training):
    audited = training()
    before = [p.detach().clone() for p in audited.model.parameters()]
    assert audit_step(audited, seed=5) == audit_step(audited, seed=5)
    assert all(torch.equal(p, old) for p, old in zip(audited.model.parameters(), before, strict=True))


def test_sensitivities_that_follow_weights_are_those_of_the_weights_at_hand(training):
    audited = training(follow_weights=True)
    with torch.no_grad():
        for parameter in audited.model.parameters():
            parameter.mul_(0.3)
    found = audit_step(audited, seed=0)
    assert not found.contradicted
    assert found.evidence["attained sensitivity of all parameters"] > 0.98


@pytest.mark.long
def test_one_logit_is_audited():
    model, loss = zoo.mlp((6,), 1, input_norm=2.0, width=8, depth=2), TauBCE(1.0)
    plan = make_plan(model, loss, population=100, batch_size=20, delta=1e-3, noise_multiplier=1.0, epochs=1)
    audited = AuditedTraining(subject="one", model=model, loss=loss, plan=plan, rows=make_random_rows(model, 2))
    assert not audit_step(audited, seed=0).contradicted
