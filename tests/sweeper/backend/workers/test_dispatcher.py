"""Which trials a worker gets and keeps, without any worker: the dispatcher's decisions alone."""

from types import SimpleNamespace

import pytest

from sweeper.backend.queue import TrialQueue
from sweeper.backend.trial_states import Hooks, TrialStates
from sweeper.backend.workers import dispatcher as module
from sweeper.backend.workers.dispatcher import Dispatcher, WorkerState
from sweeper.backend.workers.messages import Failure, Report, Task
from sweeper.records import TrialStatus
from sweeper.trials.stream import EpochRow, PlanRow
from tests.factories import Proposals


@pytest.fixture
def make():
    """A dispatcher of so many trials, and how those have ended."""

    def made(trials, stack=4, **given):
        ends = {}
        states = TrialStates(Hooks(on_end=lambda trial, status, *_: ends.update({trial: status})))
        return Dispatcher(Task(b"", {}, stack), TrialQueue(Proposals(), trials), states, **given), ends

    return made


def worker(made, *, free):
    """A worker that knows its task and has room for so many trials."""
    state = WorkerState()
    made.receive(state, Report())
    first = made.assign(state, 2)
    made.receive(state, Report(free=free))
    return state, [config["trial"] for config in first.trials]


def test_a_new_worker_gets_its_task_and_one_trial_and_then_a_fair_share(make):
    made, _ = make(6)
    one, first = worker(made, free=9)
    assert first == ["t1"]
    second = made.assign(one, 2)
    assert [config["trial"] for config in second.trials] == ["t2", "t3"], "half of six, whatever it has room for"
    assert second.task is None
    other, third = worker(made, free=9)
    assert third == ["t4"]
    assert len(made.assign(other, 2).trials) == 2


def test_a_worker_without_trials_waits_if_none_is_left(make):
    made, _ = make(1)
    worker(made, free=0)
    idle = WorkerState()
    made.receive(idle, Report())
    assert made.assign(idle, 2) is None
    assert idle.waits


def test_a_trial_that_is_stopped_leaves_a_place_and_its_worker_hears_of_it(make, plan):
    made, ends = make(3)
    one, _ = worker(made, free=0)
    rows = [("t1", PlanRow(attempt="a", plan=plan)), ("t1", EpochRow(epoch=1, values={"epsilon": float("nan")}))]
    made.receive(one, Report(tuple(rows), free=0))
    assert ends == {"t1": TrialStatus.FAILED}
    assignment = made.assign(one, 2)
    assert assignment.stopped == {"t1"}
    assert [config["trial"] for config in assignment.trials] == ["t2"]


def test_what_comes_of_a_trial_after_its_failure_is_not_taken(make, plan):
    made, ends = make(2)
    one, _ = worker(made, free=0)
    late = ("t1", PlanRow(attempt="a", plan=plan))
    made.receive(one, Report((("t1", Failure.of(ValueError("no"))), late), free=1))
    assert ends == {"t1": TrialStatus.FAILED}
    assert one.trials == {}


def test_a_worker_whose_trials_are_all_late_may_hang(make, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    made, _ = make(4, trial_hours=1.0)
    one, _ = worker(made, free=0)
    assert made.stop_late([one]) == []
    clock[0] = 3601.0
    other, _ = worker(made, free=0)
    assert made.stop_late([one, other]) == [one]


def test_a_folder_that_was_moved_is_not_made_again_for_a_traceback(make, tmp_path):
    """Without its ledger it would look like a sweep that has spent nothing."""
    made, ends = make(1, tracebacks=tmp_path / "moved" / "tracebacks")
    one, _ = worker(made, free=0)
    made.receive(one, Report((("t1", Failure.of(ValueError("no"))),), free=1))
    assert ends == {"t1": TrialStatus.FAILED}
    assert list(tmp_path.iterdir()) == []
