"""The desk: where the rows of a run's trials arrive, are taken once each, and answered by the driver's hooks.

A trial's first row is its plan, ``{"kind": "plan", ...}``, reported before any noise is drawn; every later
row is one epoch, ``{"kind": "epoch", "epoch": t, "values": {...}, "done": bool}``. A trial may go on only
after the hooks have answered for its last row. Nothing here imports Ray or knows what a plan or a point
means.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sweeper.records import TrialStatus

Row = Mapping[str, Any]
Verdict = tuple[TrialStatus, str]

MAX_REASON_LENGTH = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """What the driver does when something happens to a trial; all run in the driver's main loop.

    Attributes:
        on_start: gets the trial's id and the configuration its trainable receives.
        on_plan: gets the id and the plan row. A text refuses the trial, for that reason. An exception fails
            the trial: one whose plan could not be written down never trains.
        on_epoch: gets the id and an epoch's row, whose values hold no NaN. A text stops the trial, for that
            reason; an exception fails it.
        on_end: gets id, status, reason in one line, and how many epochs may have drawn noise: one more than were
            reported if the trial ended by itself or from outside in the middle of an epoch.

    An exception in ``on_start`` or ``on_end`` ends the run.
    """

    on_start: Callable[[str, Mapping[str, Any]], None] = lambda _trial, _config: None
    on_plan: Callable[[str, Row], str | None] = lambda _trial, _row: None
    on_epoch: Callable[[str, Row], str | None] = lambda _trial, _row: None
    on_end: Callable[[str, TrialStatus, str, int], None] = lambda _trial, _status, _reason, _begun: None


@dataclass(slots=True)
class _Entry:
    epoch: int = -1  # of the last row; 0 is the plan
    verdict: Verdict | None = None
    ended: bool = False


class Desk:
    """The trials of one run and how they stand."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._entries: dict[str, _Entry] = {}
        self.trouble: Exception | None = None

    def start(self, trial: str, config: Mapping[str, Any]) -> None:
        """A trial has begun."""
        if trial not in self._entries:
            self._entries[trial] = _Entry()
            self._tell(self._hooks.on_start, trial, config)

    def receive(self, trial: str, row: Row) -> bool:
        """Take a row, unless it is a repetition, and return whether the trial goes on."""
        entry = self._entries[trial]
        epoch = 0 if row["kind"] == "plan" else int(row["epoch"])
        if epoch > entry.epoch and not entry.ended and not entry.verdict:
            entry.verdict = self._judge(trial, row, entry)
            entry.epoch = epoch
        return not entry.ended and entry.verdict is None

    def end(self, trial: str, status: TrialStatus, reason: str = "") -> None:
        """A trial has ended; a verdict of the hooks explains it better than how it looks from outside."""
        entry = self._entries[trial]
        if not entry.ended:
            entry.ended = True
            status, reason = entry.verdict or (status, reason)
            self._tell(self._hooks.on_end, trial, status, reason, _begun(entry, status))

    def close(self, status: TrialStatus, reason: str) -> None:
        """End every trial that has not ended."""
        for trial in self._entries:
            self.end(trial, status, reason)

    def state(self) -> dict[str, int]:
        """Return the last epoch of every trial: what a resumed run needs to drop repetitions."""
        return {trial: entry.epoch for trial, entry in self._entries.items()}

    def restore(self, state: Mapping[str, int]) -> None:
        """Take up a saved state."""
        self._entries = {trial: _Entry(epoch=epoch) for trial, epoch in state.items()}

    def _judge(self, trial: str, row: Row, entry: _Entry) -> Verdict | None:
        if row["kind"] == "plan":
            return self._ask(self._hooks.on_plan, trial, row)
        if entry.epoch < 0:
            return TrialStatus.FAILED, "reported an epoch before its plan"
        nans = [name for name, value in row["values"].items() if value is not None and math.isnan(value)]
        if nans:
            return TrialStatus.FAILED, f"{', '.join(nans)} is not a number in epoch {row['epoch']}"
        verdict = self._ask(self._hooks.on_epoch, trial, row)
        stopped_when_done = verdict is not None and verdict[0] is TrialStatus.STOPPED and row.get("done")
        return None if stopped_when_done else verdict

    def _ask(self, hook: Callable[[str, Row], str | None], trial: str, row: Row) -> Verdict | None:
        try:
            reason = hook(trial, row)
        except Exception as error:
            return TrialStatus.FAILED, one_line(error)
        return (TrialStatus.STOPPED, reason) if reason else None

    def _tell(self, hook: Callable[..., None], *args: Any) -> None:
        try:
            hook(*args)
        except Exception as error:
            self.trouble = self.trouble or error


def _begun(entry: _Entry, status: TrialStatus) -> int:
    """Return an upper bound of the epochs that drew noise: after a verdict a trial was not asked for another."""
    waited = entry.verdict is not None or status is TrialStatus.COMPLETED
    return max(entry.epoch, 0) if waited else entry.epoch + 1


def one_line(error: BaseException | str) -> str:
    """Return an error as one line of text."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    line = " ".join(text.split()).removesuffix(":")
    return line if len(line) <= MAX_REASON_LENGTH else f"{line[:MAX_REASON_LENGTH]}..."
