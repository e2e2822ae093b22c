"""Opening what trains a sweep: the local pool, or Ray.

The processors of this machine need no Ray. Clusters and GPUs are Ray's, and so is a sweep in a process that has a Ray
already. Ray is imported where it is used.
"""

import contextlib
import sys
from collections.abc import Callable

from clipless.datasets import Dataset
from sweeper.backend.backend import Backend
from sweeper.backend.workers.fork_server import end_ahead
from sweeper.backend.workers.local import open_local_pool
from sweeper.specification.settings import ResourceSettings


def open_backend(
    resources: ResourceSettings, data: Dataset, *, trainings: int, cluster: str | None, interrupted: Callable[[], bool]
) -> contextlib.AbstractContextManager[Backend]:
    """Open what trains on these data, for the time of a ``with`` block.

    Args:
        resources: of one trial, and how many run at a time.
        data: what all trials train on; each node holds them once.
        trainings: how many there will be at most.
        cluster: the address of a cluster to join.
        interrupted: whether a request to stop has arrived, which ends the start of Ray too.

    Raises:
        SweeperError: it cannot be started or joined, or lacks what one trial needs.
        InterruptedStartError: a request to stop has arrived, and Ray has not started for seconds.
    """
    if cluster is None and not resources.gpus and not _has_ray():
        return open_local_pool(resources, data, trainings=trainings)
    from sweeper.backend.on_ray.backend import open_ray

    end_ahead()
    return open_ray(resources, data, cluster=cluster, interrupted=interrupted)


def _has_ray() -> bool:
    """Whether this process has started or joined a Ray, which is then used."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())
