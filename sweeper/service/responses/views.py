"""What the service says of a sweep, as JSON values: its status, its front, its points."""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeper.errors import RecordError, UnknownSweepError
from sweeper.records import TrialStatus
from sweeper.results.front import Front, read_front
from sweeper.service.cache import SharedCache
from sweeper.service.problems import Redactor
from sweeper.service.supervision.supervisor import SupervisedStatus
from sweeper.store.jsonl import plain
from sweeper.store.sweep_folder import SweepFolder, point_to_json
from sweeper.store.tail import SweepTail

KEPT_TAILS = 16
NO_FRONT = "Expected a sweep that has a front, but this one has none yet; let a trial finish its first epoch"


def listed(name: str, folder: Path, standing: SupervisedStatus, redact: Redactor) -> dict[str, Any]:
    """Return one row of the list of sweeps."""
    try:
        manifest = SweepFolder(folder).read_manifest()
    except RecordError:
        manifest = None
    return {
        "id": name,
        "name": None if manifest is None else manifest.name,
        "state": standing.state.value,
        "status": None if manifest is None else manifest.status.value,
        "reason": redact(standing.trouble or ("" if manifest is None else manifest.reason)),
        "submitted": None if standing.submission is None else standing.submission.submitted,
    }


def status(folder: SweepFolder, summary: Mapping[str, Any] | None, redact: Redactor) -> dict[str, Any]:
    """Return what ``sweep.json`` says that may be shown, and the front in numbers.

    Raises:
        RecordError: ``sweep.json`` cannot be read.
    """
    content = folder.read_manifest().to_json()
    keys = ("name", "status", "reason", "spec", "spec_hash", "versions", "started", "population")
    return {**{key: redacted(content[key], redact) for key in keys}, "front": summary}


def redacted(value: Any, redact: Redactor) -> Any:
    """Return JSON values without folders of this machine in their texts."""
    if isinstance(value, Mapping):
        return {key: redacted(inner, redact) for key, inner in value.items()}
    if isinstance(value, list):
        return [redacted(inner, redact) for inner in value]
    return redact(value) if isinstance(value, str) else value


def front_content(folder: SweepFolder) -> dict[str, Any]:
    """Return the front as ``front.json`` has it, with its own points only, and their trials.

    Raises:
        UnknownSweepError: there is no front yet.
        RecordError: it cannot be read.
    """
    return _content(_alone(_front(folder)))


def summary(folder: SweepFolder) -> dict[str, Any] | None:
    """Return the front in numbers, None where there is none yet.

    Raises:
        RecordError: it cannot be read.
    """
    if not folder.front.is_file():
        return None
    front = _front(folder)
    content = _content(_alone(front))
    return {
        "objectives": content["objectives"],
        "trials": dict(Counter(trial.status for trial in front.trials.values())),
        "points": len(front.points),
        "front_points": len(front.on_front),
        "hypervolume": front.hypervolume,
        "knee": content["knee"],
        "ledger": content["ledger"],
        "exploratory": front.claim.exploratory,
    }


def front_csv(folder: SweepFolder) -> str:
    """Return the points of the front as CSV; the errors are those of `front_content`."""
    return _alone(_front(folder)).to_csv()


def points_csv(folder: SweepFolder) -> str:
    """Return every point as CSV, with its trial's configuration; the errors are those of `front_content`."""
    return _front(folder).to_csv()


class Points:
    """The points of sweeps, followed as they grow; safe to use from several threads."""

    def __init__(self) -> None:
        self._tails: SharedCache[tuple[threading.Lock, SweepTail]] = SharedCache(KEPT_TAILS)

    def rows(self, folder: SweepFolder) -> list[dict[str, Any]]:
        """Return every point as JSON values, in the order in which they arrived.

        Raises:
            RecordError: they cannot be read.
        """
        lock, tail = self._tails.get(folder.path, lambda: (threading.Lock(), SweepTail(folder)))
        with lock:
            tail.look()
            return [point_to_json(point) for point in tail.points.values()]


def has_ended(row: Mapping[str, Any]) -> bool:
    """Whether a row of trials says that the trial has ended."""
    return row.get("status") != TrialStatus.RUNNING.value


def _front(folder: SweepFolder) -> Front:
    if not folder.front.is_file():
        raise UnknownSweepError(NO_FRONT)
    return read_front(folder.front)


def _content(front: Front) -> dict[str, Any]:
    content: dict[str, Any] = plain(front.to_json())
    return content


def _alone(front: Front) -> Front:
    """The front without the points that are not on it."""
    points = tuple(point for point in front.points if point.key in front.on_front)
    kept = {point.trial for point in points}
    return replace(front, points=points, trials={id_: trial for id_, trial in front.trials.items() if id_ in kept})
