"""How the drivers of submitted sweeps are started and stopped, and what can be observed of them and their sweeps."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sweeper.driver.reporting import failure
from sweeper.errors import RecordError, SweeperError
from sweeper.service.accounts import ServiceAccounts
from sweeper.service.settings import ServiceSettings
from sweeper.service.supervision import submissions
from sweeper.service.supervision.launcher import Launcher
from sweeper.service.supervision.states import Facts
from sweeper.service.supervision.submissions import Intent, Submission
from sweeper.store.lock import is_driven
from sweeper.store.manifest import MANIFEST_NAME, Manifest
from sweeper.store.requests import ask_to_stop
from sweeper.store.sweep_folder import SweepFolder

ASK_AGAIN_SECONDS = 5.0
LAUNCH_PAUSE_SECONDS = 10.0  # in which no driver is started after one that could not be


class Drivers:
    """Starts and stops drivers by a launcher."""

    def __init__(
        self, settings: ServiceSettings, launcher: Launcher, accounts: ServiceAccounts, clock: Callable[[], float]
    ) -> None:
        self._settings, self._launcher, self._accounts, self._clock = settings, launcher, accounts, clock
        self._next_launch = 0.0
        self._asked_at: dict[str, float] = {}

    def has_room(self, running: int) -> bool:
        """Whether another driver may be started beside those that run."""
        return running < self._settings.drivers and self._clock() >= self._next_launch

    def arguments(self, folder: Path, submission: Submission, facts: Facts) -> list[str]:
        """Return the arguments of ``sweeper`` by which a sweep begins, or resumes.

        Raises:
            RecordError: the account of its data cannot be read.
        """
        page, spender = self._settings.page_of(folder.name), self._accounts.spender_of(folder, submission.by)
        paged = ["--page", page] if page else []
        paged += [f"--spender={spender}"] if spender is not None else []  # one argument, whatever the name begins with
        if facts.status is None:
            given, data = self._settings, self._settings.find_data_dir()
            arguments = ["run", str(SweepFolder(folder).spec), "--into", str(folder)]
            arguments += ["--data-dir", str(data)] if data else []
            arguments += ["--trials", str(submission.trials)] if submission.trials else []
            arguments += ["--tracking", given.tracking] if given.tracking else []
            arguments += ["--duration-is-seen"] if given.duration_is_seen else []
            return arguments + paged + (["--cluster", given.cluster] if given.cluster else [])
        if submission.trials is not None:
            return ["extend", str(folder), "--trials", str(submission.trials), *paged]
        return ["resume", str(folder), *paged]

    def launch(self, arguments: list[str], folder: Path) -> str:
        """Start a driver and return how the launcher knows it.

        Raises:
            SweeperError: it cannot be started; then none is for a while.
        """
        try:
            return self._launcher.start(arguments, folder)
        except SweeperError:
            self._next_launch = self._clock() + LAUNCH_PAUSE_SECONDS
            raise

    def stop(self, folder: Path, submission: Submission, facts: Facts) -> None:
        """Ask a running driver to stop, again after a while, or end one that has not written its sweep's file."""
        if facts.status is None:
            self._launcher.kill(submission.job or "")
        elif self._clock() - self._asked_at.get(folder.name, 0.0) > ASK_AGAIN_SECONDS:
            self._asked_at[folder.name] = self._clock()
            with suppress(RecordError):  # it has ended meanwhile, or is asked again
                ask_to_stop(folder, by="", driven=True)  # again: who asked first is written already


def facts_of(folder: Path, submission: Submission | None, launcher: Launcher) -> Facts:
    """Return what can be seen of the sweep in a folder.

    The launcher, which may have to ask another machine, is not asked about a driver whose end was seen.

    Raises:
        RecordError: the requests to the sweep cannot be read.
    """
    job = None if submission is None or submission.intent is Intent.REST else submission.job
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
