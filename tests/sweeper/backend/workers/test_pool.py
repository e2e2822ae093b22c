"""What a run on a pool answers to a worker and when; the worker is played at the other end of a pipe."""

from multiprocessing import Pipe

import pytest

from sweeper.backend.endings import RunResult
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trial_states import Hooks, TrialStates
from sweeper.backend.workers.dispatcher import Dispatcher, WorkerState
from sweeper.backend.workers.messages import Report, Task
from sweeper.backend.workers.pool import PoolRun
from sweeper.trials.stream import EpochRow, FirstDrawRow, PlanRow
from tests.factories import Proposals


class Played:
    """One worker, which reports one row of its trial at a time and waits for an assignment after it."""

    size = 1

    def __init__(self, rows):
        here, self.there = Pipe()
        self.states, self._rows = {here: WorkerState()}, iter(rows)
        self.there.send(Report())

    def problem(self):
        """Is asked once a round: the worker does what it was assigned."""
        if self.was_answered():
            self.there.recv()
            self.there.send(Report((("t1", next(self._rows)),), free=0))

    def was_answered(self):
        return self.there.poll()


@pytest.fixture
def rows(plan):
    epochs = [EpochRow(epoch=epoch, values={}, done=epoch == 2) for epoch in (1, 2)]
    return [PlanRow(attempt="a", plan=plan), FirstDrawRow(), *epochs]


def test_a_worker_is_answered_once_what_it_reported_was_taken(rows):
    """Else it would draw noise before the ledger has an entry, however short the moment."""
    worker, answered = Played(rows), []

    def look(*_):
        answered.append(worker.was_answered())

    hooks = Hooks(on_plan=look, on_draw=look, on_epoch=look)
    queue, states = TrialQueue(Proposals(), 1), TrialStates(hooks)
    dispatcher = Dispatcher(Task(b"", {}, 1), queue, states)
    assert PoolRun(worker, dispatcher, queue, states, ending=lambda: None).to_end() == RunResult()
    assert answered == [False] * 4
