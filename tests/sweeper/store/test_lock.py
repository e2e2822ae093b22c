"""Who drives a sweep: what one process sees of another's lock."""

import fcntl
import os
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
