"""The look at the test split of public rows: counts by class beside the scores, and both on disk."""

import pytest

from clipless.datasets import load
from clipless.testing import SeededSource
from sweeper.driver.recording.held_out_scores import score_front
from sweeper.driver.recording.recorder import Recorder
from sweeper.driver.resume import claimed
from sweeper.records import TrialStatus
from sweeper.search.optuna_search import Search
from sweeper.search.space import resolve
from sweeper.specification.search import Sampler
from sweeper.specification.spec import Spec
from sweeper.store.sweep_folder import SweepFolder
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
        config=resolve(spec, {}),
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
