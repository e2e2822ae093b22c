"""A run of trials on workers that are connected to the driver: each asks for trials and answers with rows.

The driver answers the news of a worker, all its rows, before the worker draws anything more; what ``on_plan`` and
``on_draw`` write is therefore written before the noise. A worker that dies takes down the running epoch of each of its
trials, and no row that it has sent.
"""

import contextlib
import math
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from sweeper.backend.endings import DIED, GRACE_SECONDS, RunResult, close_trials, late_reason
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trial_states import TrialStates
from sweeper.backend.workers.messages import Failure, News, Orders, Task, Told
from sweeper.records import TrialStatus
from sweeper.trials.stream import EpochRow

LOOK_SECONDS = 0.05


@dataclass(slots=True, eq=False)
class Seat:
    """A worker as the driver sees it.

    Attributes:
        trials: those that it has, and when each was given to it.
        free: how many more it can take.
        waits: whether it waits for orders; it then draws nothing.
        has_spoken: whether it has come up.
        task: what it trains.
    """

    trials: dict[str, float] = field(default_factory=dict)
    free: int = 0
    waits: bool = False
    has_spoken: bool = False
    task: Task | None = None
    _stopped: set[str] = field(default_factory=set)

    def drop(self, trial: str, *, is_stopped: bool) -> None:
        """Forget a trial that has ended; one that ``is_stopped`` leaves a place, of which its worker does not know."""
        del self.trials[trial]
        if is_stopped:
            self._stopped.add(trial)
            self.free += 1

    def take_stopped(self) -> frozenset[str]:
        """Return the trials that its worker has to be told of."""
        stopped, self._stopped = frozenset(self._stopped), set()
        return stopped


class Workers(Protocol):
    """Worker processes, wherever they are."""

    @property
    def size(self) -> int:
        """How many there are meant to be."""

    @property
    def seats(self) -> Mapping[Connection, Seat]:
        """Those that are connected."""

    def lose(self, connection: Connection) -> None:
        """Take that one has died, and start another."""

    def kill(self, connection: Connection) -> None:
        """Kill one; its connection then ends."""

    def problem(self) -> RunResult | None:
        """Return how a run ends because no trial can run on them any more, ``None`` if one can."""


