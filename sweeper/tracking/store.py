"""An MLflow store: where the runs of a sweep go, and how its rows are told to it.

Runs are found or created by their tags, so that nothing is written twice when rows come again. Those of one sweep have
its id and the name of its folder: sweeps that begin at one moment may have one name, and a copy has the same id.
"""

import contextlib
import fcntl
import json
import logging
import os
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.errors import one_line
from sweeper.records import TrialStatus
from sweeper.tracking.entries import (
    ArtifactRow,
    DatasetRow,
    EndRow,
    MetricsRow,
    RehearsalRow,
    RunRow,
    TagsRow,
    TextRow,
    TrackingRow,
    row_from_json,
)
from sweeper.tracking.names import ARTIFACT_LINK, MAX_TAG_LENGTH, NAME_TAG, NOTE_TAG, RUN_STATUS, USER_TAG, clean
from sweeper.tracking.outbox import JsonRows
from sweeper.tracking.view import VIEW_TAG, results_view

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Metric

STORE_NAME = "mlflow.db"
ARTIFACTS_NAME = "mlflow-artifacts"

EXPERIMENT_TAGS = {
    "mlflow.experimentKind": "custom_model_development",  # what MLflow's page then shows: trainings
    NOTE_TAG: "The sweeps of one name: each is a run, its trials are runs below it. A sweep's description says what it "
    "found and costs. *Results* under *Views* has scores and prices as columns.",
}
DEFAULT_EXPERIMENT = "0"  # which MLflow makes in every store, and nothing here uses

SWEEP_TAG = "sweeper.sweep"  # the name of the folder
ID_TAG = "sweeper.sweep_id"  # which runs of earlier versions have not
TRIAL_TAG = "sweeper.trial"
REHEARSAL_TAG = "sweeper.rehearsal"  # of the runs that are none of a trial
PARENT_TAG = "mlflow.parentRunId"
REHEARSALS = "rehearsals"  # the run above those of all rehearsals, so that trials stand alone below the sweep

METRICS_PER_BATCH = 800  # MLflow takes a thousand of all kinds at once,
OTHERS_PER_BATCH = 100  # and so many of each other kind

DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # the outbox tries again
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where the runs of one sweep go."""

    uri: str  # any MLflow tracking URI
    experiment: str
    sweep: str  # the name of its folder
    artifacts: str | None = None  # URI of the folder for a new experiment's artifacts; the server decides if ``None``
    id: str | None = None  # of the sweep, ``None`` for one of an earlier version
    columns: Sequence[str] = ()  # metrics that the list of runs shows, where they are known

    @classmethod
    def of(
        cls,
        folder: Path,
        experiment: str,
        uri: str | None = None,
        id_: str | None = None,
        columns: Sequence[str] = (),
    ) -> "Destination":
        """Return the destination of a sweep folder: the given URI, or the SQLite store of all sweeps beside it."""
        folder = folder.resolve()
        uri = uri or f"sqlite:///{own_store(folder)}"
        return cls(
            uri=uri,
            experiment=experiment,
            sweep=folder.name,
            artifacts=artifacts_beside(uri),
            id=id_,
            columns=tuple(columns),
        )

    @property
    def tags(self) -> dict[str, str]:
        """The tags of every run of the sweep."""
        own = {} if self.id is None else {ID_TAG: self.id}
        return {SWEEP_TAG: self.sweep, **own, "mlflow.source.name": "sweeper"}


def own_store(folder: Path) -> Path:
    """Return the SQLite store of a sweep folder: beside it, or in it, where earlier versions had one for each sweep."""
    inside = folder / STORE_NAME
    return inside if inside.is_file() else folder.parent / STORE_NAME


def artifacts_beside(uri: str) -> str | None:
    """Return the folder of artifacts beside a SQLite store, None for others: servers have places of their own."""
    scheme, _, path = uri.partition(":///")
    return (Path(path).resolve().parent / ARTIFACTS_NAME).as_uri() if scheme == "sqlite" and path else None


class Store:
    """An MLflow store that takes the rows of one sweep; the same row twice does no harm."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._client: MlflowClient | None = None
        self._experiment = ""
        self.run_ids: dict[str | None, str] = {}
        self._rehearsals: dict[str, str] = {}  # runs by configuration
        self.refused: list[str] = []

    def deliver(self, rows: JsonRows) -> None:
        """Write rows run by run, each in as few calls as it takes; files last, which a store may have no room for.

        Raises:
            Exception: whatever MLflow raises when the store cannot be used; the rows must come again.
        """
        told: dict[str | None, list[TrackingRow]] = defaultdict(list)
        files, rehearsals = [], []
        for row in map(row_from_json, rows):
            if isinstance(row, ArtifactRow | TextRow):
                files.append(row)
            elif isinstance(row, RehearsalRow):
                rehearsals.append(row)
            else:
                told[row.trial].append(row)
        try:
            client = self._client or self._connect()
            for about in told.values():
                self._write(client, about)
            for rehearsal in rehearsals:
                self._write_rehearsal(client, rehearsal)
            for rehearsal in rehearsals[-1:]:
                client.set_terminated(self._rehearsals[REHEARSALS], RUN_STATUS[TrialStatus.COMPLETED], rehearsal.at)
            for file in files:
                self._attach(client, file)
        except BaseException:
            self._client = None  # look again at what is there: a call may have failed after it was heard
            raise

    def _connect(self) -> "MlflowClient":
        prepare_mlflow()
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        wanted = self._destination
        with _alone(wanted.uri):
            client = MlflowClient(tracking_uri=wanted.uri)
            experiment = client.get_experiment_by_name(wanted.experiment)
            self._experiment = (
                experiment.experiment_id
                if experiment
                else client.create_experiment(wanted.experiment, wanted.artifacts, tags=EXPERIMENT_TAGS)
            )
            if wanted.columns and VIEW_TAG not in (experiment.tags if experiment else {}):
                with contextlib.suppress(MlflowException):  # a store that takes no view takes runs
                    client.set_experiment_tag(self._experiment, VIEW_TAG, results_view(wanted.columns))
        self.run_ids |= runs_by_trial(client, self._experiment, wanted)
        self._rehearsals |= runs_by_rehearsal(client, self._experiment, wanted)
        self._client = client
        return client

    def _run(
        self, client: "MlflowClient", trial: str | None, at: int, name: str | None = None, user: str | None = None
    ) -> str:
        """Return the run of a trial, made if need be; who resumes a sweep has not made its runs."""
        if trial not in self.run_ids:
            tags = self._destination.tags | ({USER_TAG: user} if user else {})
            if trial is not None:
                tags |= {TRIAL_TAG: trial, PARENT_TAG: self._run(client, None, at)}
            run = client.create_run(self._experiment, at, tags, run_name=name or trial or self._destination.sweep)
            self.run_ids[trial] = run.info.run_id
        return self.run_ids[trial]

    def _write(self, client: "MlflowClient", rows: Sequence[TrackingRow]) -> None:
        """Write the rows of one run; of its states the last one."""
        tagged = [row.tags for row in rows if isinstance(row, RunRow | TagsRow | EndRow)]
        tags = {clean(key): str(value) for one in tagged for key, value in one.items()}
        name, user, trial = tags.pop(NAME_TAG, None), tags.pop(USER_TAG, None), rows[0].trial
        is_new = trial not in self.run_ids
        run = self._run(client, trial, rows[0].at, name, user)
        stands = next((row for row in reversed(rows) if isinstance(row, RunRow | EndRow)), None)
        again = {"status": "RUNNING"} if isinstance(stands, RunRow) else {}
        if not is_new and (again or name is not None):
            client.update_run(run, name=name, **again)
        for row in rows:
            if isinstance(row, DatasetRow):
                client.log_inputs(run, [_dataset(row)])
        self._log_all(client, run, rows, tags)
        if isinstance(stands, EndRow):
            client.set_terminated(run, stands.status, stands.at)

    def _write_rehearsal(self, client: "MlflowClient", row: RehearsalRow) -> None:
        """Write the run of a rehearsed configuration, which has the tag of a rehearsal and none of a trial."""
        from mlflow.entities import Metric, Param, RunTag

        run = self._rehearsal_run(client, row.configuration, row, row.name)
        metrics = [Metric(name, float(x), row.at, step) for step, one in row.metrics for name, x in one.items()]
        batches = zip_longest(
            _chunks(metrics, METRICS_PER_BATCH),
            _chunks([Param(*item) for item in row.params.items()], OTHERS_PER_BATCH),
            _chunks([RunTag(clean(key), text[:MAX_TAG_LENGTH]) for key, text in row.tags.items()], OTHERS_PER_BATCH),
            fillvalue=(),
        )
        for some, params, labels in batches:
            self._log(client, run, metrics=some, params=params, tags=labels)
        client.set_terminated(run, row.status, row.at)

    def _rehearsal_run(self, client: "MlflowClient", id_: str, row: RehearsalRow, name: str) -> str:
        """Return the run of a rehearsed configuration, or the one above them all, made if need be."""
        if id_ not in self._rehearsals:
            above = (
                self._run(client, None, row.at)
                if id_ == REHEARSALS
                else self._rehearsal_run(client, REHEARSALS, row, REHEARSALS)
            )
            tags = self._destination.tags
            tags |= {REHEARSAL_TAG: id_, PARENT_TAG: above}
            tags |= {USER_TAG: row.tags[USER_TAG]} if USER_TAG in row.tags else {}
            self._rehearsals[id_] = client.create_run(self._experiment, row.at, tags, run_name=name).info.run_id
        return self._rehearsals[id_]

    def _log_all(self, client: "MlflowClient", run: str, rows: Sequence[TrackingRow], tags: Mapping[str, str]) -> None:
        from mlflow.entities import Param, RunTag

        home = f"#/experiments/{self._experiment}/runs/{run}/artifacts/"
        texts = {key: value.replace(ARTIFACT_LINK, home)[:MAX_TAG_LENGTH] for key, value in tags.items()}
        batches = zip_longest(
            _chunks([one for row in rows if isinstance(row, MetricsRow) for one in _metrics(row)], METRICS_PER_BATCH),
            _chunks(
                [Param(*item) for row in rows if isinstance(row, RunRow) for item in row.params.items()],
                OTHERS_PER_BATCH,
            ),
            _chunks([RunTag(*item) for item in texts.items()], OTHERS_PER_BATCH),
            fillvalue=(),
        )
        for metrics, params, labels in batches:
            self._log(client, run, metrics=metrics, params=params, tags=labels)

    def _attach(self, client: "MlflowClient", row: ArtifactRow | TextRow) -> None:
        if isinstance(row, TextRow):
            client.log_text(self._run(client, row.trial, row.at), row.text, row.name)
        elif Path(row.path).exists():
            client.log_artifact(self._run(client, row.trial, row.at), row.path)
        else:
            self.refused.append(f"{row.path} does not exist")

    def _log(
        self,
        client: "MlflowClient",
        run: str,
        *,
        metrics: Sequence[Any] = (),
        params: Sequence[Any] = (),
        tags: Sequence[Any] = (),
    ) -> None:
        """Write a batch, or do without what the store will never take: a parameter that has changed."""
        from mlflow.exceptions import MlflowException

        try:
            client.log_batch(run, metrics, params, tags)
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            kinds = {"metrics": metrics, "params": params, "tags": tags}
            parts = [{kind: items} for kind, items in kinds.items() if items]
            if len(parts) == 1:
                parts = [{"params": [one]} for one in params]
            if len(parts) > 1:
                for part in parts:
                    self._log(client, run, **part)
            else:
                self.refused.append(one_line(error))


