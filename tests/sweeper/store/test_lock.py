"""Who drives a sweep: what one process sees of another's lock."""

import fcntl
import json
import os
import shutil
from types import SimpleNamespace

import pytest

from sweeper.errors import RecordError
from sweeper.store.lock import DELETING_NAME, driver_lock, is_driven, undriven


@pytest.fixture
def folder(tmp_path):
    """Of a sweep that was driven once."""
    with driver_lock(tmp_path):
        pass
    return tmp_path


def held(folder, kind):
    handle = os.open(folder / "driver.json", os.O_RDONLY)
    fcntl.flock(handle, kind)
    return handle


def test_who_looks_is_no_driver_to_others_who_look(folder):
    looker = held(folder, fcntl.LOCK_SH)
    assert not is_driven(folder)
    os.close(looker)
    with driver_lock(folder):
        assert is_driven(folder)


def test_a_look_does_not_stop_what_keeps_drivers_out(folder, monkeypatch):
    looking = [held(folder, fcntl.LOCK_SH)]
    monkeypatch.setattr("sweeper.store.lock.time", SimpleNamespace(sleep=lambda _: os.close(looking.pop())))
    with undriven(folder):
        assert is_driven(folder), "nobody begins to drive it"
    assert not looking


def test_a_sweep_whose_deletion_has_begun_is_not_driven(folder):
    (folder / DELETING_NAME).touch()
    with pytest.raises(RecordError, match=r"a whole sweep, but the deletion of .* has begun; delete it again"):
        driver_lock(folder).__enter__()
    assert not is_driven(folder)


def was_rebooted(folder):
    with driver_lock(folder) as rebooted:
        return rebooted


def note(folder, **content):
    """Write into the driver's file, in the second in which it was written."""
    path = folder / "driver.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | content))


def restore(folder, **kept):
    shutil.copytree(folder, folder.parent / "copy", **kept)
    shutil.rmtree(folder)
    (folder.parent / "copy").rename(folder)


def keep_time(folder):
    """Replace the ledger alone by a copy with the times of the original, as rsync does where nothing else differs."""
    os.utime(folder / "ledger.jsonl", (1.0, 1.0))


@pytest.mark.parametrize(
    "put_back",
    [
        restore,
        lambda folder: restore(folder, copy_function=shutil.copy),
        lambda folder: note(folder, changed=json.loads((folder / "driver.json").read_text())["changed"] - 10.0),
        keep_time,
        lambda folder: (folder / "driver.json").unlink(),
    ],
    ids=["a copy with its times", "a copy", "a copy over the original", "a ledger alone", "all but the driver's file"],
)
def test_the_last_rows_of_a_folder_that_was_put_back_may_be_lost(tmp_path, put_back):
    folder = tmp_path / "sweep"
    folder.mkdir()
    assert not was_rebooted(folder), "it is the first"
    (folder / "ledger.jsonl").write_text("{}\n")
    assert not was_rebooted(folder)
    put_back(folder)
    assert was_rebooted(folder)
    assert was_rebooted(folder) is (put_back is keep_time), "until a driver has come to its end"


@pytest.mark.parametrize("before", [{"boot": "another"}, {"host": "another"}, {"inode": None}, {"changed": None}])
def test_the_last_rows_of_another_machine_or_of_an_earlier_version_may_be_lost(folder, before):
    (folder / "ledger.jsonl").write_text("{}\n")
    note(folder, **before)
    assert was_rebooted(folder)
    assert not was_rebooted(folder)
