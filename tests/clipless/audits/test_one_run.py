"""The audit of a whole training: canaries pass its own steps, and what is proved is near the claim and not above it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from clipless import Relation, TauCCE, make_plan, zoo
from clipless.audits.audited_training import AuditedTraining, make_random_rows
from clipless.audits.finding import AuditKind
from clipless.audits.one_run import adapt_plan, audit_one_run
from clipless.errors import AuditError
from clipless.plans.plan import Plan
from clipless.privacy import sampling
from clipless.privacy.sampling import PoissonSampler
from clipless.testing import SeededSource
from clipless.training import trainer
from tests.clipless.audits.conftest import dense_network

METHODS = ["clipless", *(pytest.param(method, marks=pytest.mark.long) for method in ("lip-dp-sgd", "dp-sgd"))]


@pytest.mark.parametrize("method", METHODS)
def test_what_is_attained_is_near_the_claim(training, method):
    run, final = audit_one_run(training(method, seed=1), canaries=500, seed=0)
    assert (run.kind, final.kind) == (AuditKind.ONE_RUN, AuditKind.FINAL_MODEL)
    assert run.epsilon == pytest.approx(3.0, abs=0.05)
    assert 0.4 < run.ratio < 1.1
    assert 0.0 <= final.attained < run.epsilon
    assert run.p_value > 0.001
    assert run.evidence["attained by the run"] > 0.0
    assert run.evidence["canaries"] == 500
    assert 200 < run.evidence["taking part"] < 300
    assert run.evidence["steps"] == 8


def test_a_training_is_audited_on_a_copy_and_on_its_own_plan(training):
    audited = training()
    before = {name: p.detach().clone() for name, p in audited.model.named_parameters()}
    audit_one_run(audited, canaries=50, seed=0)
    assert all(torch.equal(p, before[name]) for name, p in audited.model.named_parameters())


@pytest.mark.parametrize("method", METHODS)
def test_half_the_noise_is_caught(training, method, monkeypatch):
    whole = SeededSource.normal
    monkeypatch.setattr(SeededSource, "normal", lambda self, n, device="cpu": 0.5 * whole(self, n, device))
    run, _ = audit_one_run(training(method), canaries=500, seed=0)
    assert run.p_value < 0.01
    assert run.attained > run.epsilon


@pytest.mark.long
def test_rows_that_pass_twice_are_caught(training, monkeypatch):
    whole = trainer.sum_gradients

    def twice(*args, **options):
        whole(*args, **options)
        whole(*args, **options)

    monkeypatch.setattr(trainer, "sum_gradients", twice)
    run, final = audit_one_run(training(), canaries=500, seed=0)
    assert run.p_value < 0.01
    assert final.attained > 0.0


@pytest.mark.long
def test_batches_that_never_change_are_caught_by_the_run_alone(training, monkeypatch):
    """No amplification over steps: each step is as claimed, their composition is not."""
    whole, drawn = PoissonSampler.draw, {}
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: drawn.setdefault(id(self), whole(self)))
    run, _ = audit_one_run(training(model=dense_network(48), epochs=10), canaries=2000, seed=0)
    assert run.evidence["p-value of the surest"] < 1e-4
    assert run.evidence["p-value of the steps"] > 0.01


@pytest.mark.long
def test_a_plan_whose_parts_have_less_noise_than_it_claims_is_measured_by_its_claim(training, monkeypatch):
    whole = Plan.noise_stds.fget
    monkeypatch.setattr(Plan, "noise_stds", property(lambda self: {k: 0.5 * v for k, v in whole(self).items()}))
    run, _ = audit_one_run(training(), canaries=500, seed=0)
    assert run.p_value < 0.01


@pytest.mark.long
def test_coins_are_drawn_anew_and_by_the_seed(training):
    found = [audit_one_run(training(), canaries=60, seed=seed)[0].evidence["taking part"] for seed in (1, 2, 1)]
    assert found[0] == found[2]
    unseeded = [audit_one_run(training(), canaries=60)[0].evidence for _ in range(3)]
    assert any(evidence != unseeded[0] for evidence in unseeded)


@pytest.mark.long
def test_under_replace_one_a_canary_is_replaced_by_its_opposite(training):
    run, _ = audit_one_run(training(relation=Relation.REPLACE_ONE, seed=3), canaries=500, seed=1)
    assert 0.4 < run.ratio < 1.1


@pytest.mark.long
def test_without_sampling_there_is_no_game_of_steps(training):
    run, _ = audit_one_run(training(batch_size=1000, epochs=4, seed=2), canaries=500, seed=0)
    assert run.evidence["p-value of the steps"] == 1.0
    assert run.evidence["attained by the steps"] == 0.0
    assert 0.4 < run.ratio < 1.1


@pytest.mark.long
def test_images_with_convolutions_are_audited():
    model = zoo.convnet((1, 8, 8), 4, input_norm=3.0, width=4, depth=2, hidden=8)
    loss = TauCCE(1.0)
    plan = make_plan(model, loss, population=400, batch_size=100, delta=1e-4, epsilon=4.0, epochs=2)
    audited = AuditedTraining(subject="maps", model=model, loss=loss, plan=plan, rows=make_random_rows(model, 4))
    run, _ = audit_one_run(audited, canaries=200, seed=0)
    assert 0.0 < run.attained < run.epsilon


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("population", "batch_size"), [(1000, 300.0), (48_000, 512.0), (10, 10.0), (999, 7.3)])
def test_another_population_has_the_same_rate_and_steps(training, population, batch_size):
    plan = training(population=population, batch_size=batch_size).plan
    other = adapt_plan(plan, 4321)
    assert other.sampling_rate == pytest.approx(plan.sampling_rate, rel=1e-12)
    assert other.event().steps == plan.event().steps
    assert other.noise_stds == plan.noise_stds


def test_canaries_are_told_apart_by_the_released_sums_and_by_nothing_else(training):
    """With a thousand times the noise nothing is left to see: scores know no coin by another way."""
    run, final = audit_one_run(training(noise_multiplier=1000.0, epsilon=None), canaries=400, seed=0)
    assert run.evidence["attained of any mechanism"] < 0.5
    assert np.isfinite(run.attained)
    assert final.p_value > 0.001


@pytest.mark.long
def test_two_games_share_the_level(training):
    run, _ = audit_one_run(training(seed=1), canaries=300, seed=0)
    whole, steps = run.evidence["p-value of the run"], run.evidence["p-value of the steps"]
    surest = run.evidence["p-value of the surest"]
    assert run.p_value == pytest.approx(min(1.0, whole / 0.1, surest / 0.1, steps / 0.8))
    assert run.p_value > min(whole, steps, surest)


# Canaries that are units of several rows


@pytest.mark.parametrize("method", METHODS)
def test_what_is_attained_of_units_is_near_the_claim_as_of_rows(training, method):
    run, final = audit_one_run(replace(training(method, seed=1), unit_rows=3), canaries=500, seed=0)
    assert 0.4 < run.ratio < 1.1
    assert run.p_value > 0.001
    assert 0.0 <= final.attained < run.epsilon
    assert run.evidence["canaries"] == 500


@pytest.mark.long
def test_units_that_send_all_of_their_rows_are_caught(training, monkeypatch):
    def every(units_B, offsets, source):
        del source
        if offsets is None:
            return units_B
        return torch.cat([torch.arange(offsets[i], offsets[i + 1]) for i in units_B.tolist()])

    monkeypatch.setattr(sampling, "draw_rows", every)
    run, _ = audit_one_run(replace(training(), unit_rows=3), canaries=500, seed=0)
    assert run.p_value < 0.01
    assert run.attained > run.epsilon


@pytest.mark.long
def test_rows_that_are_drawn_instead_of_units_are_caught(training, monkeypatch):
    def draw(self):
        rows = int(self._offsets[-1]) if self._offsets is not None else self._population
        return torch.from_numpy(np.flatnonzero(self._source.bernoulli(rows, self._sampling_rate)))

    monkeypatch.setattr(PoissonSampler, "draw", draw)
    run, _ = audit_one_run(replace(training(), unit_rows=3), canaries=500, seed=0)
    assert run.p_value < 0.01


def test_canaries_without_rows_are_refused(training):
    with pytest.raises(AuditError, match="at least one row, got unit_rows=0"):
        replace(training(), unit_rows=0)
