"""The submissions of a service: in memory as they are on the disk, in the order in which they are to be run."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from sweeper.errors import RecordError, SweeperError
from sweeper.service.security.spec_policy import AcceptedSpec
from sweeper.service.supervision import submissions
from sweeper.service.supervision.states import LONGEST_PAUSE_SECONDS, pause
from sweeper.service.supervision.submissions import Intent, Submission
from sweeper.service.telemetry import LOGGER, where
from sweeper.store.actions import SUBMISSION_NAME
from sweeper.store.sweep_folder import SweepFolder

Hold = Callable[[Path, str], None]  # reserves from an account for the sweep in a folder, by its name to come
LONGEST_DELAY_SECONDS = 60.0


class SubmissionQueue:
    """Submissions by the name of their sweep; the caller lets one thread at a time change them."""

    def __init__(self, out: Path, clock: Callable[[], float]) -> None:
        self._out, self._clock = out, clock
        self._known: dict[str, Submission] = {}
        self._unwritten: set[str] = set()
        self._settled: set[str] = set()  # of those that rest: nothing is left to be given back for them
        self.delays = Backoff(clock)

    def load(self) -> None:
        """Read what was submitted earlier; a submission that cannot be read is logged and left out."""
        for folder in submissions.find_folders(self._out):
            try:
                self._known[folder.name] = submissions.read(folder)
            except RecordError as error:
                LOGGER.error("unreadable submission", extra={"fields": {"sweep": folder.name, "failure": where(error)}})

    def get(self, name: str) -> Submission | None:
        """Return the submission of a sweep, None without one."""
        return self._known.get(name)

    def names(self) -> tuple[str, ...]:
        """Return the names of all that are on the disk still; for any thread."""
        return tuple(name for name in tuple(self._known) if self.exists(name))

    def active(self) -> list[str]:
        """Return the names of those about which something is to be done, deleted ones among them."""
        return [name for name, one in self._known.items() if one.intent is not Intent.REST]

    def unsettled(self) -> list[str]:
        """Return the names of those that rest and may hold a reservation of which nothing was drawn.

        After a start these are all that rest: the service may have been killed before it gave anything back.
        """
        return [
            name
            for name, one in self._known.items()
            if one.intent is Intent.REST and name not in self._settled and not self.delays.hold(name)
        ]

    def note_settled(self, name: str) -> None:
        """Note that nothing is left to be given back for one that rests."""
        self._settled.add(name)
        self.delays.forget(name)

    @property
    def waiting(self) -> int:
        """How many wait for a driver."""
        return sum(map(_waits, self._known.values()))

    def place(self, name: str) -> int | None:
        """Return the place of a sweep in the line for a driver, 1 the next; None if it does not wait; for threads."""
        waiting = [(one.submitted, key) for key, one in tuple(self._known.items()) if _waits(one)]
        places = {key: place for place, (_, key) in enumerate(sorted(waiting), start=1)}
        return places.get(name)

    def due(self) -> list[str]:
        """Return the names of those that a driver may be started for now, the earliest first."""
        now = self._clock()
        due = [
            (one.submitted, name)
            for name, one in self._known.items()
            if _waits(one) and not _lasts(now, one.not_before, LONGEST_PAUSE_SECONDS) and not self.delays.hold(name)
        ]
        return [name for _, name in sorted(due)]

    def named(self, key: str) -> tuple[str, Submission] | None:
        """Return the submission that came under a client's own name for it, None without one."""
        for name, earlier in self._known.items():
            if earlier.key == key and self.exists(name):
                return name, earlier
        return None

    def exists(self, name: str) -> bool:
        """Whether a submission was not deleted since."""
        return (self._out / name / SUBMISSION_NAME).is_file()

    def has_started(self, name: str) -> bool:
        """Whether the driver of a sweep has written what it is."""
        return (self._out / name / "sweep.json").is_file()

    def has_begun(self, name: str) -> bool:
        """Whether a sweep has started, or its ledger is there all the same: something may be drawn then."""
        return self.has_started(name) or SweepFolder(self._out / name).ledger.exists()

    def add(self, spec: AcceptedSpec, key: str | None, digest: str, by: str, hold: Hold | None) -> str:
        """Make the folder of a new sweep, which ``by`` submits, and return its name.

        Raises: as `submissions.reserve`.
        """
        submission = Submission(submitted=self._clock(), by=by, key=key, digest=digest)
        now = datetime.fromtimestamp(self._clock())
        folder = submissions.reserve(self._out, spec.name, spec.text, submission, now, hold)
        self._known[folder.name] = submission
        return folder.name

    def keep(self, name: str, submission: Submission) -> None:
        """Write an intent to the disk, then take it over: an intent that cannot be written is not taken over.

        Raises:
            RecordError: not written.
        """
        submissions.write(self._out / name, submission)
        self._known[name] = submission
        self._unwritten.discard(name)
        self._settled.discard(name)

    def remember(self, name: str, submission: Submission) -> None:
        """Take over what has happened, then write it; if that fails, `write_late` tries again."""
        self._known[name] = submission
        try:
            self.keep(name, submission)
        except (SweeperError, OSError) as error:
            if name not in self._unwritten:
                LOGGER.error("submission not written", extra={"fields": {"sweep": name, "failure": where(error)}})
            self._unwritten.add(name)

    def write_late(self, name: str) -> None:
        """Write a submission that could not be written before."""
        if name in self._unwritten:
            self.remember(name, self._known[name])

    def forget(self, name: str) -> None:
        """Drop a submission that was deleted."""
        del self._known[name]
        self._unwritten.discard(name)
        self._settled.discard(name)
        self.delays.forget(name)


def _waits(one: Submission) -> bool:
    return one.intent is Intent.RUN and one.job is None


class Backoff:
    """Growing pauses between attempts, by name."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[int, float]] = {}

    def add(self, name: str) -> None:
        """Note a failed attempt; the pause before the next one grows each time."""
        times = self._failed.get(name, (0, 0.0))[0] + 1
        self._failed[name] = (times, self._clock() + min(LONGEST_DELAY_SECONDS, pause(times)))

    def forget(self, name: str) -> None:
        """Note that an attempt succeeded, or that none is needed."""
        self._failed.pop(name, None)

    def hold(self, name: str) -> bool:
        """Whether it is too early for another attempt."""
        return name in self._failed and _lasts(self._clock(), self._failed[name][1], LONGEST_DELAY_SECONDS)


def _lasts(now: float, end: float, longest: float) -> bool:
    """Whether a pause lasts still; one that would last longer than any does not, for the clock was set back."""
    return now < end <= now + longest
