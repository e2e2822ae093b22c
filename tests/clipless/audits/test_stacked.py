"""The audit of a step within a stack: neighbours move nothing, and where they do it is a contradiction."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import clipless
from clipless.audits.audited_training import AuditedTraining, Effort, make_random_rows
from clipless.audits.stacked import stacked_sums
from clipless.audits.step import Worst, audit_step, search_in_stacks
from clipless.errors import AuditError
from clipless.guards.stacked import StackedGuard
from clipless.stacks.stack import RunningStack

CORRECT = ["mlp", "convnet"]


@pytest.fixture
def stacked():
    """Make a training of a small network of some architecture, as a member of a stack."""

    def make(architecture="mlp", **options):
        sizes = {"mlp": {"width": 12, "depth": 3, "bias": True}, "convnet": {}}[architecture]
        generator = torch.Generator().manual_seed(0)
        model = clipless.zoo.build(architecture, (1, 8, 8), 3, input_norm=4.0, generator=generator, **sizes)
        loss = clipless.TauCCE(0.5)
        plan = clipless.make_plan(
            model, loss, population=400, batch_size=100, delta=1e-4, epsilon=3.0, epochs=2, sensitivity_fraction=0.5
        )
        rows = make_random_rows(model, 3, 16)
        return AuditedTraining(
            subject=architecture, model=model, loss=loss, plan=plan, rows=rows, stacked=True, **options
        )

    return make


def neighbours_alone(training):
    """Return the worst that a search in stacks alone finds."""
    worst = Worst()
    search_in_stacks(training, 4, np.random.default_rng(0), worst)
    return worst


@pytest.mark.parametrize("architecture", ["mlp", pytest.param("convnet", marks=pytest.mark.long)])
def test_a_member_is_moved_by_its_sensitivity_and_by_no_neighbour(stacked, architecture):
    worst = neighbours_alone(stacked(architecture))
    assert not worst.exceeded
    assert worst.pairs == 4 * 10
    assert 0.8 < worst.joint <= 1.0
    assert not audit_step(stacked(architecture), seed=0).contradicted


@pytest.mark.long
def test_neighbours_draw_other_rows_and_the_members_sums_stay_bit_by_bit(stacked):
    for members in stacked_sums(stacked(), 4, np.random.default_rng(1)):
        left, own, right = members
        assert all(torch.equal(own.full[name], own.changed[name]) for name in own.full)
        assert all(own.full[name].any() for name in own.full)
        assert (left.changed, right.changed) == (None, None)
        assert left.plan.sensitivities != right.plan.sensitivities != own.plan.sensitivities


def test_a_neighbours_rows_that_move_a_members_sums_are_a_contradiction(stacked, monkeypatch):
    whole = StackedGuard._add

    def leaking(self, sums, step_R):
        whole(self, sums + 1e-6 * sums.roll(1, dims=0), step_R)  # too little for a row of its own to show

    monkeypatch.setattr(StackedGuard, "_add", leaking)
    found = audit_step(stacked(), seed=0)
    assert found.contradicted
    assert not audit_step(replace(stacked(), stacked=False), seed=0).contradicted


@pytest.mark.long
def test_a_member_that_is_held_to_a_neighbours_sensitivity_is_a_contradiction(stacked, monkeypatch):
    whole = StackedGuard._by_row
    monkeypatch.setattr(StackedGuard, "_by_row", lambda self, values: whole(self, (values[-1], *values[:-1])))
    assert neighbours_alone(stacked()).exceeded


@pytest.mark.long
def test_rows_that_fill_a_pass_up_and_count_are_a_contradiction(stacked, monkeypatch):
    whole = RunningStack._batch

    def counting_all(self, draws):
        x, y, _ = whole(self, draws)
        return x.flip(0), y, torch.ones(len(x), dtype=torch.bool)

    monkeypatch.setattr(RunningStack, "_batch", counting_all)
    assert neighbours_alone(stacked()).exceeded


def test_a_brief_audit_takes_stacks_as_looked_at(stacked, monkeypatch):
    monkeypatch.setattr("clipless.audits.step.stacked_sums", lambda *given: pytest.fail("a stack") if given[1] else ())
    assert not audit_step(stacked(), Effort.BRIEF, seed=0).contradicted


def test_a_training_that_never_stacks_is_refused_as_a_member(training):
    with pytest.raises(AuditError, match="Expected a training that stacks, got dp-sgd"):
        replace(training("dp-sgd"), stacked=True)
