"""Training candidates of a private selection on a cluster, so that who looks at the cluster sees no number of them.

Ray shows whoever may look at a cluster every task, its name and its times, and every line that a worker writes. So
Ray is asked for a number of workers that the spec gives, each with one task from the beginning to the end. Candidates
reach a worker through a connection of its own, and rows and models come back through it: there are no names in a
shared folder or storage, and workers write no lines. What remains to be seen is how long all of it takes, how busy the
machines are, and that a worker that died was replaced.

Who may run code on the cluster may read the memory of its processes; that is a condition, not prevented here.
"""

import contextlib
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from threading import Thread
from typing import Any

import ray

from sweeper.backend.interruption import Interruption
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.trial_states import TrialStates
from sweeper.backend.tune import RAY_DIED, RunResult
from sweeper.errors import public_line
from sweeper.records import TrialStatus
from sweeper.trials.stream import EpochRow, row_from_text, row_to_text

LOOK_SECONDS = 0.1
NODE_LOOK_SECONDS = 2.0
KEY_BYTES = 32
UNREACHABLE = "no worker of the cluster could start, or reach the driver"
DIED = "its process died: killed, crashed or out of memory"

Address = tuple[str, int]


class _Unseen(Exception):  # noqa: N818  # not an error of ours: stands for one that cannot travel
    """An error of a worker that cannot be pickled."""


def serve(address: Address, key: bytes, trainable: type[CliplessTrial], data: list[Any], *, quiet: bool = True) -> None:
    """Train what comes through a connection, one candidate after another, until it closes; a worker's only task.

    Guarantees:
        Nothing is written to the worker's output, which Ray would show, and no error leaves but through the connection.
    """
    if quiet:
        sink = os.open(os.devnull, os.O_WRONLY)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
    with contextlib.suppress(OSError, EOFError, AuthenticationError), Client(address, authkey=key) as connection:
        made: CliplessTrial = trainable.__new__(trainable)
        while True:
            config = connection.recv() | {"data": data[0], "storage": None}
            with tempfile.TemporaryDirectory(prefix="trial-", ignore_cleanup_errors=True) as folder:
                for name in ("models", "checkpoints"):
                    (Path(folder) / name).mkdir()
                made.setup(config | {"folder": folder})
                _train(made, Path(folder), connection)
                made.cleanup()


def _train(trial: CliplessTrial, folder: Path, connection: Connection) -> None:
    """Send rows, each once the one before was answered, until one is the last or the answer is no."""
    while True:
        try:
            row = trial.step()
        except Exception as error:
            connection.send(_travels(error))
            return
        models = {}
        for name in row.models if isinstance(row, EpochRow) else ():
            models[name] = (folder / name).read_bytes()
            (folder / name).unlink()
        connection.send((row_to_text(row), models))
        if not connection.recv() or (isinstance(row, EpochRow) and row.done):
            return


