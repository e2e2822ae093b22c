"""Tracking: the only door to MLflow.

One experiment per sweep name, one parent run per sweep, one child run per trial, found or created by their
tags, so that nothing is written twice when rows come again. Everything goes through an outbox: a store that
is slow, out of reach or broken neither fails nor delays a trial. MLflow is imported, and a new SQLite store
made, in the outbox's thread: together they take four seconds of one processor.
"""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from sweeper.errors import RecordError, SweeperError, one_line
from sweeper.program import program
from sweeper.records import SweepStatus, TrialStatus
from sweeper.store.jsonl import JsonlFile
from sweeper.store.lock import undriven
from sweeper.store.rehearsal_records import RehearsedConfiguration
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
    row_to_json,
)
from sweeper.tracking.names import (
    PAGE_VARIABLE,
    RUN_STATUS,
    clean,
    mlflow_params,
    rehearsal_metrics,
    rehearsal_name,
    user_tag,
)
from sweeper.tracking.outbox import Outbox, Undelivered, ahead_of, stored_rows
from sweeper.tracking.store import Destination, Store, artifacts_beside

SPOOL_NAME = "tracking-spool.jsonl"


class Tracker:
    """Tells MLflow about one sweep. No method fails, and only ``close`` waits.

    Args:
        uri: of the store; the SQLite file beside the folder if ``None``.
        id_: of the sweep; ``None`` for one of an earlier version.
        columns: metrics that the store shows in its list of runs.
        waits: whether the store is not asked before ``deliver``.
    """

    def __init__(
        self,
        folder: Path,
        experiment: str,
        *,
        uri: str | None = None,
        id_: str | None = None,
        columns: Sequence[str] = (),
        params: Mapping[str, object] | None = None,
        tags: Mapping[str, str] | None = None,
        waits: bool = False,
    ) -> None:
        self.destination = Destination.of(folder, experiment, uri, id_, columns)
        self._store = Store(self.destination)
        self._outbox = Outbox(self._store.deliver, folder / SPOOL_NAME, {"op": "sweep", **asdict(self.destination)})
        self._running: dict[str, None] = {}
        self._user = user_tag(folder)
        self._data: DatasetRow | None = None
        told = self._user | dict(tags or {})
        self._put(RunRow(trial=None, at=_now(), params=mlflow_params(params or {}), tags=told))
        if not waits:
            self.deliver()

    def deliver(self) -> None:
        """Begin to tell the store, which takes seconds of a processor."""
        self._outbox.start()

    def withdraw(self) -> None:
        """Tell the store nothing of this run, if it was told nothing yet and rows of no earlier run wait."""
        self._outbox.withdraw()

    def start_trial(self, trial: str, params: Mapping[str, object], tags: Mapping[str, str]) -> None:
        """Open the trial's run, with its parameters nested as in the spec."""
        self._running[trial] = None
        self._put(RunRow(trial=trial, at=_now(), params=mlflow_params(params), tags=self._user | dict(tags)))
        if self._data is not None:
            self._put(replace(self._data, trial=trial))

    def log(self, trial: str | None, epoch: int, metrics: Mapping[str, float]) -> None:
        """Write metrics of one epoch of a trial, or of the sweep, under names as ``metric_names`` makes."""
        cleaned = {clean(name): value for name, value in metrics.items()}
        self._put(MetricsRow(trial=trial, at=_now(), step=epoch, metrics=cleaned))

    def tag(self, trial: str | None, tags: Mapping[str, str]) -> None:
        """Set tags of a trial, or of the sweep."""
        self._put(TagsRow(trial=trial, at=_now(), tags=dict(tags)))

    def end_trial(self, trial: str, status: TrialStatus, reason: str = "") -> None:
        """End the trial's run; its metrics may still be added to."""
        self._running.pop(trial, None)
        self._end(trial, status, reason)

    def rehearsal(self, configuration: RehearsedConfiguration) -> None:
        """Tell of a configuration that was rehearsed: a run beside those of the trials, marked as none of them."""
        steps: dict[int, dict[str, float]] = {}
        for epoch in configuration.epochs:
            named = rehearsal_metrics(epoch.values, epoch.made_from)
            steps.setdefault(epoch.epoch, {}).update({clean(name): value for name, value in named.items()})
        status = TrialStatus.COMPLETED if configuration.epochs else TrialStatus.FAILED
        reason = {"sweeper.reason": configuration.reason} if configuration.reason else {}
        row = RehearsalRow(
            trial=None,
            at=_now(),
            configuration=configuration.id,
            name=rehearsal_name(configuration.id, configuration.config),
            params=mlflow_params(configuration.config),
            tags={
                **self._user,
                "sweeper.rehearsed_on": configuration.source.in_words,
                "sweeper.status": status.value,
                **reason,
            },
            metrics=sorted(steps.items()),
            status=RUN_STATUS[status],
        )
        self._put(row)

    def artifact(self, path: Path) -> None:
        """Attach a file, as it is when the store takes it, to the sweep's run."""
        self._put(ArtifactRow(trial=None, at=_now(), path=str(path.resolve())))

    def text(self, name: str, text: str) -> None:
        """Attach a text as a file of this name to the sweep's run."""
        self._put(TextRow(trial=None, at=_now(), name=name, text=text))

    def dataset(self, name: str, digest: str, facts: Mapping[str, object]) -> None:
        """Tell what the sweep and every trial that starts learn from: public facts alone, and a digest of them."""
        self._data = DatasetRow(trial=None, at=_now(), name=name, digest=digest, facts=dict(facts))
        self._put(self._data)

    def run_id(self, trial: str | None = None) -> str | None:
        """Return the MLflow run of a trial, or of the sweep, once there is one."""
        return self._store.run_ids.get(trial)

    @property
    def refused(self) -> Sequence[str]:
        """What the store will never take, and why; nothing waits for it."""
        return (*self._outbox.set_aside, *self._store.refused)

    def close(
        self, status: SweepStatus = SweepStatus.COMPLETED, reason: str = "", *, timeout_seconds: float = 30.0
    ) -> Undelivered:
        """End every run, trials that still run as killed; return what the store has not taken."""
        for trial in list(self._running):
            self.end_trial(trial, TrialStatus.RUNNING, "the sweep ended")
        self._end(None, status, reason)
        return self._outbox.close(timeout_seconds)

    def _end(self, trial: str | None, status: TrialStatus | SweepStatus, reason: str) -> None:
        tags = {"sweeper.status": status.value} | ({"sweeper.reason": reason} if reason else {})
        self._put(EndRow(trial=trial, at=_now(), status=RUN_STATUS[status], tags=tags))

    def _put(self, row: TrackingRow) -> None:
        self._outbox.put(row_to_json(row))


