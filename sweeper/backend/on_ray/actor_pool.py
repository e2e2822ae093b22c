"""Stacks of trials on a cluster: a pool of Ray actors that each train several trials as one.

Each actor has one task from the beginning to the end. Configurations reach it through a connection of its own, and rows
come back through it. Checkpoints and models go into the sweep's folder, or travel through its storage, as those of any
trial do. Ray Tune can carry stacks too, with a trial for each worker, but each report then takes two calls and every
worker imports Tune: 64 small trials took a third more processor time (`benchmarks/RESULTS.md`).
"""

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener
from threading import Thread
from typing import Any

import ray

from sweeper.backend.backend import RunSettings
from sweeper.backend.endings import RunEnding, RunResult, close_trials, result_of_error, watch_endings
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.trial_states import TrialStates
from sweeper.backend.workers.dispatcher import Dispatcher, WorkerState
from sweeper.backend.workers.messages import Task
from sweeper.backend.workers.pool import PoolRun
from sweeper.backend.workers.worker import serve, silence

LOOK_SECONDS = 0.1
NODE_LOOK_SECONDS = 2.0
KEY_BYTES = 32

Address = tuple[str, int]


def serve_driver(address: Address, key: bytes, number: int, data: list[Any]) -> None:
    """Train what comes through a connection until it closes; a worker's only task.

    The worker says its ``number`` first, by which the driver knows which of Ray's workers it is.

    Guarantees:
        Nothing is written to the worker's output, which Ray would show, and no error leaves but through the connection.
    """
    silence()
    with contextlib.suppress(OSError, EOFError, AuthenticationError), Client(address, authkey=key) as connection:
        connection.send(number)
        serve(connection, data[0])


class ActorPool:
    """Actors on the cluster and the connections to them; see `sweeper.backend.workers.pool.Workers`."""

    def __init__(self, size: int, resources: Mapping[str, float], data: Any) -> None:
        self.size, self._resources, self._data = size, resources, [data]
        self._key = os.urandom(KEY_BYTES)
        here: Any = ray.util.get_node_ip_address  # has no types
        self._listener = Listener((str(here()), 0), authkey=self._key)
        self._actors: list[Any] = []
        self._tasks: list[Any] = []
        self._states: dict[Connection, WorkerState] = {}
        self._numbers: dict[Connection, int] = {}
        self._is_closed = False
        self._look_at = 0.0
        Thread(target=self._accept, name="workers", daemon=True).start()

    @property
    def states(self) -> Mapping[Connection, WorkerState]:
        """Those that are connected, as they are now."""
        return dict(self._states)

    def start(self) -> None:
        """Ask Ray for as many as there are meant to be."""
        for _ in range(self.size):
            self._start_one()

    def lose(self, connection: Connection) -> None:
        """Take that one has died, and ask for another; one that only hangs is killed, lest it save a state later."""
        self.kill(connection)
        del self._states[connection]
        connection.close()
        self._start_one()

    def kill(self, connection: Connection) -> None:
        """Kill one; its connection then ends."""
        with contextlib.suppress(Exception):  # it may be gone, and Ray with it
            ray.kill(self._actors[self._numbers[connection]])

    def problem(self) -> RunResult | None:
        """Return how a run ends because no trial can run any more; the driver looks for its Ray now and then."""
        now = time.monotonic()
        if now < self._look_at:
            return None
        self._look_at = now + NODE_LOOK_SECONDS
        if not any(node["Alive"] for node in ray.nodes()):  # type: ignore[no-untyped-call]
            return RunResult(RunEnding.RAY_DIED)
        done, waiting = ray.wait(self._tasks, num_returns=len(self._tasks), timeout=0)
        for connection in self.states:
            if self._tasks[self._numbers[connection]] in done:  # a node that vanished has closed no connection
                _shut(connection)
        return None if waiting or self._states else RunResult(RunEnding.NO_WORKERS)

    def close(self) -> None:
        """End them all at once."""
        self._is_closed = True
        for connection in self._states:
            connection.close()
        self._listener.close()
        for actor in self._actors:
            with contextlib.suppress(Exception):  # it may be gone, and Ray with it
                ray.kill(actor)

    def _start_one(self) -> None:
        needs = {"num_cpus": self._resources.get("CPU", 0), "num_gpus": self._resources.get("GPU", 0)}
        actor: Any = ray.remote(_Actor).options(max_restarts=0, max_task_retries=0, **needs).remote()
        given = self._listener.address, self._key, len(self._actors), self._data
        self._actors.append(actor)
        self._tasks.append(actor.serve.remote(*given))

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection = self._listener.accept()
                self._numbers[connection] = connection.recv()
                self._states[connection] = WorkerState()
            except AuthenticationError:
                continue
            except (OSError, EOFError):
                time.sleep(LOOK_SECONDS)


def _shut(connection: Connection) -> None:
    """Let a connection end, of which the other side is gone without a word."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


class _Actor:
    """What Ray runs and shows."""

    def serve(self, *given: Any) -> None:
        serve_driver(*given)


def train_stacks(
    kind: type[CliplessTrial],
    queue: TrialQueue,
    states: TrialStates,
    settings: RunSettings,
    *,
    places: int,
    stack: int | None,
    resources: Mapping[str, float],
    data: Any,
) -> RunResult:
    """Run trials as `sweeper.backend.backend.Backend` does, in stacks, on ``places`` workers of a Ray.

    A worker trains at most ``stack`` trials as one, ``None`` for as many as pay.
    """
    workers = ActorPool(places, resources, data)
    try:
        workers.start()
        dispatcher = Dispatcher(
            Task.of(kind, settings.constants(), stack),
            queue,
            states,
            trial_hours=settings.trial_hours,
            tracebacks=settings.folder / "tracebacks",
        )
        ending = watch_endings(states, settings.interruption, settings.hours, settings.should_stop)
        outcome = PoolRun(workers, dispatcher, queue, states, ending).to_end()
    except BaseException as error:
        close_trials(states, result_of_error(error))
        raise
    finally:
        workers.close()
    if states.trouble:
        raise states.trouble
    return outcome
