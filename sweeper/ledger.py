"""What a sweep has spent: one append-only file, written before the noise is.

A training is entered with the event it plans before its first noise is drawn, and closed with the steps it
ran. It is charged its planned steps whether it was closed or not: a trial that was stopped early was stopped
after looking at its own iterates, and only the planned length covers that decision. A training that restarts
is entered again, and both are charged. One that goes on from a checkpoint is entered with the steps that are left;
the attempt before it is then charged the steps it drew, those that the checkpoint does not hold included.

Of a private selection there is one row more: its terms. Where its conditions held it is the only row, because the
number of rows would give the number of candidates away; a file that says otherwise is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clipless.errors import AccountingError
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.errors import RecordError
from sweeper.prices import answers
from sweeper.pricing import Answer, price
from sweeper.rows import RowFile
from sweeper.selection import Terms


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One training.

    Attributes:
        trial: id of the trial.
        attempt: 1 for its first training, 2 when it was started again, ...
        event: what was planned.
        steps: what was run, ``None`` while the entry is open.
        kept: steps of earlier attempts that this one goes on from.
        goes_on: whether a later attempt goes on from this one, and plans the steps that it did not run.
    """

    trial: str
    attempt: int
    event: PoissonGaussian
    steps: int | None = None
    kept: int = 0
    goes_on: bool = False

    @property
    def charged(self) -> PoissonGaussian:
        """What is charged: the planned steps, more if more were run; only those run if another attempt goes on."""
        planned = 0 if self.goes_on else self.event.steps
        return self.event.with_steps(max(planned, self.steps or 0))


