"""How a run of trials ends before its last one, whatever runs them."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from sweeper.backend.interruption import Interruption
from sweeper.backend.trial_states import TrialStates
from sweeper.errors import public_line
from sweeper.records import TrialStatus

RAY_DIED = "Ray died"
DIED = "its process died: killed, crashed or out of memory"
GRACE_SECONDS = 2.0  # how long a stopped trial may finish its epoch before its process is killed

Ending = tuple[TrialStatus, str]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended: with a ``reason`` if it ended before its last trial, ``interrupted`` or not.

    ``lost`` says that Ray itself died under it: another run can go on where this one ended.
    """

    interrupted: bool = False
    reason: str = ""
    lost: bool = False


def endings(
    states: TrialStates, interruption: Interruption, hours: float | None, should_stop: Callable[[], str | None]
) -> Callable[[], Ending | None]:
    """Return what says, whenever it is called, whether a run ends now and why."""
    deadline = math.inf if hours is None else time.monotonic() + hours * 3600

    def ending() -> Ending | None:
        if interruption.requested:
            return TrialStatus.INTERRUPTED, "interrupted"
        if states.trouble:
            return TrialStatus.FAILED, public_line(states.trouble)
        late = f"the {hours:g} hours are used up" if time.monotonic() >= deadline else None
        reason = late or should_stop()
        return (TrialStatus.STOPPED, reason) if reason else None

    return ending


def close(states: TrialStates, ending: Ending, *, lost: bool = False) -> RunResult:
    """End every trial of a run for this reason; a later run may go on with them, unless this one has failed."""
    status, reason = ending
    states.close(status if status is TrialStatus.FAILED else TrialStatus.INTERRUPTED, reason)
    return RunResult(status is TrialStatus.INTERRUPTED, reason, lost)


def close_by_error(states: TrialStates, error: BaseException) -> None:
    """End every trial of a run that an error ends."""
    forced = isinstance(error, KeyboardInterrupt)
    states.close(TrialStatus.INTERRUPTED if forced else TrialStatus.FAILED, public_line(error))


def late_reason(trial_hours: float) -> str:
    """Return why a trial is stopped whose time is up."""
    return f"it took longer than the {trial_hours:g} hours of search.trial_hours"
