"""The audit of noise and batches: what is as planned passes, every repetition and every missing deviation does not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from clipless.audits.audited_training import Effort
from clipless.audits.finding import AuditKind
from clipless.audits.noise import (
    RecordedNoise,
    _correlation_p_value,
    audit_noise,
    least_multiplier,
    p_values_of,
    record_noise,
    repeats_when_forked,
    steps_to_record,
)
from clipless.layers import Dense, InputBall
from clipless.network import Network
from clipless.privacy.randomness import SecureSource
from clipless.privacy.sampling import PoissonSampler
from clipless.testing import SeededSource

METHODS = ["clipless", "lip-dp-sgd", "dp-sgd"]


def planted(monkeypatch, change):
    whole = SeededSource.normal
    monkeypatch.setattr(SeededSource, "normal", lambda self, n, device="cpu": change(whole(self, n, device)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("method", METHODS)
def test_noise_as_planned_is_close_to_the_claim(training, method):
    found = audit_noise(training(method, seed=4), Effort.THOROUGH)
    assert found.kind is AuditKind.NOISE
    assert found.p_value > 0.01
    assert 0.9 < found.ratio < 1.01
    assert found.evidence["steps"] == 96


def test_a_secure_source_passes_and_is_tried_in_a_forked_process(training):
    found = audit_noise(training(source=SecureSource))
    assert found.p_value > 1e-6
    assert found.evidence["p-value of workers"] == 1.0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("method", METHODS)
def test_half_the_noise_is_caught(training, method, monkeypatch):
    planted(monkeypatch, lambda normals: 0.5 * normals)
    found = audit_noise(training(method))
    assert found.p_value < 1e-6
    assert found.evidence["p-value of deviation"] < 1e-6
    assert found.attained > 1.5 * found.epsilon


def test_noise_of_another_shape_is_caught(training, monkeypatch):
    planted(monkeypatch, lambda normals: normals.sign())
    assert audit_noise(training()).evidence["p-value of shape"] < 1e-6


def test_noise_that_returns_after_a_restore_is_caught(training):
    found = audit_noise(training(source=lambda: SeededSource(7)))
    assert found.evidence["p-value of steps"] < 1e-6
    assert found.p_value < 1e-6


def test_one_noise_for_all_steps_is_caught(training, monkeypatch):
    first = {}
    planted(monkeypatch, lambda normals: first.setdefault(len(normals), normals))
    assert audit_noise(training()).evidence["p-value of steps"] < 1e-6


def test_one_noise_for_several_parameters_is_caught(training, monkeypatch):
    planted(monkeypatch, lambda normals: normals[: len(normals) // 2].repeat(3)[: len(normals)])
    heard = record_noise(training(), Effort.CHEAP)
    assert p_values_of(heard)["deviation"] > 1e-4
    a, b = (heard.noise[name] for name in ("layers.1.weight", "layers.3.weight"))
    copied = RecordedNoise({"a": a, "b": a.copy(), "c": b}, heard.members, heard.rate, None)
    assert p_values_of(copied)["parameters"] < 1e-6


def test_noise_that_is_smoothed_over_entries_is_caught(training, monkeypatch):
    planted(monkeypatch, lambda normals: (normals + normals.roll(1)) / 2**0.5)
    assert audit_noise(training()).evidence["p-value of entries"] < 1e-6


def test_rows_that_join_twice_as_often_are_caught(training, monkeypatch):
    whole = PoissonSampler.__init__
    monkeypatch.setattr(PoissonSampler, "__init__", lambda self, n, rate, *rest: whole(self, n, 2.0 * rate, *rest))
    assert audit_noise(training()).evidence["p-value of rate"] < 1e-6


def test_batches_that_repeat_are_caught(training, monkeypatch):
    whole, drawn = PoissonSampler.draw, {}
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: drawn.setdefault(id(self), whole(self)))
    assert audit_noise(training()).evidence["p-value of batches"] < 1e-6


def drawn_on_a_device(sampler, steps, _device):
    return iter(sampler._draw(steps, torch.device("cpu")))


@pytest.mark.parametrize(("rate", "caught"), [(1.0, False), (2.0, True)])
def test_batches_are_heard_as_a_device_draws_them(training, monkeypatch, rate, caught):
    """Not as the host does: what trains on a device asks its source for members."""
    whole = SeededSource.members
    monkeypatch.setattr(PoissonSampler, "batches", drawn_on_a_device)
    monkeypatch.setattr(SeededSource, "members", lambda self, n, q, device: whole(self, n, rate * q, device))
    assert (audit_noise(training()).evidence["p-value of rate"] < 1e-6) is caught


def test_batches_that_repeat_on_a_device_are_caught(training, monkeypatch):
    monkeypatch.setattr(
        PoissonSampler, "batches", lambda sampler, steps, device: (next(drawn_on_a_device(sampler, 1, device)),) * steps
    )
    assert audit_noise(training()).evidence["p-value of batches"] < 1e-6


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("steps", "size"), [(1, 2), (2, 2), (4, 2), (4, 3)])
def test_correlations_of_few_entries_are_below_any_level_as_rarely_as_it_says(steps, size):
    generator, runs = np.random.default_rng(0), 2000
    noise = generator.standard_normal((runs, 2, steps, size))
    found = np.array([[_correlation_p_value(a, b), _correlation_p_value(a[:, :-1], a[:, 1:])] for a, b in noise])
    for level in (0.01, 0.05, 0.2, 0.5):
        below = (found <= level).sum(axis=0)
        assert (stats.binom.sf(below - 1, runs, level) > 1e-4).all()
        assert stats.binom.cdf(below[0], runs, level) > 1e-4  # independent ones are as frequent


def test_what_is_heard_twice_correlates_and_single_numbers_do_not():
    a = np.random.default_rng(0).standard_normal((2, 20))
    assert _correlation_p_value(a, 3.0 * a) < 1e-100
    assert (
        _correlation_p_value(a[:1, :1], a[:1, :1])
        == _correlation_p_value(0.0 * a, a)
        == _correlation_p_value(a[:, :0], a[:, :0])
        == 1.0
    )


@pytest.mark.long
def test_p_values_are_below_a_level_as_rarely_as_it_says():
    """Of noise and batches that are right: every test alone, and the finding's."""
    smallest, found = [], []
    for seed in range(400):
        generator = np.random.default_rng(seed)
        noise = {name: generator.standard_normal((8, size)) for name, size in (("a", 40), ("b", 25))}
        heard = RecordedNoise(noise, generator.random((60, 30)) < 0.25, 0.25, None)
        p_values = p_values_of(heard)
        found.append(p_values)
        smallest.append(min(1.0, len(p_values) * min(p_values.values())))
    for values in ([one[name] for one in found] for name in found[0]):
        assert stats.binom.sf(sum(p <= 0.05 for p in values) - 1, 400, 0.05) > 1e-4
    assert stats.binom.sf(sum(p <= 0.05 for p in smallest) - 1, 400, 0.05) > 1e-3


