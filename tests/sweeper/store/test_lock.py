"""Who drives a sweep: what one process sees of another's lock."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
from types import SimpleNamespace

import pytest

from sweeper.errors import RecordError
from sweeper.store.lock import DELETING_NAME, driver_lock, is_driven, undriven


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """A machine that is busy may take long between two writes; copies are older than that here."""
    monkeypatch.setattr("sweeper.store.lock._TOLERANCE_SECONDS", 5.0)


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


def test_a_sweep_has_one_driver_though_the_file_of_its_driver_is_removed(folder):
    """Taken for a stale lock, say: another driver would draw what this one draws, at the price of once."""
    with driver_lock(folder):
        (folder / "driver.json").unlink()
        assert is_driven(folder)
        for others in (driver_lock, undriven):
            with pytest.raises(RecordError, match=r"a process drives .*; wait or stop it"), others(folder):
                pytest.fail("two at a time")
        (folder / "driver.json").unlink()  # which the other one has made
    assert not is_driven(folder)
    with undriven(folder):
        assert is_driven(folder), "nobody begins to drive it"
    with driver_lock(folder) as lock:
        assert not lock.copied


def test_where_a_file_system_locks_no_folders_the_file_of_the_driver_decides(folder, monkeypatch):
    real = fcntl.flock

    def flock(handle, kind):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(handle, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    assert not is_driven(folder)
    with driver_lock(folder):
        assert is_driven(folder)
        with pytest.raises(RecordError, match="drives"), driver_lock(folder):
            pytest.fail("two at a time")
    with undriven(folder):
        pass


def test_a_sweep_whose_deletion_has_begun_is_not_driven(folder):
    (folder / DELETING_NAME).touch()
    with pytest.raises(RecordError, match=r"a whole sweep, but the deletion of .* has begun; delete it again"):
        driver_lock(folder).__enter__()
    assert not is_driven(folder)


def begin(folder):
    """Drive a sweep that writes its first row, and die."""
    with contextlib.suppress(KeyboardInterrupt), driver_lock(folder) as lock:
        (folder / "ledger.jsonl").write_text("{}\n" * 9)
        lock.note()
        raise KeyboardInterrupt


def look(folder):
    """What a next driver is told, which is killed too."""
    with contextlib.suppress(KeyboardInterrupt), driver_lock(folder) as lock:
        raise KeyboardInterrupt
    return lock.rebooted, lock.copied


def note(folder, **content):
    """Write into the driver's file, so short a time after it was written that it might have done so itself."""
    path = folder / "driver.json"
    told = json.loads(path.read_text()) | content
    for _ in range(2):
        if "changed" not in content:
            told["changed"] = path.stat().st_ctime
        path.write_text(json.dumps(told))


def put_back(folder, copied=shutil.copy2, names=("driver.json", "ledger.jsonl")):
    """Go on for a row, and replace files by copies that were made before."""
    for name in names:
        shutil.copy2(folder / name, folder / f"{name}.bak")
    if "driver.json" in names:  # ten seconds ago
        told = json.loads((folder / "driver.json.bak").read_text())
        (folder / "driver.json.bak").write_text(json.dumps(told | {"changed": told["changed"] - 10.0}))
    with contextlib.suppress(KeyboardInterrupt), driver_lock(folder) as lock:
        (folder / "ledger.jsonl").write_text("{}\n" * 10)
        lock.note()
        raise KeyboardInterrupt
    for name in names:
        copied(folder / f"{name}.bak", folder / name)


def replace_whole(folder):
    shutil.copytree(folder, folder.parent / "copy")
    shutil.rmtree(folder)
    (folder.parent / "copy").rename(folder)


@pytest.mark.parametrize(
    "restore",
    [
        replace_whole,
        put_back,
        lambda folder: put_back(folder, shutil.copyfile),
        lambda folder: put_back(folder, shutil.move),
        lambda folder: put_back(folder, shutil.copyfile, ("ledger.jsonl",)),
        lambda folder: put_back(folder, shutil.move, ("ledger.jsonl",)),
        lambda folder: (folder / "driver.json").unlink(),
        lambda folder: (folder / "driver.json").write_text(""),
    ],
    ids=["the folder", "over it", "over it, with new times", "files", "records", "moved records", "no driver", "torn"],
)
def test_a_folder_that_was_put_back_is_known_until_a_driver_has_come_to_its_end(tmp_path, restore):
    folder = tmp_path / "sweep"
    folder.mkdir()
    begin(folder)
    assert look(folder) == (False, False)
    restore(folder)
    assert look(folder) == look(folder) == (True, True)
    with driver_lock(folder):
        pass
    assert look(folder) == (False, False)


