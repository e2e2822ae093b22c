"""Notes and tags that people give to trials: written to the sweep's folder and sent to MLflow, with its description.

A description says what a trial is in one look, for those who see its run alone: how it ended, its best points, notes.
Own epsilons hold for one training whose configuration and epoch were fixed in advance. Where a sweep releases its
winner alone, as a private selection does, none is told: it holds for no winner.
"""

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from sweeper.errors import RecordError, SweeperError
from sweeper.records import Objective, Point, SweepStatus
from sweeper.results.budgets import OWN, tells_own_epsilons
from sweeper.results.front import Front, read_front
from sweeper.results.highlights import best_by_trial, best_of_trial, score_by_split, test_text, value_text
from sweeper.store.actions import NOTES_NAME, signature
from sweeper.store.jsonl import append_alone
from sweeper.store.manifest import Manifest
from sweeper.store.notes import read_notes
from sweeper.store.sweep_folder import SweepFolder, unknown_trial
from sweeper.tracking.client import destination_of, set_tags
from sweeper.tracking.names import NOTE_TAG, clean, escape_markdown

MAX_LENGTH = 5000
_KEY = re.compile(r"[\w.-][\w. /-]{0,99}")
_RESERVED = ("mlflow.", "sweeper.")


def add_note(folder: Path, trial: str, text: str, *, by: str | None = None) -> str | None:
    """Write a note about a trial, and send all of the trial's notes to its MLflow run.

    ``by`` is who says it, as `sweeper.store.actions.signature` has it.

    Returns:
        Why MLflow does not have it, ``None`` if it does.

    Raises:
        RecordError: no such trial, no text, or not written.
    """
    note = " ".join(text.split())
    if not 0 < len(note) <= MAX_LENGTH:
        raise RecordError(f"Expected a note of 1 to {MAX_LENGTH} characters, got {len(note)}")
    manifest = _append(folder, trial, {"note": note}, by)
    return _send(folder, manifest, trial, {NOTE_TAG: _describe(folder, manifest, trial)})


def add_tag(folder: Path, trial: str, key: str, value: str, *, by: str | None = None) -> str | None:
    """Write a tag of a trial, and set it on its MLflow run; the last value of a key counts.

    A key has letters, digits, spaces and ``_ . - /``; it is not one of MLflow's or of this program. ``by`` is who sets
    it, as `sweeper.store.actions.signature` has it.

    Returns:
        Why MLflow does not have it, ``None`` if it does.

    Raises:
        RecordError: no such trial, such a key, or not written.

    Guarantees:
        Tags that this program reads back, such as that of an exploratory sweep, cannot be set under any spelling.
    """
    kept = clean(key)
    if not _KEY.fullmatch(key) or kept.startswith(_RESERVED):
        raise RecordError(
            f"Expected a key of letters, digits, spaces and _ . - / that does not begin with {' or '.join(_RESERVED)}, "
            f"got {key!r}"
        )
    if kept != key:
        raise RecordError(f"Expected a key as MLflow keeps it, got {key!r}; use {kept!r}")
    if len(value) > MAX_LENGTH:
        raise RecordError(f"Expected a value of at most {MAX_LENGTH} characters, got {len(value)}")
    manifest = _append(folder, trial, {"key": key, "value": value}, by)
    return _send(folder, manifest, trial, {key: value})


def _append(folder: Path, trial: str, content: dict[str, str], by: str | None) -> Manifest:
    sweep = SweepFolder(folder)
    manifest = sweep.read_manifest()
    trials = sweep.trials()
    if trial not in trials:
        raise unknown_trial(folder, trial, trials)
    append_alone(folder / NOTES_NAME, {"trial": trial, **signature(by), **content}, durable=True)
    return manifest


def _describe(folder: Path, manifest: Manifest, trial: str) -> str:
    """Return what MLflow shows of a trial: how it ended, as soon as the sweep has, and all of its notes."""
    texts = [str(one) for one in read_notes(folder)[trial].texts]
    path = SweepFolder(folder).front
    if manifest.status is not SweepStatus.RUNNING:
        with contextlib.suppress(RecordError):  # without a front that can be read there are the notes
            front = read_front(path)
            if trial in front.trials:
                return describe_trial(front, trial, notes=texts, page=manifest.page)
    return "\n\n".join(texts)


def _send(folder: Path, manifest: Manifest, trial: str, tags: dict[str, str]) -> str | None:
    try:
        set_tags(destination_of(folder, manifest), trial, tags)
    except SweeperError as error:
        return str(error)
    return None


def describe_trial(front: Front, trial: str, *, notes: Sequence[str] = (), page: str | None = None) -> str:
    """Return how a trial ended, its best points and what people noted of it.

    Args:
        front: of its sweep.
        trial: its id.
        notes: that people gave to it, oldest first.
        page: address of the sweep's live page.
    """
    return "\n\n".join([*_told(front, trial, page), *(["## Notes"] if notes else []), *notes]) + "\n"


def _told(front: Front, trial: str, page: str | None) -> Iterator[str]:
    record, points = front.trials[trial], [point for point in front.points if point.trial == trial]
    epochs = max((point.epoch for point in points), default=0)
    why = f": {escape_markdown(record.reason)}" if record.reason else ""
    if (found := best_of_trial(front, trial)) is not None:
        judged = next(one.name for one in front.objectives if one.name != "epsilon")
        yield f"**{score_by_split(found, judged, front.claim)}**: {found.label}."
    yield f"**{trial}** of {escape_markdown(front.sweep)}: {record.status} after {epochs} epochs{why}."
    if front.claim.exploratory:
        yield "**Exploratory: no guarantee.** The numbers below are no privacy guarantee."
    if points:
        yield _table(front, points)
    kept = sum(point.trial == trial for point in front.front_points)
    yield f"{kept} of its {len(points)} points are on the front of the sweep."
    if points and tells_own_epsilons(front):
        yield f"Own epsilon: of one training, {OWN}. The price of the sweep is in the description of its run."
    if page:
        yield f"[Live page of the sweep]({page})"


def _table(front: Front, points: Sequence[Point]) -> str:
    """The best point of a trial in each objective but epsilon, with its validation and test scores."""
    objectives = [one for one in front.objectives if one.name != "epsilon"]
    names = [one.name for one in objectives]
    own = ["own epsilon"] if tells_own_epsilons(front) else []
    tested = any(point.test for point in points)
    heads = ["", "epoch", *own, *names, *(f"test {name}" for name in names if tested)]
    rows = [heads, ["---"] * len(heads)]
    for one in objectives:
        found = best_by_trial(points, one).get(points[0].trial)
        if found is not None:
            rows.append(_row(found, one, names, own=bool(own), tested=tested))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(point: Point, judged: Objective, names: Sequence[str], *, own: bool, tested: bool) -> list[str]:
    values = [value_text(point, name) for name in names]
    tests = [test_text(point, name) for name in names if tested]
    epsilon = [value_text(point, "epsilon")] if own else []
    return [f"best {judged.name}", str(point.moment), *epsilon, *values, *tests]
