"""What a sweep has spent: one append-only file, written before the noise is.

A training is entered with the event it plans before its first noise is drawn, and closed with the steps it
ran. It is charged its planned steps whether it was closed or not: a trial that was stopped early was stopped
after looking at its own iterates, and only the planned length covers that decision. A training that restarts
is entered again, and both are charged. One that goes on from a checkpoint is entered with the steps that are left;
the attempt before it is then charged the steps it drew, those that the checkpoint does not hold included.

A training marks that its first noise is about to be drawn, in a row of its own, on the disk before the draw. One that
was entered and never came there costs nothing, and changes nothing of what attempts before it cost. Entries of ledgers
without such marks are charged in full.

Where scores of rows held back are noisy releases, a training is entered and closed with those of its validation rows
too, under the same rules: a score whose row was lost is released again and charged again. Those of the test rows are
entered one by one, each before its noise is drawn, and charged once for each row of the file.

Of a private selection there is one row more: its terms. Where its conditions held it is the only row, because the
number of trainings would give the number of candidates away; a file that says otherwise is refused. What test scores
of the winner cost is entered behind it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clipless.errors import AccountingError
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.errors import RecordError
from sweeper.privacy.paid_scores import PaidScores
from sweeper.privacy.prices import answers, composed
from sweeper.privacy.pricing import Price
from sweeper.privacy.selection import Terms
from sweeper.store.jsonl import JsonlFile


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
        scores: what was planned for scores of private validation rows, ``None`` where they are free.
        scored: releases of scores that were made, ``None`` while that is not known.
        drawn: whether noise may have been drawn; false until that is marked.
    """

    trial: str
    attempt: int
    event: PoissonGaussian
    steps: int | None = None
    kept: int = 0
    goes_on: bool = False
    scores: PaidScores | None = None
    scored: int | None = None
    drawn: bool = True

    @property
    def charged(self) -> PoissonGaussian:
        """What is charged: the planned steps, more if more were run; only those run if another attempt goes on."""
        if not self.drawn:
            return self.event.with_steps(0)
        planned = 0 if self.goes_on else self.event.steps
        return self.event.with_steps(max(planned, self.steps or 0))

    @property
    def charged_scores(self) -> tuple[PoissonGaussian, ...]:
        """What is charged for scores: all that were planned, or those made if another attempt makes the others."""
        if self.scores is None or not self.drawn:
            return ()
        planned = 0 if self.goes_on and self.scored is not None else self.scores.event.steps
        return (self.scores.event.with_steps(max(planned, self.scored or 0)),)