class Ledger:
    """The events of one sweep, all under one neighbouring relation.

    Guarantees:
        When ``open`` has returned, the event is on the disk. When it raises, no noise may be drawn.
    """

    def __init__(self, path: str | Path) -> None:
        """Open the file, or start a new one.

        Raises:
            RecordError: the file is broken.
        """
        self._file = RowFile(Path(path), durable=True)
        self._entries: dict[tuple[str, int], Entry] = {}
        self.selection: Terms | None = None
        for number, row in enumerate(self._file.read(), start=1):
            try:
                self._take(row)
            except (KeyError, TypeError, ValueError, AccountingError) as error:
                reason = f"{type(error).__name__} {error}" if isinstance(error, KeyError) else str(error)
                raise RecordError(f"Expected a ledger row, but {reason} (line {number} of {path})") from error

    @property
    def relation(self) -> Relation | None:
        """The neighbouring relation of every event, ``None`` before the first."""
        return next((entry.event.relation for entry in self._entries.values()), None)

    def entries(self) -> tuple[Entry, ...]:
        """Return every training, in the order in which they were opened."""
        return tuple(self._entries.values())

    def open(self, trial: str, event: PoissonGaussian | Mapping[str, Any], *, kept: int = 0) -> int:
        """Enter a training before its first noise is drawn.

        Args:
            trial: id of the trial.
            event: everything the whole training plans to spend, as an event or its JSON.
            kept: steps of its earlier attempts that it goes on from; the rest of the event is entered.

        Returns:
            The attempt: 1, or more if this trial was entered before.

        Raises:
            RecordError: not written, of another relation than the others, or going on from steps that no closed attempt
                of the same mechanism has run.
        """
        planned = event if isinstance(event, PoissonGaussian) else PoissonGaussian.from_json(dict(event))
        earlier = self._attempts(trial)
        row = {"record": "open", "trial": trial, "attempt": len(earlier) + 1}
        left = planned.with_steps(planned.steps - kept) if 0 <= kept <= planned.steps else planned
        row |= {"event": left.to_json()} | ({"kept": kept} if kept else {})
        self._check_open(row)
        self._file.append(row)
        self._take(row)
        return len(earlier) + 1

    def select(self, terms: Terms) -> None:
        """Enter the terms of a private selection; a condition that was broken once stays broken.

        Raises:
            RecordError: not written, other terms than those entered before, or terms that held beside trainings.
        """
        row = {"record": "selection", "terms": terms.to_json()}
        self._joined(row)
        self._file.append(row)
        self._take(row)

    def epsilon_with(self, trial: str, planned: PoissonGaussian, delta: float, *, kept: int = 0) -> float:
        """Return what everything would cost if a training were entered as ``open`` does."""
        last = self._attempts(trial)[-1:] if kept else []
        charged = [replace(e, goes_on=True).charged if e in last else e.charged for e in self._entries.values()]
        return price([*charged, planned.with_steps(planned.steps - kept)], delta).epsilon

    def close(self, trial: str, reached: int) -> None:
        """Record how far the last training of a trial came; a second call may only raise the number.

        Args:
            trial: id of the trial.
            reached: steps of the whole training, those that its last attempt went on from included.

        Raises:
            RecordError: not written, no such training, or not a number of steps.
        """
        attempts = self._attempts(trial)
        if not attempts:
            raise RecordError(f"Expected a trial that was entered in {self._file.path}, got {trial!r}")
        steps = reached - attempts[-1].kept if type(reached) is int else reached
        row = {"record": "close", "trial": trial, "attempt": attempts[-1].attempt, "steps": steps}
        _check_close(attempts[-1], steps)
        self._file.append(row)
        self._take(row)

    def is_open(self, trial: str) -> bool:
        """Whether a training of the trial was entered and not closed."""
        return any(entry.steps is None for entry in self._attempts(trial)[-1:])

    def _attempts(self, trial: str) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.trial == trial]

    def answers(self, delta: float, *, tight: bool = False) -> dict[str, Answer]:
        """Say what releasing the winner, the front, or everything costs.

        Args:
            delta: at which epsilon is stated.
            tight: take seconds for a smaller epsilon, see ``price``.
        """
        charged = [entry.charged for entry in self._entries.values()]
        return answers(charged, delta, tight=tight, selection=self.selection)

    def _joined(self, row: Mapping[str, Any]) -> Terms:
        """Return the terms of a row with what was broken before."""
        terms, before = Terms.from_json(row["terms"]), self.selection
        if before is not None:
            if replace(before, broken=()) != replace(terms, broken=()):
                raise RecordError(f"Expected one private selection in {self._file.path}, got another one's terms")
            terms = replace(terms, broken=tuple(dict.fromkeys([*before.broken, *terms.broken])))
        if self._entries and not terms.broken:
            raise RecordError(
                f"Expected no training beside a private selection whose conditions held, got {len(self._entries)} in "
                f"{self._file.path}; their number was to stay secret"
            )
        return terms

    def _check_open(self, row: Mapping[str, Any]) -> None:
        """Refuse an entry of another relation, or one that goes on from steps that were not run."""
        event, kept = PoissonGaussian.from_json(row["event"]), row.get("kept", 0)
        self._check_relation(event)
        if self.selection is not None and not self.selection.broken:
            raise RecordError(f"Expected no training behind the private selection that {self._file.path} has priced")
        if kept == 0:
            return
        before = self._attempts(str(row["trial"]))[-1:]
        if not before or before[0].steps is None or not before[0].kept <= kept <= before[0].kept + before[0].steps:
            raise RecordError(f"Expected kept={kept!r} steps that trial {row['trial']} has run in a closed attempt")
        if event.with_steps(0) != before[0].event.with_steps(0):
            raise RecordError(f"Expected the mechanism that trial {row['trial']} began with; begin it anew")

    def _check_relation(self, event: PoissonGaussian) -> None:
        if self.relation not in (None, event.relation):
            expected = self.relation.value if self.relation else ""
            raise RecordError(
                f"Expected the relation {expected} of the other events of {self._file.path}, got "
                f"{event.relation.value}; start another sweep"
            )

    def _take(self, row: Mapping[str, Any]) -> None:
        if row.get("record") == "selection":
            self.selection = self._joined(row)
            return
        key = (str(row["trial"]), int(row["attempt"]))
        if row["record"] == "open":
            self._check_open(row)
            kept, event = row.get("kept", 0), PoissonGaussian.from_json(row["event"])
            if kept:
                before = self._attempts(key[0])[-1]
                self._entries[(before.trial, before.attempt)] = replace(before, goes_on=True)
            self._entries[key] = Entry(trial=key[0], attempt=key[1], event=event, kept=kept)
        elif row["record"] == "close":
            _check_close(self._entries[key], row["steps"])
            self._entries[key] = replace(self._entries[key], steps=row["steps"])
        else:
            raise RecordError(f"record is {row['record']!r}")


def _check_close(entry: Entry, steps: Any) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int) or not steps >= (entry.steps or 0):
        raise RecordError(f"steps of trial {entry.trial} must be a count >= {entry.steps or 0}, got {steps!r}")