def test_who_only_looks_leaves_it_to_the_next_driver_that_a_folder_was_put_back(tmp_path):
    folder = tmp_path / "sweep"
    folder.mkdir()
    begin(folder)
    replace_whole(folder)
    with driver_lock(folder, looks=True) as lock:
        assert lock.copied
    assert look(folder) == (True, True)


def test_a_folder_that_was_renamed_is_no_copy_and_without_the_file_of_its_driver_it_is_one(tmp_path):
    """As a winner that moves out of a hidden folder."""
    made, out = tmp_path / "winner", tmp_path / "out"
    made.mkdir()
    with driver_lock(made):
        (made / "ledger.jsonl").write_text("{}\n")
    made.rename(out)
    assert look(out) == (False, False)
    with driver_lock(out):
        pass
    (out / "driver.json").unlink()
    assert look(out) == (True, True)


def test_a_folder_of_a_sweep_without_its_records_is_no_new_one(tmp_path):
    """What it has spent is not known."""
    (tmp_path / "sweep.json").write_text("{}", encoding="utf-8")
    with driver_lock(tmp_path) as lock:
        assert (lock.copied, lock.rebooted, lock.is_first_of_copy) == (True, True, True)


def test_a_copy_is_new_until_a_driver_has_taken_it_up(tmp_path):
    """However often one looked at it, or failed before it had given the copy an id of its own."""
    begin(tmp_path)
    replace_whole(tmp_path)
    for takes, is_first in ((False, True), (False, True), (True, True), (False, False)):
        with contextlib.suppress(KeyboardInterrupt), driver_lock(tmp_path) as lock:
            assert (lock.is_first_of_copy, lock.copied) == (is_first, True)
            if takes:
                lock.take_up()
            raise KeyboardInterrupt


def test_the_file_of_a_driver_is_whole_at_any_moment(tmp_path, monkeypatch):
    """A text that is shorter than the one before leaves nothing of that behind it, and no second write is needed."""
    path = tmp_path / "driver.json"
    with driver_lock(tmp_path) as lock:
        path.write_text(path.read_text().rstrip().ljust(1000) + "{")
        monkeypatch.setattr(os, "ftruncate", None)
        lock.write()
        assert json.loads(path.read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("before", [{"boot": "another"}, {"host": "another"}])
def test_the_last_rows_of_another_machine_may_be_lost(tmp_path, before):
    begin(tmp_path)
    note(tmp_path, **before)
    assert look(tmp_path) == look(tmp_path) == (True, False)


def test_the_file_of_an_earlier_version_tells_no_copy(tmp_path):
    begin(tmp_path)
    told = json.loads((tmp_path / "driver.json").read_text())
    (tmp_path / "driver.json").write_text(json.dumps({key: told[key] for key in ("pid", "host", "boot", "rebooted")}))
    assert look(tmp_path) == (False, False)


def test_records_that_have_grown_since_the_last_note_are_those_of_a_killed_driver(tmp_path):
    begin(tmp_path)
    with (tmp_path / "ledger.jsonl").open("a") as ledger:
        ledger.write("{}\n")
    (tmp_path / "points.jsonl").write_text("{}\n")
    assert look(tmp_path) == (False, False)


def test_a_driver_that_is_held_up_between_two_writes_writes_again(tmp_path, monkeypatch):
    """Its file would be taken for a copy."""
    now, waits, found = [100.0], iter([60.0, 60.0]), os.fstat
    write = os.pwrite

    def held_up(*given):
        now[0] += next(waits, 0.0)
        return write(*given)

    monkeypatch.setattr(os, "pwrite", held_up)
    monkeypatch.setattr(
        os, "fstat", lambda handle: SimpleNamespace(st_ino=found(handle).st_ino, st_size=0, st_ctime=now[0])
    )
    with contextlib.suppress(KeyboardInterrupt), driver_lock(tmp_path):
        raise KeyboardInterrupt
    monkeypatch.undo()
    assert json.loads((tmp_path / "driver.json").read_text())["changed"] == now[0] == 220.0