class Ledger:
    """The events of one sweep, all under one neighbouring relation.

    Attributes:
        rows: how many the file has.
        selection: the terms of a private selection, ``None`` without one.

    Guarantees:
        When ``open`` has returned, the event is on the disk; when ``draw`` has, so is the mark that it is charged. When
        one of them raises, no noise may be drawn.
    """

    def __init__(self, path: str | Path) -> None:
        """Open the file, or start a new one.

        Raises:
            RecordError: the file is broken.
        """
        self._file = JsonlFile(Path(path), durable=True)
        self._entries: dict[tuple[str, int], Entry] = {}
        self._tests: list[PaidScores] = []
        self.rows = 0
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
        selected = () if self.selection is None else (self.selection.event,)
        events = (*selected, *(entry.event for entry in self._entries.values()), *(paid.event for paid in self._tests))
        return next((event.relation for event in events), None)

    def entries(self) -> tuple[Entry, ...]:
        """Return every training, in the order in which they were opened."""
        return tuple(self._entries.values())

    def open(
        self,
        trial: str,
        event: PoissonGaussian | Mapping[str, Any],
        *,
        kept: int = 0,
        scores: PaidScores | None = None,
        marked: bool = False,
    ) -> int:
        """Enter a training before its first noise is drawn.

        Args:
            trial: id of the trial.
            event: everything the whole training plans to spend, as an event or its JSON.
            kept: steps of its earlier attempts that it goes on from; the rest of the event is entered.
            scores: what this attempt plans to spend on scores of private validation rows.
            marked: whether ``draw`` will be called before its first draw; it is charged from now on otherwise.

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
        row |= ({} if scores is None else {"scores": scores.to_json()}) | ({"drawn": False} if marked else {})
        self._check_open(row)
        self._file.append(row)
        self._take(row)
        return len(earlier) + 1

    def draw(self, trial: str) -> None:
        """Mark that the last training of a trial is about to draw its first noise; a second call changes nothing.

        Raises:
            RecordError: not written, or no such training that is open.
        """
        if self.is_drawn(trial):
            return
        attempts = self._attempts(trial)
        row = {"record": "draw", "trial": trial, "attempt": attempts[-1].attempt if attempts else 0}
        self._check_draw(row)
        self._file.append(row)
        self._take(row)

    def select(self, terms: Terms) -> None:
        """Enter the terms of a private selection; a condition that was broken once stays broken.

        Raises:
            RecordError: not written, other terms than those entered before, or terms that held beside trainings.
        """
        row = {"record": "selection", "terms": terms.to_json()}
        self._joined(row)
        self._file.append(row)
        self._take(row)

    def epsilon_with(
        self, trial: str, planned: PoissonGaussian, delta: float, *, kept: int = 0, scores: PaidScores | None = None
    ) -> float:
        """Return what everything would cost if a training were entered as ``open`` does, and drew; so do open ones."""
        last = self._charged_attempts(trial)[-1:] if kept else []
        entries = [replace(e, goes_on=True) if e in last else e for e in self._entries.values()]
        entries = [replace(e, drawn=e.drawn or e.steps is None) for e in entries]
        left = planned.with_steps(planned.steps - kept)
        entries.append(Entry(trial=trial, attempt=0, event=left, scores=scores))
        splits, apart = _charged(entries, self._tests)
        return composed(splits, delta, apart=apart).epsilon

    def epsilon_with_test(self, paid: PaidScores, delta: float) -> float:
        """Return what everything would cost if scores of test rows were entered too."""
        splits, apart = _charged(self._entries.values(), [*self._tests, paid])
        return composed(splits, delta, apart=apart).epsilon

    def enter_test(self, trial: str, epoch: int, paid: PaidScores) -> None:
        """Enter the scores of private test rows of one point before their noise is drawn.

        Raises:
            RecordError: not written, of another relation than the others, or, behind a private selection, of rows whose
                splits are not their own matter.
        """
        row = {"record": "test", "trial": trial, "epoch": epoch, "scores": paid.to_json()}
        self._check_test(paid)
        self._file.append(row)
        self._take(row)

    def close(self, trial: str, reached: int, *, scored: int = 0) -> None:
        """Record how far the last training of a trial came; a second call may only raise the number.

        Args:
            trial: id of the trial.
            reached: steps of the whole training, those that its last attempt went on from included; an attempt whose
                draws were not marked has made none.
            scored: releases of scores of the whole training, counted likewise; the last attempt is charged for all that
                it planned if they do not go beyond those that it kept.

        Raises:
            RecordError: not written, no such training, or not a number of steps.
        """
        attempts = self._attempts(trial)
        if not attempts:
            raise RecordError(f"Expected a trial that was entered in {self._file.path}, got {trial!r}")
        steps = reached - attempts[-1].kept if type(reached) is int else reached
        if not attempts[-1].drawn:
            steps, scored = 0, 0
        row = {"record": "close", "trial": trial, "attempt": attempts[-1].attempt, "steps": steps}
        scores = attempts[-1].scores
        row |= {"scored": scored - scores.kept} if scores is not None and scored > scores.kept else {}
        _check_close(attempts[-1], steps)
        self._file.append(row)
        self._take(row)

    def is_open(self, trial: str) -> bool:
        """Whether a training of the trial was entered and not closed."""
        return any(entry.steps is None for entry in self._attempts(trial)[-1:])

    def is_drawn(self, trial: str) -> bool:
        """Whether the last training of a trial may have drawn noise."""
        return any(entry.drawn for entry in self._attempts(trial)[-1:])

    def check_charged(self, trial: str) -> None:
        """Refuse a ledger that has lost what a trial spent: nobody could say what the sweep costs.

        Raises:
            RecordError: the trial was never entered, nor stands for a private selection.
        """
        selected = self.selection is not None and not self.selection.broken
        if not (selected or self._attempts(trial)):
            raise RecordError(f"Expected what trial {trial} spent in {self._file.path}, got nothing; restore the file")

    def kept(self, trial: str) -> int:
        """Return the steps of earlier attempts that the last training of a trial goes on from."""
        return sum(entry.kept for entry in self._attempts(trial)[-1:])

    def _attempts(self, trial: str) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.trial == trial]

    def _charged_attempts(self, trial: str) -> list[Entry]:
        return [entry for entry in self._attempts(trial) if entry.drawn]

    def answers(self, delta: float, *, tight: bool = False) -> dict[str, Price]:
        """Say what releasing the winner, the front, or everything costs.

        Args:
            delta: at which epsilon is stated.
            tight: take seconds for a smaller epsilon, see ``price``.
        """
        (charged, validation, test), apart = _charged(self._entries.values(), self._tests)
        return answers(
            charged,
            delta,
            tight=tight,
            selection=self.selection,
            validation=validation,
            test=test,
            apart=apart,
        )

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
        if (scores := _scores(row)) is not None and scores.event.relation is not event.relation:
            raise RecordError(f"Expected scores under {event.relation.value} as their training, of {row['trial']}")
        if self.selection is not None and not self.selection.broken:
            raise RecordError(f"Expected no training behind the private selection that {self._file.path} has priced")
        if kept == 0:
            return
        before = self._charged_attempts(str(row["trial"]))[-1:]
        if not before or before[0].steps is None or not before[0].kept <= kept <= before[0].kept + before[0].steps:
            raise RecordError(f"Expected kept={kept!r} steps that trial {row['trial']} has run in a closed attempt")
        if event.with_steps(0) != before[0].event.with_steps(0):
            raise RecordError(f"Expected the mechanism that trial {row['trial']} began with; begin it anew")

    def _check_draw(self, row: Mapping[str, Any]) -> None:
        attempts = self._attempts(str(row["trial"]))
        if not attempts or attempts[-1].attempt != row["attempt"] or attempts[-1].steps is not None:
            raise RecordError(f"Expected an open training of trial {row['trial']} in {self._file.path}, got none")

    def _check_test(self, paid: PaidScores) -> None:
        self._check_relation(paid.event)
        if self.selection is not None and not self.selection.broken and not paid.apart:
            raise RecordError(
                f"Expected rows whose split depends on themselves alone for scores behind the private selection that "
                f"{self._file.path} has priced"
            )

    def _check_relation(self, event: PoissonGaussian) -> None:
        if self.relation not in (None, event.relation):
            expected = self.relation.value if self.relation else ""
            raise RecordError(
                f"Expected the relation {expected} of the other events of {self._file.path}, got "
                f"{event.relation.value}; start another sweep"
            )

    def _take(self, row: Mapping[str, Any]) -> None:
        self._enter(row)
        self.rows += 1

    def _enter(self, row: Mapping[str, Any]) -> None:
        if row.get("record") == "selection":
            self.selection = self._joined(row)
            return
        if row.get("record") == "test":
            paid = PaidScores.from_json(row["scores"])
            self._check_test(paid)
            self._tests.append(paid)
            return
        key = (str(row["trial"]), int(row["attempt"]))
        if row["record"] == "open":
            self._check_open(row)
            kept, event = row.get("kept", 0), PoissonGaussian.from_json(row["event"])
            entry = Entry(trial=key[0], attempt=key[1], event=event, kept=kept, scores=_scores(row), drawn=False)
            self._entries[key] = entry
            if row.get("drawn", True) is not False:
                self._mark(entry)
        elif row["record"] == "draw":
            self._check_draw(row)
            self._mark(self._entries[key])
        elif row["record"] == "close":
            _check_close(self._entries[key], row["steps"])
            scored = _scored(self._entries[key], row)
            if row["steps"] > 0:
                self._mark(self._entries[key])
            self._entries[key] = replace(self._entries[key], steps=row["steps"], scored=scored)
        else:
            raise RecordError(f"record is {row['record']!r}")

    def _mark(self, entry: Entry) -> None:
        """Charge a training from now on; the attempt that it goes on from is then charged what it ran."""
        before = self._charged_attempts(entry.trial)[-1:] if entry.kept and not entry.drawn else []
        for one in before:
            self._entries[one.trial, one.attempt] = replace(one, goes_on=True)
        self._entries[entry.trial, entry.attempt] = replace(entry, drawn=True)


def _check_close(entry: Entry, steps: Any) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int) or not steps >= (entry.steps or 0):
        raise RecordError(f"steps of trial {entry.trial} must be a count >= {entry.steps or 0}, got {steps!r}")


def _scores(row: Mapping[str, Any]) -> PaidScores | None:
    return PaidScores.from_json(row["scores"]) if "scores" in row else None


def _scored(entry: Entry, row: Mapping[str, Any]) -> int | None:
    """Return how many releases of scores an attempt is known to have made, never less than was known before."""
    scored = row.get("scored")
    if scored is None:
        return entry.scored
    if entry.scores is None or type(scored) is not int or not scored >= 1:
        raise RecordError(f"scored of trial {entry.trial} must be a count >= 1 of releases it planned, got {scored!r}")
    return max(scored, entry.scored or 0)


def _charged(
    entries: Iterable[Entry], tests: Sequence[PaidScores]
) -> tuple[tuple[list[PoissonGaussian], list[PoissonGaussian], list[PoissonGaussian]], bool]:
    """Return what is charged on training, validation and test rows, and whether these are apart."""
    entries = [entry for entry in entries if entry.drawn]
    validation = [event for entry in entries for event in entry.charged_scores]
    paid = [*(entry.scores for entry in entries if entry.scores is not None), *tests]
    splits = ([entry.charged for entry in entries], validation, [one.event for one in tests])
    return splits, all(one.apart for one in paid)
