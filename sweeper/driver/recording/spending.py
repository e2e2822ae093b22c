"""What the trials of a running sweep spend: every event is in the ledger before its noise is drawn, within the budget.

A ledger that holds entries is taken up: trainings that were open when a driver died are closed with all that they can
have drawn.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil

from clipless.privacy.events import PoissonGaussian
from sweeper.account.draws import SKETCH, Draw, draw_of, draw_of_grant, name_of_test
from sweeper.account.entries import Side
from sweeper.driver.recording.account_charges import AccountCharges
from sweeper.errors import RecordError, TrialError
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.entries import ChargedEvents, Entry
from sweeper.privacy.evaluation.paid_scores import PaidScores, planned_scores, scored_by
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import Price, drawn_by, epochs_of, whole_event
from sweeper.records import Point, Trial, TrialPlan
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.stream import PlanRow

GRANTS = 8  # of a training without a budget, by its account; a killed one is charged to the end of its last


class SpendingRecord:
    """Enters trainings and test scores of one sweep into its ledger.

    It is long because each way in which a sweep spends is one method, with what has to be on the disk before.
    """

    def __init__(self, folder: SweepFolder, plan: SweepPlan, account: AccountCharges | None = None) -> None:
        self._account = account
        self._ledger, self._delta, self._folder = Ledger(folder.ledger, folder.note), plan.privacy.delta, folder
        self._planned = plan.spending
        self._latest: Entry | None = None  # as it was asked for, whether or not there was room

    @property
    def stages(self) -> tuple[int, ...]:
        """The number of trials of each stage of the budget, empty where it was not cut into stages."""
        return self._ledger.spending.stage_trials

    def enter_budget(self) -> None:
        """Enter the budget of a sweep that begins; of one that resumes it is there.

        Raises:
            RecordError: the ledger has lost it, or cannot be written.
        """
        budget = self._planned.budget
        if budget is None or self._ledger.budget is not None:
            return
        if self._ledger.rows:
            raise RecordError(f"Expected the budget of the sweep in {self._ledger.path}, got none; restore it")
        self._ledger.set_budget(budget)

    @property
    def has_sketched(self) -> bool:
        """Whether a sketch of the training rows was entered, and may have been drawn."""
        return self._ledger.sketch is not None

    def enter_sketch(self, event: PoissonGaussian) -> None:
        """Enter a sketch of the training rows before its noise is drawn; see `Ledger.enter_sketch`."""
        self._ledger.enter_sketch(event)
        self._charge(Draw(what=SKETCH, events={Side.TRAINING: event}))

    @property
    def rows(self) -> int:
        """The number of rows of the ledger."""
        return self._ledger.rows

    @property
    def share(self) -> float | None:
        """The share of the budget that is spent or promised to trials that run, ``None`` without a budget."""
        return self._ledger.spending.share(self._ledger.entries())

    def prices(self, *, tight: bool = False) -> dict[str, Price]:
        """Return the price of the winner, of the front and of all; see `Ledger.answers`."""
        return self._ledger.answers(self._delta, tight=tight)

    def charged_with(self, resumed: Iterable[tuple[str, TrialPlan, int]] = ()) -> ChargedEvents:
        """Return what is charged, and what would be if trials of these plans went on from these epochs."""
        entered = (
            (trial, whole_event(plan), drawn_by(plan, last), planned_scores(plan, scored_by(plan, last)))
            for trial, plan, last in resumed
        )
        return self._ledger.charged_with(entered)

    def take_up(self, trial: Trial, last_epoch: int) -> None:
        """Close the training of a trial that was open when the driver died.

        ``last_epoch`` is the last one that has a point. Where the last rows may be lost, the training is charged in
        full. The ledger of a copy that was made before it drew anything does not say that it did.

        Raises:
            RecordError: the ledger has lost what the trial spent.
        """
        if trial.plan is not None:
            self._ledger.check_charged(trial.id)
        if self._ledger.is_open(trial.id):
            if self._folder.is_copy and not self._ledger.is_drawn(trial.id):
                self.draw(trial)
            epochs = _most_epochs(trial, last_epoch, in_full=self._folder.lacks_rows)
            self._close_at(trial, epochs, granted=True)

    def open(self, trial: Trial, row: PlanRow, last_epoch: int, rungs: Sequence[int]) -> str | None:
        """Enter a training before it may draw noise; a text refuses it because the sweep's budget has no room for it.

        ``last_epoch`` is the last one that has a point, ``rungs`` are epochs after which the trial may be ended.

        Raises:
            RecordError: it could not be entered, or what trials before it have reached is in memory alone.
        """
        self._folder.check_room()
        kept, event, scores = row.kept, whole_event(row.plan), planned_scores(row.plan, row.scores_kept)
        if self._ledger.is_open(trial.id):  # it ran out of memory
            self._close_at(trial, _most_epochs(trial, last_epoch))
        if self._planned.budget is not None and self._ledger.budget is None:
            raise RecordError(f"Expected the budget of the sweep in its ledger before trial {trial.id}, got none")
        stage = self._ledger.spending.stage_of(trial.id, self._ledger.selection)
        ends = [drawn_by(row.plan, epoch) for epoch in rungs] if self._ledger.spending.refunds else []
        entries = self._ledger.entries()
        self._latest = Entry(trial=trial.id, attempt=len(entries) + 1, event=event, ends=tuple(ends))
        refused = self._ledger.refusal(trial.id, event, kept=kept, ends=ends, scores=scores, stage=stage)
        if refused is None:
            left = event.with_steps(max(event.steps - kept, 0))
            refused = self._make_room(draw_of(replace(self._latest, event=left, kept=kept, scores=scores), entries))
        if refused is not None:
            return f"{refused}; it is not trained"
        self._ledger.open(trial.id, event, kept=kept, ends=ends, scores=scores, stage=stage, marked=True)
        return None

    def is_full(self, running: int) -> bool:
        """Whether another training like the last one has no room until one of those running has ended, and refunded.

        Those that run and are not entered yet are taken to plan as much as the last one. There is room, as far as this
        is concerned, in a budget that refunds nothing: it would not grow.
        """
        spending = self._ledger.spending
        if not spending.refunds:
            return False
        if self._latest is None:
            return True
        entries = self._ledger.entries()
        share, one = spending.share(entries), spending.share([self._latest])
        pending = running - sum(entry.steps is None for entry in entries)
        return share is not None and one is not None and share + (max(0, pending) + 1) * one > 1.0

    def draw(self, trial: Trial) -> None:
        """Charge a trial from now on: it is about to draw its first noise."""
        begun = 0 if trial.plan is None else epochs_of(trial.plan, self._ledger.kept(trial.id))
        self._ledger.draw(trial.id, self._next_grant(trial, begun))
        *earlier, last = (entry for entry in self._ledger.entries() if entry.trial == trial.id)
        self._charge(draw_of(last, earlier))

    def go_on(self, trial: Trial, epoch: int) -> None:
        """Ask the account, where there is one, before a trial draws the noise of an epoch beyond its last grant.

        ``epoch`` is the last one that is done.

        Raises:
            AccountError, RecordError: the account knows another ledger, as where a copy of the folder goes on, or is
                out of reach; no more noise may be drawn.
        """
        until = self._next_grant(trial, epoch)
        if until is None or trial.plan is None or drawn_by(trial.plan, epoch + 1) <= self._ledger.granted(trial.id):
            return
        self._ledger.draw(trial.id, until)
        self._charge(draw_of_grant(next(one for one in reversed(self._ledger.entries()) if one.trial == trial.id)))

    def _next_grant(self, trial: Trial, epoch: int) -> int | None:
        """Return the steps up to which a trial may draw that has done an epoch, ``None`` where it asks no account.

        A budget has room for few epochs that are drawn again after a kill.
        """
        if self._account is None or trial.plan is None:
            return None
        more = ceil(trial.plan.epochs / GRANTS) if self._planned.budget is None else 1
        return drawn_by(trial.plan, min(trial.plan.epochs, epoch + more))

    def has_drawn(self, trial: str) -> bool:
        """Whether an attempt at a trial may have drawn noise."""
        return any(entry.drawn for entry in self._ledger.entries() if entry.trial == trial)

    def check_drawn(self, trial: Trial) -> None:
        """Raise a `TrialError` for an epoch of a trial that has not said that it draws noise, and charge it."""
        if not self._ledger.is_drawn(trial.id):
            self.draw(trial)
            raise TrialError("it reported an epoch before it said that it draws noise; it is charged in full")

    def check_points(self) -> None:
        """Refuse a further epoch while points are in memory alone, under a privacy filter.

        After a kill the next driver closes a training one epoch behind its last point on the disk; a filter counts no
        more than that, and has given the rest of its budget away.

        Raises:
            RecordError: points could not be written.
        """
        if self._ledger.spending.refunds:
            self._folder.check_points()

    def close(self, trial: Trial, started_epochs: int) -> None:
        """Close the training of a trial that has ended; an entry that cannot be closed is charged in full.

        Raises:
            RecordError: a privacy filter has counted less than it has drawn.
        """
        if trial.plan is None:
            return
        try:
            self._close_at(trial, started_epochs)
        except RecordError:
            refunded = self._ledger.spending.refunds
            if refunded and self._ledger.understates(trial.id, drawn_by(trial.plan, started_epochs)):
                raise

    def pay_test(self, point: Point, paid: PaidScores) -> str | None:
        """Enter what noisy test scores of a point cost before they are drawn; a text says why they may not be."""
        refused = self._ledger.test_refusal(paid)
        draw = Draw(what=name_of_test(len(self._ledger.tests()) + 1), events={Side.TEST: paid.event})
        if refused is None:
            refused = self._make_room(draw)
        if refused is None:
            self._ledger.enter_test(point.trial, point.epoch, paid)
            self._charge(draw)
        return refused

    def settle(self) -> None:
        """Give what was never drawn back to the account of the data, where there is one.

        Raises:
            RecordError: that could not be written.
        """
        if self._account is not None:
            self._account.settle()

    def _make_room(self, draw: Draw) -> str | None:
        """Hold room in the account for a release beside trainings that are entered and will draw; a text refuses it.

        What the ledger says is drawn is never refused afterwards: the sweep could not be settled any more.
        """
        if self._account is None:
            return None
        entries = self._ledger.entries()
        others = [draw_of(entry, entries) for entry in entries if entry.steps is None and not entry.drawn]
        return self._account.make_room([draw, *others])

    def _charge(self, draw: Draw) -> None:
        """Charge a release that the ledger has, before its noise is drawn."""
        if self._account is not None:
            self._account.charge(draw)

    def _close_at(self, trial: Trial, started_epochs: int, *, granted: bool = False) -> None:
        """Close the last training of a trial, with the noise that it can have drawn in so many epochs.

        ``granted`` adds what it may have drawn without asking, for another process may still be at it. Where the row of
        its plan was lost with the machine, it is charged in full.
        """
        plan = trial.plan
        if plan is None:
            self._ledger.close_whole(trial.id)
            return
        # It may have gone on from an epoch whose row was lost with the machine.
        steps = max(self._ledger.kept(trial.id), self._ledger.granted(trial.id) if granted else 0)
        started_epochs = max(started_epochs, epochs_of(plan, steps))
        self._ledger.close(trial.id, drawn_by(plan, started_epochs), scored=scored_by(plan, started_epochs))


def _most_epochs(trial: Trial, last_epoch: int, *, in_full: bool = False) -> int:
    """Return how many epochs a trial can have started when it, or the driver, died."""
    if trial.plan is None:  # it had not been let go
        return 0
    epochs = trial.plan.epochs
    return epochs if in_full else min(epochs, last_epoch + 1)
