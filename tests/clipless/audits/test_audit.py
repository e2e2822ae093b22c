"""All audits of a training together, and the short form of the campaign."""

import importlib
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import pytest
import torch

from clipless.audits import audit
from clipless.audits.audit import audit_training
from clipless.audits.audited_training import Effort
from clipless.audits.finding import AuditKind, judge
from clipless.audits.one_run import audit_one_run
from clipless.audits.step import audit_step
from clipless.errors import AuditError, UnsupportedError
from clipless.testing import SeededSource

from .conftest import dense_network

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def campaign(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("audits")


def test_cheap_audits_look_at_step_and_noise_and_accuse_nobody(training):
    found = audit_training(training(), seed=0)
    assert [one.kind for one in found] == [AuditKind.STEP, AuditKind.NOISE]
    assert not any(one.contradicted for one in found)


@pytest.mark.long
def test_thorough_audits_train_once_more(training, monkeypatch):
    efforts, whole = [], audit.audit_step
    monkeypatch.setattr(audit, "audit_one_run", partial(audit.audit_one_run, canaries=300))
    monkeypatch.setattr(audit, "audit_step", lambda one, effort, seed: efforts.append(effort) or whole(one, seed=seed))
    found = audit_training(training(), Effort.THOROUGH, seed=0)
    assert [one.kind for one in found] == [AuditKind.STEP, AuditKind.NOISE, AuditKind.ONE_RUN, AuditKind.FINAL_MODEL]
    assert not any(one.contradicted for one in found)
    assert efforts == [Effort.THOROUGH]


def test_a_training_that_claims_nothing_is_refused(training):
    audited = training()
    plan = replace(audited.plan, noise_multiplier=0.0)
    with pytest.raises(AuditError, match="Expected a claim of privacy to audit"):
        replace(audited, plan=plan)


@pytest.mark.long
def test_correct_trainings_are_not_accused(campaign):
    runs = [campaign.audit(campaign.Job(method, 3, canaries=256)) for method in campaign.METHODS]
    assert campaign.accused(runs) == 0
    assert "| clipless | 1 | 0 |" in campaign.accusation_table({"clipless": runs[:1]})
    table = campaign.tight_table({method: [run] for method, run in zip(campaign.METHODS, runs, strict=True)})
    assert table.count("\n") == 4


def short(number, method):
    """Every sixth fault, each with another method."""
    return number % 6 == 0 and number // 6 % 3 == method


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("number", "method"),
    [
        pytest.param(number, method, marks=[pytest.mark.long] * (not short(number, method)))
        for number, method in product(range(11), range(3))
    ],
)
def test_every_fault_is_caught(campaign, number, method):
    job = campaign.Job(list(campaign.METHODS)[method], 1, list(campaign.FAULTS)[number], canaries=512)
    assert campaign.accused([campaign.audit(job)]) == 1


ONLY_A_RUN_SHOWS = {"every row passes twice", "four times the steps"}


@pytest.mark.long
@pytest.mark.parametrize(
    "name", ["every row passes twice", pytest.param("four times the steps", marks=pytest.mark.long)]
)
def test_what_only_a_run_shows_is_contradicted_where_one_in_a_million_may_be(campaign, name):
    """As at the end of a sweep, with a hundred trials on its front."""
    with campaign.FAULTS[name]():
        found, _ = audit_one_run(campaign.audited("lip-dp-sgd", 1), canaries=1000, seed=1)
    others = [replace(found, p_value=1.0)] * 399
    assert [one.contradicted for one in judge([found, *others], 1e-6)] == [True] + [False] * 399


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("method", "effort"),
    [
        ("clipless", Effort.BRIEF),
        ("lip-dp-sgd", Effort.CHEAP),
        *(
            pytest.param(method, effort, marks=pytest.mark.long)
            for method, effort in (
                ("clipless", Effort.CHEAP),
                ("lip-dp-sgd", Effort.BRIEF),
                ("dp-sgd", Effort.BRIEF),
                ("dp-sgd", Effort.CHEAP),
            )
        ),
    ],
)
def test_brief_and_cheap_audits_catch_every_fault_of_step_noise_and_batches(campaign, method, effort):
    for name, fault in campaign.FAULTS.items():
        audited = campaign.audited(method, 1)
        with fault():
            try:
                found = audit_training(audited, effort, seed=1)
            except UnsupportedError:  # a training that mixes rows refuses itself
                found = (audit_step(audited, effort, seed=1),)
        assert any(one.contradicted for one in found) == (name not in ONLY_A_RUN_SHOWS), name


@pytest.mark.long
@pytest.mark.parametrize(
    ("effort", "seeds", "most"),
    [(Effort.CHEAP, 1, 1), *(pytest.param(one, 3, 2, marks=pytest.mark.long) for one in (Effort.BRIEF, Effort.CHEAP))],
)
def test_brief_and_cheap_audits_accuse_no_correct_training(campaign, effort, seeds, most):
    trainings = product(("clipless", "lip-dp-sgd", "dp-sgd"), range(seeds))
    runs = [audit_training(campaign.audited(method, seed), effort, seed=seed) for method, seed in trainings]
    assert campaign.accused(runs) <= most


def test_trainings_have_one_form_whatever_their_weights_and_noise_are(training):
    first, model = training(source=SeededSource), dense_network()
    with torch.no_grad():
        model.get_parameter("layers.1.weight").mul_(0.5)
    assert training(model=model, epsilon=1.0, source=SeededSource).form == first.form
    others = [
        training("dp-sgd", source=SeededSource),
        training(model=dense_network(32), source=SeededSource),
        replace(first, exact_norms=True),
    ]
    assert all(other.form != first.form for other in others)


def test_the_campaign_has_a_test_for_each_fault(campaign):
    assert len(campaign.FAULTS) == 11
