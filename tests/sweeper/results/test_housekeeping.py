"""Deleting sweeps and what they no longer need: never one that runs, never what was spent, never outside."""

import io
import json
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.adapters import dump
from sweeper.driver.runner import resume_sweep
from sweeper.errors import RecordError, SweeperError
from sweeper.privacy.ledger import Ledger
from sweeper.records import SweepStatus, TrialStatus
from sweeper.results import housekeeping
from sweeper.results.front import read_front
from sweeper.results.housekeeping import (
    SPENT_NAME,
    check_not_running,
    delete_sweep,
    delete_unstarted,
    garbage,
    remove,
)
from sweeper.store.lock import driver_lock
from sweeper.store.sweep_folder import SweepFolder


@pytest.fixture
def folder(ran, tmp_path):
    """A copy of a real sweep, in a folder of sweeps."""
    folder = tmp_path / "out" / ran.folder.name
    shutil.copytree(ran.folder, folder, ignore=shutil.ignore_patterns("mlflow*", "*.html", "checkpoints", "ray"))
    return folder


def mark(folder, **changes):
    sweep = SweepFolder(folder)
    sweep.write_manifest(replace(sweep.read_manifest(), **changes))


# Deletion


def test_a_deletion_keeps_what_was_spent_and_claimed(folder):
    ledger, front = (folder / "ledger.jsonl").read_bytes(), read_front(folder / "front.json")
    done = delete_sweep(folder)
    assert not folder.exists()
    assert done.kept == folder.parent / SPENT_NAME / folder.name
    assert (done.kept / "ledger.jsonl").read_bytes() == ledger
    assert "name: tiny" in (done.kept / "spec.yaml").read_text()
    statement = json.loads((done.kept / "statement.json").read_text())
    assert statement["claim"] == front.claim.to_json()
    assert statement["ledger"] == {question: dump(answer) for question, answer in front.ledger.items()}
    assert not garbage(folder.parent)


def test_a_deletion_keeps_the_receipt_of_an_account(folder):
    (folder / "account.json").write_text('{"account": "accounts.db#clinic"}')
    kept = delete_sweep(folder).kept
    assert (kept / "account.json").read_text() == '{"account": "accounts.db#clinic"}'


def test_what_a_killed_sweep_spent_is_stated_in_full(folder, event):
    ledger = Ledger(folder / "ledger.jsonl")
    ledger.open("t0009", event)
    statement = json.loads((delete_sweep(folder).kept / "statement.json").read_text())
    answers = ledger.answers(1e-4)
    assert statement["ledger"] == {question: dump(answer) for question, answer in answers.items()}
    assert statement["ledger"]["everything"]["events"] == 4


def test_the_ledger_is_kept_before_the_first_file_goes(folder, monkeypatch):
    def interrupted(_path):
        assert (folder.parent / SPENT_NAME / folder.name / "ledger.jsonl").is_file()
        raise OSError(13, "Permission denied", "x")

    before = sorted(folder.rglob("*"))
    monkeypatch.setattr(housekeeping, "_remove", interrupted)
    with pytest.raises(RecordError, match="Cannot delete x: Permission denied"):
        delete_sweep(folder)
    assert sorted(folder.rglob("*")) == sorted([*before, folder / "deleting"])
    monkeypatch.undo()
    assert delete_sweep(folder).kept.name == f"{folder.name}-2"  # the first copy is not written over


def test_a_ledger_that_cannot_be_kept_stops_the_deletion(folder):
    (folder.parent / SPENT_NAME).write_text("in the way")
    with pytest.raises(RecordError, match=r"Cannot keep the ledger of .*; nothing was deleted"):
        delete_sweep(folder)
    assert (folder / "front.json").is_file()
    assert delete_sweep(folder, forget=True).kept is None
    assert not folder.exists()


