"""A run of trials on workers that are connected to the driver: each asks for trials and answers with rows.

The driver takes the report of a worker, all its rows, before the worker draws anything more; what ``on_plan`` and
``on_draw`` write is therefore written before the noise. A worker that dies takes down the running epoch of each of its
trials, and no row that it has sent.
"""

import contextlib
import select
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Protocol

from sweeper.backend.endings import GRACE_SECONDS, RunResult, close_trials
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trial_states import TrialStates
from sweeper.backend.workers.dispatcher import Dispatcher, WorkerState
from sweeper.backend.workers.messages import Report

LOOK_SECONDS = 0.05


class Workers(Protocol):
    """Worker processes, wherever they are."""

    @property
    def size(self) -> int:
        """How many there are meant to be."""

    @property
    def states(self) -> Mapping[Connection, WorkerState]:
        """Those that are connected."""

    def lose(self, connection: Connection) -> None:
        """Take that one has died, and start another."""

    def kill(self, connection: Connection) -> None:
        """Kill one; its connection then ends."""

    def problem(self) -> RunResult | None:
        """Return how a run ends because no trial can run on them any more, ``None`` if one can."""


class PoolRun:
    """One run of trials on a pool of workers.

    Args:
        workers: processes that are there already and stay there.
        dispatcher: assigns trials to them.
        queue: says when all trials have ended.
        trials: whom to close if the run ends before that.
        ending: tells how the run ends now, if it does.
    """

    def __init__(
        self,
        workers: Workers,
        dispatcher: Dispatcher,
        queue: TrialQueue,
        trials: TrialStates,
        ending: Callable[[], RunResult | None],
    ) -> None:
        self._workers, self._dispatcher, self._queue = workers, dispatcher, queue
        self._trials, self._ending = trials, ending

    def to_end(self) -> RunResult:
        """Run until there are enough trials, or there is a reason to end."""
        for connection in [one for one, state in self._workers.states.items() if state.trials]:
            self._workers.lose(connection)  # it trains for a run that was ended before its time
        while not self._queue.finished:
            ended = self._workers.problem() or self._ending()
            if ended is not None:
                close_trials(self._trials, ended)
                self._wind_up()
                return ended
            self._kill_late()
            for connection, state in list(self._workers.states.items()):
                if state.waits:
                    self._answer(connection, state)
            for connection in _ready(self._workers.states, LOOK_SECONDS):
                self._hear(connection, self._workers.states[connection])
        return RunResult()

    def _answer(self, connection: Connection, state: WorkerState) -> None:
        """Let a worker go on, unless there is nothing for it to do."""
        assignment = self._dispatcher.assign(state, self._workers.size)
        if assignment is not None:
            with contextlib.suppress(OSError):  # a dead one is found out when it is listened to
                connection.send(assignment)

    def _hear(self, connection: Connection, state: WorkerState) -> None:
        try:
            report: Report = connection.recv()
        except (EOFError, OSError):
            self._workers.lose(connection)
            self._dispatcher.lose(state)
            return
        self._dispatcher.receive(state, report)
        if state.trials or self._queue.left:
            self._answer(connection, state)

    def _kill_late(self) -> None:
        hanging = self._dispatcher.stop_late(self._workers.states.values())
        for connection, state in self._workers.states.items() if hanging else ():
            if state in hanging:
                self._workers.kill(connection)

    def _wind_up(self) -> None:
        """Leave trials the grace time for their epoch, whose state they then keep, and end their workers."""
        until = time.monotonic() + GRACE_SECONDS
        while (busy := self._busy()) and time.monotonic() < until:
            for connection in _ready(busy, LOOK_SECONDS):
                with contextlib.suppress(EOFError, OSError):
                    connection.recv()
                busy[connection].waits = True
        for connection, state in list(self._workers.states.items()):
            if state.trials:
                self._workers.kill(connection)

    def _busy(self) -> dict[Connection, WorkerState]:
        return {one: state for one, state in self._workers.states.items() if state.trials and not state.waits}


def _ready(states: Mapping[Connection, WorkerState], seconds: float) -> list[Connection]:
    """Return the connections with reports, after so many seconds at the latest."""
    if not states:
        time.sleep(seconds)
        return []
    handles, poller = {one.fileno(): one for one in states}, select.poll()
    for handle in handles:
        poller.register(handle, select.POLLIN)
    return [handles[handle] for handle, _ in poller.poll(1000 * seconds)]
