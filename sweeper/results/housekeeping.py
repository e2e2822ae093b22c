"""Deleting sweeps, and what ended sweeps no longer need.

Privacy that a sweep has spent stays spent when its folder is gone: unless told otherwise, deletion keeps its ledger,
its spec and what it claimed in ``spent/<sweep>`` beside it. Nothing is followed out of a sweep's folder.
"""

import contextlib
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.account.receipts import RECEIPT_NAME
from sweeper.adapters import dump
from sweeper.errors import RecordError, SweeperError
from sweeper.records import SweepStatus, TrialStatus
from sweeper.results.front import Front, read_front
from sweeper.store.evidence import EVIDENCE_NAME
from sweeper.store.jsonl import read_object, replace_file, to_text
from sweeper.store.lock import DELETING_NAME, is_driven, undriven
from sweeper.store.lock import NAME as DRIVER_NAME
from sweeper.store.manifest import MANIFEST_NAME, Manifest
from sweeper.store.sweep_folder import SweepFolder, beside, is_waiting, list_sweeps
from sweeper.tracking.client import delete_runs, destination_of
from sweeper.tracking.store import own_store

SPENT_NAME = "spent"
STATEMENT_NAME = "statement.json"
# Where processes that were killed leave what they had not finished writing.
_UNFINISHED = ("*.partial", ".*.tmp")
_SURELY_DEAD_SECONDS = 3600.0  # nothing takes so long to write
# Sweeps that will not go on by themselves.
_ENDED = (SweepStatus.COMPLETED, SweepStatus.STOPPED)
_UNENDED = (TrialStatus.RUNNING, TrialStatus.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a deletion did; ``kept`` is where the ledger is now, ``None`` if it was not wanted or there was none."""

    folder: Path
    kept: Path | None
    runs: int


@dataclass(frozen=True, slots=True)
class Removable:
    """Something that nothing needs any more, of so many bytes."""

    path: Path
    size: int
    why: str


def check_not_running(folder: Path) -> Manifest:
    """Return the manifest of a sweep that no process drives.

    Raises:
        RecordError: no sweep, one that is running, or may be on another machine, or a private selection that has not
            ended: what it has spent is in its hidden folder.
    """
    if folder.is_symlink():
        raise RecordError(f"Expected the folder of a sweep itself, got a link to one, {folder}; name the folder")
    if is_waiting(folder):
        raise RecordError(
            f"Expected a sweep that has ended, got {folder}, whose private selection in {beside(folder.resolve())} "
            "has not; end that first with sweeper resume, or sweeper resume --give-up"
        )
    manifest = SweepFolder(folder).read_manifest()
    if is_driven(folder):
        raise RecordError(f"Expected a sweep that is not running, but a process drives {folder}; wait or stop it")
    if manifest.status is SweepStatus.RUNNING:
        driver = folder / DRIVER_NAME
        host = read_object(driver).get("host") if driver.is_file() else None
        if host != socket.gethostname():
            where = f"on {host}" if host else "somewhere"
            raise RecordError(
                f"Expected a sweep that is not running, but {folder} says that it is, {where}; end it there, or resume "
                f"it here and stop it with Ctrl-C"
            )
    return manifest


def delete_sweep(folder: Path, *, runs: bool = False, forget: bool = False) -> Deleted:
    """Delete the folder of a sweep.

    Args:
        folder: of a sweep that is not running.
        runs: delete its MLflow runs too; those of a store inside the folder go with it.
        forget: do not keep the ledger either.

    Raises:
        RecordError: not the folder of a sweep, one that runs, or it cannot be deleted; one that spends an account and
            whose ledger is to be forgotten: what it reserved could not be given back.
        SweeperError: the runs cannot be deleted; nothing else was then.

    Guarantees:
        Unless ``forget`` is true, the ledger is whole on the disk in ``spent`` before the first file is deleted. What a
        killed deletion leaves cannot be resumed: its ledger may be gone.
    """
    folder = Path(folder).absolute()
    manifest = check_not_running(folder)
    with undriven(folder):
        if forget and (folder / RECEIPT_NAME).exists():
            raise RecordError(
                f"Expected a sweep without an account whose ledger can be forgotten, got {folder}, which may have "
                "reserved what its ledger alone gives back; leave --forget-ledger out"
            )
        kept = None if forget else _keep(folder)
        try:
            deleted = delete_runs(destination_of(folder, manifest)) if runs and _has_store(folder, manifest) else 0
        except SweeperError:
            if kept is not None:
                shutil.rmtree(kept)
            raise
        mark = folder / DELETING_NAME
        # The manifest goes late: what could not be deleted is still a sweep, and can be deleted again.
        last = [folder / MANIFEST_NAME, mark]
        with _translate_errors(folder):
            mark.touch()
            for path in [*(path for path in folder.iterdir() if path not in last), *last]:
                _remove(path)
            folder.rmdir()
    return Deleted(folder, kept, deleted)


def delete_unstarted(folder: Path) -> None:
    """Delete the folder of a sweep that was submitted and never started.

    A driver may have come and died before it wrote anything.

    Raises:
        RecordError: it has started, or something was spent in it, a process drives it, or it cannot be deleted.
    """
    with undriven(folder), _translate_errors(folder):
        if folder.is_symlink() or any((folder / name).exists() for name in (MANIFEST_NAME, "ledger.jsonl")):
            raise RecordError(f"Expected a sweep that never started, but {folder} has; look at it first")
        shutil.rmtree(folder)


def garbage(out: Path) -> list[Removable]:
    """Return what sweeps in ``out`` no longer need; sweeps that run, or may, are left alone.

    These are models that no point names, the state of trials that have ended, and files that killed processes had not
    finished. Trials that a stopped sweep has cut off keep theirs: it can be resumed.

    Raises:
        RecordError: no such folder.
    """
    if not out.is_dir():
        raise RecordError(f"Expected a folder of sweeps, got {out} (OUT)")
    return [removable for sweep in list_sweeps(out) for removable in _garbage_of(sweep.path)]


def remove(found: list[Removable]) -> int:
    """Remove what `garbage` found, and return how many bytes that freed.

    Raises:
        RecordError: something cannot be removed.
    """
    freed = 0
    for one in found:
        try:
            _remove(one.path)
        except OSError as error:
            raise RecordError(f"Cannot remove {one.path}: {error.strerror or error}; check permissions") from error
        freed += one.size
    return freed


@contextlib.contextmanager
def _translate_errors(folder: Path) -> Iterator[None]:
    """Raise a `RecordError` where something cannot be deleted."""
    try:
        yield
    except OSError as error:
        raise RecordError(
            f"Cannot delete {error.filename or folder}: {error.strerror or error}; check permissions and repeat"
        ) from error


def _garbage_of(folder: Path) -> Iterator[Removable]:
    try:
        manifest = check_not_running(folder)
    except RecordError:
        return
    if manifest.status in _ENDED:
        yield from _models(folder)
        yield from _states(folder)
    old = time.time() - _SURELY_DEAD_SECONDS
    for place in (folder, folder / "models"):
        for path in sorted(path for pattern in _UNFINISHED for path in place.glob(pattern)):
            if path.lstat().st_mtime < old:
                yield Removable(path, _size(path), "never finished")


def _states(folder: Path) -> Iterator[Removable]:
    ray, checkpoints = folder / "ray", folder / "checkpoints"
    if _has_files(ray):
        yield Removable(ray, _size(ray), "the sweep has ended")
    if not _has_files(checkpoints):
        return
    try:
        trials = SweepFolder(folder).trials()
    except RecordError:
        return
    open_ = [trial.id for trial in trials.values() if trial.status in _UNENDED]
    kept = {path for trial in open_ for path in checkpoints.glob(f"{trial}-*")}
    for path in sorted(set(checkpoints.iterdir()) - kept) if kept else [checkpoints]:
        yield Removable(path, _size(path), "the trial has ended" if kept else "the sweep has ended")


def _has_files(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and any(path.iterdir())


def _models(folder: Path) -> Iterator[Removable]:
    """Return the models that no point names; none where front or points cannot be read.

    Points count beside the front: a full disk may have refused the front, and taken them.
    """
    front = _front(folder)
    if front is None or (folder / "models").is_symlink():
        return
    try:
        points = SweepFolder(folder).points().values()
    except RecordError:
        return
    named = {folder / str(point.model) for point in (*front.front_points, *points) if point.model}
    for path in sorted((folder / "models").glob("*.safetensors")):
        if path not in named:
            yield Removable(path, _size(path), "no point names this model")


def _front(folder: Path) -> Front | None:
    try:
        return read_front(folder / "front.json")
    except RecordError:
        return None


def _has_store(folder: Path, manifest: Manifest) -> bool:
    """Whether the runs of a sweep are in a store that outlives its folder."""
    own = own_store(folder)
    return bool(manifest.tracking) or (own.is_file() and own.parent != folder)


def _keep(folder: Path) -> Path | None:
    """Copy what was spent and claimed, whole, and return where; ``None`` if nothing was spent and none reserved."""
    ledger = folder / "ledger.jsonl"
    has_spent = ledger.is_file() and ledger.stat().st_size > 0
    if not has_spent and not (folder / RECEIPT_NAME).exists():
        return None
    spent = folder.parent / SPENT_NAME
    places = (spent / (folder.name if number == 1 else f"{folder.name}-{number}") for number in range(1, 1000))
    place = next(place for place in places if not place.exists())
    try:
        place.mkdir(parents=True)
        for name in ("ledger.jsonl", EVIDENCE_NAME, "spec.yaml", RECEIPT_NAME):
            if (folder / name).is_file():
                replace_file(place / name, (folder / name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"Cannot keep the ledger of {folder} in {place}: {error}; nothing was deleted") from error
    replace_file(place / STATEMENT_NAME, to_text(_statement(folder), indent=2) + "\n")
    return place


def _statement(folder: Path) -> dict[str, Any]:
    front = _front(folder)
    if front is None:
        return {"sweep": folder.name, "claim": None, "ledger": None}
    answers = {question: dump(answer) for question, answer in front.ledger.items()}
    return {"sweep": folder.name, "claim": front.claim.to_json(), "ledger": answers}


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(inner.lstat().st_size for inner in path.rglob("*") if inner.is_symlink() or inner.is_file())
