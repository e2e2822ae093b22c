"""Training the trials of a sweep on Ray, with the resources that its spec asks for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from clipless.datasets import Dataset
from sweeper.backend.interruption import Interruption
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial, place
from sweeper.backend.trial_states import TrialStates
from sweeper.backend.tune import RunResult, places_for, run_trials
from sweeper.backend.unseen import run_unseen
from sweeper.privacy.budget import Budget
from sweeper.spec.spec import Spec
from sweeper.store.sweep_folder import SweepFolder


def trained(
    trainable: type[CliplessTrial],
    queue: TrialQueue,
    states: TrialStates,
    spec: Spec,
    data: Dataset,
    folder: SweepFolder,
    interruption: Interruption,
    should_stop: Callable[[], str | None],
    storage: str | None = None,
    budget: Budget | None = None,
) -> RunResult:
    """Run trials as the spec says, on data that are put once into the memory of each node.

    The slots of a ``budget`` give the trials their noise.
    """
    return run_trials(
        trainable,
        queue,
        states,
        concurrent=spec.resources.concurrent,
        resources=_resources(spec),
        storage_dir=folder.path,
        constants=_constants(spec, budget)
        | {"folder": str(folder.path.resolve()), "data": place(data), "storage": storage},
        hours=spec.search.hours,
        trial_hours=spec.search.trial_hours,
        should_stop=should_stop,
        interruption=interruption,
    )


def trained_unseen(
    trainable: type[CliplessTrial],
    queue: TrialQueue,
    states: TrialStates,
    spec: Spec,
    data: Dataset,
    folder: SweepFolder,
    interruption: Interruption,
    should_stop: Callable[[], str | None],
    storage: None = None,  # noqa: ARG001
    budget: Budget | None = None,
) -> RunResult:
    """Run candidates as `trained` does, so that who looks at the cluster cannot count them."""
    resources = _resources(spec)
    return run_unseen(
        trainable,
        queue,
        states,
        places=spec.resources.concurrent or places_for(resources),
        resources=resources,
        storage_dir=folder.path,
        constants=_constants(spec, budget),
        data=place(data),
        should_stop=should_stop,
        interruption=interruption,
    )


def _resources(spec: Spec) -> dict[str, float]:
    resources = spec.resources
    return {"CPU": resources.cpus, **({"GPU": resources.gpus} if resources.gpus else {})}


def _constants(spec: Spec, budget: Budget | None) -> dict[str, Any]:
    return {
        "spec": spec.to_plain(),
        "source": str(Path(spec.source).resolve()),
        "budget": None if budget is None else budget.to_json(),
    }


def size_of(data: Dataset) -> int:
    """Return the bytes of a data set's rows."""
    return sum(split.x.nbytes + split.y.nbytes for split in (data.train, data.validation, data.test))


def threads_of(spec: Spec) -> int:
    """Return the threads of a trial's process."""
    return max(1, int(spec.resources.cpus))