def replay_spool(path: Path, uri: str | None = None) -> int:
    """Deliver the rows that wait in a spool file, and those a killed driver had not put there yet; delete both files.

    ``uri`` is another store than the one the rows were meant for.

    Returns:
        How many rows they were.

    Raises:
        RecordError: no file, not a spool, or one that a driver is writing.
        SweeperError: the store does not take the rows; the files are untouched.
    """
    with undriven(path.parent):
        files = [file for file in (path, ahead_of(path)) if file.exists()]
        headers = [row for file in files for row in JsonlFile(file).read()[:1]]
        if not headers or headers[0].pop("op", None) != "sweep":
            raise RecordError(f"Expected the rows of a sweep in {path}, got none; is it a tracking spool?")
        rows = [row for file in files for row in stored_rows(file)]
        destination = Destination(**(headers[0] | ({"uri": uri, "artifacts": artifacts_beside(uri)} if uri else {})))
        try:
            Store(destination).deliver(rows)
        except Exception as error:
            raise SweeperError(f"Cannot write to {destination.uri}: {one_line(error)}; {path} is kept") from error
        for file in files:  # the earlier rows first: the later ones alone do no harm if they are delivered again
            file.unlink()
    return len(rows)


def how_to_look(uri: str) -> str:
    """Return what to do to see the runs of a store, at the address for people that the environment gives."""
    if uri.startswith("http"):
        return f"open {os.environ.get(PAGE_VARIABLE) or uri}"
    return f"{program('mlflow')} ui --backend-store-uri {uri}"


def _now() -> int:
    return time.time_ns() // 1_000_000
