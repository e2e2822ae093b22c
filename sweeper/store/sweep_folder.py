"""The folder of one sweep and the rows in it.

``trials.jsonl`` and ``points.jsonl`` grow by one row per change, the last row of an id wins; ``decisions.jsonl`` by
one row per decision; ``sweep.json`` and ``front.json`` are replaced whole. There is one writer, the driver; others may
read at any time. Running trials keep their state under ``checkpoints``, from which they go on. ``failures.jsonl`` holds
whole errors, which may quote data, for the owner alone; everything else repeats what anybody may be told of them.

A private selection runs in a hidden folder. Until it has ended, everything that reads the folder of a sweep refuses it
here, by its name and by the mark in its ``sweep.json``, which copies of it carry too.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from sweeper.adapters import dump, read
from sweeper.errors import FAILURES_NAME, RecordError, UnknownTrialError
from sweeper.records import Point, PointKey, Trial, name_trial
from sweeper.store.jsonl import JsonlFile, append_alone
from sweeper.store.lock import DriverLock
from sweeper.store.manifest import MANIFEST_NAME, Manifest, is_marked, read_manifest, write_manifest
from sweeper.store.older_scores import restate

OWNER_ALONE = 0o600  # permissions of files that may quote data
HIDDEN = ".selecting-"  # how the names of folders begin in which a private selection runs
R = TypeVar("R", Trial, Point)


class DecisionRow(TypedDict):
    """What a scheduler decided about a trial, as `sweeper.schedulers.Decision` says."""

    trial: str
    epoch: int
    goes_on: bool
    reason: str
    rung: int | None
    rank: int | None
    of: int | None
    kept: int | None
    failed: bool


class SweepFolder:
    """Where a sweep lives. Rows that a full disk refuses are kept in memory and tried again later.

    It has more than fifteen methods because each file is written by one and read by one.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.spec = self.path / "spec.yaml"  # as it was given
        self.ledger = self.path / "ledger.jsonl"
        self.proposals = self.path / "proposals.jsonl"  # what the search was asked and told
        self.rehearsals = self.path / "rehearsals.jsonl"  # what configurations have shown before the first trial
        self.sketch = self.path / "sketch.json"  # a private sketch of the training rows, from which they are drawn
        self.front = self.path / "front.json"
        self._trials = JsonlFile(self.path / "trials.jsonl", patient=True)
        self._points = JsonlFile(self.path / "points.jsonl", patient=True)
        self._decisions = JsonlFile(self.path / "decisions.jsonl", patient=True)
        self._lock: DriverLock | None = None
        self.lacks_rows = False  # whether rows that an earlier driver wrote last may be lost
        self.is_copy = False  # or was put back from one
        self.is_first_of_copy = False  # whether nobody has driven that copy yet

    def drive(self, lock: DriverLock) -> None:
        """Drive the sweep: the lock is told how far the records are, and tells what became of earlier ones.

        Raises:
            RecordError: the folder for its models is lacking, as in a copy of files alone, and cannot be made.
        """
        models = self.path / "models"
        try:
            models.mkdir(exist_ok=True)
        except OSError as error:
            raise RecordError(f"Cannot make {models}: {error.strerror or error}; free space or check it") from error
        self._lock, self.lacks_rows, self.is_copy = lock, lock.rebooted, lock.copied
        self.is_first_of_copy = lock.is_first_of_copy

    def take_up(self) -> None:
        """Write down that the copy, if it is one, has an id of its own from now on."""
        if self._lock is not None:
            self._lock.take_up()

    def note(self) -> None:
        """Write down how far the records are, where this object drives the sweep."""
        if self._lock is not None:
            self._lock.note()

    @classmethod
    def create(cls, parent: str | Path, name: str, started: datetime) -> "SweepFolder":
        """Make ``parent/<name>-<YYYYmmdd-HHMMSS>``; a taken name gets a number behind it.

        Raises:
            RecordError: the folder cannot be made.
        """
        stem = f"{name}-{started:%Y%m%d-%H%M%S}"
        for number in range(1, 1000):
            path = Path(parent) / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir(parents=True)
                (path / "models").mkdir()
            except FileExistsError:
                continue
            except OSError as error:
                reason = error.strerror or error
                raise RecordError(f"Cannot make the folder {path}: {reason}; choose another with --out") from error
            return cls(path)
        raise RecordError(f"Cannot make a folder {stem} in {parent}: a thousand exist; choose another with --out")

    @property
    def trouble(self) -> str | None:
        """Why rows wait to be written, ``None`` when none do."""
        return self._trials.trouble or self._points.trouble or self._decisions.trouble

    def check_room(self) -> None:
        """Raise a `RecordError` while trials or points wait to be written: no room is there for what comes next."""
        for file in (self._trials, self._points):
            file.flush()
            if file.trouble is not None:
                raise RecordError(file.trouble)

    def check_points(self) -> None:
        """Raise a `RecordError` while points wait to be written: a driver that is killed now would lose them."""
        if self._points.trouble is not None:
            raise RecordError(self._points.trouble)

    @staticmethod
    def model_name(trial: str, epoch: int, made_from: str = "") -> str:
        """Return where the model of a point is saved, relative to the folder."""
        point = Point(trial=trial, epoch=epoch, made_from=made_from, values={})
        return f"models/{point.name}.safetensors"

    @staticmethod
    def checkpoint_name(trial: str, repeat: int = 0) -> str:
        """Return where the state of a training of a running trial is kept, relative to the folder."""
        return f"checkpoints/{trial}-{repeat}.safetensors"

    def forget_checkpoints(self, trial: str) -> None:
        """Remove the states of a trial that has ended."""
        for file in (self.path / "checkpoints").glob(f"{trial}-*"):
            file.unlink(missing_ok=True)

    def save_trial(self, trial: Trial) -> None:
        """Record how a trial stands."""
        self._trials.append(dump(trial))
        self.note()

    def save_points(self, points: Iterable[Point]) -> None:
        """Record points, or what more is known of them, at once."""
        self._points.append(*map(dump, points))
        self.note()

    def save_decision(self, decision: DecisionRow) -> None:
        """Record what a scheduler decided about a trial, and why."""
        self._decisions.append(decision)

    def decisions(self) -> list[DecisionRow]:
        """Return what schedulers decided, in that order."""
        return cast(list[DecisionRow], self._decisions.read())

    def save_failure(self, error: str, trial: str | None = None) -> None:
        """Keep the whole of an error where the owner of the data alone can read it; a full disk is no other error."""
        row = {"trial": trial, "error": error}
        with contextlib.suppress(RecordError):
            if self.failures()[-1:] != [row]:  # told by the run and by its command
                append_alone(self.path / FAILURES_NAME, row, mode=OWNER_ALONE)

    def failures(self) -> list[dict[str, Any]]:
        """Return the whole of every error, each with its trial or ``None``: texts for the owner alone.

        Raises:
            RecordError: the file cannot be read.
        """
        return JsonlFile(self.path / FAILURES_NAME).read()

    def flush(self) -> None:
        """Try again to write the rows that wait."""
        self._trials.flush()
        self._points.flush()
        self._decisions.flush()

    def trials(self) -> dict[str, Trial]:
        """Return the trials by id, in the order in which they started.

        Raises:
            RecordError: the file is broken.
        """
        return {trial.id: trial for trial in self.trial_rows()}

    def trial_rows(self) -> list[Trial]:
        """Return the rows of trials in the order in which they were written, several of each trial.

        Raises:
            RecordError: the file is broken.
        """
        return trials_of(self._trials.read(), self._trials.path)

    def points(self) -> dict[PointKey, Point]:
        """Return the points by key, in the order in which they arrived.

        Raises:
            RecordError: the file is broken.
        """
        return {point.key: point for point in points_of(self._points.read(), self._points.path)}

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace ``sweep.json``."""
        write_manifest(self.path, manifest)

    def read_manifest(self, *, secret: bool = False) -> Manifest:
        """Return ``sweep.json``.

        ``secret``: of a private selection that has not ended too, for its driver and for what ends it.

        Raises:
            RecordError: it cannot be read, is of another format, or the sweep may not be seen yet.
        """
        if not secret:
            check_may_be_seen(self.path)
        return read_manifest(self.path)


def check_may_be_seen(folder: Path) -> None:
    """Raise a `RecordError` for a private selection that has not ended, whatever its folder is called, and in it."""
    if is_secret(folder):
        raise RecordError(
            f"Expected a sweep that may be seen, but {folder} is a private selection that has not ended, of which "
            "nobody may see more than the winner; wait for its end, or end its driver with Ctrl-C and, as after a "
            "kill, make an ordinary sweep of it with: sweeper resume"
        )


def beside(public: Path) -> Path:
    """Return where a private selection runs whose end is to be seen in a folder that was made beforehand."""
    return public.with_name(f"{HIDDEN}{public.name}")


def is_waiting(public: Path) -> bool:
    """Whether a private selection whose end is to be seen in a folder has not ended."""
    return beside(public.resolve()).is_dir()


def is_secret(folder: Path) -> bool:
    """Whether a folder is that of a private selection that has not ended, a copy of one, or a folder in one."""
    whole = folder.resolve()
    if any(part.startswith(HIDDEN) for part in whole.parts):
        return True
    try:
        status = (whole / MANIFEST_NAME).stat()
    except OSError:
        return False
    return _is_marked(whole, (status.st_mtime_ns, status.st_size, status.st_ino))


@lru_cache(maxsize=4096)
def _is_marked(folder: Path, _version: tuple[int, ...]) -> bool:
    return is_marked(folder)


def trials_of(rows: Iterable[Mapping[str, object]], path: Path, first: int = 1) -> list[Trial]:
    """Return rows of ``trials.jsonl`` as trials.

    ``path`` and ``first``, the number of the first row, are for errors.

    Raises:
        RecordError: a row that is no trial.
    """
    return _records(Trial, rows, path, first)


def points_of(rows: Iterable[Mapping[str, object]], path: Path, first: int = 1) -> list[Point]:
    """Return rows of ``points.jsonl`` as points; the arguments and errors are those of `trials_of`."""
    return [restate(point) for point in _records(Point, rows, path, first)]


def _records(kind: type[R], rows: Iterable[Mapping[str, object]], path: Path, first: int) -> list[R]:
    numbered = enumerate(rows, start=first)
    return [read(kind, row, f"on line {number} of {path}", "restore the file") for number, row in numbered]


def unknown_trial(folder: Path, asked: str, trials: Collection[str]) -> UnknownTrialError:
    """Return what says that a sweep has no such trial, with the one that may be meant, or those that it has."""
    known = f"it has {min(trials)} to {max(trials)}" if trials else "it has none yet"
    if asked.isdecimal() and (near := name_trial(int(asked))) in trials:
        known = f"did you mean {near!r}?"
    return UnknownTrialError(f"Expected a trial of {folder}, got {asked!r}; {known}")


def list_sweeps(parent: str | Path) -> list[SweepFolder]:
    """Return the sweeps in a folder, oldest first by name, without private selections that have not ended."""
    found = sorted(Path(parent).glob(f"*/{MANIFEST_NAME}"))
    return [SweepFolder(file.parent) for file in found if not is_secret(file.parent)]


def hidden_sweeps(parent: str | Path) -> list[SweepFolder]:
    """Return the folders of private selections that run in a folder, or were killed there."""
    return [SweepFolder(path) for path in sorted(Path(parent).glob(f"{HIDDEN}*")) if path.is_dir()]
