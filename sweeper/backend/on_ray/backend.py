"""Training on a Ray cluster: trials one at a time by Ray Tune, or stacks of them by a pool of actors."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import ray

from clipless.datasets import Dataset
from sweeper.backend.backend import Backend, RunSettings
from sweeper.backend.endings import RunResult
from sweeper.backend.on_ray.actor_pool import train_stacks
from sweeper.backend.on_ray.cluster import join_cluster, place
from sweeper.backend.on_ray.tune import places_for, train_alone
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.trial_states import TrialStates
from sweeper.specification.settings import ResourceSettings


@contextlib.contextmanager
def open_ray(
    resources: ResourceSettings, data: Dataset, *, cluster: str, interrupted: Callable[[], bool]
) -> Iterator[Backend]:
    """Open a cluster, as `sweeper.backend.opening.open_backend` does."""
    with join_cluster(cluster, threads=resources.threads, interrupted=interrupted) as statements:
        yield RayBackend(resources, place(data), statements)


class RayBackend:
    """Trains on the Ray that runs; see `sweeper.backend.backend.Backend`."""

    def __init__(self, resources: ResourceSettings, data: "ray.ObjectRef[Any]", statements: tuple[str, ...]) -> None:
        self._resources, self._data, self.statements = resources, data, statements

    def run(
        self, kind: type[CliplessTrial], queue: TrialQueue, states: TrialStates, settings: RunSettings
    ) -> RunResult:
        """Train trials: in stacks if the spec gives a size, or, where it leaves it open, on GPUs."""
        given = self._resources
        needed = {"CPU": given.cpus, **({"GPU": given.gpus} if given.gpus else {})}
        run = kind, queue, states, settings
        if given.gpus > 0 if given.stack is None else given.stack > 1:
            places = given.concurrent or places_for(needed)
            return train_stacks(*run, places=places, stack=given.stack, resources=needed, data=self._data)
        return train_alone(*run, concurrent=given.concurrent, resources=needed, data=self._data)
