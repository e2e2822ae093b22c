"""Whoever asks to stop while something starts waits for seconds at most, whatever starts and however long it takes."""

import itertools
import threading

import pytest

from sweeper.backend.on_ray import starting
from sweeper.backend.on_ray.starting import PATIENCE_SECONDS, InterruptedStartError, ThreadedStart, leave


@pytest.fixture(autouse=True)
def nothing_left_behind(monkeypatch):
    monkeypatch.setattr(starting, "_LEFT_BEHIND", [])
    monkeypatch.setattr(starting, "LOOK_SECONDS", 0.0)


@pytest.fixture
def never():
    """A start that does not end before its test does, and what it is told."""
    end, told = threading.Event(), []

    def start(is_left):
        assert end.wait(60)
        told.append(is_left())

    start.told = told
    start.end = end
    yield start
    end.set()


def test_what_was_started_is_returned_and_its_thread_lives_until_it_is_over():
    """The processes of Ray die with the thread that started them."""
    made = ThreadedStart(lambda _: threading.current_thread(), pytest.fail)
    thread = made.wait(lambda: False)
    assert thread.is_alive()
    made.over()
    thread.join(60)
    assert not thread.is_alive()


def test_an_error_of_the_start_is_raised():
    def broken(_is_left):
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        ThreadedStart(broken, pytest.fail).wait(lambda: False)
    assert starting._LEFT_BEHIND == []


def test_a_start_that_never_ends_is_left_behind_after_the_patience_and_not_before(never):
    seconds = itertools.count()
    looked = []
    made = ThreadedStart(never, lambda: None)
    with pytest.raises(InterruptedStartError, match="interrupted while Ray started"):
        made.wait(lambda: looked.append(None) or len(looked) > 5, lambda: next(seconds))
    assert len(looked) > 5
    assert next(seconds) <= 5 + 2 * PATIENCE_SECONDS + 4  # each look asks the clock twice
    assert [made] == starting._LEFT_BEHIND


def test_the_patience_leaves_room_for_what_a_sweep_writes_within_ten_seconds():
    assert PATIENCE_SECONDS <= 2.0


def test_a_start_that_ends_when_nobody_waits_any_more_is_told_and_undone(never):
    undone = threading.Event()
    with pytest.raises(InterruptedStartError):
        ThreadedStart(never, undone.set).wait(lambda: True, itertools.count().__next__)
    never.end.set()
    assert undone.wait(60)
    assert never.told == [True]


def test_a_second_ctrl_c_does_not_wait_at_all(never):
    def twice():
        raise KeyboardInterrupt

    made = ThreadedStart(never, lambda: None)
    with pytest.raises(KeyboardInterrupt):
        made.wait(twice)
    assert [made] == starting._LEFT_BEHIND


def test_a_process_that_left_a_start_behind_ends_at_once(monkeypatch):
    codes = []
    monkeypatch.setattr(starting.os, "_exit", codes.append)
    with pytest.raises(SystemExit) as ended:
        leave(3)
    assert (ended.value.code, codes) == (3, [])
    starting._LEFT_BEHIND.append(object())
    with pytest.raises(SystemExit):  # the stand-in for the end of the process returns
        leave(130)
    assert codes == [130]