@pytest.mark.parametrize("method", ["clipless", "dp-sgd"])
def test_the_noise_is_at_most_what_is_told_nearly_always(training, method):
    plan = training(method).plan
    told = [
        least_multiplier(
            {name: np.random.default_rng([seed, i]).standard_normal((8, 20)) for i, name in enumerate(plan.sizes)}, plan
        )
        for seed in range(300)
    ]
    below = sum(one < plan.noise_multiplier for one in told)
    assert stats.binom.sf(below - 1, 300, 0.05) > 1e-3
    assert np.median(told) < 1.4 * plan.noise_multiplier


def test_no_noise_proves_everything(training, monkeypatch):
    planted(monkeypatch, torch.zeros_like)
    found = audit_noise(training())
    assert found.attained == float("inf")
    assert found.p_value == 0.0


def test_a_forked_process_that_repeats_its_parent_is_noticed():
    class Forgetful(SeededSource):
        secure = True

    assert repeats_when_forked(Forgetful(0)) is True
    assert repeats_when_forked(SecureSource()) is False
    assert repeats_when_forked(SeededSource(0)) is None


def test_the_tests_of_the_noise_share_the_level(training):
    found = audit_noise(training(seed=2))
    p_values = [value for name, value in found.evidence.items() if name.startswith("p-value")]
    assert len(p_values) == 7
    assert found.p_value == pytest.approx(min(1.0, 7 * min(p_values)))


def single_layer():
    generator = torch.Generator().manual_seed(0)
    return Network([InputBall(10.0), Dense(24, 24, generator=generator)], (24,))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("effort", [Effort.BRIEF, Effort.CHEAP])
@pytest.mark.parametrize("method", METHODS)
def test_a_model_of_a_single_parameter_is_not_accused_for_pairs_that_do_not_exist(training, method, effort):
    found = audit_noise(training(method, model=single_layer()), effort)
    assert found.evidence.get("p-value of parameters", 1.0) == 1.0
    assert found.p_value > 1e-3


def test_steps_are_as_many_as_tell_half_the_noise_of_the_smallest_parameter(training):
    plan = training().plan
    sizes = {name: 40 if name.endswith("bias") else size for name, size in plan.sizes.items()}
    few = replace(plan, sizes=sizes)
    assert steps_to_record(few, Effort.BRIEF) == 4
    assert [steps_to_record(plan, effort) for effort in (Effort.BRIEF, Effort.CHEAP, Effort.THOROUGH)] == [6, 6, 64]
    assert steps_to_record(replace(plan, sizes=dict.fromkeys(sizes, 1)), Effort.CHEAP) == 8
    half_seen = stats.chi2.cdf(4.0 * stats.chi2.ppf(1e-8, 128), 128)
    assert half_seen > 1.0 - 1e-6
