"""Opening what trains a sweep: the local pool, or a Ray cluster that its user names."""

import contextlib
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
        cluster: the address of a cluster to join; ``None`` for the local pool.
        interrupted: whether a request to stop has arrived, which ends the joining too.

    Raises:
        SweeperError: the machine or the cluster lacks what one trial needs, or the cluster cannot be joined.
        InterruptedStartError: a request to stop has arrived, and the cluster has not been joined for seconds.
    """
    if cluster is None:
        return open_local_pool(resources, data, trainings=trainings)
    from sweeper.backend.on_ray.backend import open_ray  # Ray takes seconds to import

    end_ahead()
    return open_ray(resources, data, cluster=cluster, interrupted=interrupted)
