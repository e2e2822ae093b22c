"""Worker processes of this machine, started by the driver itself: a local sweep begins without waiting for Ray.

Each is a fresh Python, so that it inherits no key, no generator and no thread of the driver. The rows of the data lie
in memory that has no name, which the driver fills once and all workers read. A worker ends with the driver, however
that ends; where memory runs out, the system kills a worker rather than the driver.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import cloudpickle  # type: ignore[import-untyped]

from clipless.datasets import Dataset
from sweeper.backend.endings import Ending, RunResult, close_by_error, endings
from sweeper.backend.environment import worker_environment
from sweeper.backend.interruption import Interruption
from sweeper.backend.messages import Task
from sweeper.backend.pool import PoolRun, Seat
from sweeper.backend.queue import TrialQueue
from sweeper.backend.shared_memory import in_memory
from sweeper.backend.trainable import CliplessTrial, PlacedDataset
from sweeper.backend.trial_states import TrialStates
from sweeper.errors import SweeperError

MOST_FAILED_STARTS = 3
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from sweeper.backend.worker import work; work(*map(int, sys.argv[2:]))"
)


class LocalWorkers:
    """Worker processes of this machine; see `sweeper.backend.pool.Workers`.

    Args:
        size: how many.
        data: what all of them train on.
        threads: of one worker.
    """

    def __init__(self, size: int, data: Dataset, threads: int) -> None:
        self.size, self._threads = size, threads
        self.seats: dict[Connection, Seat] = {}
        self._processes: dict[Connection, subprocess.Popen[bytes]] = {}
        self._errors: dict[Connection, IO[bytes]] = {}
        self._failed_starts = 0
        self._said = ""
        self._life = os.pipe()  # ends with the driver, and its workers with it
        self._rows = in_memory(PlacedDataset.of(data))

    def start(self) -> None:
        """Start as many as there are meant to be."""
        while len(self._processes) < self.size:
            self._start_one()

    def lose(self, connection: Connection) -> None:
        """Take that one has died, and start another."""
        if not self.seats[connection].has_spoken:
            self._failed_starts += 1
            self._said = self._last_words(connection)
        self._remove(connection)
        if self._failed_starts <= MOST_FAILED_STARTS:
            self._start_one()

    def kill(self, connection: Connection) -> None:
        """Kill one; its connection then ends."""
        self._processes[connection].kill()

    def problem(self) -> tuple[Ending, bool] | None:
        """Raise a `SweeperError` if no worker comes up."""
        if self._failed_starts > MOST_FAILED_STARTS:
            raise SweeperError(
                f"Expected worker processes to start, got {self._failed_starts} that did not; the last one said "
                f"{self._said or 'nothing'!r}: see that memory and the limit of processes suffice"
            )
        return None

    def close(self) -> None:
        """End them all at once."""
        for connection in list(self._processes):
            self.kill(connection)
            self._remove(connection)
        self._rows.close()
        for handle in self._life:
            os.close(handle)

    def _start_one(self) -> None:
        here, there = socket.socketpair()
        words = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the worker has not come up
        handles = (there.fileno(), self._rows.fileno(), self._life[0])
        command = [sys.executable, "-c", _START, json.dumps(sys.path), *map(str, handles)]
        with there:
            process = subprocess.Popen(
                command,
                pass_fds=handles,
                env={**os.environ, **worker_environment(self._threads)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=words,
                start_new_session=True,  # Ctrl-C is for the driver
            )
        connection = Connection(here.detach())
        self.seats[connection], self._processes[connection], self._errors[connection] = Seat(), process, words

    def _remove(self, connection: Connection) -> None:
        del self.seats[connection]
        connection.close()
        process = self._processes.pop(connection)
        process.kill()
        process.wait()
        self._errors.pop(connection).close()

    def _last_words(self, connection: Connection) -> str:
        words = self._errors[connection]
        words.seek(0)
        lines = words.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


@contextlib.contextmanager
def local_workers(size: int, data: Dataset, threads: int) -> Iterator[LocalWorkers]:
    """Worker processes for the time of a ``with`` block."""
    workers = LocalWorkers(size, data, threads)
    try:
        workers.start()
        yield workers
    finally:
        workers.close()


def run_locally(
    workers: LocalWorkers,
    kind: type[CliplessTrial],
    queue: TrialQueue,
    states: TrialStates,
    *,
    constants: Mapping[str, Any],
    stack: int | None,
    storage_dir: Path,
    hours: float | None,
    trial_hours: float | None,
    should_stop: Callable[[], str | None],
    interruption: Interruption,
    secret: bool = False,
) -> RunResult:
    """Run trials as `sweeper.backend.tune.run_trials` does, on processes of this machine.

    ``workers`` are there already and stay there; a process trains at most ``stack`` trials as one, ``None`` for as many
    as pay. A ``secret`` run keeps no tracebacks, others keep them in ``storage_dir/tracebacks``.
    """
    ending = endings(states, interruption, hours, should_stop)
    run = PoolRun(
        workers,
        Task(cloudpickle.dumps(kind), constants, stack),
        queue,
        states,
        ending=ending,
        trial_hours=trial_hours,
        folder=storage_dir,
        tracebacks=None if secret else storage_dir / "tracebacks",
    )
    try:
        outcome = run.to_end()
    except BaseException as error:
        close_by_error(states, error)
        raise
    if states.trouble:
        raise states.trouble
    return outcome
