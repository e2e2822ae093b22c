"""How a sweep of the service stands, from what was asked and what can be seen; pure decisions."""

import enum
from dataclasses import dataclass

from sweeper.records import TrialStatus
from sweeper.service.supervision.submissions import Intent, Submission

MOST_DEATHS = 5
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 300.0
GIVEN_UP = f"{MOST_DEATHS} drivers in a row died without a new point"
NEVER_BEGUN = "stopped before it began"
AWAY = "the head of the cluster does not answer; the sweep resumes when it is back"


class State(enum.Enum):
    """How a sweep stands."""

    QUEUED = "queued"  # waits for its turn, for the pause after a driver's death, or until one can be started
    STARTING = "starting"  # its driver has not written the sweep's file yet
    RUNNING = "running"
    WAITING = "waiting"  # for the cluster: its head does not answer, and no driver is seen
    STOPPING = "stopping"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    LOST = "lost"  # its file says that it runs, but the service knows of no driver

    @property
    def is_end(self) -> bool:
        """Whether nothing more happens without a request."""
        return self in (State.COMPLETED, State.STOPPED, State.FAILED, State.INTERRUPTED)


_ENDS = {status.value: State(status.value) for status in TrialStatus if status is not TrialStatus.RUNNING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What can be seen of a sweep."""

    driven: bool  # a process of this machine holds its lock
    alive: bool  # the driver that the service started has not ended
    status: str | None  # of ``sweep.json``, None where there is none
    mark: int  # time of ``sweep.json``, 0 where there is none
    points: int = 0  # bytes of points
    stopped: bool = False  # a request asked it to stop since the driver was started
    failure: str = ""  # why the driver ended, where it said so
    away: bool = False  # what runs drivers does not answer, so that ``alive`` is what was known last

    @property
    def runs(self) -> bool:
        """Whether a driver is there."""
        return self.driven or self.alive

    @property
    def is_seen(self) -> bool:
        """Whether the driver that is there is seen, not only remembered."""
        return self.driven or not self.away


def state_of(submission: Submission | None, facts: Facts) -> State:
    """Return how a sweep stands."""
    if submission is not None and (facts.runs or submission.wish is not Intent.REST):
        return _asked(submission, facts)
    if facts.runs:
        return State.RUNNING
    if submission is not None and submission.never_begun:
        return State.STOPPED
    if submission is not None and submission.trouble:
        return State.FAILED
    if facts.status in _ENDS:
        return _ENDS[facts.status]
    return State.INTERRUPTED if submission is not None else State.LOST


def _asked(submission: Submission, facts: Facts) -> State:
    if not facts.runs:
        return State.QUEUED if submission.wish is Intent.RUN else State.STOPPING
    if submission.wish is Intent.STOP:
        return State.STOPPING
    if not facts.is_seen:
        return State.WAITING
    begun = facts.status is not None and facts.mark != submission.mark
    return State.RUNNING if begun or submission.wish is Intent.REST else State.STARTING


def settled(submission: Submission, facts: Facts, now: float) -> Submission:
    """Return the submission as these facts change it.

    Guarantees:
        A sweep that was asked to stop, or interrupted, is never to be run; one whose driver died without having
        ended is, after a pause, a bounded number of times without progress.
    """
    if facts.runs or submission.wish is Intent.REST:
        return submission
    if submission.job is None:
        return submission if submission.wish is Intent.RUN else _resting(submission, facts)
    begun = facts.mark != submission.mark
    if submission.wish is Intent.STOP or facts.stopped or (begun and facts.status in _ENDS):
        return _resting(submission, facts)
    if not begun and facts.failure:
        return submission.but(wish=Intent.REST, trouble=facts.failure)
    return died(submission, facts, now)


def died(submission: Submission, facts: Facts, now: float) -> Submission:
    """Return the submission of a sweep whose driver has died."""
    deaths = 1 if facts.points > submission.points else submission.deaths + 1
    if deaths >= MOST_DEATHS:
        return submission.but(wish=Intent.REST, deaths=deaths, trouble=GIVEN_UP)
    return submission.but(job=None, deaths=deaths, not_before=now + pause(deaths))


def pause(deaths: int) -> float:
    """Return for how many seconds to wait after so many deaths, or other failures, in a row."""
    return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 4.0 ** min(deaths - 1, 20))  # which is no overflow


def _resting(submission: Submission, facts: Facts) -> Submission:
    return submission.but(wish=Intent.REST, never_begun=facts.status is None, trouble="")
