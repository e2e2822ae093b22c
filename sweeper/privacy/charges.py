"""What a ledger charges: its rows taken one after another, each checked against those before it.

See `sweeper.privacy.ledger` for the rules.
"""

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from pathlib import Path

from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.errors import RecordError
from sweeper.privacy.entries import ChargedEvents, Entry
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.ledger_entries import (
    BudgetRow,
    CloseRow,
    DrawRow,
    LedgerRow,
    OpenRow,
    ScoresRow,
    SelectionRow,
    SketchRow,
)
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending import Budget, Spending
from sweeper.privacy.spending._composition import Composition
from sweeper.privacy.spending._winner import Winner


class Charges:
    """The rows of one ledger and what they charge, all under one neighbouring relation.

    It is long, of more than fifteen methods, because each kind of row is checked by one and taken by one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[tuple[str, int], Entry] = {}
        self._tests: list[ScoresRow] = []
        self.selection: Terms | None = None
        self.budget: Budget | None = None
        self.sketch: PoissonGaussian | None = None

    @property
    def spending(self) -> Spending:
        """How the sweep spends, as far as its rows say: its budget, or what follows without one."""
        if self.budget is not None:
            return self.budget
        return Composition() if self.selection is None else Winner(terms=self.selection)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every training, in the order in which they were opened."""
        return tuple(self._entries.values())

    @property
    def tests(self) -> tuple[ScoresRow, ...]:
        """Every release of scores of private test rows, in the order in which they were entered."""
        return tuple(self._tests)

    @property
    def _paid_tests(self) -> list[PaidScores]:
        return [row.scores for row in self._tests]

    @property
    def relation(self) -> Relation | None:
        """The neighbouring relation of every event, ``None`` before the first."""
        first = [*([] if self.selection is None else [self.selection.event]), *filter(None, [self.sketch])]
        events = (*first, *(entry.event for entry in self.entries), *(row.scores.event for row in self._tests))
        return next((event.relation for event in events), None)

    def attempts(self, trial: str) -> list[Entry]:
        """Return the trainings of a trial."""
        return [entry for entry in self.entries if entry.trial == trial]

    def last(self, trial: str) -> Entry | None:
        """Return the last training of a trial, ``None`` if it was never entered."""
        return next(reversed(self.attempts(trial)), None)

    @property
    def charged(self) -> ChargedEvents:
        """Everything that is charged."""
        drawn, tests = self._drawn(self.entries), self._paid_tests
        paid = [*(entry.scores for entry in drawn if entry.scores is not None), *tests]
        return ChargedEvents(
            training=[entry.charged for entry in drawn],
            again=len(drawn) - len({entry.trial for entry in drawn}),
            validation=[event for entry in drawn for event in entry.charged_scores],
            test=[one.event for one in tests],
            apart=all(one.apart for one in paid),
            selection=self.selection,
        )

    def charged_with(self, opened: Iterable[OpenRow]) -> ChargedEvents:
        """Return what would be charged if these trainings were entered one after another, and drew."""
        more = copy(self)
        more._entries = dict(self._entries)
        for row in opened:
            more._open(row)
        return more.charged

    def entries_with(self, opened: OpenRow) -> list[Entry]:
        """Return the trainings as if one more had been entered and drew; so do open ones."""
        every = self._all_drawn()
        before = every._charged_attempts(opened.trial)[-1:] if opened.kept else []
        entries = [replace(e, goes_on=True) if e in before else e for e in every.entries]
        entries.append(
            Entry(
                trial=opened.trial,
                attempt=0,
                event=opened.event,
                kept=opened.kept,
                ends=opened.ends,
                scores=opened.scores,
                stage=opened.stage,
            )
        )
        return entries

    def refusal(self, opened: OpenRow) -> str | None:
        """Return why the budget of the sweep has no room for a training, ``None`` if it has or there is no budget."""
        return self.spending.refusal(self._drawn(self.entries_with(opened)), self._paid_tests, self.selection)

    def test_refusal(self, paid: PaidScores) -> str | None:
        """Return why the budget of the sweep has no room for scores of test rows, ``None`` if it has."""
        return self.spending.test_refusal(self._drawn(self._all_drawn().entries), [*self._paid_tests, paid])

    def _all_drawn(self) -> "Charges":
        """Return what would be charged if every open training drew: what it goes on from is charged what that ran."""
        more = copy(self)
        more._entries = dict(self._entries)
        for entry in self.entries:
            if entry.steps is None:
                more._mark(entry)
        return more

    @staticmethod
    def _drawn(entries: Iterable[Entry]) -> list[Entry]:
        return [entry for entry in entries if entry.drawn]

    def check(self, row: LedgerRow) -> None:
        """Raise a `RecordError` for a row that breaks the rules."""
        match row:
            case SelectionRow():
                self._joined(row.terms)
            case BudgetRow():
                self._check_budget()
            case SketchRow():
                self._check_sketch(row.event)
            case ScoresRow():
                self._check_test(row.scores)
            case OpenRow():
                self._check_open(row)
            case DrawRow():
                self._check_draw(row)
            case CloseRow():
                entry = self._entries[row.trial, row.attempt]
                _check_close(entry, row, is_last=self.spending.refunds)

    def take(self, row: LedgerRow) -> None:
        """Take the next row, after `check`."""
        self.check(row)
        match row:
            case SelectionRow():
                self.selection = self._joined(row.terms)
            case BudgetRow():
                self.budget = row.budget
            case SketchRow():
                self.sketch = row.event
            case ScoresRow():
                self._tests.append(row)
            case OpenRow():
                self._open(row)
            case DrawRow():
                self._mark(self._entries[row.trial, row.attempt])
                self._grant(self._entries[row.trial, row.attempt], row.until)
            case CloseRow():
                self._close(row)

    def _open(self, row: OpenRow) -> None:
        entry = Entry(
            trial=row.trial,
            attempt=row.attempt,
            event=row.event,
            kept=row.kept,
            ends=row.ends,
            scores=row.scores,
            stage=row.stage,
            drawn=False,
        )
        self._entries[row.trial, row.attempt] = entry
        if row.drawn:
            self._mark(entry)

    def _close(self, row: CloseRow) -> None:
        scored = _scored(self._entries[row.trial, row.attempt], row)
        if row.steps > 0:
            self._mark(self._entries[row.trial, row.attempt])
        entry = self._entries[row.trial, row.attempt]
        self._entries[row.trial, row.attempt] = replace(entry, steps=row.steps, scored=scored)

    def _mark(self, entry: Entry) -> None:
        """Charge a training from now on; the attempt that it goes on from is then charged what it ran."""
        before = self._charged_attempts(entry.trial)[-1:] if entry.kept and not entry.drawn else []
        for one in before:
            self._entries[one.trial, one.attempt] = replace(one, goes_on=True)
        self._entries[entry.trial, entry.attempt] = replace(entry, drawn=True)

    def _grant(self, entry: Entry, until: int | None) -> None:
        if until is not None:
            self._entries[entry.trial, entry.attempt] = replace(entry, granted=(*entry.granted, until))

    def _charged_attempts(self, trial: str) -> list[Entry]:
        return [entry for entry in self.attempts(trial) if entry.drawn]

    def _joined(self, terms: Terms) -> Terms:
        before = self.selection
        self._check_within_budget(terms)
        if before is not None:
            if not before.broken:
                raise RecordError(f"Expected one private selection in {self._path}, which has ended, got another one")
            if before.planned != terms.planned:
                raise RecordError(f"Expected one private selection in {self._path}, got another one's terms")
            breaks = tuple(dict.fromkeys([*before.breaks, *terms.breaks]))
            terms = replace(terms, breaks=breaks, undecided=before.undecided or terms.undecided)
        if self._entries and not terms.broken:
            raise RecordError(
                f"Expected no training beside a private selection whose conditions held, got {len(self._entries)} in "
                f"{self._path}; their number was to stay secret"
            )
        return terms

    def _check_within_budget(self, terms: Terms) -> None:
        """Refuse a private selection that the budget of the sweep, where there is one, has not priced."""
        if self.budget is not None and terms.planned != self.budget.selection:
            raise RecordError(f"Expected the private selection in the budget of {self._path}, got another one")

    def _check_final(self, row: OpenRow) -> None:
        """Refuse a candidate after the end of the private selection in the budget, and a final before it."""
        if self.selection is None:
            raise RecordError(f"Expected the private selection in the budget of {self._path} before any training")
        if (row.stage is None) != bool(self.selection.broken):
            what = "final" if self.selection.broken else "candidate"
            raise RecordError(f"Expected no {what} of the private selection in the budget of {self._path}, got {row}")

    def _check_open(self, row: OpenRow) -> None:
        """Refuse an entry of another relation, or one that goes on from steps that were not run."""
        self._check_relation(row.event)
        if row.scores is not None and row.scores.event.relation is not row.event.relation:
            raise RecordError(f"Expected scores under {row.event.relation.value} as their training, of {row.trial}")
        if self.budget is not None and self.budget.selection is not None:
            self._check_final(row)
        elif self.selection is not None and not self.selection.broken:
            raise RecordError(f"Expected no training behind the private selection that {self._path} has priced")
        if row.kept == 0:
            return
        before = self._charged_attempts(row.trial)[-1:]
        if not before or before[0].steps is None or not before[0].kept <= row.kept <= before[0].kept + before[0].steps:
            raise RecordError(f"Expected kept={row.kept!r} steps that trial {row.trial} has run in a closed attempt")
        if row.event.with_steps(0) != before[0].event.with_steps(0):
            raise RecordError(f"Expected the mechanism that trial {row.trial} began with; begin it anew")

    def _check_draw(self, row: DrawRow) -> None:
        last = self.last(row.trial)
        if last is None or last.attempt != row.attempt or last.steps is not None:
            raise RecordError(f"Expected an open training of trial {row.trial} in {self._path}, got none")
        least = max((last.kept, *last.granted))
        if row.until is not None and not (type(row.until) is int and row.until >= least):
            raise RecordError(f"until of trial {row.trial} must be a count >= {least}, got {row.until!r}")

    def _check_budget(self) -> None:
        if self.budget is not None or self.selection is not None or self._entries or self._tests:
            raise RecordError(
                f"Expected the budget of the sweep before anything is spent, got it later in {self._path}"
            )

    def _check_sketch(self, event: PoissonGaussian) -> None:
        """Refuse a sketch that the budget has not priced, and a second one."""
        if event != self.spending.sketch:
            raise RecordError(f"Expected the sketch that the budget in {self._path} has room for, got another one")
        if self.sketch is not None:
            raise RecordError(f"Expected one sketch of the training rows in {self._path}, got a second one")

    def _check_test(self, paid: PaidScores) -> None:
        self._check_relation(paid.event)
        if self.selection is not None and not self.selection.broken and not paid.apart:
            raise RecordError(
                f"Expected rows whose split depends on themselves alone for scores behind the private selection that "
                f"{self._path} has priced"
            )

    def _check_relation(self, event: PoissonGaussian) -> None:
        if self.relation not in (None, event.relation):
            expected = self.relation.value if self.relation else ""
            raise RecordError(
                f"Expected the relation {expected} of the other events of {self._path}, got "
                f"{event.relation.value}; start another sweep"
            )


