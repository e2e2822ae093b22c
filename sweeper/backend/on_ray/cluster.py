"""Ray, started for one sweep or joined: the only place that says how.

Starting a local Ray costs four seconds of two idle cores, nearly all of it the start of its Python helper
processes; the size of the object store, the dashboard and the metrics make no difference. Telemetry is off
unless the user has turned it on. ``RAY_ADDRESS`` is not looked at: the cluster that is joined is the one that is named.
"""

import contextlib
import gc
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import ray
from ray.exceptions import AuthenticationError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from clipless.datasets import Dataset
from sweeper.backend.environment import about_ray_address, environment, worker_environment
from sweeper.backend.on_ray.nodes import VersionMismatch, facts_of_this_code, node_facts, unlike_nodes
from sweeper.backend.on_ray.starting import ThreadedStart
from sweeper.backend.trainable import PlacedDataset
from sweeper.errors import SweeperError, one_line

T = TypeVar("T")

OBJECT_STORE_BYTES = 100_000_000  # beside the rows: results are small; a big store only asks for more shared memory
NO_TELEMETRY = {"RAY_USAGE_STATS_ENABLED": "0"}
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
JOIN_SECONDS, JOIN_PAUSE_SECONDS = 60.0, 2.0
PROBE_SECONDS = 60.0
WORKERS_SECONDS = 120.0
STARTS = 3  # of a local Ray: on a busy machine it may miss its own deadlines


@contextlib.contextmanager
def cluster(
    address: str | None = None,
    *,
    cpus: int | None = None,
    threads: int = 1,
    rows_bytes: int = 0,
    interrupted: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[str, ...]]:
    """A running Ray for the time of a ``with`` block.

    A Ray that this process already started or joined is used as it is, and left running. To nodes of a cluster that
    have another version of this code, or none, this one's is sent.

    Args:
        address: of a cluster to join instead of starting a local Ray; ``cpus`` are its own then.
        cpus: processors that a local Ray may give to trials; all of this machine's if ``None``.
        threads: OpenMP threads of one trial process.
        rows_bytes: of the data that a Ray that is started here is to hold.
        interrupted: whether a request to stop has arrived, which ends the start of Ray too.

    Yields:
        What there is to say about the cluster, one sentence each.

    Raises:
        SweeperError: a Ray cannot be started, or a cluster not be joined, or its nodes lack what trials need.
        InterruptedStartError: a request to stop has arrived, and Ray has not started for seconds.
    """
    if ray.is_initialized():
        yield ()
        return
    if address is None:
        with _started(cpus, threads, OBJECT_STORE_BYTES + rows_bytes, interrupted):
            yield about_ray_address()
        return
    with _joined(address, threads, interrupted) as said:
        yield said


def place(data: Dataset) -> "ray.ObjectRef[PlacedDataset]":
    """Put a data set where the trials of a running Ray find it, for as long as the result is kept."""
    return ray.put(PlacedDataset.of(data))


@contextlib.contextmanager
def _started(cpus: int | None, threads: int, store_bytes: int, interrupted: Callable[[], bool]) -> Iterator[None]:
    options = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": store_bytes}

    def start(is_left: Callable[[], bool]) -> None:
        with environment(_telemetry() | worker_environment(threads)):
            _start(options, is_left)

    with _made(start, interrupted):
        yield


@contextlib.contextmanager
def _joined(address: str, threads: int, interrupted: Callable[[], bool]) -> Iterator[tuple[str, ...]]:
    runtime: dict[str, Any] = {"env_vars": worker_environment(threads)}

    def join(is_left: Callable[[], bool]) -> VersionMismatch:
        with environment(_telemetry()):
            try:
                _join(address, runtime, is_left)
                _wait_for_workers(is_left)
                unlike = unlike_nodes(facts_of_this_code(), _facts_of_nodes())
                if unlike.packages:
                    ray.shutdown()
                    more = {"py_modules": list(unlike.packages), "excludes": ["**/__pycache__/**"]}
                    _join(address, runtime | more, is_left)
            except BaseException:
                _leave()
                raise
            return unlike

    with _made(join, interrupted) as unlike:
        yield unlike.sentences


@contextlib.contextmanager
def _made(start: Callable[[Callable[[], bool]], T], interrupted: Callable[[], bool]) -> Iterator[T]:
    starting = ThreadedStart(start, _leave)
    made = starting.wait(interrupted)
    try:
        yield made
    finally:
        try:
            _leave()
        finally:
            starting.over()


def _start(options: Mapping[str, Any], is_left: Callable[[], bool]) -> None:
    """Start a local Ray, whatever the environment names; one that misses its own deadlines is started again."""
    for left in reversed(range(STARTS)):
        try:
            ray.init("local", **QUIET, **options)
            return
        except Exception as error:  # a bare Exception is what Ray raises when it takes too long
            _leave()
            if not left or is_left():
                raise SweeperError(
                    f"Cannot start Ray on this machine, tried {STARTS - left} times: {one_line(error)}; wait until it "
                    "is less busy, and see that the folder for temporary files has room"
                ) from error


def _join(address: str, runtime: Mapping[str, Any], is_left: Callable[[], bool]) -> None:
    """Join a cluster; one whose head was started again a moment ago is waited for."""
    until = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            ray.init(address, runtime_env=dict(runtime), **QUIET)
            return
        except (ConnectionError, RayError, RuntimeError, ValueError) as error:
            if time.monotonic() > until or is_left() or isinstance(error, AuthenticationError):
                raise SweeperError(
                    f"Cannot join the Ray cluster at {address}: {one_line(error)}; is its head running, and does "
                    "RAY_AUTH_TOKEN_PATH name its token?"
                ) from error
        time.sleep(JOIN_PAUSE_SECONDS)


def _wait_for_workers(is_left: Callable[[], bool]) -> None:
    """Wait until a node has joined that runs trials, for no longer than workers take to come back to a new head."""
    until = time.monotonic() + WORKERS_SECONDS
    while not (_workers() or is_left()) and time.monotonic() < until:
        time.sleep(JOIN_PAUSE_SECONDS)


def _workers() -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"] and node["Resources"].get("CPU")]


def _facts_of_nodes() -> dict[str, dict[str, str]]:
    """Return, by name, what code each node has that runs trials; a node that does not answer is left out."""
    probe = ray.remote(num_cpus=0, max_retries=0)(node_facts())
    asked = {
        node["NodeName"]: probe.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote()
        for node in _workers()
    }
    ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=PROBE_SECONDS) if asked else ([], [])
    found = {}
    for address, answer in asked.items():
        if answer in ready:
            with contextlib.suppress(RayError):
                found[address] = ray.get(answer)
    return found


def _telemetry() -> dict[str, str]:
    return {name: value for name, value in NO_TELEMETRY.items() if name not in os.environ}


def _leave() -> None:
    gc.collect()  # handles that die after the shutdown still call Ray, which then ends the process
    ray.shutdown()