class PoolRun:
    """One run of trials on a pool of workers.

    It has more than fifteen methods because each thing that a worker or a trial does is answered by one.

    Args:
        task: what the workers train.
        ending: tells how the run ends now, if it does.
        trial_hours: a trial is stopped after this long.
        tracebacks: receives the traceback of every failed trial, for the owner alone; ``None`` to keep none.
    """

    def __init__(
        self,
        workers: Workers,
        task: Task,
        queue: TrialQueue,
        states: TrialStates,
        *,
        ending: Callable[[], RunResult | None],
        trial_hours: float | None = None,
        tracebacks: Path | None = None,
    ) -> None:
        self._workers, self._task, self._queue, self._states = workers, task, queue, states
        self._ending, self._tracebacks = ending, tracebacks
        self._trial_seconds = math.inf if trial_hours is None else trial_hours * 3600

    def to_end(self) -> RunResult:
        """Run until there are enough trials, or there is a reason to end."""
        for connection in [one for one, seat in self._workers.seats.items() if seat.trials]:
            self._workers.lose(connection)  # it trains for a run that was ended before its time
        while not self._queue.finished:
            ended = self._ended()
            if ended is not None:
                self._wind_up()
                return ended
            self._end_late()
            self._hand_out()
            self._listen(LOOK_SECONDS)
        return RunResult()

    def _ended(self) -> RunResult | None:
        ended = self._workers.problem() or self._ending()
        return None if ended is None else close_trials(self._states, ended)

    def _hand_out(self) -> None:
        for connection, seat in list(self._workers.seats.items()):
            if seat.waits:
                self._answer(connection, seat)

    def _answer(self, connection: Connection, seat: Seat) -> None:
        """Let a worker go on, unless there is nothing for it to do."""
        share, free = self._share(seat), seat.free if seat.task is self._task else 1  # of another task it said nothing
        configs = tuple(self._started(seat) for _ in range(min(share, free)))
        trials = tuple(config for config in configs if config is not None)
        if not (trials or seat.trials):
            return
        task = None if seat.task is self._task else self._task
        more = 0 if self._task.stack is not None else max(0, share - len(trials))  # nothing else asks for it
        orders = Orders(seat.take_stopped(), trials, task, more)
        seat.waits, seat.task = False, self._task
        with contextlib.suppress(OSError):  # a dead one is found out when it is listened to
            connection.send(orders)

    def _share(self, seat: Seat) -> int:
        """Return how many more trials a worker may have, so that all of them have as many."""
        fair = math.ceil((self._queue.left + self._queue.running) / self._workers.size) - len(seat.trials)
        return max(fair, 0 if seat.trials else 1)

    def _started(self, seat: Seat) -> dict[str, Any] | None:
        started = self._queue.start()
        if started is None:
            return None
        trial, proposal = started
        config = self._states.config(trial, proposal)
        seat.trials[trial] = time.monotonic()
        self._states.start(trial, dict(self._task.constants) | config)
        return config

    def _listen(self, seconds: float) -> None:
        for connection in _ready(self._workers.seats, seconds):
            self._hear(connection, self._workers.seats[connection])

    def _hear(self, connection: Connection, seat: Seat) -> None:
        try:
            news: News = connection.recv()
        except (EOFError, OSError):
            self._lose(connection, seat)
            return
        seat.free, seat.waits, seat.has_spoken = news.free, True, True
        for told in news.rows:
            self._take(seat, told)
        if seat.trials or self._queue.left:
            self._answer(connection, seat)

    def _take(self, seat: Seat, told: Told) -> None:
        trial, row = told
        if trial not in seat.trials:  # refused, or stopped, in the same news
            return
        if isinstance(row, Failure):
            self._keep_traceback(trial, row)
            self._states.fail(trial, row.error)
            self._end(seat, trial, is_stopped=False)
            return
        goes_on = self._states.receive(trial, row)
        is_done = isinstance(row, EpochRow) and row.done
        if is_done or not goes_on:
            self._states.end(trial, TrialStatus.COMPLETED)
            self._end(seat, trial, is_stopped=not is_done)

    def _end(self, seat: Seat, trial: str, *, is_stopped: bool) -> None:
        seat.drop(trial, is_stopped=is_stopped)
        self._queue.end(trial)

    def _lose(self, connection: Connection, seat: Seat) -> None:
        """Take that a worker died: each of its trials starts again, or has failed."""
        self._workers.lose(connection)
        for trial in list(seat.trials):
            if self._states.restart(trial):
                self._queue.put_back(trial)
            else:
                self._states.fail(trial, DIED)
                self._queue.end(trial)

    def _end_late(self) -> None:
        """Stop trials that take too long; a worker of which nothing else is expected is killed: it may hang."""
        latest = time.monotonic() - self._trial_seconds
        for connection, seat in self._workers.seats.items() if math.isfinite(latest) else ():
            late = [trial for trial, began in seat.trials.items() if began < latest]
            for trial in late:
                self._states.overrule(trial, TrialStatus.STOPPED, late_reason(self._trial_seconds / 3600))
            if late and len(late) == len(seat.trials):
                self._workers.kill(connection)

    def _wind_up(self) -> None:
        """Leave trials the grace time for their epoch, whose state they then keep, and end their workers."""
        until = time.monotonic() + GRACE_SECONDS
        while (busy := self._busy()) and time.monotonic() < until:
            for connection in _ready(busy, LOOK_SECONDS):
                with contextlib.suppress(EOFError, OSError):
                    connection.recv()
                busy[connection].waits = True
        for connection, seat in list(self._workers.seats.items()):
            if seat.trials:
                self._workers.kill(connection)

    def _busy(self) -> dict[Connection, Seat]:
        return {one: seat for one, seat in self._workers.seats.items() if seat.trials and not seat.waits}

    def _keep_traceback(self, trial: str, failure: Failure) -> None:
        if self._tracebacks is None:
            return
        with contextlib.suppress(OSError):
            self._tracebacks.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._tracebacks / f"{trial}.txt").write_text(failure.traceback, encoding="utf-8")


def _ready(seats: Mapping[Connection, Seat], seconds: float) -> list[Connection]:
    """Return the connections with news, after so many seconds at the latest."""
    if not seats:
        time.sleep(seconds)
        return []
    handles, poller = {seat.fileno(): seat for seat in seats}, select.poll()
    for handle in handles:
        poller.register(handle, select.POLLIN)
    return [handles[handle] for handle, _ in poller.poll(1000 * seconds)]