def _check_close(entry: Entry, row: CloseRow, *, is_last: bool) -> None:
    """Refuse a number of steps that falls, or, where ``is_last``, one that rises: others may have had the room."""
    if type(row.steps) is not int or not row.steps >= (entry.steps or 0):
        raise RecordError(f"steps of trial {entry.trial} must be a count >= {entry.steps or 0}, got {row.steps!r}")
    if is_last and entry.steps is not None and row.steps > entry.steps:
        raise RecordError(
            f"Expected no more than the {entry.steps} steps with which trial {entry.trial} was closed, for a privacy "
            f"filter has given the rest of its budget away, got {row.steps}"
        )
    scored = _scored(entry, row)
    if is_last and entry.scored is not None and scored != entry.scored:
        raise RecordError(
            f"Expected no more than the {entry.scored} scores with which trial {entry.trial} was closed, for a privacy "
            f"filter has given the rest of its budget away, got {scored}"
        )


def _scored(entry: Entry, row: CloseRow) -> int | None:
    """Return how many releases of scores an attempt is known to have made, never less than was known before."""
    if row.scored is None:
        return entry.scored
    if entry.scores is None or type(row.scored) is not int or not row.scored >= 0:
        raise RecordError(
            f"scored of trial {entry.trial} must be a count >= 0 of releases it planned, got {row.scored!r}"
        )
    return max(row.scored, entry.scored or 0)
