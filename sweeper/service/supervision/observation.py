"""What can be observed of a sweep: its folder, its lock, and what the launcher knows of its driver."""

from pathlib import Path

from sweeper.driver.reporting import failure
from sweeper.errors import RecordError
from sweeper.service.supervision import submissions
from sweeper.service.supervision.launcher import Launcher
from sweeper.service.supervision.states import Facts
from sweeper.service.supervision.submissions import Intent, Submission
from sweeper.store.lock import is_driven
from sweeper.store.manifest import MANIFEST_NAME, Manifest
from sweeper.store.sweep_folder import SweepFolder


def facts_of(folder: Path, submission: Submission | None, launcher: Launcher) -> Facts:
    """Return what can be seen of the sweep in a folder.

    The launcher, which may have to ask another machine, is not asked about a driver whose end was seen.

    Raises:
        RecordError: the requests to the sweep cannot be read.
    """
    job = None if submission is None or submission.wish is Intent.REST else submission.job
    alive = job is not None and launcher.is_alive(job)
    driven = is_driven(folder)
    manifest, mark = _manifest(folder)
    ended = None if alive or driven else job
    return Facts(
        driven=driven,
        alive=alive,
        status=None if manifest is None else manifest.status,
        mark=mark,
        points=_size(folder / "points.jsonl"),
        stopped=ended is not None and submission is not None and submissions.was_stopped(folder, submission.asked),
        failure="" if ended is None else failure.said(folder),
        away=launcher.is_away(),
    )


def _manifest(folder: Path) -> tuple[Manifest | None, int]:
    """Return ``sweep.json`` and its time; none where it cannot be read."""
    try:
        mark = (folder / MANIFEST_NAME).stat().st_mtime_ns
        return SweepFolder(folder).read_manifest(), mark
    except (OSError, RecordError):
        return None, 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
