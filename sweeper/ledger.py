"""What a sweep has spent: one append-only file, written before the noise is.

A training is entered with the event it plans before its first noise is drawn, and closed with the steps it
ran. It is charged its planned steps whether it was closed or not: a trial that was stopped early was stopped
after looking at its own iterates, and only the planned length covers that decision. A training that restarts
is entered again, and both are charged.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clipless.errors import AccountingError
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.errors import RecordError
from sweeper.pricing import Answer, price, round_up
from sweeper.rows import RowFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One training.

    Attributes:
        trial: id of the trial.
        attempt: 1 for its first training, 2 when it was started again, ...
        event: what was planned.
        steps: what was run, ``None`` while the entry is open.
    """

    trial: str
    attempt: int
    event: PoissonGaussian
    steps: int | None = None

    @property
    def charged(self) -> PoissonGaussian:
        """What is charged: the planned steps, more if more were run."""
        return self.event.with_steps(max(self.event.steps, self.steps or 0))


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

    def open(self, trial: str, event: PoissonGaussian | Mapping[str, Any]) -> int:
        """Enter a training before its first noise is drawn.

        Args:
            trial: id of the trial.
            event: everything it plans to spend, as an event or its JSON.

        Returns:
            The attempt: 1, or more if this trial was entered before.

        Raises:
            RecordError: not written, or of another relation than the others.
        """
        planned = event if isinstance(event, PoissonGaussian) else PoissonGaussian.from_json(dict(event))
        attempt = 1 + sum(entry.trial == trial for entry in self._entries.values())
        self._check_relation(planned)
        row = {"record": "open", "trial": trial, "attempt": attempt, "event": planned.to_json()}
        self._file.append(row)
        self._take(row)
        return attempt

    def epsilon_with(self, event: Mapping[str, Any], delta: float) -> float:
        """Return what everything would cost if a training with this event, as JSON, were entered too."""
        events = [entry.charged for entry in self._entries.values()]
        return price([*events, PoissonGaussian.from_json(dict(event))], delta).epsilon

    def close(self, trial: str, steps: int) -> None:
        """Record how many steps the last training of a trial ran; a second call may only raise the number.

        Raises:
            RecordError: not written, no such training, or not a number of steps.
        """
        attempts = [entry for entry in self._entries.values() if entry.trial == trial]
        if not attempts:
            raise RecordError(f"Expected a trial that was entered in {self._file.path}, got {trial!r}")
        row = {"record": "close", "trial": trial, "attempt": attempts[-1].attempt, "steps": steps}
        _check_close(attempts[-1], steps)
        self._file.append(row)
        self._take(row)

    def answers(self, delta: float, *, tight: bool = False) -> dict[str, Answer]:
        """Say what releasing the winner, the front, or everything costs.

        For now all three are the composition of every training of the sweep.

        Args:
            delta: at which epsilon is stated.
            tight: take seconds for a smaller epsilon, see ``price``.
        """
        events = [entry.charged for entry in self._entries.values()]
        everything = price(events, delta, tight=tight)
        return {question: replace(everything, statement=text) for question, text in _statements(everything).items()}

    def _check_relation(self, event: PoissonGaussian) -> None:
        if self.relation not in (None, event.relation):
            expected = self.relation.value if self.relation else ""
            raise RecordError(
                f"Expected the relation {expected} of the other events of {self._file.path}, got "
                f"{event.relation.value}; start another sweep"
            )

    def _take(self, row: Mapping[str, Any]) -> None:
        key = (str(row["trial"]), int(row["attempt"]))
        if row["record"] == "open":
            event = PoissonGaussian.from_json(row["event"])
            self._check_relation(event)
            self._entries[key] = Entry(trial=key[0], attempt=key[1], event=event)
        elif row["record"] == "close":
            _check_close(self._entries[key], row["steps"])
            self._entries[key] = replace(self._entries[key], steps=row["steps"])
        else:
            raise RecordError(f"record is {row['record']!r}")


def _check_close(entry: Entry, steps: Any) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int) or not steps >= (entry.steps or 0):
        raise RecordError(f"steps of trial {entry.trial} must be a count >= {entry.steps or 0}, got {steps!r}")


def _statements(everything: Answer) -> dict[str, str]:
    cost = (
        f"epsilon {round_up(everything.epsilon)} at delta {everything.delta:g}, the composition of every "
        f"training of the sweep ({everything.events})"
    )
    choice = "The choice looked at every trial and is charged for each; a finer price needs conditions that "
    return {
        "winner": f"Releasing one model: {cost}. {choice}an adaptive search does not meet.",
        "front": f"Releasing the front and its models: {cost}. {choice}publishing a front does not meet.",
        "everything": f"Releasing every model of every epoch: {cost}.",
    }