def _travels(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return _Unseen(f"{type(error).__name__}: {error}")
    return error


class _Workers:
    """Workers on the cluster and the connections to them."""

    def __init__(self, trainable: type[CliplessTrial], resources: Mapping[str, float], data: Any) -> None:
        self._trainable, self._resources, self._data = trainable, resources, [data]
        self._key = os.urandom(KEY_BYTES)
        here: Any = ray.util.get_node_ip_address  # has no types
        self._listener = Listener((str(here()), 0), authkey=self._key)
        self._actors: list[Any] = []
        self._tasks: list[Any] = []
        self.connections: list[Connection] = []
        self._is_closed = False
        Thread(target=self._accept, name="workers", daemon=True).start()

    def add(self) -> None:
        """Ask Ray for one more."""
        needs = {"num_cpus": self._resources.get("CPU", 0), "num_gpus": self._resources.get("GPU", 0)}
        actor: Any = ray.remote(_Worker).options(max_restarts=0, max_task_retries=0, **needs).remote()
        self._actors.append(actor)
        self._tasks.append(actor.serve.remote(self._listener.address, self._key, self._trainable, self._data))

    def are_unreachable(self) -> bool:
        """Whether none is connected, and none will be."""
        waiting = ray.wait(self._tasks, num_returns=len(self._tasks), timeout=0)[1]
        return not (waiting or self.connections)

    def close(self) -> None:
        """End them all at once."""
        self._is_closed = True
        for connection in self.connections:
            connection.close()
        self._listener.close()
        for actor in self._actors:
            with contextlib.suppress(Exception):  # it may be gone, and Ray with it
                ray.kill(actor)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                self.connections.append(self._listener.accept())
            except AuthenticationError:
                continue
            except (OSError, EOFError):
                time.sleep(LOOK_SECONDS)


class _Worker:
    """What Ray runs and shows."""

    def serve(self, *given: Any) -> None:
        serve(*given)


def run_unseen(
    trainable: type[CliplessTrial],
    queue: TrialQueue,
    states: TrialStates,
    *,
    places: int,
    resources: Mapping[str, float],
    storage_dir: Path,
    constants: Mapping[str, Any],
    data: Any,
    should_stop: Callable[[], str | None],
    interruption: Interruption,
) -> RunResult:
    """Run candidates as `sweeper.backend.tune.run_trials` runs trials, unseen.

    There are ``places`` workers, whatever the number of candidates. Models are put into ``storage_dir``, under the
    names that rows give them. ``data`` is what `sweeper.backend.trainable.place` has returned.
    """
    run = _Run(queue, states, storage_dir, dict(constants))
    workers = _Workers(trainable, resources, data)
    try:
        for _ in range(places):
            workers.add()
        return run.to_end(workers, should_stop, interruption)
    except BaseException as error:
        forced = isinstance(error, KeyboardInterrupt)
        states.close(TrialStatus.INTERRUPTED if forced else TrialStatus.FAILED, public_line(error))
        raise
    finally:
        workers.close()


class _Run:
    """Hands candidates to workers that are free, and takes what they send."""

    def __init__(self, queue: TrialQueue, states: TrialStates, folder: Path, constants: dict[str, Any]) -> None:
        self._queue, self._states, self._folder, self._constants = queue, states, folder, constants
        self._busy: dict[Connection, str] = {}  # the candidate of each
        self._look_at = 0.0

    def to_end(self, workers: _Workers, should_stop: Callable[[], str | None], interruption: Interruption) -> RunResult:
        """Run until there are enough, or there is a reason to end."""
        while not self._queue.finished:
            outcome = self._ending(workers, should_stop, interruption)
            if outcome is not None:
                failed = self._states.trouble is not None
                status = TrialStatus.FAILED if failed else TrialStatus.INTERRUPTED
                self._states.close(status, outcome.reason)
                break
            self._hand_out(workers)
            for connection in wait(list(workers.connections), LOOK_SECONDS) if workers.connections else ():
                self._take(workers, connection)  # type: ignore[arg-type]
            if not workers.connections:
                time.sleep(LOOK_SECONDS)
        else:
            outcome = None
        if self._states.trouble:
            raise self._states.trouble
        return outcome or RunResult()

    def _ending(
        self, workers: _Workers, should_stop: Callable[[], str | None], interruption: Interruption
    ) -> RunResult | None:
        if interruption.requested:
            return RunResult(interrupted=True, reason="interrupted")
        if self._states.trouble:
            return RunResult(reason=public_line(self._states.trouble))
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + NODE_LOOK_SECONDS
            if not any(node["Alive"] for node in ray.nodes()):  # type: ignore[no-untyped-call]
                return RunResult(reason=RAY_DIED, lost=True)
            if workers.are_unreachable():
                return RunResult(reason=UNREACHABLE)
        reason = should_stop()
        return RunResult(reason=reason) if reason else None

    def _hand_out(self, workers: _Workers) -> None:
        for connection in [one for one in workers.connections if one not in self._busy]:
            started = self._queue.start()
            if started is None:
                return
            trial, proposal = started
            self._busy[connection] = trial
            config = {"trial": trial, "proposal": proposal, "recorded": 0}
            self._states.start(trial, config)
            with contextlib.suppress(OSError):  # a dead one is found out when it is asked for rows
                connection.send(self._constants | config)

    def _take(self, workers: _Workers, connection: Connection) -> None:
        try:
            news = connection.recv()
        except (EOFError, OSError):
            self._lose(workers, connection)
            return
        trial = self._busy[connection]
        if isinstance(news, Exception):
            self._states.fail(trial, news)
            self._free(connection)
            return
        text, models = news
        row = row_from_text(text)
        for name, content in models.items():
            (self._folder / name).write_bytes(content)
        goes_on = self._states.receive(trial, row)
        with contextlib.suppress(OSError):
            connection.send(goes_on)
        if not goes_on or (isinstance(row, EpochRow) and row.done):
            self._states.end(trial, TrialStatus.COMPLETED)
            self._free(connection)

    def _free(self, connection: Connection) -> None:
        self._queue.end(self._busy.pop(connection))

    def _lose(self, workers: _Workers, connection: Connection) -> None:
        """Take that a worker died, and ask for another."""
        workers.connections.remove(connection)
        connection.close()
        workers.add()
        trial = self._busy.pop(connection, None)
        if trial is None:
            return
        if self._states.restart(trial):
            self._queue.put_back(trial)
        else:
            self._states.fail(trial, DIED)
            self._queue.end(trial)
