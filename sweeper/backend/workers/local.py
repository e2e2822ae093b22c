"""The local pool: worker processes that train on the processors and the GPUs of this machine.

They are forked from a process that has imported what they need and has nothing else (`fork_server`), so that none
inherits a key, a generator or a thread, of the driver or of another. The rows of the data lie in memory that has no
name, which the driver fills once and all workers read. A worker ends with the driver, however that ends; where memory
runs out, the system kills a worker rather than the driver.
"""

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import IO

from clipless.datasets import Dataset
from sweeper.backend.backend import RunSettings
from sweeper.backend.devices import DeviceShares, visible_devices, workers_per_device
from sweeper.backend.endings import RunResult, close_trials, result_of_error, watch_endings
from sweeper.backend.environment import processors
from sweeper.backend.placed_data import PlacedDataset, in_memory
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.trial_states import TrialStates
from sweeper.backend.workers.dispatcher import Dispatcher, WorkerState
from sweeper.backend.workers.fork_server import fork_server, last_line
from sweeper.backend.workers.messages import Task
from sweeper.backend.workers.pool import PoolRun, Workers
from sweeper.errors import SweeperError
from sweeper.specification.settings import ResourceSettings

MOST_FAILED_STARTS = 3


@dataclass(frozen=True, slots=True)
class _Process:
    """A worker process: its number, the file that its errors go to, and its device, empty for a processor."""

    number: int
    errors: IO[bytes]
    device: str


class LocalWorkers:
    """Worker processes of this machine; see `sweeper.backend.workers.pool.Workers`.

    Args:
        size: how many.
        data: what all of them train on.
        threads: of one worker.
        shares: of GPUs, one for each worker; ``None`` where they train on processors.
    """

    def __init__(self, size: int, data: Dataset, threads: int, shares: DeviceShares | None = None) -> None:
        self.size, self._shares = size, shares
        self.states: dict[Connection, WorkerState] = {}
        self._server = fork_server(threads)
        self._started = 0
        self._processes: dict[Connection, _Process] = {}
        self._failed_starts = 0
        self._start_error = ""
        self._life = os.pipe()  # ends with the driver, and its workers with it
        self._rows = in_memory(PlacedDataset.of(data))

    def start(self) -> None:
        """Start as many as there are meant to be."""
        while len(self.states) < self.size:
            self._start_one()

    def lose(self, connection: Connection) -> None:
        """Take that one has died, and start another."""
        if not self.states[connection].has_reported:
            self._failed_starts += 1
            self._start_error = self._last_error(connection)
        self._remove(connection)
        if self._failed_starts <= MOST_FAILED_STARTS:
            self._start_one()

    def kill(self, connection: Connection) -> None:
        """Kill one; its connection then ends."""
        self._server.kill(self._processes[connection].number)

    def problem(self) -> RunResult | None:
        """Raise a `SweeperError` if no worker comes up."""
        if self._failed_starts > MOST_FAILED_STARTS:
            raise SweeperError(
                f"Expected worker processes to start, got {self._failed_starts} that did not; the last one said "
                f"{self._start_error or 'nothing'!r}: see that memory and the limit of processes suffice"
            )
        return None

    def close(self) -> None:
        """End them all at once."""
        self._server.close(has_workers=any(state.has_reported for state in self.states.values()))
        for connection in list(self.states):
            self._remove(connection)
        self._rows.close()
        for handle in self._life:
            os.close(handle)

    def _start_one(self) -> None:
        if not self._server.is_alive:  # nor are the workers that it has forked
            self._server.close()
            self._server = fork_server(self._server.threads)
        device = "" if self._shares is None else self._shares.take()
        here, there = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the worker has not come up
        self._started += 1
        with there:
            handles = (there.fileno(), self._rows.fileno(), self._life[0], errors.fileno())
            self._server.fork(self._started, handles, device)
        connection = Connection(here.detach())
        self.states[connection] = WorkerState()
        self._processes[connection] = _Process(self._started, errors, device)

    def _remove(self, connection: Connection) -> None:
        del self.states[connection]
        connection.close()
        process = self._processes.pop(connection)
        self._server.kill(process.number)
        process.errors.close()
        if self._shares is not None:
            self._shares.give_back(process.device)

    def _last_error(self, connection: Connection) -> str:
        return last_line(self._processes[connection].errors) or self._server.last_error()


