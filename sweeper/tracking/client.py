"""What else is asked of an MLflow store, once a sweep has written to it; beside `sweeper.tracking.tracker`.

Each function makes its own connection and raises where the store cannot be reached: nothing here runs beside trials.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.errors import SweeperError, one_line
from sweeper.store.manifest import Manifest
from sweeper.tracking.names import MAX_TAG_LENGTH, clean
from sweeper.tracking.store import (
    STORE_NAME,
    SWEEP_TAG,
    TRIAL_TAG,
    Destination,
    every_run,
    prepare_mlflow,
    runs_by_rehearsal,
    runs_by_trial,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPLORATORY_TAG = "sweeper.exploratory"


def destination_of(folder: Path, manifest: Manifest) -> Destination:
    """Return where the runs of the sweep in a folder went."""
    return Destination.of(folder, manifest.name, manifest.tracking, manifest.id)


@dataclass(frozen=True, slots=True)
class LoggedTrial:
    """What a store knows of one trial."""

    params: Mapping[str, str]
    metrics: Mapping[str, float]
    sweep: str
    exploratory: bool


@contextmanager
def _client(uri: str) -> Iterator["MlflowClient"]:
    prepare_mlflow()
    from mlflow import MlflowClient

    try:
        yield MlflowClient(tracking_uri=uri)
    except SweeperError:
        raise
    except Exception as error:
        raise SweeperError(f"Cannot use the store {uri}: {one_line(error)}; is it up?") from error


def logged_trials(uri: str, experiment: str) -> list[LoggedTrial]:
    """Return every trial of an experiment, the earliest first.

    Raises:
        SweeperError: the store cannot be read, or has no such experiment.
    """
    with _client(uri) as client:
        found = client.get_experiment_by_name(experiment)
        if found is None:
            raise SweeperError(f"Expected the experiment {experiment!r} in {uri}, found none; correct its name")
        runs = every_run(client, found.experiment_id, f"tags.`{TRIAL_TAG}` LIKE '%'")
    runs.sort(key=lambda run: int(run.info.start_time))
    return [_trial(run.data) for run in runs]


def _trial(data: Any) -> LoggedTrial:
    exploratory = data.tags.get(EXPLORATORY_TAG) == "true"
    return LoggedTrial(dict(data.params), dict(data.metrics), data.tags.get(SWEEP_TAG, ""), exploratory)


def find_runs(client: "MlflowClient", wanted: Destination) -> dict[str | None, str]:
    """Return the runs of a sweep by trial, ``None`` for the sweep's own."""
    experiment = client.get_experiment_by_name(wanted.experiment)
    return {} if experiment is None else runs_by_trial(client, experiment.experiment_id, wanted)


def set_tags(wanted: Destination, trial: str, tags: Mapping[str, str]) -> None:
    """Set tags of a trial's run.

    Raises:
        SweeperError: the store cannot be reached, or has no run of this trial.
    """
    _refuse_no_store(wanted)
    with _client(wanted.uri) as client:
        run = find_runs(client, wanted).get(trial)
        if run is None:
            raise SweeperError(f"Expected a run of trial {trial} of {wanted.sweep} in {wanted.uri}, found none yet")
        for key, value in tags.items():
            client.set_tag(run, clean(key), value[:MAX_TAG_LENGTH])


def delete_runs(wanted: Destination) -> int:
    """Delete the runs of a sweep, and return how many they were; MLflow keeps them in its trash.

    Raises:
        SweeperError: the store cannot be reached.
    """
    _refuse_no_store(wanted)
    with _client(wanted.uri) as client:
        runs = [*find_runs(client, wanted).values(), *_find_rehearsals(client, wanted)]
        for run in runs:
            client.delete_run(run)
    return len(runs)


def _find_rehearsals(client: "MlflowClient", wanted: Destination) -> Iterator[str]:
    experiment = client.get_experiment_by_name(wanted.experiment)
    if experiment is not None:
        yield from runs_by_rehearsal(client, experiment.experiment_id, wanted).values()


def _refuse_no_store(wanted: Destination) -> None:
    """Refuse a SQLite file that is not there: MLflow would make it."""
    path = wanted.uri.removeprefix("sqlite:///")
    if path.endswith(STORE_NAME) and path != wanted.uri and not Path(path).is_file():
        raise SweeperError(f"Expected the store {path}, found none; it may not have been made yet")
