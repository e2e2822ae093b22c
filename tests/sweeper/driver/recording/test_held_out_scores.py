"""The look at the test split of public rows: counts by class beside the scores, and both on disk."""

from types import SimpleNamespace

import pytest
import torch

import clipless
from clipless.certificates.certify import float64_features
from clipless.network import Network
from sweeper.driver.recording import held_out_scores
from sweeper.driver.recording.held_out_scores import score_front
from sweeper.planning.make import make_trial_settings
from sweeper.records import Point
from sweeper.specification.spec import Spec
from sweeper.trials.build import build_loss, build_model
from tests.factories import complete, make_recorder, make_run, small_content

CONTENT = small_content(
    training={"epochs": 1, "sensitivity_fraction": 0.1}, privacy={"noise_multiplier": 1.0, "delta": 1e-4}
)


def test_points_of_the_front_are_counted_by_class_and_the_counts_are_kept(digits, folder):
    spec = Spec.from_mapping(CONTENT)
    recorder = make_recorder(spec, digits, folder)
    complete(recorder, make_run(digits, spec, folder))
    assert list(score_front(make_trial_settings(spec, digits), digits, folder, recorder, lambda: False)) == []
    recorder.records.close()
    (point,) = folder.points().values()
    assert sum(point.classes.rows) == len(digits.test)
    assert sum(point.classes.correct) / len(digits.test) == pytest.approx(point.test["accuracy"])
    front = recorder.front()
    assert front.claim.baselines.majority == {
        name: float(split.y.bincount().max()) / len(split.y)
        for name, split in (("validation", digits.validation), ("test", digits.test))
    }
    (written,) = front.rows()
    assert written["test.balanced-accuracy"] == point.classes.balanced_accuracy


def test_scoring_tells_how_far_it_is_and_can_be_ended_within_a_point(digits, folder, monkeypatch):
    search = {"metrics": ["smoothed@0.1"], "smoothing": {"test_draws": 8, "test_rows": 4, "draws": 8, "rows": 4}}
    spec = Spec.from_mapping(CONTENT | {"search": search})
    monkeypatch.setattr("sweeper.trials.smoothed.DRAWS_AT_ONCE", 8)
    recorder, shared = make_recorder(spec, digits, folder), make_trial_settings(spec, digits)
    complete(recorder, make_run(digits, spec, folder))
    told, asked = [], iter([False, False, True])
    assert list(score_front(shared, digits, folder, recorder, lambda: next(asked), lambda *one: told.append(one))) == []
    assert all(point.test is None for point in recorder.records.points.values())
    assert list(score_front(shared, digits, folder, recorder, lambda: False, lambda *one: told.append(one))) == []
    assert [one[:2] for one in told] == [(0, 1), (0, 1)]
    scored = [recorder.records.points[point.key].test for point in recorder.records.archive.points]
    assert [set(found) for found in scored] == [{"accuracy", "smoothed@0.1"}]


def test_fixed_features_are_computed_once_for_all_models_that_share_them(digits, folder, monkeypatch):
    """Those of 10,000 pictures behind scattering take a minute; two of the three trials share theirs."""
    computed = []

    def features(model, x):
        computed.append(model)
        return float64_features(model, x)

    monkeypatch.setattr(held_out_scores, "float64_features", features)
    spec = Spec.from_mapping(CONTENT)
    points, trials, scored = {}, {}, {}
    for trial, clip in (("t0001", 2.0), ("t0002", 1.0), ("t0003", 2.0)):
        ball = clipless.layers.InputBall(clip)
        model = Network([ball, clipless.layers.Flatten(), clipless.layers.Dense(64, 10)], (1, 8, 8))
        point = Point(trial=trial, epoch=1, values={}, model=f"models/{trial}.safetensors")
        clipless.save(model, folder.path / point.model)
        points[point.key], trials[trial] = point, SimpleNamespace(config={"model": {"clip": clip}})
    records = SimpleNamespace(
        points=points,
        trials=trials,
        archive=SimpleNamespace(points=points.values()),
        add_test=lambda point, scores, *_, **__: scored.update({point.trial: scores}),
    )
    shared = make_trial_settings(spec, digits)
    assert list(score_front(shared, digits, folder, SimpleNamespace(records=records), lambda: False)) == []
    assert len(computed) == 2
    for point in points.values():
        found = clipless.load(folder.path / point.model)
        assert scored[point.trial] == clipless.evaluate(found, digits.test, spec.radii, digits.metadata.input_gain)


def test_a_trial_that_began_anew_is_scored_with_the_statistics_of_each_of_its_models(digits, folder):
    """Its private statistics were drawn again, so that models of one trial differ in their fixed first layers."""
    content = CONTENT | {"model": {**CONTENT["model"], "standardise": True}}
    spec, points, scored = Spec.from_mapping(content), {}, []
    for epoch in (1, 2):
        model = build_model(spec.space.resolve({}), digits, build_loss(spec.space.resolve({})), seed=0)
        model.layers[0].load_state_dict({"mean": torch.full((1,), 0.1 * epoch), "scale": torch.full((1,), 1.0 * epoch)})
        point = Point(trial="t0001", epoch=epoch, values={}, model=f"models/{epoch}.safetensors")
        clipless.save(model, folder.path / point.model)
        points[point.key] = point
    records = SimpleNamespace(
        points=points,
        trials={"t0001": SimpleNamespace(config={})},
        archive=SimpleNamespace(points=points.values()),
        add_test=lambda point, scores, *_, **__: scored.append((point, scores)),
    )
    assert (
        list(
            score_front(
                make_trial_settings(spec, digits), digits, folder, SimpleNamespace(records=records), lambda: False
            )
        )
        == []
    )
    for point, scores in scored:
        found = clipless.load(folder.path / point.model)
        assert scores == clipless.evaluate(found, digits.test, spec.radii, digits.metadata.input_gain)
    assert len({str(scores) for _, scores in scored}) == 2