@contextlib.contextmanager
def local_workers(size: int, data: Dataset, threads: int, shares: DeviceShares | None = None) -> Iterator[LocalWorkers]:
    """Worker processes for the time of a ``with`` block."""
    workers = LocalWorkers(size, data, threads, shares)
    try:
        workers.start()
        yield workers
    finally:
        workers.close()


@contextlib.contextmanager
def open_local_pool(
    resources: ResourceSettings,
    data: Dataset,
    *,
    trainings: int,
    secret: bool = False,
    devices: Sequence[str] | None = None,
) -> Iterator["LocalPool"]:
    """Open a pool for at most so many trainings, for the time of a ``with`` block.

    Args:
        resources: of one trial, and how many run at a time.
        data: what all trials train on.
        trainings: how many there will be at most.
        secret: whether they are the candidates of a private selection.
        devices: the GPUs that may be used; those of this machine by default.

    Raises:
        SweeperError: this machine lacks what one trial needs.
    """
    shares = None
    if resources.gpus:
        devices = visible_devices() if devices is None else devices
        shares = DeviceShares(devices, resources.gpus)
    size = count_workers(resources, trainings, devices)
    with local_workers(size, data, resources.threads, shares) as workers:
        yield LocalPool(workers, resources.stack, secret=secret)


def count_workers(resources: ResourceSettings, trainings: int, devices: Sequence[str] | None = None) -> int:
    """Return how many workers train at a time on the processors and the GPUs of this machine, or on these.

    Raises:
        SweeperError: this machine lacks what one trial needs.
    """
    here, wanted, gpus = processors(), resources.cpus, resources.gpus
    if wanted > here:
        raise SweeperError(
            f"Expected at most {here} CPU for a trial, got {wanted:g}; this machine has no more: ask for less or use a "
            "cluster"
        )
    places = min(resources.concurrent or int(here / wanted), trainings)
    if not gpus:
        return places
    found = visible_devices() if devices is None else devices
    if not found:
        raise SweeperError(
            f"Expected a GPU of this machine for resources.gpus: {gpus:g}, got none that torch can use; leave it out "
            "or use a cluster"
        )
    return min(places, len(found) * workers_per_device(gpus))


class LocalPool:
    """Trains on worker processes of this machine; see `sweeper.backend.backend.Backend`.

    Args:
        workers: processes that are there already and stay there.
        stack: how many trials a process trains as one at most; ``None`` for as many as pay.
        secret: whether it trains the candidates of a private selection: it leaves no traceback behind then, and says
            nothing.

    Guarantees:
        Candidates of a private selection train one at a time, whatever the spec says: one that crashes in a stack makes
        the others begin again, so that who crashed, and that the data may have made it crash, would not be seen.
    """

    def __init__(self, workers: Workers, stack: int | None, *, secret: bool = False) -> None:
        self._workers, self._secret = workers, secret
        self.stack = 1 if secret else stack
        self.statements = () if secret else _about_ray_address()

    def run(
        self, kind: type[CliplessTrial], queue: TrialQueue, states: TrialStates, settings: RunSettings
    ) -> RunResult:
        """Train trials; tracebacks are kept in the folder ``tracebacks`` of the sweep."""
        dispatcher = Dispatcher(
            Task.of(kind, settings.constants(), self.stack),
            queue,
            states,
            trial_hours=settings.trial_hours,
            tracebacks=None if self._secret else settings.folder / "tracebacks",
        )
        ending = watch_endings(states, settings.interruption, settings.hours, settings.should_stop)
        run = PoolRun(self._workers, dispatcher, queue, states, ending)
        try:
            outcome = run.to_end()
        except BaseException as error:
            close_trials(states, result_of_error(error))
            raise
        if states.trouble:
            raise states.trouble
        return outcome


def _about_ray_address() -> tuple[str, ...]:
    """Return the sentence about a cluster that the environment alone names, if it names one."""
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        return ()
    return (f"RAY_ADDRESS names the cluster {address}, which was not joined; name it with --cluster to run there",)
