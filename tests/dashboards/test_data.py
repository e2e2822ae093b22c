import json
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from dashboards.data import chosen_trials, read
from sweeper.errors import RecordError
from sweeper.records import Point, SweepStatus
from sweeper.store.lock import driver_lock
from sweeper.store.manifest import Manifest, write_manifest


def test_a_folder_reads_as_records(sweep):
    assert sweep.name == "digits"
    assert len(sweep.trials) == 24
    assert sweep.trials["t0011"].status == "failed"
    assert sweep.deltas == (1e-4,)
    assert sweep.relations == ("add-or-remove-one",)
    assert (sweep.utility, sweep.certificate) == ("accuracy", "certified@0.25")
    assert sweep.certificates == ("certified@0.1", "certified@0.25", "certified@0.5")
    assert sweep.manifest.versions["torch"] == "2.13.0"


def test_rows_that_the_front_does_not_hold_yet_are_read_too(make_front, load):
    folder = Path(load(make_front()).directory)
    trial = {"id": "t0024", "config": {"model": {"width": 32}}, "status": "running"}
    values = {"epsilon": 0.4, "accuracy": 0.3, "certified@0.25": "NaN"}
    rows = [{"trial": id_, "epoch": 1, "values": values} for id_ in ("t0024", "t0099", "t0000")]
    (folder / "trials.jsonl").write_text(json.dumps(trial) + "\n")
    (folder / "points.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"trial": "t0024", "epo')
    (folder / "sweep.json").unlink()
    data = read(folder)
    by_key = {p.key: p for p in data.points}
    assert data.trials["t0024"].status == "running"
    assert isnan(by_key["t0024", 1, ""].values["certified@0.25"])
    assert ("t0099", 1, "") not in by_key  # a point whose trial nobody knows
    assert by_key["t0000", 1, ""].values["epsilon"] != 0.4  # the front knows better
    assert data.manifest is None


def test_of_a_sweep_that_has_ended_only_the_front_is_read(make_front, load):
    folder = Path(load(make_front()).directory)
    write_manifest(folder, Manifest(name="digits", status=SweepStatus.COMPLETED, spec={}, source="spec.yaml"))
    (folder / "points.jsonl").write_text("not read\n\n")
    assert len(read(folder).points) == len(make_front()["points"])
    write_manifest(folder, Manifest(name="digits", status=SweepStatus.RUNNING, spec={}, source="spec.yaml"))
    with pytest.raises(RecordError, match="line 1 of"):
        read(folder)


def test_a_sweep_that_says_it_runs_is_lost_without_a_driver(make_front, load):
    folder = Path(load(make_front()).directory)
    manifest = Manifest(name="digits", status=SweepStatus.RUNNING, spec={}, source="spec.yaml")
    write_manifest(folder, manifest)
    (folder / "trials.jsonl").write_text(json.dumps({"id": "t0024", "config": {}, "status": "running"}) + "\n")
    row = {"trial": "t0024", "epoch": 3, "values": {"epsilon": 0.4, "accuracy": 0.3}}
    (folder / "points.jsonl").write_text(json.dumps(row) + "\n")
    assert read(folder).lost
    assert [point.key for point in read(folder).later] == [("t0024", 3, "")]
    assert not read(folder, lost=False).lost  # who knows that it runs on another machine
    with driver_lock(folder):
        assert not read(folder).lost
    write_manifest(folder, replace(manifest, status=SweepStatus.COMPLETED))
    assert not read(folder, lost=True).lost


def test_decisions_are_read_in_their_order(make_front, load):
    folder = Path(load(make_front()).directory)
    assert read(folder).decisions == ()
    rows = [{"trial": "t0005", "epoch": e, "goes_on": e < 8} for e in (2, 8)]
    (folder / "decisions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(read(folder).decisions) == rows


def test_trials_of_the_front_come_first_and_others_evenly(small):
    points = [
        Point(trial=f"t{i}", epoch=1, values={"epsilon": 1.0, "accuracy": 1.0 if i == 3 else 0.5}) for i in range(10)
    ]
    data = small(points)
    assert chosen_trials(data, list(data.trials), 4) == ("t0", "t3", "t4", "t7")
    assert chosen_trials(data, list(data.trials), 10) == tuple(data.trials)
    assert chosen_trials(small(points[3:4] * 1), ["t3"], 1) == ("t3",)


def test_a_folder_without_a_front_is_refused(tmp_path):
    with pytest.raises(RecordError, match=r"front\.json"):
        read(tmp_path)


def test_an_empty_sweep_has_nothing(small):
    data = small([], objectives=("epsilon",))
    assert (data.front_points, data.deltas, data.certificate, data.utility) == ((), (), None, "accuracy")


def test_certificates_are_ordered_as_fractions_and_one_may_be_the_utility(small):
    names = ("certified@36/255", "certified@0.1", "certified@1")
    data = small([Point(trial="t", epoch=1, values=dict.fromkeys(names, 0.5))])
    assert data.certificates == ("certified@0.1", "certified@36/255", "certified@1")
    assert data.certificate == "certified@0.1"
    data = small([], objectives=("epsilon", "certified@0.5", "certified@1"))
    assert (data.utility, data.certificate) == ("certified@0.5", "certified@1")


def test_varying_names_keep_the_order_of_the_spec(sweep):
    names = sweep.varying
    assert names.index("model.width") < names.index("training.batch_size") < names.index("privacy.epsilon")
    assert "training.method" not in names
