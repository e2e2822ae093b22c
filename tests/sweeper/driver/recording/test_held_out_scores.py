"""The look at the test split of public rows: counts by class beside the scores, and both on disk."""

from types import SimpleNamespace

import pytest
import torch

import clipless
from clipless.datasets import load
from clipless.testing import SeededSource
from sweeper.driver.recording.held_out_scores import score_front
from sweeper.driver.recording.recorder import Recorder
from sweeper.driver.resume import claimed
from sweeper.records import Point, TrialStatus
from sweeper.search.optuna_search import Search
from sweeper.specification.search import Sampler
from sweeper.specification.spec import Spec
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.build import build_loss, build_model
from sweeper.trials.trial import TrialRun

CONTENT = {
    "name": "shown",
    "data": {"name": "digits"},
    "model": {"architecture": "mlp", "width": 16},
    "training": {"epochs": 1, "batch_size": 256, "learning_rate": 0.05, "sensitivity_fraction": 0.1},
    "privacy": {"noise_multiplier": 1.0, "delta": 1e-4},
}


class Tracker:
    """Hears everything and does nothing."""

    def __getattr__(self, name):
        return lambda *_: None

    def run_id(self, _trial):
        return None


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "models").mkdir()
    return SweepFolder(tmp_path)


def test_points_of_the_front_are_counted_by_class_and_the_counts_are_kept(folder):
    spec, data = Spec.from_mapping(CONTENT), load("digits")
    search = Search(lambda _: {}, spec.objectives, sampler=Sampler.RANDOM, seed=0, journal=folder.proposals)
    recorder = Recorder(spec, folder, claimed(spec, data), Tracker(), search)
    run = TrialRun(
        trial="t0001",
        config=spec.space.resolve({}),
        data=data,
        objectives=spec.objectives,
        seed=0,
        folder=folder.path,
        source=SeededSource(0),
    )
    recorder.on_start("t0001", {"proposal": {}})
    recorder.on_plan("t0001", run.plan_row())
    recorder.on_draw("t0001")
    for row in run.epoch_rows():
        recorder.on_epoch("t0001", row)
    recorder.on_end("t0001", TrialStatus.COMPLETED, "", 1)
    assert list(score_front(spec, data, folder, recorder, lambda: False)) == []
    recorder.records.close()
    (point,) = folder.points().values()
    assert sum(point.classes.rows) == len(data.test)
    assert sum(point.classes.correct) / len(data.test) == pytest.approx(point.test["accuracy"])
    front = recorder.front()
    assert front.claim.baselines.majority == {
        name: float(split.y.bincount().max()) / len(split.y)
        for name, split in (("validation", data.validation), ("test", data.test))
    }
    (written,) = front.rows()
    assert written["test.balanced-accuracy"] == point.classes.balanced_accuracy


def test_a_trial_that_began_anew_is_scored_with_the_statistics_of_each_of_its_models(folder):
    """Its private statistics were drawn again, so that models of one trial differ in their fixed first layers."""
    content = CONTENT | {"model": {**CONTENT["model"], "standardise": True}}
    spec, data, points, scored = Spec.from_mapping(content), load("digits"), {}, []
    for epoch in (1, 2):
        model = build_model(spec.space.resolve({}), data, build_loss(spec.space.resolve({})), seed=0)
        model.layers[0].load_state_dict({"mean": torch.full((1,), 0.1 * epoch), "scale": torch.full((1,), 1.0 * epoch)})
        point = Point(trial="t0001", epoch=epoch, values={}, model=f"models/{epoch}.safetensors")
        clipless.save(model, folder.path / point.model)
        points[point.key] = point
    records = SimpleNamespace(
        points=points,
        archive=SimpleNamespace(points=points.values()),
        add_test=lambda point, scores, _classes: scored.append((point, scores)),
    )
    assert list(score_front(spec, data, folder, SimpleNamespace(records=records), lambda: False)) == []
    for point, scores in scored:
        found = clipless.load(folder.path / point.model)
        assert scores == clipless.evaluate(found, data.test, spec.radii, data.metadata.input_gain)
    assert len({str(scores) for _, scores in scored}) == 2
