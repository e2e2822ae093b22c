"""What a sweep would take, measured on rows of zeros."""

import math
from dataclasses import replace

import pytest
import torch

import clipless
from clipless.datasets import Split
from sweeper.errors import SpecError
from sweeper.planning import estimate as module
from sweeper.planning import preview as previewing
from sweeper.planning.estimate import Estimate, estimate, in_words
from sweeper.planning.preview import preview, preview_architectures
from sweeper.specification.spec import Spec
from tests.factories import plan_sweep, small_content

SPEC = small_content(
    training={"epochs": 4, "batch_size": 128, "learning_rate": {"log": [0.01, 0.1]}}, search={"trials": 6, "repeats": 2}
)
SCATTERING = {"architecture": "scattering", "orientations": 2, "order": 1}


class Unreadable(torch.Tensor):
    """Rows that nothing may be computed from."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name not in ("__get__", "dim", "size", "__len__", "numel", "element_size"):
            raise AssertionError(f"{name} reads rows")
        return super().__torch_function__(function, types, args, kwargs or {})


def unreadable(split):
    closed = Split(split.x, split.y)
    object.__setattr__(closed, "x", split.x.as_subclass(Unreadable))
    object.__setattr__(closed, "y", split.y.as_subclass(Unreadable))
    return closed


def test_it_is_measured_on_rows_of_zeros_and_no_row_is_read(digits, monkeypatch):
    plan, fitted = plan_sweep(Spec.from_mapping(SPEC), digits), []
    previews = preview(plan, digits, 2)
    closed = replace(digits)
    for name in ("train", "validation", "test"):
        object.__setattr__(closed, name, unreadable(getattr(digits, name)))
    with pytest.raises(AssertionError, match="reads rows"):
        closed.train.x + 1
    fit = clipless.fit

    def watched(model, loss, data, plan, **options):
        fitted.append(data)
        return fit(model, loss, data, plan, **options)

    monkeypatch.setattr(clipless, "fit", watched)
    found = estimate(plan, closed, previews)
    assert len(fitted) == 2
    assert all(not data.x.any() and not data.y.any() for data in fitted)
    assert all(len(data) == 256 for data in fitted)
    assert found.step_seconds > 0
    assert found.score_seconds > 0
    assert found.data_bytes == sum(s.x.nbytes + s.y.nbytes for s in (digits.train, digits.validation, digits.test))


def test_steps_epochs_repeats_and_trials_are_multiplied(digits, monkeypatch):
    plan = plan_sweep(Spec.from_mapping(SPEC), digits)
    monkeypatch.setattr(module, "_step_seconds", lambda *_: 0.5)
    monkeypatch.setattr(module, "_scoring_seconds", lambda *_: (1.0, 3.0))
    monkeypatch.setattr(module.os, "cpu_count", lambda: 4)
    (one,) = preview(plan, digits)
    found = estimate(plan, digits, [one])
    assert found.trial_seconds == 2 * (3.0 + 4 * (one.plan.steps_per_epoch * 0.5 + 1.0))
    assert found.places == 4
    assert found.seconds == module.START_SECONDS + 2 * found.trial_seconds  # six trials, four at a time


@pytest.mark.parametrize("rehearse", [True, "sketch"])
def test_a_rehearsal_takes_as_many_steps_as_a_trial_on_smaller_batches(rehearse, monkeypatch):
    private = rehearse == "sketch"
    data = clipless.datasets.load("breast_cancer", evaluation="private" if private else "public")
    content = SPEC | {
        "data": {"name": "breast_cancer", "evaluation": data.metadata.evaluation.value},
        "privacy": {"delta": 1e-4, "sweep_epsilon": 3.0},
        "search": {"objectives": ["epsilon", "accuracy"], "trials": 3, "rehearse": rehearse},
    }
    plan, batches = plan_sweep(Spec.from_mapping(content), data), []
    monkeypatch.setattr(module, "_step_seconds", lambda config, _: batches.append(config.training.batch_size) or 0.5)
    monkeypatch.setattr(module, "_scoring_seconds", lambda *_: (1.0, 0.0))
    monkeypatch.setattr(module.os, "cpu_count", lambda: 2)
    (one,) = preview(plan, data)
    found = estimate(plan, data, [one])
    rows = len(data.train) if private else len(data.validation) // 2
    assert batches == [one.plan.batch_size, math.ceil(one.plan.batch_size * rows / len(data.train))]
    score = rows / len(data.validation)
    assert found.rehearsal_seconds == 2 * one.plan.epochs * (one.plan.steps_per_epoch * 0.5 + score)
    assert found.rehearsals == plan.rehearsals == 3
    trained = math.ceil(plan.trials / 2) * found.trial_seconds
    assert found.seconds == module.START_SECONDS + 1.5 * found.rehearsal_seconds + trained
    assert " a rehearsal. The sweep" in in_words(found)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "changes",
    [
        {"training": {"method": "dp-sgd", "clip_norm": 1.0}},
        {"training": {"method": "non-private"}, "privacy": {"delta": 1e-4, "noise_multiplier": 1.0}},
        {"privacy": {"delta": 1e-4, "sweep_epsilon": 3.0}, "search": {"trials": 3}},
        {"data": {"name": "digits", "evaluation": "private"}, "privacy": SPEC["privacy"] | {"score_noise": 9}},
        {"model": {"architecture": "mlp", "width": 16, "standardise": True}},
        {"model": SCATTERING},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_every_kind_of_training_is_measured(changes):
    training = SPEC["training"] | changes.get("training", {})
    spec = Spec.from_mapping(SPEC | changes | {"training": training})
    data = clipless.datasets.load(**spec.data_options())
    plan = plan_sweep(spec, data)
    assert estimate(plan, data, preview(plan, data)).seconds > 0


def test_fixed_features_are_counted_for_every_row_that_is_trained_on_or_scored(digits, monkeypatch):
    plan = plan_sweep(Spec.from_mapping(SPEC | {"model": SCATTERING}), digits)
    (one,) = preview(plan, digits)
    monkeypatch.setattr(module, "_seconds", lambda work: work() is None or 1.0)
    rows = (len(digits.train) + len(digits.validation)) / module.FEATURE_ROWS
    assert module._scoring_seconds(plan.shared, one.config, module._zeros(digits))[1] == rows


def test_it_is_said_in_a_few_sentences():
    found = Estimate(
        step_seconds=0.0123,
        score_seconds=0.05,
        trial_seconds=75.0,
        trials=16,
        places=2,
        process_bytes=450 * 2**20,
        data_bytes=2**19,
    )
    said = in_words(found)
    assert "0.012 s a step, 0.05 s to score an epoch, 1:15 a trial" in said
    assert "The sweep takes about 10:00 once its workers are up, 2 trials at a time" in said
    assert "their start takes about 8 s, more on a busy machine" in said
    assert "450 MiB for the libraries of each trial's process, and 0.5 MiB for the rows" in said


def test_passes_of_smoothed_certificates_on_test_rows_are_counted_and_said(digits):
    content = SPEC | {"search": {"objectives": ["epsilon", "accuracy"], "metrics": ["smoothed@0.1"], "trials": 2}}
    content["search"]["smoothing"] = {"test_draws": 400, "test_rows": 50}
    plan = plan_sweep(Spec.from_mapping(content), digits)
    passes, seconds = module._test_passes(plan.shared, preview(plan, digits)[0].config, module._zeros(digits))
    assert passes == 50 * (400 + 100)
    assert 0 < seconds < 1
    base = {"step_seconds": 1.0, "score_seconds": 1.0, "trial_seconds": 1.0, "trials": 1, "places": 1}
    numbers = {"test_passes": 550_000, "pass_seconds": 1e-4, "front_points": 20}
    found = Estimate(**base, process_bytes=1, data_bytes=1, **numbers)
    assert found.seconds == pytest.approx(module.START_SECONDS + 1.0 + 20 * 55.0)
    assert "The sweep takes about 18:21 once its workers are up, 1 trial at a time; their start" in in_words(found)
    assert (
        "on test rows, after the last trial, are in this time with 18:20: 550,000 passes for each point of the front, "
        "about 0:55 of the slowest model, for 20 points; fewer" in in_words(found)
    )
    assert "passes" not in in_words(replace(found, test_passes=0))


def test_the_slowest_architecture_is_measured_for_the_front_and_the_mean_of_all_for_trials(digits, monkeypatch):
    search = {"objectives": ["epsilon", "accuracy", "smoothed@0.1"], "trials": 6, "smoothing": {"test_rows": 2}}
    model = {"architecture": ["mlp", "convnet", "lenet"], "width": [8, 16]}
    plan = plan_sweep(Spec.from_mapping(SPEC | {"model": model, "search": search}), digits)
    known = preview(plan, digits, 2)
    previews = preview_architectures(plan, digits, known)
    assert any(one is known[0] for one in previews)
    names = [one.config.model.architecture for one in previews]
    assert sorted(names) == ["convnet", "lenet", "mlp"]
    steps, passes = {"mlp": 1.0, "convnet": 4.0, "lenet": 7.0}, {"mlp": 1.0, "convnet": 60.0, "lenet": 2.0}
    monkeypatch.setattr(module, "_step_seconds", lambda config, _: steps[config.model.architecture])
    monkeypatch.setattr(module, "_scoring_seconds", lambda *_: (0.0, 0.0))
    monkeypatch.setattr(module, "_test_passes", lambda _, config, __: (10, passes[config.model.architecture]))
    found = estimate(plan, digits, previews)
    assert found.step_seconds == 4.0
    assert (found.point_seconds, found.front_points) == (600.0, module.FRONT_POINTS)
    alone = plan_sweep(Spec.from_mapping(SPEC), digits)
    assert len(preview_architectures(alone, digits, preview(alone, digits, 2))) == 1


def test_an_architecture_that_cannot_be_planned_is_left_out(digits, monkeypatch):
    model = {"architecture": ["mlp", "convnet"], "width": 8}
    plan = plan_sweep(Spec.from_mapping(SPEC | {"model": model}), digits)
    known = [one for one in preview(plan, digits, 6) if one.config.model.architecture == "mlp"]

    def refuse(*_):
        raise SpecError("no plan")

    monkeypatch.setattr(previewing, "_preview", refuse)
    assert preview_architectures(plan, digits, known) == (known[0],)


def test_smoothed_metrics_and_attacks_are_in_the_time_of_an_epoch_and_what_is_not_is_named(digits, monkeypatch):
    metrics = ["attacked@0.1", "attacked@0.2", "smoothed@0.1", "membership-auroc"]
    search = {
        "objectives": ["epsilon", "accuracy"],
        "metrics": metrics,
        "trials": 2,
        "smoothing": {"rows": 20, "draws": 40},
    }
    plan = plan_sweep(Spec.from_mapping(SPEC | {"search": search}), digits)
    (one,) = preview(plan, digits)
    empty, works = module._zeros(digits), []
    monkeypatch.setattr(module, "_seconds", lambda work: works.append(work()) or 1.0)
    attacks = 2 * (5 * 31 / 2) * len(digits.validation) / min(len(digits.validation), module.FEATURE_ROWS)
    assert module._metric_seconds(plan.shared, one.config, empty) == pytest.approx(1.0 + attacks)
    scores, moved = works
    assert list(scores[0]) == ["smoothed@0.1"]
    assert moved.shape[1:] == (1, 8, 8)
    monkeypatch.setattr(module, "_step_seconds", lambda *_: 0.5)
    monkeypatch.setattr(module, "_scoring_seconds", lambda *_: (1.0, 3.0))
    found = estimate(plan, digits, [one])
    epoch = one.plan.steps_per_epoch * 0.5 + 1.0 + (1.0 + attacks)
    assert found.trial_seconds == pytest.approx(plan.shared.repeats * (3.0 + 4 * epoch))
    assert found.score_seconds == pytest.approx(2.0 + attacks)
    assert found.left_out == ("membership-auroc",)
    said = in_words(found)
    assert "at a time, without membership-auroc, which may take longer than all else; their start" in said
    assert "without" not in in_words(replace(found, left_out=()))


def test_how_many_rows_units_have_is_not_told(digits):
    plan, rows = plan_sweep(Spec.from_mapping(SPEC), digits), digits.train
    units = replace(digits, train=Split(rows.x, rows.y, torch.tensor([0, 900, *range(901, len(rows.y) + 1)])))
    fewer = replace(digits, train=Split(rows.x[899:], rows.y[899:]))
    assert len(units.train) == len(fewer.train)
    previews = preview(plan, digits)
    one = estimate(plan, units, previews)
    held = torch.ones(2**28, dtype=torch.uint8)  # as large as the rows of somebody who has many
    other = estimate(plan, fewer, previews)
    assert held.sum() == 2**28
    assert (one.data_bytes, one.process_bytes) == (other.data_bytes, other.process_bytes)