def test_a_sweep_without_a_front_keeps_its_ledger_too(folder):
    (folder / "front.json").unlink()
    kept = delete_sweep(folder).kept
    assert json.loads((kept / "statement.json").read_text())["claim"] is None
    assert (kept / "ledger.jsonl").stat().st_size


def test_a_sweep_that_spent_nothing_leaves_nothing(folder):
    (folder / "ledger.jsonl").unlink()
    assert delete_sweep(folder).kept is None
    assert not (folder.parent / SPENT_NAME).exists()


def test_a_sweep_whose_driver_died_before_it_wrote_anything_can_be_deleted(tmp_path):
    folder = tmp_path / "submitted"
    folder.mkdir()
    with driver_lock(folder), pytest.raises(RecordError, match="a process drives"):
        delete_unstarted(folder)
    assert (folder / "driver.json").exists()
    (folder / "ledger.jsonl").touch()
    with pytest.raises(RecordError, match="Expected a sweep that never started"):
        delete_unstarted(folder)
    (folder / "ledger.jsonl").unlink()
    delete_unstarted(folder)
    assert not folder.exists()


class Killed(BaseException):
    """As kill -9: nothing comes after it."""


def test_what_a_killed_deletion_leaves_is_never_resumed_and_can_be_deleted(folder, monkeypatch):
    """Whatever is gone already, the ledger among it: nobody begins again with nothing spent."""
    names = [path.name for path in folder.iterdir()]
    copy, remove_one = shutil.copytree(folder, folder.parent.parent / "copy"), housekeeping._remove
    for removed in range(len(names) + 1):
        left = removed

        def killed(path):
            nonlocal left
            if left == 0:
                raise Killed
            remove_one(path)
            left -= 1

        with monkeypatch.context() as patch:
            patch.setattr(housekeeping, "_remove", killed)
            with pytest.raises(Killed):
                delete_sweep(folder)
        is_sweep = (folder / "sweep.json").exists()
        assert is_sweep or list(folder.iterdir()) == [folder / "deleting"]
        with pytest.raises(RecordError, match="has begun; delete it again" if is_sweep else "folder"):
            resume_sweep(folder)
        kept = [path.parent for path in (folder.parent / SPENT_NAME).glob("*/ledger.jsonl")]
        assert kept
        if is_sweep:
            delete_sweep(folder)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(copy, folder)
    assert not is_sweep, "every file was the last one once"


def test_a_driven_sweep_is_not_deleted_whatever_it_says(folder):
    with driver_lock(folder), pytest.raises(RecordError, match="a process drives"):
        delete_sweep(folder)
    assert (folder / "ledger.jsonl").is_file()
    delete_sweep(folder)


def test_a_driver_that_comes_between_is_not_run_over(folder, monkeypatch):
    monkeypatch.setattr(housekeeping, "is_driven", lambda _: False)
    with driver_lock(folder), pytest.raises(RecordError, match="a process drives"):
        delete_sweep(folder)
    assert (folder / "ledger.jsonl").is_file()


@pytest.mark.parametrize(
    ("driver", "refused"),
    [
        (None, True),
        ({"pid": 1, "host": "elsewhere"}, True),
        ({}, True),
        ({"pid": 1, "host": socket.gethostname()}, False),
    ],
    ids=["nobody knows", "another machine", "unknown machine", "killed here"],
)
def test_a_sweep_that_says_it_runs_is_believed_unless_its_driver_died_here(folder, driver, refused):
    mark(folder, status=SweepStatus.RUNNING)
    (folder / "driver.json").unlink(missing_ok=True)
    if driver is not None:
        (folder / "driver.json").write_text(json.dumps(driver))
    if refused:
        with pytest.raises(RecordError, match=r"Expected a sweep that is not running, but .* says that it is"):
            delete_sweep(folder)
        assert (folder / "ledger.jsonl").is_file()
    else:
        check_not_running(folder)
        assert json.loads((folder / "driver.json").read_text()) == driver  # what resuming goes by
        delete_sweep(folder)


