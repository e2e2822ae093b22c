"""What the service says of a sweep, as JSON values: its status, its front, its points."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from clipless import datasets
from clipless.datasets import Evaluation
from sweeper.adapters import dump
from sweeper.errors import RecordError, UnknownSweepError
from sweeper.records import PointKey, TrialStatus
from sweeper.results.display import trial_rows
from sweeper.results.estimates import estimate_points
from sweeper.results.front import newer_prices, read_front, says_older
from sweeper.results.front_record import SCHEMA_VERSION, csv_text
from sweeper.results.rehearsal_ranking import ranked_rehearsals
from sweeper.service.cache import SharedCache
from sweeper.service.problems import Redactor
from sweeper.service.responses.models import (
    ActionList,
    ActionRow,
    DataList,
    DataRow,
    FrontSummary,
    RehearsalList,
    RehearsedRow,
    SweepDetail,
    SweepRow,
    TableRow,
    TrialTable,
)
from sweeper.service.security.declared_tables import list_tables
from sweeper.service.supervision.states import Standing
from sweeper.store.actions import owner_of, read_actions
from sweeper.store.evidence import read_refusals
from sweeper.store.jsonl import plain, read_object
from sweeper.store.manifest import told_spec
from sweeper.store.sweep_folder import SweepFolder
from sweeper.store.tail import SweepTail

KEPT_TAILS = 16
NO_FRONT = "Expected a sweep that has a front, but this one has none yet; let a trial finish its first epoch"


def data_list(data_dir: Path | None) -> DataList:
    """Return what specs may name as data; reads no row."""
    return DataList(
        data=[DataRow(name=name, description=said) for name, said in datasets.available().items()],
        tables=[
            TableRow(
                path=path, ranges=file, evaluation=ranges.evaluation or Evaluation.PRIVATE, unit=ranges.unit or "row"
            )
            for path, file, ranges in list_tables(data_dir)
        ],
    )


def listed(name: str, folder: Path, standing: Standing, redact: Redactor, trouble: str = "") -> SweepRow:
    """Return one row of the list of sweeps; ``trouble`` is why it cannot be read, where it cannot."""
    try:
        manifest = SweepFolder(folder).read_manifest()
    except RecordError:
        manifest = None
    return SweepRow(
        id=name,
        name=None if manifest is None else manifest.name,
        state=standing.state,
        status=None if manifest is None else manifest.status,
        reason=redact(trouble or standing.reason or ("" if manifest is None else manifest.reason)),
        submitted=None if standing.submission is None else standing.submission.submitted,
        by=owner_of(folder),
    )


def with_records(
    status: SweepDetail, folder: SweepFolder, summary: FrontSummary | None, redact: Redactor
) -> SweepDetail:
    """Return how a sweep stands with what ``sweep.json`` says that may be shown, and the front in numbers.

    Raises:
        RecordError: ``sweep.json`` cannot be read.
    """
    manifest = folder.read_manifest()
    said = {
        "name": manifest.name,
        "reason": manifest.reason,
        "spec": told_spec(manifest.spec),
        "spec_hash": manifest.spec_hash,
        "versions": manifest.versions,
        "started": manifest.started,
        "population": manifest.population,
    }
    return status.model_copy(update={**redacted(said, redact), "status": manifest.status, "front": summary})


def redacted(value: Any, redact: Redactor) -> Any:
    """Return JSON values without folders of this machine in their texts."""
    if isinstance(value, Mapping):
        return {key: redacted(inner, redact) for key, inner in value.items()}
    if isinstance(value, list):
        return [redacted(inner, redact) for inner in value]
    return redact(value) if isinstance(value, str) else value


def front_content(folder: SweepFolder) -> dict[str, Any]:
    """Return ``front.json`` with the points of the front only, and their trials.

    Raises:
        UnknownSweepError: there is no front yet.
        RecordError: it cannot be read.
    """
    content = _front_file(folder)
    try:
        points = [point for point in content["points"] if point["on_front"]]
        kept = {point["trial"] for point in points}
        trials = {id_: trial for id_, trial in content["trials"].items() if id_ in kept}
        ledger = _prices(folder, content)
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"Expected a front in {folder.front}; write the front again") from error
    return {**content, "points": points, "of_points": len(content["points"]), "trials": trials, "ledger": ledger}


def summary(folder: SweepFolder) -> FrontSummary | None:
    """Return the front in numbers, None where there is none yet.

    Raises:
        RecordError: it cannot be read.
    """
    if not folder.front.is_file():
        return None
    content = _front_file(folder)
    try:
        return FrontSummary(
            objectives=content["objectives"],
            trials=Counter(trial["status"] for trial in content["trials"].values()),
            points=len(content["points"]),
            front_points=sum(bool(point["on_front"]) for point in content["points"]),
            hypervolume=content["hypervolume"]["value"],
            hypervolume_interval=content["hypervolume"].get("interval"),
            knee=content.get("knee"),
            ledger=_prices(folder, content),
            exploratory=content["claim"]["exploratory"],
        )
    except (KeyError, TypeError, AttributeError, ValidationError) as error:
        raise RecordError(f"Expected a front in {folder.front}; write the front again") from error


def rehearsals(folder: SweepFolder) -> RehearsalList:
    """Return the configurations that were rehearsed, best first; none of a sweep without rehearsals.

    Raises:
        RecordError: they cannot be read.
    """
    course = folder.read_manifest().course
    rows = [
        RehearsedRow(
            configuration=one.id,
            place=one.place,
            epoch=None if one.best is None else one.best.epoch,
            made_from="" if one.best is None else one.best.made_from,
            values={} if one.best is None else one.best.values,
            hypervolume=one.volume,
            trials=one.trials,
            reason=one.configuration.reason,
            config=one.configuration.config,
        )
        for one in ranked_rehearsals(folder)
    ]
    return RehearsalList(rehearsed_on=course.rehearsed_on.in_words, planned=course.rehearsals, rehearsals=rows)


def actions(folder: Path) -> ActionList:
    """Return what people did to a sweep, oldest first.

    Raises:
        RecordError: the records of it cannot be read.
    """
    return ActionList(
        actions=[
            ActionRow(by=one.by, at=one.at, kind=one.kind, trial=one.trial, detail=one.detail)
            for one in read_actions(folder)
        ]
    )


def front_csv(folder: SweepFolder) -> str:
    """Return the points of the front as CSV.

    Raises:
        UnknownSweepError: there is no front yet.
        RecordError: it cannot be read.
    """
    _front_file(folder)
    return csv_text([row for row in read_front(folder.front).rows() if row["on_front"]])


def points_csv(folder: SweepFolder) -> str:
    """Return every point of the front file as CSV, with its trial's configuration.

    Raises:
        UnknownSweepError: there is no front yet.
        RecordError: it cannot be read.
    """
    _front_file(folder)
    return read_front(folder.front).to_csv()


def trial_table(folder: SweepFolder) -> TrialTable:
    """Return one row per trial of the front file, see `sweeper.results.display.trial_rows`.

    Raises:
        UnknownSweepError: there is no front yet.
        RecordError: it cannot be read.
    """
    _front_file(folder)
    return TrialTable(trials=list(trial_rows(read_front(folder.front))))


def is_admitted(folder: SweepFolder, point: PointKey) -> bool:
    """Whether a point is on the front, which no point is that an audit refuses.

    Raises:
        UnknownSweepError: there is no front yet.
        RecordError: it, or the evidence of audits, cannot be read.
    """
    if not folder.front.is_file():
        raise UnknownSweepError(NO_FRONT)
    return point in read_front(folder.front).on_front


class Points:
    """The points of sweeps, followed as they grow; safe to use from several threads."""

    def __init__(self) -> None:
        self._tails: SharedCache[tuple[threading.Lock, SweepTail]] = SharedCache(KEPT_TAILS)

    def rows(self, folder: SweepFolder) -> list[dict[str, Any]]:
        """Return every point as JSON values, in the order in which they arrived.

        Raises:
            RecordError: they cannot be read.
        """
        return self.page(folder, 0, None)[0]

    def page(self, folder: SweepFolder, offset: int, limit: int | None) -> tuple[list[dict[str, Any]], int]:
        """Return so many points from the offset on, all without a limit, and how many there are in all.

        Raises:
            RecordError: they cannot be read.
        """
        lock, tail = self._tails.get(folder.path, lambda: (threading.Lock(), SweepTail(folder)))
        with lock:
            tail.look()
            stages = folder.read_manifest().course.stages
            points = estimate_points(tail.points.values(), tail.trials, stages)
        last = None if limit is None else offset + limit
        return [dump(point) for point in points[offset:last]], len(points)


def has_ended(row: Mapping[str, Any]) -> bool:
    """Whether a row of trials says that the trial has ended."""
    return row.get("status") != TrialStatus.RUNNING.value


def _prices(folder: SweepFolder, content: Mapping[str, Any]) -> Any:
    written = content["ledger"]
    delta = next((float(answer["delta"]) for answer in written.values()), None)
    newer = None if delta is None else newer_prices(folder.ledger, content.get("ledger_entries"), delta)
    if newer is None:
        return written
    unproven = {question: answer.get("unproven") for question, answer in written.items()}
    return {name: dump(replace(price, unproven=unproven.get(name))) for name, price in newer.items()}


def _front_file(folder: SweepFolder) -> dict[str, Any]:
    if not folder.front.is_file():
        raise UnknownSweepError(NO_FRONT)
    content = read_object(folder.front)
    if content.get("schema_version") != SCHEMA_VERSION:
        raise RecordError(
            f"Expected schema_version {SCHEMA_VERSION} in {folder.front}; read it with the version that wrote it"
        )
    if read_refusals(folder.path).keys() <= content.get("refused", {}).keys() and not says_older(content):
        return content
    stated: dict[str, Any] = plain(read_front(folder.front).to_json())  # audits may have refused more since
    return stated
