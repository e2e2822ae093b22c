"""The folder in which a private selection runs: how it is made, what moves out of it, and whether more can follow."""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from sweeper.errors import RecordError
from sweeper.privacy.selection import WINNER_TRIAL
from sweeper.records import SweepStatus, TrialStatus
from sweeper.store.lock import NAME as LOCK_NAME
from sweeper.store.manifest import MANIFEST_NAME, Manifest
from sweeper.store.sweep_folder import HIDDEN, SweepFolder, beside, is_secret, is_waiting

DECIDED = "decided"  # the mark of a folder whose winner is written
SELECTING = "selecting privately"  # what a folder that was made beforehand says while it has no end
WAITING = "selects privately, and waits to be resumed"
SURRENDERED = "surrendered"  # the mark of one that has become an ordinary sweep, and is on its way out


def hide(parent: Path, public: Path | None = None) -> SweepFolder:
    """Make the folder of a private selection, which only its owner can read.

    ``public`` is a folder in which its end is to be seen, made beforehand; a new one is made at the end by default.

    Raises:
        RecordError: the folder cannot be made.
    """
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if public is None:
            folder = SweepFolder(tempfile.mkdtemp(prefix=HIDDEN, dir=parent))
        else:
            folder = SweepFolder(beside(public.resolve()))
            folder.path.mkdir(mode=0o700)
        (folder.path / "models").mkdir()
    except OSError as error:
        reason = error.strerror or error
        raise RecordError(f"Cannot make a folder in {parent}: {reason}; choose another with --out") from error
    return folder


def public_folder(hidden: SweepFolder) -> SweepFolder | None:
    """Return the folder in which the end of a selection is to be seen, if that was made beforehand."""
    path = hidden.path.resolve()
    public = path.with_name(path.name.removeprefix(HIDDEN))
    return SweepFolder(public) if public != path and public.is_dir() else None


def hidden_of(public: Path) -> SweepFolder | None:
    """Return where the selection runs whose end is to be seen in a folder, ``None`` if none does."""
    return SweepFolder(beside(public.resolve())) if is_waiting(public) else None


def check_has_not_ended(hidden: SweepFolder, leaving: Path) -> None:
    """Refuse a selection if what is ``leaving`` it would replace the ledger of its end: it was put back.

    Raises:
        RecordError: it would.
    """
    public = public_folder(hidden)
    if public is not None and public.ledger.exists() and SweepFolder(leaving).ledger.exists():
        raise RecordError(
            f"Expected a selection that has not ended, but its end is in {public.path}: {hidden.path} was put back "
            "from a copy; remove it"
        )


def even_times(folder: Path) -> None:
    """Give all files of a folder the same times, and the folders too."""
    now = time.time()
    for path in [*sorted(folder.rglob("*"), reverse=True), folder]:
        with suppress(OSError):
            os.utime(path, (now, now))


def move_out(path: Path, hidden: Path, name: str) -> SweepFolder:
    """Move what may be seen out of a hidden folder, and return where it is now.

    Raises:
        RecordError: it cannot be moved, or what it has spent is neither there nor where it moves: nothing was moved.
    """
    public = public_folder(SweepFolder(hidden))
    if not any(one.ledger.exists() for one in (SweepFolder(path), public) if one is not None):
        raise RecordError(
            f"Expected the ledger of a private selection in {path}, got none: restore it from where it was kept "
            f"(spent/), or remove {hidden} if its end was deleted"
        )
    folder = _renamed(path, hidden.parent, name) if public is None else _filled(public, path)
    (folder.path / SURRENDERED).unlink(missing_ok=True)
    started = folder.path.name.removeprefix(f"{name}-")
    folder.write_manifest(replace(folder.read_manifest(), started=started))
    return folder


def _renamed(path: Path, parent: Path, name: str) -> SweepFolder:
    folder = SweepFolder.create(parent, name, datetime.now())
    mode = folder.path.stat().st_mode
    try:
        (folder.path / "models").rmdir()
        path.rename(folder.path)
        folder.path.chmod(mode)
    except OSError as error:
        raise RecordError(f"Cannot move {path} to {folder.path}: {error.strerror or error}") from error
    return folder


def _filled(public: SweepFolder, path: Path) -> SweepFolder:
    """Move files into a folder that is there already, ``sweep.json`` last; a process that is killed does the rest."""
    stay = (LOCK_NAME, MANIFEST_NAME, SURRENDERED)
    if _has_end(public):  # its file is the last that moves: what is still here was put back, and is older
        remove(path)
        return public
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name not in stay)
    try:
        (public.path / "models").mkdir(exist_ok=True)
        for file in [*files, path / MANIFEST_NAME]:
            target = public.path / file.relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.exists():
                file.replace(target)
    except OSError as error:
        raise RecordError(f"Cannot move {path} to {public.path}: {error.strerror or error}") from error
    remove(path)
    return public


def _has_end(public: SweepFolder) -> bool:
    """Whether what moved into a folder that was made beforehand is all there."""
    if not (public.path / MANIFEST_NAME).exists():
        return False
    return public.read_manifest().reason not in (SELECTING, WAITING)


def remove(path: Path) -> None:
    """Remove a hidden folder, the mark of its end last: a part of it may never be taken for a whole one."""
    for child in path.iterdir():
        if child.name not in (DECIDED, SURRENDERED):
            shutil.rmtree(child, ignore_errors=True) if child.is_dir() else child.unlink(missing_ok=True)
    if [child.name for child in path.iterdir()] in ([], [DECIDED], [SURRENDERED]):
        shutil.rmtree(path, ignore_errors=True)


UNFINISHED = (SweepStatus.RUNNING, SweepStatus.INTERRUPTED)
_OPEN = (TrialStatus.RUNNING, TrialStatus.INTERRUPTED)  # of a final


def has_final_left(path: Path) -> bool:
    """Whether a sweep has a winner, and a final that can be begun or go on; one that has failed cannot.

    Raises:
        RecordError: its ledger or its trials cannot be read.
    """
    from sweeper.privacy.ledger import Ledger  # takes seconds, and few who ask have one

    folder = SweepFolder(path)
    if is_secret(path) or not folder.ledger.is_file():
        return False
    ledger, trials = Ledger(folder.ledger), folder.trials()
    held = ledger.budget is not None and ledger.held is not None
    finals = [trial.status for name, trial in trials.items() if name != WINNER_TRIAL]
    return held and WINNER_TRIAL in trials and all(status in _OPEN for status in finals)


def check_recorded_cluster(manifest: Manifest, folder: Path | str) -> None:
    """Refuse to go on with a private selection that an earlier version began on a cluster.

    Raises:
        RecordError: ``sweep.json`` names the cluster.
    """
    if manifest.selects_privately and manifest.cluster is not None:
        raise RecordError(
            f"Expected a private selection of this machine, got one that began on the cluster {manifest.cluster} in "
            f"{folder}; start another sweep, or see what one that waits has trained with sweeper resume --give-up"
        )
