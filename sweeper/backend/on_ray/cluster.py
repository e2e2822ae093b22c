"""Joining a Ray cluster for one sweep.

Telemetry is off unless the user has turned it on. ``RAY_ADDRESS`` does not count: the driver joins the cluster that its
user names.
"""

import contextlib
import gc
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import ray
from ray.exceptions import AuthenticationError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from clipless.datasets import Dataset
from sweeper.backend.environment import environment, worker_environment
from sweeper.backend.on_ray.nodes import VersionMismatch, facts_of_this_code, node_facts, unlike_nodes
from sweeper.backend.on_ray.starting import ThreadedStart
from sweeper.backend.placed_data import PlacedDataset
from sweeper.errors import SweeperError, one_line

NO_TELEMETRY = {"RAY_USAGE_STATS_ENABLED": "0"}
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
JOIN_SECONDS, JOIN_PAUSE_SECONDS, KNOCK_SECONDS = 60.0, 2.0, 5.0
PROBE_SECONDS = 60.0
WORKERS_SECONDS = 120.0


@contextlib.contextmanager
def join_cluster(
    address: str, *, threads: int = 1, interrupted: Callable[[], bool] = lambda: False
) -> Iterator[tuple[str, ...]]:
    """Join a Ray for the time of a ``with`` block.

    A Ray that this process already started or joined is used as it is, and left running. The driver sends its own code
    to nodes that have another version of it, or none.

    Args:
        address: of the cluster.
        threads: OpenMP threads of one trial process.
        interrupted: whether a request to stop has arrived, which ends the joining too.

    Yields:
        What its user should know about the cluster, one sentence each.

    Raises:
        SweeperError: the cluster cannot be joined, or its nodes lack what trials need.
        InterruptedStartError: a request to stop has arrived, and the cluster has not been joined for seconds.
    """
    if ray.is_initialized():
        yield ()
        return
    runtime: dict[str, Mapping[str, str] | list[str]] = {"env_vars": worker_environment(threads)}

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

    starting = ThreadedStart(join, _leave)
    unlike = starting.wait(interrupted)
    try:
        yield unlike.sentences
    finally:
        try:
            _leave()
        finally:
            starting.over()


def place(data: Dataset) -> "ray.ObjectRef[PlacedDataset]":
    """Put a data set where the trials of a running Ray find it, for as long as the result is kept."""
    return ray.put(PlacedDataset.of(data))


def _join(address: str, runtime: Mapping[str, Mapping[str, str] | list[str]], is_left: Callable[[], bool]) -> None:
    """Join a cluster; one whose head was started again a moment ago is waited for."""
    until = time.monotonic() + JOIN_SECONDS
    while True:
        try:
            _knock(address)
            ray.init(address, runtime_env=dict(runtime), **QUIET)
            return
        except (OSError, RayError, RuntimeError, ValueError) as error:
            if time.monotonic() > until or is_left() or isinstance(error, AuthenticationError):
                raise SweeperError(
                    f"Cannot join the Ray cluster at {address}: {one_line(error)}; is its head running, and are "
                    "RAY_AUTH_MODE=token and, unless ~/.ray/auth_token has its token, RAY_AUTH_TOKEN_PATH set?"
                ) from error
        time.sleep(JOIN_PAUSE_SECONDS)


def _knock(address: str) -> None:
    """Find out whether anything listens at HOST:PORT: Ray itself tries for longer than anybody waits.

    Raises:
        OSError: nothing does.
    """
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_SECONDS).close()


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
