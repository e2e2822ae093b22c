import contextlib
import fcntl
import io
import json
import math
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

from sweeper.errors import RecordError, SweeperError
from sweeper.program import program
from sweeper.records import SweepStatus, TrialStatus
from sweeper.store.lock import driver_lock
from sweeper.store.rehearsal_records import join_trainings
from sweeper.tracking import outbox
from sweeper.tracking import store as store_module
from sweeper.tracking.client import delete_runs, find_runs, logged_trials, set_tags
from sweeper.tracking.names import NAME_TAG, user_tag
from sweeper.tracking.outbox import Undelivered, stored_rows
from sweeper.tracking.store import STORE_NAME, Destination, Store, own_store, runs_by_rehearsal
from sweeper.tracking.tracker import SPOOL_NAME, Tracker, how_to_look, replay_spool

from ...factories import make_rehearsals

NOWHERE = "http://127.0.0.1:9"
PATIENCE_SECONDS = 300.0  # ends a test that hangs; no test takes so long


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(outbox, "FLUSH_SECONDS", 0.02)
    monkeypatch.setattr(outbox, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


@contextlib.contextmanager
def silent_stores():
    """No store answers inside the block, and whoever asks one must not be the driver."""
    speaks, connect = threading.Event(), Store._connect

    def silent(self):
        assert threading.current_thread() is not threading.main_thread(), "the driver waits for a store"
        assert speaks.wait(PATIENCE_SECONDS)
        return connect(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "_connect", silent)
        try:
            yield
        finally:
            speaks.set()


@pytest.fixture(scope="session")
def first_sweep(tmp_path_factory):
    """A sweep that makes its store: a COMPLETED, a FAILED, a STOPPED and an INTERRUPTED trial, and one left running."""
    folder = tmp_path_factory.mktemp("sweeps") / "digits-20260101-120000"
    folder.mkdir()
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        with silent_stores():
            tracker = make_first_sweep(folder)
        left = tracker.close(timeout_seconds=PATIENCE_SECONDS)
        return folder, tracker, left, said.getvalue()


def make_first_sweep(folder):
    tracker = Tracker(folder, "digits", params={"data": {"name": "digits"}}, tags={"sweeper.specification.spec": "abc"})
    ends = {
        "t0001": (TrialStatus.COMPLETED, ""),
        "t0002": (TrialStatus.FAILED, "ValueError: it broke"),
        "t0003": (TrialStatus.STOPPED, "no hope"),
        "t0004": (TrialStatus.INTERRUPTED, "interrupted"),
    }
    for trial in [*ends, "t0005"]:
        tracker.start_trial(trial, {"loss": {"name": "tau-cce"}}, {"relation": "add-or-remove-one"})
        for epoch in range(1, 31):
            tracker.log(trial, epoch, {f"val/metric {i}": i + epoch / 100 for i in range(10)} | {"epsilon": epoch})
        if trial in ends:
            tracker.end_trial(trial, *ends[trial])
    tracker.log("t0001", 30, {"epsilon/pld": math.nan, "epsilon/rdp": math.inf, "val/certified@36/255": 0.5})
    front = folder / "front.json"
    front.write_text("{}")
    tracker.artifact(front)
    tracker.artifact(folder / "missing.png")
    tracker.text("spec.yaml", "name: digits")
    return tracker


@pytest.fixture
def folder(first_sweep, tmp_path):
    """The folder of a new sweep, whose store has its tables already."""
    folder = tmp_path / "digits-20260202-120000"
    folder.mkdir()
    shutil.copy(own_store(first_sweep[0]), folder)
    return folder


def runs_of(folder, experiment="digits", sweep=None):
    client = MlflowClient(tracking_uri=f"sqlite:///{own_store(folder)}")
    (found,) = client.search_experiments(filter_string=f"name = '{experiment}'")
    query = f"tags.`sweeper.sweep` = '{sweep or folder.name}'"
    runs = client.search_runs([found.experiment_id], query)
    return client, {run.data.tags.get("sweeper.trial"): run for run in runs}


@pytest.mark.long
def test_the_driver_does_not_wait_for_the_store_and_hears_nothing_of_it(first_sweep):
    *_, left, said = first_sweep
    assert left == Undelivered()
    assert said == ""


def test_one_parent_run_and_one_child_per_trial_each_ended_as_it_did(first_sweep):
    folder, tracker, *_ = first_sweep
    _, runs = runs_of(folder)
    parent = runs.pop(None)
    assert parent.info.status == "FINISHED"
    assert parent.info.run_name == folder.name
    assert {trial: run.info.status for trial, run in runs.items()} == {
        "t0001": "FINISHED",
        "t0002": "FAILED",
        "t0003": "FINISHED",
        "t0004": "KILLED",
        "t0005": "KILLED",
    }
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {parent.info.run_id}
    assert runs["t0002"].data.tags["sweeper.reason"] == "ValueError: it broke"
    assert runs["t0003"].data.tags["sweeper.status"] == "stopped"
    assert tracker.run_id() == parent.info.run_id
    assert tracker.run_id("t0001") == runs["t0001"].info.run_id
    assert tracker.run_id("t0099") is None


def test_parameters_tags_and_metrics_arrive(first_sweep):
    folder, *_ = first_sweep
    client, runs = runs_of(folder)
    trial = runs["t0001"]
    assert trial.data.params == {"loss.name": "tau-cce"}
    assert trial.data.tags["relation"] == "add-or-remove-one"
    assert runs[None].data.params == {"data.name": "digits"}
    assert runs[None].data.tags["sweeper.specification.spec"] == "abc"
    history = client.get_metric_history(trial.info.run_id, "val/metric 3")
    assert [(point.step, point.value) for point in history] == [(t, 3 + t / 100) for t in range(1, 31)]


def test_numbers_that_are_not_finite_and_names_that_are_not_allowed_do_no_harm(first_sweep):
    folder, *_ = first_sweep
    metrics = runs_of(folder)[1]["t0001"].data.metrics
    assert metrics["epsilon/rdp"] > 1e300
    assert "epsilon/pld" in metrics
    assert metrics["val/certified_36/255"] == 0.5


def test_artifacts_lie_beside_the_store_and_a_missing_one_is_named(first_sweep):
    folder, tracker, *_ = first_sweep
    assert [path.name for path in (folder.parent / "mlflow-artifacts").rglob("*.json")] == ["front.json"]
    assert "missing.png does not exist" in tracker.refused[0]
    assert [path.read_text() for path in (folder.parent / "mlflow-artifacts").rglob("*.yaml")] == ["name: digits"]


@pytest.mark.usefixtures("first_sweep")
def test_telemetry_is_off_unless_the_user_decides():
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    from mlflow.telemetry.utils import is_telemetry_disabled

    assert is_telemetry_disabled()


def test_an_unreachable_store_costs_nothing_and_its_rows_wait(tmp_path, capfd):
    with silent_stores():
        tracker = Tracker(tmp_path, "digits", uri=NOWHERE)
        tracker.start_trial("t0001", {"a": 1}, {})
        tracker.log("t0001", 1, {"epsilon": math.nan})
    left = tracker.close(SweepStatus.INTERRUPTED, timeout_seconds=PATIENCE_SECONDS)
    assert left.path == tmp_path / SPOOL_NAME
    assert left.rows == 5
    assert "127.0.0.1" in left.trouble
    assert tracker.run_id() is None
    assert capfd.readouterr() == ("", "")


def test_waiting_rows_can_be_replayed_into_another_store(folder):
    tracker = Tracker(folder, "digits", uri=NOWHERE)
    tracker.start_trial("t0001", {"a": 1}, {})
    tracker.log("t0001", 1, {"epsilon": math.nan, "val/accuracy": 0.5})
    tracker.close(SweepStatus.INTERRUPTED, timeout_seconds=PATIENCE_SECONDS)
    assert replay_spool(folder / SPOOL_NAME, f"sqlite:///{folder / STORE_NAME}") == 5
    assert not (folder / SPOOL_NAME).exists()
    _, runs = runs_of(folder)
    assert {trial: run.info.status for trial, run in runs.items()} == {None: "KILLED", "t0001": "KILLED"}
    assert runs["t0001"].data.metrics["val/accuracy"] == 0.5


@pytest.mark.parametrize(("own", "replayed"), [("first", False), ("second", True)])
def test_artifacts_lie_beside_a_store_of_ones_own_wherever_the_program_runs(
    own, replayed, folder, tmp_path, monkeypatch
):
    cwd = tmp_path / "elsewhere"
    cwd.mkdir()
    (cwd / own).mkdir()
    (folder / STORE_NAME).rename(cwd / own / "runs.db")
    (folder / "front.json").write_text("{}")
    monkeypatch.chdir(cwd)
    tracker = Tracker(folder, own, uri=NOWHERE if replayed else f"sqlite:///{own}/runs.db")
    tracker.artifact(folder / "front.json")
    tracker.close(timeout_seconds=PATIENCE_SECONDS)
    if replayed:
        replay_spool(folder / SPOOL_NAME, f"sqlite:///{own}/runs.db")
    assert [path.name for path in (cwd / own / "mlflow-artifacts").rglob("*.json")] == ["front.json"]
    assert sorted(path.name for path in cwd.iterdir()) == [own]


def test_a_replay_that_fails_keeps_the_rows(tmp_path):
    Tracker(tmp_path, "digits", uri=NOWHERE).close(timeout_seconds=PATIENCE_SECONDS)
    with pytest.raises(SweeperError, match="is kept"):
        replay_spool(tmp_path / SPOOL_NAME)
    assert len(stored_rows(tmp_path / SPOOL_NAME)) == 2


@pytest.mark.long
@pytest.mark.parametrize("spooled", [False, True])
def test_what_a_killed_driver_had_not_spooled_is_replayed_too(folder, spooled):
    if spooled:
        Tracker(folder, "digits", uri=NOWHERE).close(timeout_seconds=PATIENCE_SECONDS)
    killed = Tracker(folder, "digits", uri=NOWHERE, waits=True)
    killed.start_trial("t0001", {"a": 1}, {})
    killed.end_trial("t0001", TrialStatus.COMPLETED)
    assert replay_spool(folder / SPOOL_NAME, f"sqlite:///{folder / STORE_NAME}") == (5 if spooled else 3)
    assert not list(folder.glob("tracking-spool*"))
    _, runs = runs_of(folder)
    assert runs["t0001"].info.status == "FINISHED"


def test_nothing_is_replayed_while_a_driver_runs(tmp_path):
    Tracker(tmp_path, "digits", uri=NOWHERE).close(timeout_seconds=PATIENCE_SECONDS)
    before = (tmp_path / SPOOL_NAME).read_bytes()
    with driver_lock(tmp_path), pytest.raises(RecordError, match="not running, but a process drives"):
        replay_spool(tmp_path / SPOOL_NAME)
    assert (tmp_path / SPOOL_NAME).read_bytes() == before
    record = (tmp_path / "driver.json").read_bytes()
    with pytest.raises(SweeperError, match="is kept"):
        replay_spool(tmp_path / SPOOL_NAME)
    assert (tmp_path / "driver.json").read_bytes() == record, "what resuming goes by"


def test_a_spool_that_was_broken_is_told_of(tmp_path):
    (tmp_path / SPOOL_NAME).write_bytes(b"what\n{}\n")
    tracker = Tracker(tmp_path, "digits", uri=NOWHERE, waits=True)
    assert "tracking-spool-broken1.jsonl, and not delivered" in tracker.refused[0]


def test_only_a_spool_is_replayed(tmp_path):
    (tmp_path / "other.jsonl").write_text('{"op": "run"}\n')
    with pytest.raises(RecordError, match="tracking spool"):
        replay_spool(tmp_path / "other.jsonl")
    with pytest.raises(RecordError, match="tracking spool"):
        replay_spool(tmp_path / "missing.jsonl")


@pytest.mark.long
def test_a_store_that_fails_in_the_middle_gets_everything_once_it_works_again(folder, monkeypatch):
    broken, original = [], MlflowClient.log_batch

    def log_batch(self, *args, **options):
        original(self, *args, **options)
        if not tracker_done and len(broken) < 5:
            broken.append(1)
            raise MlflowException("lost the connection after it was heard")

    tracker_done = []
    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    tracker = Tracker(folder, "digits")
    for trial in ("t0001", "t0002"):
        tracker.start_trial(trial, {"a": 1}, {"b": "c"})
    for epoch in range(1, 21):
        for trial in ("t0001", "t0002"):
            tracker.log(trial, epoch, {"epsilon": epoch})
        while len(broken) < epoch // 4:  # it fails while more is told
            time.sleep(0.01)
    tracker.end_trial("t0001", TrialStatus.COMPLETED)
    tracker_done.append(1)
    assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    client, runs = runs_of(folder)
    assert {trial: run.info.status for trial, run in runs.items()} == {
        None: "FINISHED",
        "t0001": "FINISHED",
        "t0002": "KILLED",
    }
    for trial in ("t0001", "t0002"):
        history = client.get_metric_history(runs[trial].info.run_id, "epsilon")
        assert [point.step for point in history] == list(range(1, 21))


def test_a_resumed_sweep_finds_its_runs(folder):
    for _ in range(2):
        tracker = Tracker(folder, "digits")
        tracker.start_trial("t0001", {"a": 1}, {})
        tracker.log("t0001", 1, {"epsilon": 1.0})
        tracker.tag("t0001", {"note": "x" * 9000})
        assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    experiment = MlflowClient(tracking_uri=tracker.destination.uri).get_experiment_by_name("digits").experiment_id
    client, _ = runs_of(folder)
    runs = client.search_runs([experiment], f"tags.`sweeper.sweep` = '{folder.name}'")
    assert len(runs) == 2
    assert {run.info.status for run in runs} == {"FINISHED", "KILLED"}


def test_what_the_store_refuses_for_good_is_noted_and_nothing_waits_for_it(folder):
    tracker = Tracker(folder, "digits")
    tracker.start_trial("t0001", {"a": 1, "b": 3}, {})
    tracker.start_trial("t0001", {"a": 2}, {})
    tracker.log("t0001", 1, {"epsilon": 1.0})
    assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    (refusal,) = tracker.refused
    assert "'a'" in refusal
    data = runs_of(folder)[1]["t0001"].data
    assert (data.metrics, data.params) == ({"epsilon": 1.0}, {"a": "1", "b": "3"})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("refused", ["metrics", "tags"])
def test_a_refused_tag_costs_no_metric_and_a_refused_metric_no_tag(refused, folder, monkeypatch):
    original = MlflowClient.log_batch

    def log_batch(self, run, metrics=(), params=(), tags=()):
        if {"metrics": metrics, "tags": tags}[refused]:
            raise MlflowException(f"no {refused} here", error_code=INVALID_PARAMETER_VALUE)
        return original(self, run, metrics, params, tags)

    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    tracker = Tracker(folder, "digits")
    tracker.start_trial("t0001", {}, {})
    tracker.log("t0001", 1, {"epsilon": 1.0})
    tracker.tag("t0001", {"note": "seen"})
    assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    data = runs_of(folder)[1]["t0001"].data
    assert data.metrics == ({} if refused == "metrics" else {"epsilon": 1.0})
    assert data.tags.get("note") == (None if refused == "tags" else "seen")
    assert f"MlflowException: no {refused} here" in tracker.refused


@pytest.mark.long
def test_many_metrics_are_split_into_batches(folder, monkeypatch):
    sizes, original = [], MlflowClient.log_batch

    def log_batch(self, run, metrics=(), params=(), tags=()):
        sizes.append(max(len(metrics), 10 * len(params)))
        return original(self, run, metrics, params, tags)

    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    tracker = Tracker(folder, "digits", params={f"p{i}": i for i in range(250)})
    for epoch in range(1, 26):
        tracker.log(None, epoch, {f"m{i}": i for i in range(100)})
    assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    assert max(sizes) <= 1000
    assert sum(sizes) == 2500 + 2500


def test_a_trial_is_told_of_in_as_few_calls_as_it_takes(folder, monkeypatch):
    told, calls = [], ("create_run", "update_run", "log_batch", "set_terminated")
    for name, original in [(name, getattr(MlflowClient, name)) for name in calls]:

        def call(*args, name=name, original=original, **options):
            told.append(name)
            return original(*args, **options)

        monkeypatch.setattr(MlflowClient, name, call)
    tracker = Tracker(folder, "digits", waits=True)
    tracker.start_trial("t0001", {"a": 1}, {NAME_TAG: "t0001 mlp-64"})
    tracker.tag("t0001", {NAME_TAG: "t0001 mlp-64 eps 2.9"})
    for epoch in (1, 2):
        tracker.log("t0001", epoch, {"epsilon": epoch})
    tracker.end_trial("t0001", TrialStatus.COMPLETED)
    tracker.deliver()
    assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    assert sorted(told) == sorted(2 * ["create_run", "log_batch", "set_terminated"]), "of the sweep and of the trial"
    run = runs_of(folder)[1]["t0001"]
    assert (run.info.run_name, run.info.status) == ("t0001 mlp-64 eps 2.9", "FINISHED")
    assert (run.data.params, run.data.metrics) == ({"a": "1"}, {"epsilon": 2.0})


def test_runs_say_who_made_them_and_keep_that_when_another_resumes(folder, monkeypatch):
    for user in ("ada", "grace"):
        monkeypatch.setenv("LOGNAME", user)
        tracker = Tracker(folder, "digits")
        tracker.start_trial("t0001", {}, {})
        if user == "grace":
            tracker.start_trial("t0002", {}, {})
        assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    found = {trial: run.data.tags["mlflow.user"] for trial, run in runs_of(folder)[1].items()}
    assert found == {None: "ada", "t0001": "ada", "t0002": "grace"}


def test_a_submitted_sweep_is_that_of_the_owner_of_the_token(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "submission.json").write_text('{"by": "grace"}')
    tracker = Tracker(folder, "digits")
    tracker.start_trial("t0001", {}, {})
    assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    assert {run.data.tags["mlflow.user"] for run in runs_of(folder)[1].values()} == {"grace"}
    (folder / "submission.json").write_text("{")
    assert user_tag(folder) == user_tag(folder.parent)


def test_a_machine_that_does_not_know_its_user_says_nothing(folder, monkeypatch):
    def unknown():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", unknown)
    assert user_tag(folder) == {}


def test_people_are_sent_to_the_address_for_people(monkeypatch):
    monkeypatch.setenv("SWEEPER_TRACKING_PAGE", "https://runs.example.org")
    assert how_to_look("http://mlflow:5000") == "open https://runs.example.org"
    assert how_to_look("sqlite:///x/mlflow.db") == f"{program('mlflow')} ui --backend-store-uri sqlite:///x/mlflow.db"


@pytest.mark.long
def test_two_sweeps_of_one_name_share_an_experiment_and_no_runs(folder):
    other = folder.parent / "digits-20260303-120000"
    other.mkdir()
    uri = f"sqlite:///{folder / STORE_NAME}"
    for each in (folder, other):
        tracker = Tracker(each, "digits", uri=uri)
        tracker.start_trial("t0001", {}, {})
        assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    mine, others = (runs_of(folder, sweep=Path(each).name)[1] for each in (folder, other))
    assert mine["t0001"].info.experiment_id == others["t0001"].info.experiment_id
    assert mine["t0001"].info.run_id != others["t0001"].info.run_id


@pytest.fixture
def track(folder, tmp_path):
    """Tell the store of ``folder`` of a trial and a rehearsal of a sweep of that name, and return where."""

    def track(place, id_, *, lies_waiting=False):
        own = tmp_path / place / folder.name
        own.mkdir(parents=True, exist_ok=True)
        tracker = Tracker(own, "digits", uri=f"sqlite:///{folder / STORE_NAME}", id_=id_, waits=True)
        tracker.start_trial("t0001", {}, {"sweeper.exploratory": place})
        tracker.end_trial("t0001", TrialStatus.COMPLETED)
        tracker.rehearsal(join_trainings(make_rehearsals((0.8, 0.5), ()))[0])
        if not lies_waiting:
            tracker.deliver()
        left = tracker.close(timeout_seconds=PATIENCE_SECONDS)
        assert (left.rows > 0) is lies_waiting
        return tracker.destination

    return track


def runs_at(where):
    """The runs of a sweep, those of its rehearsals included, which are those that deletion would take."""
    client = MlflowClient(tracking_uri=where.uri)
    (found,) = client.search_experiments(filter_string=f"name = '{where.experiment}'")
    told = runs_by_rehearsal(client, found.experiment_id, where)
    return {**find_runs(client, where), **told}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ids", [("first", "second"), ("first", None), (None, "first")])
def test_two_sweeps_of_one_name_and_moment_have_runs_of_their_own(ids, track):
    """One of them may be of an earlier version, without an id."""
    one, other = (track(place, id_) for place, id_ in zip(("true", "false"), ids, strict=True))
    assert one.sweep == other.sweep
    mine, others = runs_at(one), runs_at(other)
    assert set(mine) == set(others) == {None, "t0001", "c0001", "rehearsals"}
    assert not set(mine.values()) & set(others.values())
    client = MlflowClient(tracking_uri=one.uri)
    assert [client.get_run(found["t0001"]).data.tags["sweeper.exploratory"] for found in (mine, others)] == [
        "true",
        "false",
    ]
    set_tags(one, "t0001", {"seen": "yes"})
    assert "seen" not in client.get_run(others["t0001"]).data.tags
    assert delete_runs(one) == 4
    assert runs_at(other) == others


@pytest.mark.parametrize("id_", ["first", None])
def test_a_sweep_that_goes_on_or_was_moved_finds_its_own_runs(id_, track):
    """One of an earlier version, without an id, by the name of its folder."""
    before = runs_at(track("here", id_))
    assert set(before) == {None, "t0001", "c0001", "rehearsals"}
    assert runs_at(track("here", id_)) == before
    assert runs_at(track("moved", id_)) == before


def test_a_copy_of_another_name_has_runs_of_its_own(track):
    told = track("here", "first")
    for other in ("copy", "o'neil"):
        assert find_runs(MlflowClient(tracking_uri=told.uri), replace(told, sweep=other)) == {}


@pytest.mark.parametrize("older", [False, True])
def test_rows_that_waited_go_to_the_runs_of_their_sweep(older, track, folder, tmp_path):
    """Those of an earlier version, whose file names no id, to the runs of one without."""
    other = runs_at(track("other", "second"))
    where = track("own", None if older else "first", lies_waiting=True)
    spool = tmp_path / "own" / folder.name / SPOOL_NAME
    if older:
        header, *rows = spool.read_text(encoding="utf-8").splitlines()
        known = {name: value for name, value in json.loads(header).items() if name != "id"}
        spool.write_text("\n".join([json.dumps(known), *rows]) + "\n", encoding="utf-8")
    replay_spool(spool)
    assert set(runs_at(where)) == set(other)
    assert not set(runs_at(where).values()) & set(other.values())


def test_all_sweeps_of_a_folder_share_a_store_and_older_ones_keep_theirs(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for each in (old, new):
        each.mkdir()
    (old / STORE_NAME).touch()
    assert own_store(old) == old / STORE_NAME
    assert own_store(new) == tmp_path / STORE_NAME
    assert Destination.of(new, "digits").uri == f"sqlite:///{tmp_path / STORE_NAME}"
    assert Destination.of(new, "digits").artifacts == (tmp_path / "mlflow-artifacts").as_uri()


def test_a_new_store_has_no_empty_experiment(first_sweep):
    client = MlflowClient(tracking_uri=f"sqlite:///{own_store(first_sweep[0])}")
    (found,) = client.search_experiments()
    assert (found.name, found.tags["mlflow.experimentKind"]) == ("digits", "custom_model_development")


def test_the_experiments_of_a_store_that_was_there_are_left_alone(folder):
    client = MlflowClient(tracking_uri=f"sqlite:///{folder / STORE_NAME}")
    client.restore_experiment("0")
    assert Tracker(folder, "other").close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    assert {found.name for found in client.search_experiments()} == {"Default", "digits", "other"}


def test_a_data_set_is_an_input_of_the_run_whatever_comes_twice(folder):
    for _ in range(2):
        tracker = Tracker(folder, "digits")
        tracker.dataset("patients", "0123456789abcdef", {"training_rows": 1000, "classes": ["no", "yes"]})
        assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    (told,) = runs_of(folder)[1][None].inputs.dataset_inputs
    assert (told.dataset.name, told.dataset.digest) == ("patients", "0123456789abcdef")
    assert json.loads(told.dataset.profile) == {"training_rows": 1000, "classes": ["no", "yes"]}
    assert [(tag.key, tag.value) for tag in told.tags] == [("mlflow.data.context", "training")]


def test_a_description_links_to_the_artifacts_of_its_run(folder):
    tracker = Tracker(folder, "digits", tags={"mlflow.note.content": "[Report](artifact-of-this-run:front.html)"})
    assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    info, tags = (lambda run: (run.info, run.data.tags))(runs_of(folder)[1][None])
    link = f"#/experiments/{info.experiment_id}/runs/{info.run_id}/artifacts/front.html"
    assert tags["mlflow.note.content"] == f"[Report]({link})"


@pytest.mark.long
def test_a_rehearsed_configuration_is_a_run_of_its_own_and_none_of_a_trial(folder, monkeypatch):
    won, failed = join_trainings(make_rehearsals((0.8, 0.5), ()))
    for _ in range(2):  # the second time as after a kill
        tracker = Tracker(folder, "digits")
        tracker.rehearsal(won)
        tracker.start_trial("t0001", {"model": {"width": 64}}, {})
        tracker.log("t0001", 1, {"val/accuracy": 0.7})
        tracker.end_trial("t0001", TrialStatus.COMPLETED)
        tracker.rehearsal(failed)
        assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
        assert set(tracker._store.run_ids) == {None, "t0001"}
    client, _ = runs_of(folder)
    (experiment,) = client.search_experiments(filter_string="name = 'digits'")
    runs = client.search_runs([experiment.experiment_id], f"tags.`sweeper.sweep` = '{folder.name}'")
    assert len(runs) == 5
    told = {run.data.tags["sweeper.rehearsal"]: run for run in runs if "sweeper.rehearsal" in run.data.tags}
    parent = next(run for run in runs if run.info.run_name == folder.name)
    assert parent.info.status == "FINISHED"
    assert parent.data.metrics == {}
    above = told.pop("rehearsals")
    assert (above.info.run_name, above.info.status) == ("rehearsals", "FINISHED")
    below = {run.info.run_name for run in runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id}
    assert below == {"t0001", "rehearsals"}, "trials are not lost among what was rehearsed"
    for run in told.values():
        assert run.data.tags["mlflow.parentRunId"] == above.info.run_id
        assert run.data.tags["sweeper.rehearsed_on"] == "public rows"
        assert "sweeper.trial" not in run.data.tags
        assert all(name.startswith("rehearsal/") for name in run.data.metrics)
    run = told["c0001"]
    assert (run.info.run_name, run.info.status, told["c0002"].info.status) == ("rehearsal c0001", "FINISHED", "FAILED")
    assert told["c0002"].data.tags["sweeper.reason"] == "accuracy is not a number in epoch 1"
    assert run.data.params["training.learning_rate"] == "0.01"
    assert run.data.metrics["rehearsal/accuracy"] == pytest.approx(0.8)
    assert run.data.metrics["rehearsal/slow-midpoint/certified/0.25"] == pytest.approx(0.25)
    assert [one.step for one in client.get_metric_history(run.info.run_id, "rehearsal/accuracy")][:2] == [1, 2]
    where = Destination.of(folder, "digits")
    assert set(find_runs(client, where)) == {None, "t0001"}
    for order in (1, -1):  # the order in which a store returns runs decides nothing
        monkeypatch.setattr(store_module, "every_run", lambda *_, order=order: list(runs)[::order])
        assert find_runs(client, where)[None] == parent.info.run_id
    monkeypatch.undo()
    assert [trial.sweep for trial in logged_trials(where.uri, "digits") if trial.sweep == folder.name] == [folder.name]
    with pytest.raises(SweeperError, match="Expected a run of trial c0001"):
        set_tags(where, "c0001", {"a": "b"})
    assert delete_runs(where) == 5
    assert client.search_runs([experiment.experiment_id], f"tags.`sweeper.sweep` = '{folder.name}'") == []


def test_a_run_is_renamed_and_stays_the_run_of_its_trial(folder):
    for name in ("t0001 mlp-64", "t0001 mlp-64 eps 2.9"):
        tracker = Tracker(folder, "digits")
        tracker.start_trial("t0001", {}, {NAME_TAG: name})
        assert tracker.close(timeout_seconds=PATIENCE_SECONDS) == Undelivered()
    runs = runs_of(folder)[1]
    assert runs["t0001"].info.run_name == "t0001 mlp-64 eps 2.9"
    assert set(runs) == {None, "t0001"}


def test_a_store_is_made_by_one_process_at_a_time(tmp_path, monkeypatch):
    made, seen = [], []

    def make(store):
        assert is_held()
        made.append(store)
        store.touch()

    def is_held():
        try:
            with (tmp_path / f".{STORE_NAME}.lock").open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def second():
        with store_module._alone(f"sqlite:///{tmp_path / STORE_NAME}"):
            seen.append(is_held())

    monkeypatch.setattr(store_module, "_make", make)
    thread = threading.Thread(target=second)
    with store_module._alone(f"sqlite:///{tmp_path / STORE_NAME}"):
        thread.start()
        assert is_held()
        assert seen == []
    thread.join(PATIENCE_SECONDS)
    assert seen == [True]
    assert made == [tmp_path / STORE_NAME]


@pytest.mark.long
def test_a_store_is_there_with_all_its_tables_or_not_at_all(tmp_path, monkeypatch):
    """Whoever is killed while MLflow makes tables leaves nothing that a later sweep takes for a store."""
    seen = []

    def killed(*_):
        seen.append([path.name for path in tmp_path.iterdir() if path.is_file()])
        raise KeyboardInterrupt

    monkeypatch.setattr("mlflow.MlflowClient.delete_experiment", killed)
    with pytest.raises(KeyboardInterrupt), store_module._alone(f"sqlite:///{tmp_path}/mlflow.db"):
        pass
    assert seen == [[".mlflow.db.lock"]]
    monkeypatch.undo()
    store_module.prepare_mlflow()
    with store_module._alone(f"sqlite:///{tmp_path}/mlflow.db"):
        assert (tmp_path / "mlflow.db").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".mlflow.db.lock", "mlflow.db"]