def test_what_is_no_sweep_is_not_deleted(folder, tmp_path):
    with pytest.raises(RecordError, match="Expected the folder of a sweep, but there is no"):
        delete_sweep(folder.parent)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(RecordError, match="got a link"):
        delete_sweep(tmp_path / "link")
    other = tmp_path / "other"
    other.mkdir()
    (other / "sweep.json").write_text("{}")
    with pytest.raises(RecordError, match=r"Expected format 1 in .*sweep\.json, got none"):
        delete_sweep(other)
    assert (folder / "sweep.json").is_file()
    assert (other / "sweep.json").is_file()


def test_nothing_is_followed_out_of_the_folder(folder, tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data.csv").write_text("x")
    (folder / "models" / "t9-1.safetensors").symlink_to(precious / "data.csv")
    (folder / "checkpoints").symlink_to(precious)
    (folder / "ray").mkdir()
    (folder / "ray" / "inside").symlink_to(precious)
    remove(garbage(folder.parent))
    assert (precious / "data.csv").read_text() == "x"
    delete_sweep(folder)
    assert (precious / "data.csv").read_text() == "x"


def test_runs_are_deleted_first_or_nothing_is(folder, monkeypatch):
    mark(folder, tracking="http://store")
    seen = []

    def refuse(where):
        seen.append(where.uri)
        raise SweeperError("Cannot use the store http://store")

    monkeypatch.setattr(housekeeping, "delete_runs", refuse)
    with pytest.raises(SweeperError, match="Cannot use the store"):
        delete_sweep(folder, runs=True)
    assert (folder / "ledger.jsonl").is_file()
    assert not (folder.parent / SPENT_NAME / folder.name).exists()
    monkeypatch.setattr(housekeeping, "delete_runs", lambda where: seen.append(where.sweep) or 4)
    assert delete_sweep(folder, runs=True).runs == 4
    assert seen == ["http://store", folder.name]


def test_runs_in_the_store_of_all_sweeps_are_deleted_if_that_is_asked_for(folder, monkeypatch):
    seen = []
    monkeypatch.setattr(housekeeping, "delete_runs", lambda where: seen.append(where.uri) or 4)
    (folder.parent / "mlflow.db").touch()
    copy = shutil.copytree(folder, folder.with_name("another"))
    assert delete_sweep(copy, forget=True).runs == 0
    assert delete_sweep(folder, runs=True).runs == 4
    assert seen == [f"sqlite:///{folder.parent / 'mlflow.db'}"]


# Garbage


def old(path, text="x"):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (1e9, 1e9))
    return path


@pytest.fixture
def littered(folder):
    """A completed sweep with everything that can be removed; returns what that is, and what must stay."""
    old(folder / "ray" / "state.pkl", "12345")
    old(folder / "checkpoints" / "t1.safetensors")
    partial, temporary = old(folder / "models" / "a.safetensors.7-0a1b2c3d.partial"), old(folder / ".front.json.7.tmp")
    (folder / ".card.json.8.tmp").write_text("being written")
    front = read_front(folder / "front.json")
    named = {folder / point.model for point in front.front_points}
    unnamed = old(folder / "models" / "t0009-1.safetensors")
    assert named
    return {folder / "ray", folder / "checkpoints", partial, temporary, unnamed}, named


def test_what_ended_sweeps_do_not_need_is_listed_and_then_removed(folder, littered):
    removable, named = littered
    found = garbage(folder.parent)
    assert {one.path for one in found} == removable
    assert next(one.size for one in found if one.path.name == "ray") == 5
    assert all(path.exists() for path in removable)
    freed = remove(found)
    assert freed == sum(one.size for one in found)
    assert not any(path.exists() for path in removable)
    assert all(path.is_file() for path in named)
    assert (folder / ".card.json.8.tmp").is_file()
    assert not garbage(folder.parent)
    from sweeper.results.sweep import load

    assert load(folder).pick().model().input_shape == (1, 8, 8)


