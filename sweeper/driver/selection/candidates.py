"""The candidates of one private selection: how they are proposed, recorded and watched while they train.

Nothing here says who won; `private_run` does, from the rows that are kept here. Nothing is published: no
tracking store, no display, no study of a sampler.

What a later driver needs, should this one be killed, is on the disk before it counts: the number of candidates
(`drawn_number`), each mark that noise is about to be drawn (the ledger) and how each candidate ended
(``endings.jsonl``); what broke shows in them again.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from clipless.datasets import Dataset
from sweeper.account.draws import draw_of_selection
from sweeper.backend.endings import RunEnding, RunResult
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial, TrialSetup
from sweeper.backend.trial_states import Hooks, TrialStart, TrialStates
from sweeper.driver.recording.account_charges import AccountCharges
from sweeper.driver.recording.recorder import Recorder
from sweeper.errors import RecordError, SweeperError
from sweeper.planning.configurations import can_be_planned
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.entries import Entry
from sweeper.privacy.evaluation.paid_scores import planned_scores
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import whole_event
from sweeper.privacy.selection import Ending, IndependentProposer, PrivateSelection
from sweeper.records import Point, Scalar, TrialStatus, name_trial
from sweeper.specification.search_space import SearchSpace
from sweeper.store.jsonl import JsonlFile
from sweeper.store.requests import Requests
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.trial_tracker import Untracked
from sweeper.trials.stream import EpochRow, PlanRow

Train = Callable[[type[CliplessTrial], TrialQueue, TrialStates, Callable[[], RunResult | None]], RunResult]

LOOK_SECONDS = 0.5
DIED = "its process, or the driver, died after its first noise: it is lost and never starts again"
NOT_BEGUN = "it had drawn no noise when the driver ended; another one takes its place"
NUMBER_NAME = "number.jsonl"
ENDINGS_NAME = "endings.jsonl"


class NotStartedError(SweeperError):
    """What trains candidates could not be started: the selection waits as it is."""


class Candidate(CliplessTrial):
    """A trial whose initial weights come from a seed that is drawn here and kept nowhere."""

    def setup(self, config: TrialSetup) -> None:
        """Draw the seed, once for all attempts of this candidate."""
        super().setup(config)
        self._seed = IndependentProposer().initial_seed()

    def seed(self, trial: str) -> int:  # noqa: ARG002
        """Return the secret seed."""
        return self._seed


class IndependentProposals:
    """Configurations drawn independently; stands where a search that learns stands."""

    def __init__(self, space: SearchSpace, selection: PrivateSelection | None = None) -> None:
        self._space, self._selection = space, selection
        self.asked = 0
        self.open: dict[str, dict[str, Scalar]] = {}

    def ask(self) -> str:
        """Draw a candidate, which is in the selection from now on: ties go by this order."""
        self.asked += 1
        name = name_trial(self.asked)
        if self._selection is not None:
            self._selection.begin(name)
            self.open[name] = dict(self._space.suggest(IndependentProposer(self._selection.source)))
        return name

    def skip(self, trials: int) -> None:
        """Leave out so many ids."""
        self.asked = max(self.asked, trials)

    def report(self, point: Point) -> None:
        """Learn nothing."""

    def finish(self, trial: str, *, failed: bool = False) -> None:  # noqa: ARG002
        """Forget the proposal."""
        self.open.pop(trial, None)


class Candidates:
    """The candidates of one selection, and what the selection hears of them.

    A folder in which a driver has trained candidates is taken up: those that ended stand as they ended, those that had
    drawn noise and not ended are lost, and the others leave their place to new ones.

    It has more than fifteen methods because each event of `Hooks` is one.

    Args:
        requests: the folder in which others ask it to stop.
        account: of the data, from which the selection has reserved.
    """

    def __init__(
        self,
        plan: SweepPlan,
        data: Dataset,
        hidden: SweepFolder,
        selection: PrivateSelection,
        requests: Path | None = None,
        account: AccountCharges | None = None,
    ) -> None:
        self._plan, self._data, self._hidden, self.selection = plan, data, hidden, selection
        self._proposals = IndependentProposals(plan.shared.space, selection)
        self._requests, self._looked_at = Requests(requests or hidden.path), time.monotonic()
        # who wins, and whose models are kept, is known at the end
        self.recorder = Recorder(plan, hidden, Untracked(), self._proposals, keep_every_model=True)
        self._account, self._is_charged = account, False
        self._endings = JsonlFile(hidden.path / ENDINGS_NAME, durable=True)
        self._started: dict[str, dict[str, Scalar]] = {}
        self._planned: set[str] = set()
        self._undefined: set[str] = set()
        self._dead: set[str] = set()
        self._take_up()

    def train(self, train: Train, interrupted: Callable[[], bool]) -> RunResult:
        """Train those that are left of as many as were drawn."""
        try:
            if not self.selection.left or self.selection.trouble or interrupted():
                return RunResult()
            queue = TrialQueue(self._proposals, self._proposals.asked + self.selection.left)
            return train(Candidate, queue, TrialStates(self._hooks), self._between)
        finally:
            self.recorder.records.close()

    def _take_up(self) -> None:
        """Enter the candidates of earlier drivers, in the order of proposals."""
        ended = {str(row["trial"]): Ending(row["ending"]) for row in self._endings.read()}
        records = self.recorder.records
        drawn: dict[str, list[Entry]] = {}
        for entry in Ledger(self._hidden.ledger).entries():
            if entry.drawn:
                drawn.setdefault(entry.trial, []).append(entry)
        names = sorted({*records.trials, *drawn, *ended})
        for name in names:
            self._take_up_one(name, drawn.get(name, []), ended.get(name))
        self._proposals.skip(max((int(name.removeprefix("t")) for name in names), default=0))

    def _take_up_one(self, name: str, drawn: Sequence[Entry], ending: Ending | None) -> None:
        if ending is None and not drawn:
            return
        self.selection.begin(name)
        for entry in drawn:
            self.selection.begin(name)  # breaks the conditions for one that drew twice
            self.selection.plan(name, entry.event, None if entry.scores is None else entry.scores.event)
            self.selection.draw(name)
        points = self._points_of(name)
        epochs = sum(not point.made_from for point in points)
        is_whole = bool(drawn) and epochs == self._planned_epochs(name)
        if ending in (None, Ending.COMPLETED):  # rows may have been lost with the machine
            ending = Ending.COMPLETED if is_whole else Ending.LOST
        for point in points if ending is Ending.COMPLETED else ():
            self.selection.score(point)
        self.selection.end(name, ending or Ending.LOST)

    def _points_of(self, name: str) -> list[Point]:
        return [point for point in self.recorder.records.points.values() if point.trial == name]

    def _planned_epochs(self, name: str) -> int:
        trial = self.recorder.records.trials.get(name)
        return -1 if trial is None or trial.plan is None else trial.plan.epochs

    def _between(self) -> RunResult | None:
        """End the run where a condition broke: trainings after that only add to the price."""
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._looked_at = time.monotonic()
            if self._requests.look().stop:
                return RunResult(RunEnding.REQUESTED)
        broken = self.selection.trouble
        return None if broken is None else RunResult(RunEnding.SELECTION_BROKE, why=(broken,))

    @property
    def _hooks(self) -> Hooks:
        return Hooks(
            on_start=self._on_start,
            on_plan=self._on_plan,
            on_draw=self._on_draw,
            on_epoch=self._on_epoch,
            on_death=self._on_death,
            on_restart=self.recorder.on_restart,
            on_end=self._on_end,
            on_undefined=self._undefined.add,
            on_failure=self.recorder.on_failure,
        )

    def _on_start(self, trial: str, config: TrialStart) -> None:
        if trial in self._started:
            self.selection.begin(trial)
        self._started[trial] = dict(config["proposal"])
        self._dead.discard(trial)
        self.recorder.on_start(trial, config)

    def _on_plan(self, trial: str, row: PlanRow) -> str | None:
        if self.selection.has_drawn(trial):  # it ran out of memory, and would draw a second time
            self._dead.add(trial)
            return DIED
        self._planned.add(trial)
        scores = planned_scores(row.plan)
        self.selection.plan(trial, whole_event(row.plan), None if scores is None else scores.event)
        return self.recorder.on_plan(trial, row)

    def _on_draw(self, trial: str) -> None:
        self.recorder.on_draw(trial)
        if self._account is not None and not self._is_charged:  # once: each call could be counted
            self._account.charge(draw_of_selection(self.selection.terms))
            self._is_charged = True
        self.selection.draw(trial)

    def _on_epoch(self, trial: str, row: EpochRow) -> str | None:
        reason = self.recorder.on_epoch(trial, row)
        for made_from in ("", *(one.made_from for one in row.free)):
            self.selection.score(self.recorder.records.points[trial, row.epoch, made_from])
        return reason

    def _on_death(self, trial: str) -> bool:
        """Return whether a candidate that lost its process may start again: not for a second draw."""
        self._dead.add(trial)
        return not self.selection.has_drawn(trial)

    def _on_end(self, trial: str, status: TrialStatus, reason: str, started_epochs: int) -> None:
        ending = self._ending(trial, status)
        if ending is None:
            self.selection.withdraw(trial)
            status, reason = TrialStatus.FAILED, NOT_BEGUN
        else:
            try:  # on the disk first: a crash that a killed driver had seen is no loss to the next one
                self._endings.append({"trial": trial, "ending": ending.value})
            finally:
                self.selection.end(trial, ending)
        if ending is Ending.LOST:
            status, reason = TrialStatus.FAILED, DIED
        self.recorder.on_end(trial, status, reason, started_epochs)

    def _ending(self, trial: str, status: TrialStatus) -> Ending | None:
        """Return how a candidate ended; ``None`` if it was interrupted before it drew anything."""
        match status:
            case _ if trial in self._dead:
                return Ending.LOST
            case TrialStatus.INTERRUPTED:
                return Ending.LOST if self.selection.has_drawn(trial) else None
            case TrialStatus.COMPLETED:
                done = (trial, self._planned_epochs(trial), "") in self.recorder.records.points
                return Ending.COMPLETED if done else Ending.CRASHED
            case TrialStatus.STOPPED:
                return Ending.STOPPED
            case _ if trial in self._undefined:
                return Ending.UNDEFINED
            case _ if trial not in self._planned and not self._can_be_planned(trial):
                return Ending.REFUSED
            case _:
                return Ending.CRASHED

    def _can_be_planned(self, trial: str) -> bool:
        return can_be_planned(self._plan.shared, self._data, self._started[trial], self._plan.spending.first_slot)


def drawn_number(hidden: SweepFolder) -> int | None:
    """Return the number of candidates that an earlier driver has drawn, ``None`` if none has.

    Raises:
        RecordError: the file is broken.
    """
    rows = JsonlFile(hidden.path / NUMBER_NAME).read()
    if not rows:
        return None
    number = rows[0].get("number")
    if len(rows) > 1 or type(number) is not int or number < 1:
        raise RecordError(f"Expected one number of candidates in {hidden.path / NUMBER_NAME}; restore the file")
    return number


def keep_number(hidden: SweepFolder, number: int) -> None:
    """Keep the number of candidates, on the disk, where its owner alone can read it.

    Raises:
        RecordError: not written.
    """
    JsonlFile(hidden.path / NUMBER_NAME, durable=True).append({"number": number})
