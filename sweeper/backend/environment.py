"""The environment of worker processes, and how many processors this machine has for them."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # of a container


def processors() -> int:
    """Return how many processors this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        return max(1, min(count, int(quota) // int(period)))  # "max" is no number: no quota
    return count


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
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the time of a ``with`` block."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
