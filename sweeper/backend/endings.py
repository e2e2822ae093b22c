"""How a run of trials ends, whatever runs them."""

import enum
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from sweeper.backend.interruption import Interruption
from sweeper.backend.trial_states import TrialStates
from sweeper.errors import public_line
from sweeper.records import SweepStatus, TrialStatus
from sweeper.store.requests import stopped_in_words

DIED = "its process died: killed, crashed or out of memory"
GRACE_SECONDS = 10.0  # how long a stopped trial may finish its epoch before its process is killed


class RunEnding(enum.Enum):
    """The ways in which a run ends."""

    COMPLETED = enum.auto()  # there are enough trials
    INTERRUPTED = enum.auto()  # by Ctrl-C or SIGTERM
    OUT_OF_TIME = enum.auto()
    REQUESTED = enum.auto()  # somebody asked it to stop
    FAILED = enum.auto()
    RAY_DIED = enum.auto()  # another run can go on where this one ended
    NO_WORKERS = enum.auto()  # no worker of a cluster came up
    SELECTION_BROKE = enum.auto()  # a condition of a private selection did not hold
    NO_WINNER = enum.auto()  # no candidate of a private selection had a score


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended.

    Attributes:
        ending: the way.
        hours: those that were given, of one that is out of time.
        why: what is public of an error, or the conditions of a private selection that broke.
        by: who asked for it, empty where nobody did or that is not known.
    """

    ending: RunEnding = RunEnding.COMPLETED
    hours: float = math.inf
    why: tuple[str, ...] = ()
    by: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether it came to its end."""
        return self.ending is RunEnding.COMPLETED

    @property
    def is_interrupted(self) -> bool:
        """Whether a signal ended it."""
        return self.ending is RunEnding.INTERRUPTED

    @property
    def status(self) -> SweepStatus:
        """How a sweep stands whose run ended so."""
        match self.ending:
            case RunEnding.COMPLETED:
                return SweepStatus.COMPLETED
            case RunEnding.INTERRUPTED:
                return SweepStatus.INTERRUPTED
            case RunEnding.FAILED:
                return SweepStatus.FAILED
            case _:
                return SweepStatus.STOPPED

    def in_words(self) -> str:
        """Return why it ended before its last trial, for records and for people; empty if it did not."""
        match self.ending:
            case RunEnding.COMPLETED:
                return ""
            case RunEnding.INTERRUPTED:
                return "interrupted"
            case RunEnding.OUT_OF_TIME:
                return f"the {self.hours:g} hours are used up"
            case RunEnding.REQUESTED:
                return stopped_in_words(self.by)
            case RunEnding.FAILED:
                return " ".join(self.why)
            case RunEnding.RAY_DIED:
                return "Ray died"
            case RunEnding.NO_WORKERS:
                return "no worker of the cluster could start, or reach the driver"
            case RunEnding.SELECTION_BROKE:
                broken = f": {' '.join(self.why)}" if self.why else ""
                return f"the conditions of private selection did not hold{broken}"
            case RunEnding.NO_WINNER:
                return "nothing is released: no candidate had a score; what the ledger says is spent all the same"
            case _:
                assert_never(self.ending)


INTERRUPTED = RunResult(RunEnding.INTERRUPTED)


def result_of_error(error: BaseException) -> RunResult:
    """Return how a run ended that an error ended: interrupted by a second Ctrl-C, or failed."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return RunResult(RunEnding.FAILED, why=(public_line(error),))


def watch_endings(
    states: TrialStates, interruption: Interruption, hours: float | None, should_stop: Callable[[], RunResult | None]
) -> Callable[[], RunResult | None]:
    """Return a function that tells, whenever it is called, how the run ends now; ``None`` if it goes on."""
    limit = math.inf if hours is None else hours
    deadline = time.monotonic() + limit * 3600

    def ending() -> RunResult | None:
        if interruption.requested:
            return INTERRUPTED
        if states.trouble:
            return result_of_error(states.trouble)
        if time.monotonic() >= deadline:
            return RunResult(RunEnding.OUT_OF_TIME, hours=limit)
        return should_stop()

    return ending


def close_trials(states: TrialStates, result: RunResult) -> RunResult:
    """End every trial of a run that ended so; a later run may go on with them, unless this one has failed."""
    failed = result.ending is RunEnding.FAILED
    states.close(TrialStatus.FAILED if failed else TrialStatus.INTERRUPTED, result.in_words())
    return result


def late_reason(trial_hours: float) -> str:
    """Return why a trial is stopped whose time is up."""
    return f"it took longer than the {trial_hours:g} hours of search.trial_hours"