@pytest.mark.usefixtures("littered")
@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_sweep_that_may_be_resumed_keeps_models_and_state(folder, status):
    mark(folder, status=SweepStatus(status))
    assert {one.why for one in garbage(folder.parent)} == {"never finished"}


@pytest.mark.parametrize("status", [TrialStatus.RUNNING, TrialStatus.INTERRUPTED])
def test_a_stopped_sweep_keeps_the_checkpoints_of_trials_that_it_cut_off(folder, status):
    mark(folder, status=SweepStatus.STOPPED)
    sweep = SweepFolder(folder)
    sweep.save_trial(replace(sweep.trials()["t0002"], status=status))
    kept = [old(folder / "checkpoints" / f"t0002-{repeat}.safetensors") for repeat in (0, 1)]
    ended = old(folder / "checkpoints" / "t0001-0.safetensors")
    found = garbage(folder.parent)
    assert [(one.path, one.why) for one in found] == [(ended, "the trial has ended")]
    remove(found)
    assert all(path.is_file() for path in kept)
    with (folder / "trials.jsonl").open("ab") as file:
        file.write(b"broken\n")
    assert not garbage(folder.parent)


def test_models_stay_that_points_name_where_a_full_disk_refused_the_front(folder):
    front = read_front(folder / "front.json")
    replace(front, points=(), on_front=frozenset()).write(folder / "front.json")
    assert not garbage(folder.parent)
    unnamed = old(folder / "models" / "t0009-1.safetensors")
    assert [one.path for one in garbage(folder.parent)] == [unnamed]
    (folder / "points.jsonl").write_bytes(b"broken\n")
    assert not garbage(folder.parent)


@pytest.mark.usefixtures("littered")
def test_a_sweep_that_runs_or_may_is_left_alone(folder):
    with driver_lock(folder):
        assert not garbage(folder.parent)
    (folder / "driver.json").unlink()
    mark(folder, status=SweepStatus.RUNNING)
    assert not garbage(folder.parent)


@pytest.mark.usefixtures("littered")
def test_no_model_goes_where_the_front_cannot_be_read(folder):
    (folder / "front.json").write_text("torn")
    assert not any("model" in one.why for one in garbage(folder.parent))


@settings(max_examples=25, deadline=None)
@given(kept=st.sets(st.integers(0, 7)), files=st.sets(st.integers(0, 7)))
def test_exactly_the_models_that_no_point_names_go(tmp_path_factory, kept, files):
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "models").mkdir()
    for i in files:
        (folder / f"models/t-{i}.safetensors").touch()

    class Front:
        front_points = tuple(type("Point", (), {"model": f"models/t-{i}.safetensors"}) for i in kept)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(housekeeping, "_front", lambda _: Front)
        found = {one.path.name for one in housekeeping._models(folder)}
    assert found == {f"t-{i}.safetensors" for i in files - kept}


# The commands


def test_the_commands_ask_list_and_say_what_they_keep(folder, littered, call, monkeypatch):
    removable, _ = littered
    code, said, _ = call("gc", folder.parent)
    assert code == 0
    assert "could be freed: add --yes" in said
    assert all(str(path) in said for path in removable)
    assert "MiB freed" in call("gc", folder.parent, "--yes")[1]
    code, _, said = call("gc", folder / "nowhere")
    assert (code, "Expected a folder of sweeps" in said) == (2, True)
    with monkeypatch.context() as patch:
        patch.setattr("typer.confirm", lambda _: False)
        assert call("delete", folder)[:2] == (0, "Nothing was deleted\n")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, _, said = call("delete", folder)  # nobody is there to answer
    assert (code, "add --yes" in said) == (2, True)
    assert folder.is_dir()
    code, said, _ = call("delete", folder, "--yes")
    assert code == 0
    assert f"The privacy that it spent stays spent: ledger, spec and claim are in {folder.parent / SPENT_NAME}" in said
    assert not Path(folder).exists()
