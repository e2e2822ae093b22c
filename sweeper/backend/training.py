"""Training the trials of a sweep with the resources that its spec asks for: on processes of our own, or on Ray.

A sweep of this machine's processors needs no Ray, and begins at once on worker processes that the driver starts itself.
Clusters and GPUs are Ray's, and so is a sweep in a process that has a Ray already. Candidates of a private selection
always train on processes of our own: Ray shows to others how many there are. Ray is imported where it is used.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from clipless.datasets import Dataset
from sweeper.backend.endings import RunResult
from sweeper.backend.environment import about_ray_address, processors
from sweeper.backend.interruption import Interruption
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.trial_states import TrialStates
from sweeper.backend.workers.fork_server import end_ahead
from sweeper.backend.workers.local import LocalWorkers, local_workers, run_locally
from sweeper.errors import SweeperError
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.spending import Spending
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.rehearsal import HALVES


@dataclass(frozen=True, slots=True)
class Backend:
    """What trains a sweep.

    Attributes:
        local: worker processes of the driver's own; ``None`` for the Ray that runs.
        secret: whether it trains the candidates of a private selection, always locally: it leaves no traceback behind,
            and no stacks.
        said: what there is to say about it, one sentence each.
    """

    local: LocalWorkers | None = None
    secret: bool = False
    said: tuple[str, ...] = ()


@contextlib.contextmanager
def backend(
    plan: SweepPlan,
    data: Dataset,
    address: str | None,
    *,
    interrupted: Callable[[], bool],
    secret: bool = False,
) -> Iterator[Backend]:
    """What trains a sweep, for the time of a ``with`` block.

    A cluster at an ``address`` is joined, unless candidates of a private selection are to be trained, which is
    ``secret``. ``interrupted`` says whether a request to stop has arrived, which ends the start of Ray too.

    Raises:
        SweeperError: it cannot be started or joined, or has not what one trial needs.
        InterruptedStartError: a request to stop has arrived, and Ray has not started for seconds.
    """
    if secret or (address is None and not plan.resources.gpus and not _has_ray()):
        with local_workers(_processes(plan), data, threads_of(plan)) as workers:
            yield Backend(workers, secret, () if secret else about_ray_address())
        return
    from sweeper.backend.on_ray.cluster import cluster

    end_ahead()
    with cluster(address, threads=threads_of(plan), rows_bytes=size_of(data), interrupted=interrupted) as said:
        yield Backend(said=said)


def trained(
    backend: Backend,
    kind: type[CliplessTrial],
    queue: TrialQueue,
    states: TrialStates,
    plan: SweepPlan,
    data: Dataset,
    folder: SweepFolder,
    interruption: Interruption,
    should_stop: Callable[[], str | None],
    storage: str | None = None,
    spending: Spending | None = None,
) -> RunResult:
    """Run trials as the spec says, on data that are put once into the memory of each node.

    The slots of a ``budget`` give the trials their noise.

    Guarantees:
        Candidates of a private selection train one at a time, whatever the spec says: one that crashes in a stack makes
        the others begin again, so that who crashed, and that the data may have made it crash, would not be seen.
    """
    stack = 1 if backend.secret else plan.resources.stack
    constants: dict[str, Any] = {
        "settings": plan.shared,
        "spending": spending,
        "folder": str(folder.path.resolve()),
        "storage": storage,
    }
    given: dict[str, Any] = {
        "storage_dir": folder.path,
        "hours": plan.search.hours,
        "trial_hours": plan.search.trial_hours,
        "should_stop": should_stop,
        "interruption": interruption,
    }
    if backend.local is not None:
        return run_locally(
            backend.local,
            kind,
            queue,
            states,
            constants=constants,
            stack=stack,
            secret=backend.secret,
            **given,
        )
    from sweeper.backend.on_ray.cluster import place
    from sweeper.backend.on_ray.stacks import run_stacks
    from sweeper.backend.on_ray.tune import places_for, run_trials

    concurrent, resources = plan.resources.concurrent, _resources(plan)
    if _is_stacked(stack, plan.resources.gpus):
        given |= {
            "places": concurrent or places_for(resources),
            "stack": stack,
            "resources": resources,
        }
        return run_stacks(kind, queue, states, constants=constants, data=place(data), **given)
    constants |= {"data": place(data)}
    return run_trials(kind, queue, states, concurrent=concurrent, resources=resources, constants=constants, **given)


def _is_stacked(stack: int | None, gpus: float) -> bool:
    """Whether trials on a Ray are trained in stacks: always if a number is given, on GPUs unless it is 1."""
    return gpus > 0 if stack is None else stack > 1


def _has_ray() -> bool:
    """Whether this process has started or joined a Ray, which is then used."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _processes(plan: SweepPlan) -> int:
    """Return how many trials, or stacks of them, run at a time on this machine; those that need a GPU, on its first."""
    here, wanted, gpus = processors(), plan.resources.cpus, plan.resources.gpus
    if wanted > here:
        raise SweeperError(
            f"Expected at most {here} CPU for a trial, got {wanted:g}; this machine has no more: ask for less or use a "
            "cluster"
        )
    trainings = max(plan.trials, HALVES * plan.rehearsals)
    places = min(plan.resources.concurrent or int(here / wanted), trainings)
    return min(places, int(1 / gpus)) if gpus else places


def _resources(plan: SweepPlan) -> dict[str, float]:
    resources = plan.resources
    return {"CPU": resources.cpus, **({"GPU": resources.gpus} if resources.gpus else {})}


def size_of(data: Dataset) -> int:
    """Return the bytes of a data set's rows."""
    return sum(split.x.nbytes + split.y.nbytes for split in (data.train, data.validation, data.test))


def threads_of(plan: SweepPlan) -> int:
    """Return the threads of a trial's process."""
    return max(1, int(plan.resources.cpus))
