"""Ray, started for one sweep or joined: the only place that says how.

Starting a local Ray costs four seconds of two idle cores, nearly all of it the start of its Python helper
processes; the size of the object store, the dashboard and the metrics make no difference. Telemetry is off
unless the user has turned it on.
"""

import contextlib
import gc
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import ray

from sweeper.errors import SweeperError

OBJECT_STORE_BYTES = 100_000_000  # results are small; a big store only asks for more shared memory
NO_TELEMETRY = {"RAY_USAGE_STATS_ENABLED": "0"}


def worker_environment(threads: int) -> dict[str, str]:
    """Return the environment of trial processes: a number of threads, and the driver's working directory."""
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
        # glibc then keeps large buffers instead of mapping them anew in every step: 10 % of a CPU step
        "MALLOC_MMAP_THRESHOLD_": "1073741824",
        "MALLOC_TRIM_THRESHOLD_": "4294967296",
    }


@contextlib.contextmanager
def cluster(
    address: str | None = None,
    *,
    cpus: int | None = None,
    gpus: int | None = None,
    threads: int = 1,
    secret: bool = False,
) -> Iterator[None]:
    """A running Ray for the time of a ``with`` block.

    A Ray that this process already started or joined is used as it is, and left running.

    Args:
        address: of a cluster to join instead of starting a local Ray; ``cpus`` and ``gpus`` are its own then.
        cpus: processors that a local Ray may give to trials; all of this machine's if ``None``.
        gpus: likewise.
        threads: OpenMP threads of one trial process.
        secret: start a Ray whose session, logs included, only its owner can read and is removed afterwards.

    Raises:
        SweeperError: what is to be secret would run on a cluster of others, or on a Ray that stays.
    """
    if secret:
        if address or ray.is_initialized():
            raise SweeperError(
                "Expected no running Ray and no cluster for a private selection, whose candidates its logs would give "
                "away; leave --cluster out"
            )
        folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        with folder as session, _started(None, cpus, gpus, threads, {"_temp_dir": session}):
            yield
        return
    if ray.is_initialized():
        yield
        return
    with _started(address, cpus, gpus, threads, {}):
        yield


@contextlib.contextmanager
def _started(
    address: str | None, cpus: int | None, gpus: int | None, threads: int, more: Mapping[str, Any]
) -> Iterator[None]:
    workers = worker_environment(threads)
    telemetry = {name: value for name, value in NO_TELEMETRY.items() if name not in os.environ}
    with environment(telemetry if address else telemetry | workers), _kept_sigterm():
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address:
            ray.init(address, runtime_env={"env_vars": workers}, **quiet)
        else:
            ray.init(
                num_cpus=cpus,
                num_gpus=gpus,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                **quiet,
                **more,
            )
    try:
        yield
    finally:
        gc.collect()  # handles that die after the shutdown still call Ray, which then ends the process
        ray.shutdown()


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the time of a ``with`` block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextlib.contextmanager
def _kept_sigterm() -> Iterator[None]:
    """Take back the SIGTERM handler that ``ray.init`` installs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
