"""Notes and tags that people give to trials: written to the sweep's folder and sent to MLflow."""

import re
from datetime import UTC, datetime
from pathlib import Path

from sweeper.errors import RecordError, SweeperError
from sweeper.store.jsonl import append_alone
from sweeper.store.manifest import Manifest
from sweeper.store.notes import NOTES_NAME, read_notes
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.client import destination_of, set_tags
from sweeper.tracking.names import NOTE_TAG, clean

MAX_LENGTH = 5000
_KEY = re.compile(r"[\w.-][\w. /-]{0,99}")
_RESERVED = ("mlflow.", "sweeper.")


def add_note(folder: Path, trial: str, text: str) -> str | None:
    """Write a note about a trial, and send all of the trial's notes to its MLflow run.

    Returns:
        Why MLflow does not have it, ``None`` if it does.

    Raises:
        RecordError: no such trial, no text, or not written.
    """
    note = " ".join(text.split())
    if not 0 < len(note) <= MAX_LENGTH:
        raise RecordError(f"Expected a note of 1 to {MAX_LENGTH} characters, got {len(note)}")
    manifest = _append(folder, trial, {"note": note})
    return _send(folder, manifest, trial, {NOTE_TAG: "\n\n".join(read_notes(folder)[trial].texts)})


def add_tag(folder: Path, trial: str, key: str, value: str) -> str | None:
    """Write a tag of a trial, and set it on its MLflow run; the last value of a key counts.

    A key has letters, digits, spaces and ``_ . - /``; it is not one of MLflow's or of this program.

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
    manifest = _append(folder, trial, {"key": key, "value": value})
    return _send(folder, manifest, trial, {key: value})


def _append(folder: Path, trial: str, content: dict[str, str]) -> Manifest:
    sweep = SweepFolder(folder)
    manifest = sweep.read_manifest()
    trials = sweep.trials()
    if trial not in trials:
        known = f"{next(iter(trials))} to {list(trials)[-1]}" if trials else "none yet"
        raise RecordError(f"Expected a trial of {folder}, got {trial!r}; it has {known}")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    append_alone(folder / NOTES_NAME, {"trial": trial, "at": now, **content}, durable=True)
    return manifest


def _send(folder: Path, manifest: Manifest, trial: str, tags: dict[str, str]) -> str | None:
    try:
        set_tags(destination_of(folder, manifest), trial, tags)
    except SweeperError as error:
        return str(error)
    return None
