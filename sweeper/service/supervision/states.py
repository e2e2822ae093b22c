"""How a sweep of the service stands, from what was asked and what can be seen; pure decisions."""

from dataclasses import dataclass

from sweeper.records import SweepStatus
from sweeper.service.supervision.submissions import Cause, Intent, Submission

MOST_DEATHS = 5
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 300.0
_IN_WORDS = {
    None: "",
    Cause.NEVER_BEGUN: "stopped before it began",
    Cause.GIVEN_UP: f"{MOST_DEATHS} drivers in a row died without a new point",
}
AWAY = "the head of the cluster does not answer; the sweep resumes when it is back"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How one sweep stands."""

    name: str  # of its folder
    state: SweepStatus
    reason: str = ""  # why, in a sentence; empty where there is nothing to say
    place: int | None = None  # in the line for a driver, 1 the next; None if it does not wait
    started: bool = True  # whether its driver has written ``sweep.json``
    submission: Submission | None = None  # what the service was asked to do with it, None if nothing

    @property
    def runs(self) -> bool:
        """Whether more may come without a request."""
        return not self.state.is_end and self.state is not SweepStatus.LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What can be seen of a sweep."""

    driven: bool  # a process of this machine holds its lock
    alive: bool  # the driver that the service started has not ended
    status: SweepStatus | None  # of ``sweep.json``, None where there is none
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
    def has_ended(self) -> bool:
        """Whether ``sweep.json`` says that the sweep has ended."""
        return self.status is not None and self.status.is_end

    @property
    def is_seen(self) -> bool:
        """Whether the driver that is there is seen, not only remembered."""
        return self.driven or not self.away


def state_of(submission: Submission | None, facts: Facts) -> SweepStatus:
    """Return how a sweep stands."""
    if submission is not None and (facts.runs or submission.intent is not Intent.REST):
        return _requested_status(submission, facts)
    if facts.runs:
        return SweepStatus.RUNNING
    if submission is not None and submission.cause is not None:
        return SweepStatus.STOPPED if submission.cause is Cause.NEVER_BEGUN else SweepStatus.FAILED
    if facts.status is not None and facts.status.is_end:
        return facts.status
    return SweepStatus.INTERRUPTED if submission is not None else SweepStatus.LOST


def trouble_of(submission: Submission | None, state: SweepStatus, *, is_away: bool) -> str:
    """Return why a sweep does not run, where its own records do not say."""
    if is_away and state in (SweepStatus.QUEUED, SweepStatus.WAITING):
        return AWAY
    if submission is None:
        return ""
    return submission.failure if submission.cause is Cause.FAILED else _IN_WORDS[submission.cause]


def _requested_status(submission: Submission, facts: Facts) -> SweepStatus:
    if not facts.runs:
        return SweepStatus.QUEUED if submission.intent is Intent.RUN else SweepStatus.STOPPING
    if submission.intent is Intent.STOP:
        return SweepStatus.STOPPING
    if not facts.is_seen:
        return SweepStatus.WAITING
    begun = facts.status is not None and facts.mark != submission.mark
    return SweepStatus.RUNNING if begun or submission.intent is Intent.REST else SweepStatus.STARTING


def settle(submission: Submission, facts: Facts, now: float) -> Submission:
    """Return the submission as these facts change it.

    Guarantees:
        A sweep that was asked to stop, or interrupted, is never to be run; one whose driver died without having
        ended is, after a pause, a bounded number of times without progress.
    """
    if facts.runs or submission.intent is Intent.REST:
        return submission
    if submission.job is None:
        return submission if submission.intent is Intent.RUN else _resting(submission, facts)
    begun = facts.mark != submission.mark
    if submission.intent is Intent.STOP or facts.stopped or (begun and facts.has_ended):
        return _resting(submission, facts)
    if not begun and facts.failure:
        return submission.but(intent=Intent.REST, cause=Cause.FAILED, failure=facts.failure)
    return note_death(submission, facts, now)


def note_death(submission: Submission, facts: Facts, now: float) -> Submission:
    """Return the submission of a sweep whose driver has died."""
    deaths = 1 if facts.points > submission.points else submission.deaths + 1
    if deaths >= MOST_DEATHS:
        return submission.but(intent=Intent.REST, deaths=deaths, cause=Cause.GIVEN_UP)
    return submission.but(job=None, deaths=deaths, not_before=now + pause(deaths))


def pause(deaths: int) -> float:
    """Return for how many seconds to wait after so many deaths, or other failures, in a row."""
    return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 4.0 ** min(deaths - 1, 20))  # which is no overflow


def _resting(submission: Submission, facts: Facts) -> Submission:
    cause = Cause.NEVER_BEGUN if facts.status is None else None
    return submission.but(intent=Intent.REST, cause=cause, failure="")
