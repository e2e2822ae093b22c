"""The states of a run's trials: each row is taken once, and the driver's hooks answer it.

Rows are those of `sweeper.trials.stream`. A trial may go on only after the hooks have answered for its last row. Where
a trial begins anew or goes on from an epoch, epochs that were taken before are dropped. Nothing here imports Ray or
knows what a plan or a point means.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from sweeper.errors import one_line, public_line
from sweeper.records import Scalar, TrialStatus
from sweeper.trials.stream import EpochRow, FirstDrawRow, PlanRow, TrialRow

Verdict = tuple[TrialStatus, str]

MOST_RESTARTS = 2  # of one trial in one run, without an epoch between


class TrialStart(TypedDict):
    """The part of a trial's configuration that is its own, when it begins."""

    trial: str  # its id
    proposal: Mapping[str, Scalar]  # values of open dimensions by name
    recorded: int  # the last epoch that the driver has
    front: Sequence[Mapping[str, float]]  # values of points; a model that one of them outdoes is not kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What the driver does when something happens to a trial; all run in the driver's main loop.

    Attributes:
        on_start: gets the trial's id and its start.
        on_plan: gets the id and the plan row. A text refuses the trial, for that reason. An exception fails
            the trial: one whose plan could not be written down never trains.
        on_draw: gets the id before the trial draws its first noise. A text stops the trial, for that reason, and an
            exception fails it: it draws none then.
        on_epoch: gets the id and an epoch's row, whose values hold no NaN. A text stops the trial, for that
            reason; an exception fails it.
        on_death: gets the id of a trial that lost its process; returns whether it may be started again.
        on_restart: gets the id of a trial that lost its process and will be started again, and how many epochs may
            have drawn noise.
        on_end: gets id, status, reason in one line, and how many epochs may have drawn noise: one more than were
            reported if the trial ended by itself or from outside in the middle of an epoch.

        on_undefined: gets the id of a trial that fails because a value is not a number.
        front: returns the values of the points that the front holds, one point after the other; of a point that they
            dominate a trial need keep no model.
        on_failure: gets the id and the whole error, in one line, of a trial that fails. The error may quote data and is
            for the owner alone; the reasons of ``on_end`` are public.

    An exception in ``on_start``, ``on_death``, ``on_restart`` or ``on_end`` ends the run.
    """

    on_start: Callable[[str, TrialStart], None] = lambda _trial, _config: None
    on_plan: Callable[[str, PlanRow], str | None] = lambda _trial, _row: None
    on_draw: Callable[[str], str | None] = lambda _trial: None
    on_epoch: Callable[[str, EpochRow], str | None] = lambda _trial, _row: None
    on_death: Callable[[str], bool] = lambda _trial: True
    on_restart: Callable[[str, int], None] = lambda _trial, _started: None
    on_end: Callable[[str, TrialStatus, str, int], None] = lambda _trial, _status, _reason, _started: None
    on_undefined: Callable[[str], None] = lambda _trial: None
    on_failure: Callable[[str, str], None] = lambda _trial, _error: None
    front: Callable[[], Sequence[Mapping[str, float]]] = tuple


@dataclass(slots=True)
class _TrialState:
    epoch: int = 0  # of the last row of an epoch
    attempt: str | None = None  # of the last plan
    draws: bool = False  # since that plan
    running: bool = False
    restarts: int = 0  # since it last came further
    died_at: int = 0  # the epoch it had reached then
    verdict: Verdict | None = None
    waits: bool = False  # after a verdict on its last row, a trial is not asked for another
    ended: bool = False


class TrialStates:
    """The trials of one run and how they stand; ``recorded`` has the last epochs of those that an earlier run began."""

    def __init__(self, hooks: Hooks, recorded: Mapping[str, int] | None = None) -> None:
        self._hooks = hooks
        self._trials = {trial: _TrialState(epoch=epoch) for trial, epoch in (recorded or {}).items()}
        self.trouble: Exception | None = None
        self._is_closed = False

    def start(self, trial: str, config: TrialStart) -> None:
        """A trial has begun, or begins again."""
        entry = self._trials.setdefault(trial, _TrialState())
        if self._is_closed:  # its process came up when the run was ending already, and nothing would end it later
            entry.ended = True
        if not entry.running and not entry.ended:
            entry.running = True
            self._tell(self._hooks.on_start, trial, config)

    def config(self, trial: str, proposal: Mapping[str, Scalar]) -> TrialStart:
        """Return what a trial begins with."""
        front = [dict(values) for values in self._hooks.front()]
        return {"trial": trial, "proposal": proposal, "recorded": self.last_epoch(trial), "front": front}

    def last_epoch(self, trial: str) -> int:
        """Return the last epoch that was taken, 0 before the first."""
        return self._trials[trial].epoch if trial in self._trials else 0

    def receive(self, trial: str, row: TrialRow) -> bool:
        """Take a row, unless it is a repetition, and return whether the trial goes on."""
        entry = self._trials[trial]
        if not entry.ended and not entry.verdict and self._is_new(row, entry):
            entry.verdict = self._judge(trial, row, entry)
            # A plan behind noise was made by an attempt that ran out of memory in the middle of an epoch.
            is_cut_off = isinstance(row, PlanRow) and entry.draws
            entry.waits = entry.verdict is not None and not is_cut_off
            match row:
                case PlanRow():
                    entry.attempt, entry.draws = row.attempt, False
                case FirstDrawRow():
                    entry.draws = True
                case EpochRow():
                    entry.epoch = row.epoch
        return not entry.ended and entry.verdict is None

    def overrule(self, trial: str, status: TrialStatus, reason: str) -> None:
        """Decide how a trial ends that its executor is about to kill."""
        entry = self._trials[trial]
        if not entry.ended and entry.verdict is None:
            entry.verdict = (status, reason)

    def restart(self, trial: str) -> bool:
        """A trial has lost its process; return whether it is to be started again."""
        entry = self._trials[trial]
        restarts = entry.restarts if entry.epoch == entry.died_at else 0
        if entry.ended or entry.verdict or not self._may_restart(trial) or restarts >= MOST_RESTARTS:
            return False
        entry.restarts, entry.died_at = restarts + 1, entry.epoch
        entry.running = False
        self._tell(self._hooks.on_restart, trial, _count_started(entry, TrialStatus.FAILED))
        return True

    def _may_restart(self, trial: str) -> bool:
        try:
            return self._hooks.on_death(trial)
        except Exception as error:
            self.trouble = self.trouble or error
            return False

    def end(self, trial: str, status: TrialStatus, reason: str = "") -> None:
        """A trial has ended; a verdict of the hooks explains it better than how it looks from outside."""
        entry = self._trials[trial]
        if not entry.ended:
            entry.ended = True
            status, reason = entry.verdict or (status, reason)
            self._tell(self._hooks.on_end, trial, status, reason, _count_started(entry, status))

    def fail(self, trial: str, error: BaseException | str) -> None:
        """A trial has ended with an error, or for a reason that this program gives."""
        if not self._trials[trial].ended:
            self.end(trial, TrialStatus.FAILED, self._tell_failure(trial, error))

    def close(self, status: TrialStatus, reason: str) -> None:
        """End every trial that has begun and not ended; none begins any more."""
        self._is_closed = True
        for trial, entry in self._trials.items():
            if entry.running or entry.restarts:
                self.end(trial, status, reason)

    @staticmethod
    def _is_new(row: TrialRow, entry: _TrialState) -> bool:
        match row:
            case PlanRow():
                return row.attempt != entry.attempt
            case FirstDrawRow():
                return not entry.draws
            case EpochRow():
                return row.epoch > entry.epoch

    def _judge(self, trial: str, row: TrialRow, entry: _TrialState) -> Verdict | None:
        if isinstance(row, PlanRow):
            return self._ask(trial, lambda: self._hooks.on_plan(trial, row))
        if entry.attempt is None:
            what = "a draw" if isinstance(row, FirstDrawRow) else "an epoch"
            return TrialStatus.FAILED, f"reported {what} before its plan"
        if isinstance(row, FirstDrawRow):
            return self._ask(trial, lambda: self._hooks.on_draw(trial))
        nans = [name for name, value in row.values.items() if value is not None and math.isnan(value)]
        if nans:
            self._tell(self._hooks.on_undefined, trial)
            return TrialStatus.FAILED, f"{', '.join(nans)} is not a number in epoch {row.epoch}"
        verdict = self._ask(trial, lambda: self._hooks.on_epoch(trial, row))
        stopped_when_done = verdict is not None and verdict[0] is TrialStatus.STOPPED and row.done
        return None if stopped_when_done else verdict

    def _ask(self, trial: str, hook: Callable[[], str | None]) -> Verdict | None:
        try:
            reason = hook()
        except Exception as error:
            return TrialStatus.FAILED, self._tell_failure(trial, error)
        return (TrialStatus.STOPPED, reason) if reason else None

    def _tell_failure(self, trial: str, error: BaseException | str) -> str:
        """Tell the hooks all of an error, and return what is public of it."""
        if isinstance(error, str):
            return error
        self._tell(self._hooks.on_failure, trial, one_line(error))
        return public_line(error)

    def _tell(self, hook: Callable[..., None], *args: Any) -> None:
        try:
            hook(*args)
        except Exception as error:
            self.trouble = self.trouble or error


def _count_started(entry: _TrialState, status: TrialStatus) -> int:
    """Return an upper bound of the epochs that drew noise: before its plan, or where it waits, a trial draws none."""
    waited = entry.waits or entry.attempt is None or status is TrialStatus.COMPLETED
    return entry.epoch if waited else entry.epoch + 1
