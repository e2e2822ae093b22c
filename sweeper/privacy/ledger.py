"""What a sweep has spent: one append-only file, written before the noise is.

A training is entered with the event it plans before its first noise is drawn, and closed with the steps it
ran. It is charged its planned steps whether it was closed or not: a trial that was stopped early was stopped
after looking at its own iterates, and only the planned length covers that decision. A training that restarts
is entered again, and both are charged. One that goes on from a checkpoint is entered with the steps that are left;
the attempt before it is then charged the steps it drew, those that the checkpoint does not hold included.

A training marks that its first noise is about to be drawn, in a row of its own, on the disk before the draw. A
training without that row costs nothing and leaves the cost of earlier attempts unchanged. Entries of ledgers without
such marks are charged in full. Where the data have an account, that row says up to which step the training may draw,
and a further row is written, and noted by the account, before it draws beyond: a ledger without it, of a copy or a
backup, does not go on.

Where scores of rows held back are noisy releases, a training is entered and closed with those of its validation rows
too, under the same rules: a score whose row was lost is released again and charged again. Those of the test rows are
entered one by one, each before its noise is drawn, and charged once for each row of the file.

Where the sweep has a budget, that is the first row, and a training or a score that it has no room for is refused: see
`sweeper.privacy.spending`.

A private sketch of the training rows, where the budget has one, is entered before its noise is drawn, once: there is no
room for a second one, and no row says that the first was not drawn.

Of a private selection there is one row more: its terms. Where its conditions held it is the only row, because the
number of trainings would give the number of candidates away; a file that says otherwise is refused. What test scores
of the winner cost is entered behind it. Where the budget of the sweep holds the selection, its row follows that of the
budget, and behind a selection that held stands the final. A selection that held cannot be entered again.

Each row but that of the budget has a nonce, which nothing reads: an account knows a ledger by its bytes
(`sweeper.account.positions`), and those of two copies of a folder that both go on must differ.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from clipless.errors import AccountingError
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.errors import RecordError
from sweeper.privacy.charges import Charges
from sweeper.privacy.entries import ChargedEvents, Entry
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.exposures import expose_prices
from sweeper.privacy.ledger_entries import (
    BudgetRow,
    CloseRow,
    DrawRow,
    LedgerRow,
    OpenRow,
    ScoresRow,
    SelectionRow,
    SketchRow,
    row_from_json,
    row_to_json,
)
from sweeper.privacy.pricing import Price
from sweeper.privacy.selection import WINNER_TRIAL, Terms
from sweeper.privacy.spending import Budget, Spending
from sweeper.store.jsonl import JsonlFile

_NONCE_BYTES = 8


class Ledger:
    """The events of one sweep, all under one neighbouring relation.

    It is long, of more than fifteen methods, because a question or an entry is one each.
    What rows mean is in `Charges`.

    Guarantees:
        When ``open`` or ``enter_sketch`` has returned, the event is on the disk; when ``draw`` has, so is the mark that
        it is charged. When one of them raises, no noise may be drawn.
    """

    def __init__(self, path: str | Path, on_written: Callable[[], None] = lambda: None) -> None:
        """Open the file, or start a new one; ``on_written`` is called when a row is on the disk.

        Raises:
            RecordError: the file is broken.
        """
        self._file, self._on_written = JsonlFile(Path(path), durable=True), on_written
        self._charges = Charges(self._file.path)
        self.rows = 0
        for number, row in enumerate(self._file.read(), start=1):
            try:
                self._take(row_from_json(row))
            except (KeyError, TypeError, ValueError, AccountingError) as error:
                reason = f"{type(error).__name__} {error}" if isinstance(error, KeyError) else str(error)
                raise RecordError(f"Expected a ledger row, but {reason} (line {number} of {path})") from error

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def relation(self) -> Relation | None:
        """The neighbouring relation of every event, ``None`` before the first."""
        return self._charges.relation

    @property
    def selection(self) -> Terms | None:
        """The terms of a private selection, ``None`` without one."""
        return self._charges.selection

    @property
    def held(self) -> Terms | None:
        """The terms of a private selection whose conditions held, ``None`` without one or where one broke."""
        return None if self.selection is None or self.selection.broken else self.selection

    @property
    def budget(self) -> Budget | None:
        """The budget of the sweep, ``None`` without one."""
        return self._charges.budget

    @property
    def spending(self) -> Spending:
        """How the sweep spends, as far as its rows say."""
        return self._charges.spending

    def set_budget(self, budget: Budget) -> None:
        """Enter the budget of the sweep; from now on, what it has no room for is refused.

        Raises:
            RecordError: not written, or not the first row.
        """
        self._append(BudgetRow(budget=budget))

    @property
    def sketch(self) -> PoissonGaussian | None:
        """The sketch of the training rows that was entered and may have been drawn, ``None`` before that."""
        return self._charges.sketch

    def enter_sketch(self, event: PoissonGaussian) -> None:
        """Enter a sketch of the training rows before its noise is drawn.

        Raises:
            RecordError: not written, not the sketch of the budget, or entered before.
        """
        self._append(SketchRow(event=event))

    def entries(self) -> tuple[Entry, ...]:
        """Return every training, in the order in which they were opened."""
        return self._charges.entries

    def tests(self) -> tuple[ScoresRow, ...]:
        """Return every release of scores of private test rows, in the order in which they were entered."""
        return self._charges.tests

    def open(
        self,
        trial: str,
        event: PoissonGaussian,
        *,
        kept: int = 0,
        ends: Sequence[int] = (),
        scores: PaidScores | None = None,
        stage: int | None = None,
        marked: bool = False,
    ) -> int:
        """Enter a training before its first noise is drawn.

        Args:
            trial: id of the trial.
            event: everything the whole training plans to spend.
            kept: steps of its earlier attempts that it goes on from; the rest of the event is entered.
            ends: steps of the training after which it may be ended, increasing; a privacy filter refunds those from one
                of them to the next that never began.
            scores: what this attempt plans to spend on scores of private validation rows.
            stage: whose slot it fills, from 0, where the budget of the sweep is cut into slots.
            marked: whether ``draw`` will be called before its first draw; it is charged from now on otherwise.

        Returns:
            The attempt: 1, or more if this trial was entered before.

        Raises:
            RecordError: not written, of another relation than the others, going on from steps that no closed attempt of
                the same mechanism has run, or more than the budget of the sweep has room for.
        """
        row = self._opened(trial, event, kept, ends, scores, stage)
        refused = self._charges.refusal(row)
        if refused is not None:
            raise RecordError(f"Expected a training that the budget in {self._file.path} has room for: {refused}")
        self._append(replace(row, drawn=not marked))
        return row.attempt

    def refusal(
        self,
        trial: str,
        event: PoissonGaussian,
        *,
        kept: int = 0,
        ends: Sequence[int] = (),
        scores: PaidScores | None = None,
        stage: int | None = None,
    ) -> str | None:
        """Return why ``open`` would refuse a training for the budget of the sweep, ``None`` if there is room for it."""
        return self._charges.refusal(self._opened(trial, event, kept, ends, scores, stage))

    def _opened(
        self,
        trial: str,
        event: PoissonGaussian,
        kept: int,
        ends: Sequence[int],
        scores: PaidScores | None,
        stage: int | None,
    ) -> OpenRow:
        return OpenRow(
            trial=trial,
            attempt=len(self._charges.attempts(trial)) + 1,
            event=_without(event, kept),
            kept=kept,
            ends=tuple(ends),
            scores=scores,
            stage=stage,
        )

    def draw(self, trial: str, until: int | None = None) -> None:
        """Mark that the last training of a trial is about to draw its first noise; a second call changes nothing.

        ``until`` is the number of steps of the whole training up to which its account lets it draw, those that it goes
        on from included: a second call with a larger one is a grant of its own.

        Raises:
            RecordError: not written, or no such training that is open.
        """
        if self.is_drawn(trial) and (until is None or until <= self.granted(trial)):
            return
        last = self._charges.last(trial)
        self._append(DrawRow(trial=trial, attempt=0 if last is None else last.attempt, until=until))

    def granted(self, trial: str) -> int:
        """Return the steps of the whole training up to which an account lets the last training of a trial draw."""
        last = self._charges.last(trial)
        return 0 if last is None or not last.granted else last.granted[-1]

    def select(self, terms: Terms) -> None:
        """Enter the terms of a private selection; a condition that was broken once stays broken.

        Raises:
            RecordError: not written, other terms than those entered before, or terms that held beside trainings.
        """
        self._append(SelectionRow(terms=terms))

    def test_refusal(self, paid: PaidScores) -> str | None:
        """Return why ``enter_test`` would refuse scores for the budget of the sweep, ``None`` if there is room."""
        return self._charges.test_refusal(paid)

    def enter_test(self, trial: str, epoch: int, paid: PaidScores) -> None:
        """Enter the scores of private test rows of one point before their noise is drawn.

        Raises:
            RecordError: not written, of another relation than the others, more than the budget of the sweep has room
                for, or, behind a private selection, of rows whose splits are not their own matter.
        """
        refused = self.test_refusal(paid)
        if refused is not None:
            raise RecordError(f"Expected scores that the budget in {self._file.path} has room for: {refused}")
        self._append(ScoresRow(trial=trial, epoch=epoch, scores=paid))

    def close(self, trial: str, reached: int, *, scored: int | None = None) -> None:
        """Record how far the last training of a trial came; a second call may only raise the number.

        Args:
            trial: id of the trial.
            reached: steps of the whole training, those that its last attempt went on from included; an attempt whose
                draws were not marked has made none.
            scored: releases of scores of the whole training, counted likewise; the last attempt is charged for all that
                it planned if that is not known, or if they are fewer than those that it kept.

        Raises:
            RecordError: not written, no such training, or not a number of steps.
        """
        last = self._charges.last(trial)
        if last is None:
            raise RecordError(f"Expected a trial that was entered in {self._file.path}, got {trial!r}")
        steps = reached - last.kept if type(reached) is int else reached
        new = None if last.scores is None or scored is None else scored - last.scores.kept
        if not last.drawn:
            steps, new = 0, None
        known = new if new is None or new >= 0 else None
        self._append(CloseRow(trial=trial, attempt=last.attempt, steps=steps, scored=known))

    def close_whole(self, trial: str) -> None:
        """Record that the last training of a trial made all that it planned, where nothing tells how far it came.

        Raises:
            RecordError: not written, or no such training.
        """
        last = self._charges.last(trial)
        self.close(trial, 0 if last is None else max((last.event.steps, *last.granted)))

    def is_open(self, trial: str) -> bool:
        """Whether a training of the trial was entered and not closed."""
        last = self._charges.last(trial)
        return last is not None and last.steps is None

    def is_drawn(self, trial: str) -> bool:
        """Whether the last training of a trial may have drawn noise."""
        last = self._charges.last(trial)
        return last is not None and last.drawn

    def check_charged(self, trial: str) -> None:
        """Refuse a ledger that has lost what a trial spent: the price of the sweep is not known without it.

        Raises:
            RecordError: the trial was never entered, nor is the winner of a private selection.
        """
        selected = self.held is not None and trial == WINNER_TRIAL
        if not (selected or self._charges.attempts(trial)):
            raise RecordError(f"Expected what trial {trial} spent in {self._file.path}, got nothing; restore the file")

    def understates(self, trial: str, reached: int) -> bool:
        """Whether the last training of a trial was closed with fewer steps than those that it has drawn by now."""
        last = self._charges.last(trial)
        return last is not None and last.steps is not None and reached > last.kept + last.steps

    def kept(self, trial: str) -> int:
        """Return the steps of earlier attempts that the last training of a trial goes on from."""
        last = self._charges.last(trial)
        return 0 if last is None else last.kept

    def answers(self, delta: float, *, tight: bool = False) -> dict[str, Price]:
        """Return the price of the winner, of the front and of all, and what that means to a person.

        ``tight`` takes seconds for a smaller epsilon, see `price`.
        """
        spending, charged = self.spending, self._charges.charged
        return expose_prices(spending.prices(charged, delta, tight=tight), spending.release(charged, tight=tight))

    def charged_with(
        self, resumed: Iterable[tuple[str, PoissonGaussian, int, PaidScores | None]] = ()
    ) -> ChargedEvents:
        """Return everything that is charged, and what would be if trials were entered again and drew; none is entered.

        Each is given by its id, what its whole training plans, the steps of it that are kept, and the scores that are
        left; see `open`.
        """
        rows = [self._opened(trial, event, kept, (), scores, None) for trial, event, kept, scores in resumed]
        return self._charges.charged_with(rows)

    def _append(self, row: LedgerRow) -> None:
        """Write a row that keeps the rules, and take it."""
        self._charges.check(row)
        nonce = {} if isinstance(row, BudgetRow) else {"nonce": secrets.token_hex(_NONCE_BYTES)}
        self._file.append(row_to_json(row) | nonce)
        self._on_written()
        self._take(row)

    def _take(self, row: LedgerRow) -> None:
        self._charges.take(row)
        self.rows += 1


def _without(event: PoissonGaussian, kept: int) -> PoissonGaussian:
    """Return what is left of an event of which so many steps are kept; all of it if it has not that many."""
    return event.with_steps(event.steps - kept) if 0 <= kept <= event.steps else event
