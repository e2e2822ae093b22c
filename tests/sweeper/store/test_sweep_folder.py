import json
import math
from datetime import datetime

import pytest

from sweeper.errors import RecordError
from sweeper.records import Point, SweepStatus, Trial, TrialStatus
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder, list_sweeps

STARTED = datetime(2025, 3, 1, 9, 8, 7)
BEGUN = Manifest(name="x", status=SweepStatus.STOPPED, spec={"name": "x"}, source="x.yaml")


@pytest.fixture
def folder(tmp_path):
    return SweepFolder.create(tmp_path, "digits", STARTED)


def test_a_folder_carries_name_and_time(folder, tmp_path):
    assert folder.path == tmp_path / "digits-20250301-090807"
    assert (folder.path / "models").is_dir()
    assert SweepFolder.create(tmp_path, "digits", STARTED).path.name == "digits-20250301-090807-2"
    assert (folder.spec.name, folder.ledger.name, folder.front.name) == ("spec.yaml", "ledger.jsonl", "front.json")
    assert folder.model_name("t0007", 12) == "models/t0007-12.safetensors"


def test_a_folder_that_cannot_be_made_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match=r"Cannot make the folder .*digits.*; choose another with --out"):
        SweepFolder.create(tmp_path / "file", "digits", STARTED)
    monkeypatch.setattr("pathlib.Path.mkdir", lambda *_, **__: (_ for _ in ()).throw(FileExistsError()))
    with pytest.raises(RecordError, match="a thousand exist"):
        SweepFolder.create(tmp_path, "digits", STARTED)


def test_the_last_row_of_an_id_wins(folder, plan):
    first = Trial(id="t0001", config={"training": {"epochs": 3}})
    folder.save_trial(first)
    folder.save_trial(Trial(id="t0002", config={}, status=TrialStatus.FAILED, reason="NaN"))
    folder.save_trial(Trial(id="t0001", config=first.config, plan=plan, status=TrialStatus.COMPLETED))
    trials = SweepFolder(folder.path).trials()
    assert list(trials) == ["t0001", "t0002"]
    assert trials["t0001"].status is TrialStatus.COMPLETED
    assert trials["t0001"].plan == plan
    assert trials["t0002"].reason == "NaN"


def test_points_come_back_with_their_infinities(folder):
    point = Point(trial="t", epoch=2, values={"epsilon": math.inf, "accuracy": 0.5}, accountants={"rdp": math.inf})
    folder.save_points([point])
    folder.save_points([Point(trial="t", epoch=3, values={"epsilon": math.nan}, test={"accuracy": 1.0}, model="m")])
    points = folder.points()
    assert points["t", 2, ""] == point
    assert math.isnan(points["t", 3, ""].values["epsilon"])
    assert points["t", 3, ""].test == {"accuracy": 1.0}


def test_a_configuration_comes_back_to_the_letter(folder):
    loss = {"name": "tau-cce", "temperature": 2, "weights": [1, 2.0]}
    config = {"model": {"width": 64, "bias": True, "clip": 1.0}, "training": {"loss": loss, "epochs": 1, "flip": False}}
    folder.save_trial(Trial(id="t0001", config=config))
    assert json.dumps(folder.trials()["t0001"].config) == json.dumps(config)


def test_a_row_of_another_shape_is_named(folder):
    (folder.path / "trials.jsonl").write_text(
        '{"id": "t1", "config": {}}\n{"id": "t2", "config": {}, "status": "gone"}\n'
    )
    with pytest.raises(RecordError, match=r"\(status on line 2 of .*trials\.jsonl\)"):
        folder.trials()


def test_a_full_disk_is_told_not_raised(folder, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(
            "sweeper.store.jsonl.os.pwrite", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        )
        folder.save_points([Point(trial="t", epoch=1, values={})])
        assert "No space left" in folder.trouble
    folder.flush()
    assert folder.trouble is None
    assert list(folder.points()) == [("t", 1, "")]


def test_sweeps_are_listed_by_what_they_hold(folder, tmp_path):
    (tmp_path / "other").mkdir()
    assert list_sweeps(tmp_path) == []
    folder.write_manifest(BEGUN)
    assert [found.path for found in list_sweeps(tmp_path)] == [folder.path]