def runs_by_trial(client: "MlflowClient", experiment: str, wanted: Destination) -> dict[str | None, str]:
    """Return the runs of a sweep by trial, ``None`` for the sweep's own; those of rehearsals are not among them."""
    runs = _runs_of_sweep(client, experiment, wanted)
    return {run.data.tags.get(TRIAL_TAG): run.info.run_id for run in runs if REHEARSAL_TAG not in run.data.tags}


def runs_by_rehearsal(client: "MlflowClient", experiment: str, wanted: Destination) -> dict[str, str]:
    """Return the runs of a sweep's rehearsals by configuration, and that above them all under `REHEARSALS`."""
    runs = _runs_of_sweep(client, experiment, wanted, f" AND tags.`{REHEARSAL_TAG}` LIKE '%'")
    return {run.data.tags[REHEARSAL_TAG]: run.info.run_id for run in runs}


def _runs_of_sweep(client: "MlflowClient", experiment: str, wanted: Destination, which: str = "") -> list[Any]:
    """Return the runs of a sweep, and none of another one whose folder has the same name."""
    quote = '"' if "'" in wanted.sweep else "'"
    runs = every_run(client, experiment, f"tags.`{SWEEP_TAG}` = {quote}{wanted.sweep}{quote}{which}")
    return [run for run in runs if run.data.tags.get(ID_TAG) == wanted.id]


def every_run(client: "MlflowClient", experiment: str, query: str) -> list[Any]:
    """Return the runs that a query finds, page by page."""
    page = client.search_runs([experiment], query)
    runs = list(page)
    while page.token:
        page = client.search_runs([experiment], query, page_token=page.token)
        runs += page
    return runs


def prepare_mlflow() -> None:
    """Telemetry off, few retries, and silence about what is no news, unless the user has set it otherwise."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", message="The ``noload`` loader strategy", category=DeprecationWarning)
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    logging.getLogger("urllib3.connectionpool").addFilter(_not_from_an_outbox)


def _not_from_an_outbox(record: logging.LogRecord) -> bool:
    return not (record.threadName or "").startswith("outbox ")


@contextlib.contextmanager
def _alone(uri: str) -> Iterator[None]:
    """Let one process at a time look into a SQLite store; make it first if there is none.

    Two that make the tables of one file at once break it. Of a server nothing is known.
    """
    scheme, _, path = uri.partition(":///")
    if scheme != "sqlite" or not path:
        yield
        return
    store = Path(path)
    store.parent.mkdir(parents=True, exist_ok=True)
    with store.with_name(f".{store.name}.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not store.is_file():
            _make(store)
        yield


def _make(store: Path) -> None:
    """Make a store with all its tables and no experiment; who is killed meanwhile leaves none, not a part of one."""
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory(dir=store.parent, prefix=f".{store.name}-") as folder:
        made = Path(folder) / store.name
        MlflowClient(tracking_uri=f"sqlite:///{made}").delete_experiment(DEFAULT_EXPERIMENT)
        made.replace(store)


def _dataset(row: DatasetRow) -> "DatasetInput":
    from mlflow.entities import Dataset, DatasetInput, InputTag

    told = Dataset(row.name, row.digest, "sweeper", json.dumps({"name": row.name}), profile=json.dumps(row.facts))
    return DatasetInput(told, [InputTag("mlflow.data.context", "training")])


def _metrics(row: MetricsRow) -> "list[Metric]":
    from mlflow.entities import Metric

    return [Metric(name, float(value), row.at, row.step) for name, value in row.metrics.items()]


def _chunks(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
