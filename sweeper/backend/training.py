"""Training the trials of a sweep on Ray, with the resources that its spec asks for."""

from collections.abc import Callable
from pathlib import Path

from clipless.datasets import Dataset
from sweeper.backend.interruption import Interruption
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial, place
from sweeper.backend.trial_states import TrialStates
from sweeper.backend.tune import RunResult, run_trials
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
    resources = spec.resources
    return run_trials(
        trainable,
        queue,
        states,
        concurrent=resources.concurrent,
        resources={"CPU": resources.cpus, **({"GPU": resources.gpus} if resources.gpus else {})},
        storage_dir=folder.path,
        constants={
            "spec": spec.to_plain(),
            "source": str(Path(spec.source).resolve()),
            "folder": str(folder.path.resolve()),
            "data": place(data),
            "storage": storage,
            "budget": None if budget is None else budget.to_json(),
        },
        hours=spec.search.hours,
        trial_hours=spec.search.trial_hours,
        should_stop=should_stop,
        interruption=interruption,
    )


def size_of(data: Dataset) -> int:
    """Return the bytes of a data set's rows."""
    return sum(split.x.nbytes + split.y.nbytes for split in (data.train, data.validation, data.test))


def threads_of(spec: Spec) -> int:
    """Return the threads of a trial's process."""
    return max(1, int(spec.resources.cpus))
