"""What workers do next: which trials each one takes, goes on with and leaves off.

The dispatcher knows no processes and no connections. An executor brings it the reports of its workers and takes each
worker the assignment that follows; a worker draws nothing in between.
"""

import contextlib
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sweeper.backend.endings import DIED, late_reason
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trial_states import TrialStart, TrialStates
from sweeper.backend.workers.messages import Assignment, Failure, Report, Task, TrialReport
from sweeper.records import TrialStatus
from sweeper.trials.stream import EpochRow


@dataclass(slots=True, eq=False)
class WorkerState:
    """A worker as the driver sees it.

    Attributes:
        trials: those that it has, and when each was given to it.
        free: how many more it can take.
        waits: whether it waits for an assignment; it then draws nothing.
        has_reported: whether it has come up.
        task: what it trains.
    """

    trials: dict[str, float] = field(default_factory=dict)
    free: int = 0
    waits: bool = False
    has_reported: bool = False
    task: Task | None = None
    _stopped: set[str] = field(default_factory=set)

    def drop(self, trial: str, *, is_stopped: bool) -> None:
        """Forget a trial that has ended; one that ``is_stopped`` leaves a place, of which its worker does not know."""
        del self.trials[trial]
        if is_stopped:
            self._stopped.add(trial)
            self.free += 1

    def take_stopped(self) -> frozenset[str]:
        """Return the trials that its worker has to leave off."""
        stopped, self._stopped = frozenset(self._stopped), set()
        return stopped


class Dispatcher:
    """Assigns the trials of one run to workers.

    Args:
        task: what the workers train.
        queue: says which trial starts next.
        states: takes every start, row and end.
        trial_hours: a trial stops after this long.
        tracebacks: receives the traceback of every failed trial, for the owner alone; ``None`` to keep none.

    Guarantees:
        A worker has an assignment only after ``states`` has taken all that it has reported.
    """

    def __init__(
        self,
        task: Task,
        queue: TrialQueue,
        states: TrialStates,
        *,
        trial_hours: float | None = None,
        tracebacks: Path | None = None,
    ) -> None:
        self._task, self._queue, self._states, self._tracebacks = task, queue, states, tracebacks
        self._trial_seconds = math.inf if trial_hours is None else trial_hours * 3600

    def assign(self, worker: WorkerState, workers: int) -> Assignment | None:
        """Return what a worker that waits does next, one of so many; ``None`` if there is nothing for it to do."""
        is_new = worker.task is not self._task  # of another task it has reported nothing
        share = self._share(worker, workers)
        starts = tuple(self._start(worker) for _ in range(min(share, 1 if is_new else worker.free)))
        trials = tuple(start for start in starts if start is not None)
        if not (trials or worker.trials):
            return None
        more = 0 if self._task.stack is not None else max(0, share - len(trials))  # nothing else asks for it
        worker.waits, worker.task = False, self._task
        return Assignment(worker.take_stopped(), trials, self._task if is_new else None, more)

    def receive(self, worker: WorkerState, report: Report) -> None:
        """Take what a worker reports."""
        worker.free, worker.waits, worker.has_reported = report.free, True, True
        for one in report.rows:
            self._receive(worker, one)

    def lose(self, worker: WorkerState) -> None:
        """Take that a worker died: each of its trials starts again, or has failed."""
        for trial in list(worker.trials):
            if self._states.restart(trial):
                self._queue.put_back(trial)
            else:
                self._states.fail(trial, DIED)
                self._queue.end(trial)

    def stop_late(self, workers: Iterable[WorkerState]) -> list[WorkerState]:
        """Stop trials that take too long; return workers of which nothing else is expected, which may hang."""
        latest = time.monotonic() - self._trial_seconds
        hanging = []
        for worker in workers if math.isfinite(latest) else ():
            late = [trial for trial, began in worker.trials.items() if began < latest]
            for trial in late:
                self._states.overrule(trial, TrialStatus.STOPPED, late_reason(self._trial_seconds / 3600))
            if late and len(late) == len(worker.trials):
                hanging.append(worker)
        return hanging

    def _share(self, worker: WorkerState, workers: int) -> int:
        """Return how many more trials a worker may have, so that all of them have as many."""
        fair = math.ceil((self._queue.left + self._queue.running) / workers) - len(worker.trials)
        return max(fair, 0 if worker.trials else 1)

    def _start(self, worker: WorkerState) -> TrialStart | None:
        started = self._queue.start()
        if started is None:
            return None
        trial, proposal = started
        start = self._states.config(trial, proposal)
        worker.trials[trial] = time.monotonic()
        self._states.start(trial, start)
        return start

    def _receive(self, worker: WorkerState, report: TrialReport) -> None:
        trial, row = report
        if trial not in worker.trials:  # refused, or stopped, in the same report
            return
        if isinstance(row, Failure):
            self._keep_traceback(trial, row)
            self._states.fail(trial, row.error)
            self._end(worker, trial, is_stopped=False)
            return
        goes_on = self._states.receive(trial, row)
        is_done = isinstance(row, EpochRow) and row.done
        if is_done or not goes_on:
            self._states.end(trial, TrialStatus.COMPLETED)
            self._end(worker, trial, is_stopped=not is_done)

    def _end(self, worker: WorkerState, trial: str, *, is_stopped: bool) -> None:
        worker.drop(trial, is_stopped=is_stopped)
        self._queue.end(trial)

    def _keep_traceback(self, trial: str, failure: Failure) -> None:
        if self._tracebacks is None:
            return
        with contextlib.suppress(OSError):
            self._tracebacks.mkdir(mode=0o700, exist_ok=True)  # never the folder of a sweep that was moved
            (self._tracebacks / f"{trial}.txt").write_text(failure.traceback, encoding="utf-8")
