"""The object that tells nobody: whatever is added to a tracker, nothing of a private selection reaches a store."""

import inspect
import socket

import pytest

from sweeper.driver.selection.candidates import Candidates
from sweeper.records import TrialStatus
from sweeper.tracking.tracker import Tracker
from sweeper.tracking.trial_tracker import TrialTracker, Untracked

TOLD = {
    "start_trial": ("t0001", {"training": {"epochs": 3}}, {"a": "b"}),
    "log": ("t0001", 1, {"accuracy": 0.5}),
    "tag": ("t0001", {"a": "b"}),
    "end_trial": ("t0001", TrialStatus.FAILED, "it broke"),
    "run_id": ("t0001",),
}


def public(kind):
    return {name: one for name, one in vars(kind).items() if inspect.isfunction(one) and not name.startswith("_")}


def test_it_has_the_whole_protocol_of_its_own_and_nothing_else():
    assert Untracked.__mro__ == (Untracked, object), "a method that a base class gains would tell"
    assert set(public(Untracked)) == set(public(TrialTracker)) == set(TOLD)
    for name, told in public(TrialTracker).items():
        assert inspect.signature(told) == inspect.signature(public(Untracked)[name])


def test_a_tracker_has_the_whole_protocol_too():
    for name, told in public(TrialTracker).items():
        assert inspect.signature(told) == inspect.signature(getattr(Tracker, name))


def test_it_keeps_nothing_writes_nothing_and_connects_to_nobody(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(socket, "socket", lambda *_: pytest.fail("connected"))
    silent = Untracked()
    assert all(getattr(silent, name)(*arguments) is None for name, arguments in TOLD.items())
    assert not hasattr(silent, "__dict__")
    assert list(tmp_path.iterdir()) == []


def test_candidates_are_recorded_with_it():
    assert "Untracked()" in inspect.getsource(Candidates.__init__)
    assert "Tracker(" not in inspect.getsource(inspect.getmodule(Candidates))
