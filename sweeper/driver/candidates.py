"""The candidates of one private selection: how they are proposed, recorded and watched while they train.

Nothing here says who won; `private_run` does, from the rows that are kept here. Nothing is published: no
tracking store, no display, no study of a sampler.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from clipless.datasets import Dataset
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.trial_states import Hooks, TrialStates
from sweeper.backend.tune import RunResult
from sweeper.driver.recorder import Recorder
from sweeper.privacy.claims import Claim
from sweeper.privacy.paid_scores import planned_scores
from sweeper.privacy.pricing import whole_event
from sweeper.privacy.selection import Ending, IndependentProposer, PrivateSelection
from sweeper.records import Point, TrialStatus
from sweeper.search import space
from sweeper.spec.spec import Spec
from sweeper.store.requests import Requests
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.trial_tracker import Untracked
from sweeper.trials.preview import can_be_planned
from sweeper.trials.stream import EpochRow, PlanRow

Train = Callable[[type[CliplessTrial], TrialQueue, TrialStates, Callable[[], str | None]], RunResult]

LOOK_SECONDS = 0.5
STOPPED_BY_REQUEST = "it was asked to stop"


class Candidate(CliplessTrial):
    """A trial whose initial weights come from a seed that is drawn here and kept nowhere."""

    def setup(self, config: dict[str, Any]) -> None:
        """Draw the seed, once for all attempts of this candidate."""
        super().setup(config)
        self._seed = IndependentProposer().initial_seed()

    def seed(self, spec: Spec, trial: str) -> int:  # noqa: ARG002
        """Return the secret seed."""
        return self._seed


class IndependentProposals:
    """Configurations drawn independently; stands where a search that learns stands."""

    def __init__(self, spec: Spec, selection: PrivateSelection | None = None) -> None:
        self._spec, self._selection = spec, selection
        self.asked = 0
        self.open: dict[str, dict[str, Any]] = {}

    def ask(self) -> str:
        """Draw a candidate, which is in the selection from now on: ties go by this order."""
        self.asked += 1
        name = f"t{self.asked:04d}"
        if self._selection is not None:
            self._selection.begin(name)
            self.open[name] = dict(space.suggest(IndependentProposer(self._selection.source), self._spec))
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
    """The candidates of one selection, and what the selection hears of them."""

    def __init__(
        self, spec: Spec, data: Dataset, hidden: SweepFolder, claim: Claim, selection: PrivateSelection
    ) -> None:
        self._spec, self._data, self.selection = spec, data, selection
        self._proposals = IndependentProposals(spec, selection)
        self._requests, self._looked_at = Requests(hidden.path), time.monotonic()
        # who wins, and whose models are kept, is known at the end
        self.recorder = Recorder(spec, hidden, claim, Untracked(), self._proposals, keep_every_model=True)
        self._started: dict[str, dict[str, Any]] = {}
        self._planned: set[str] = set()
        self._undefined: set[str] = set()

    def train(self, train: Train, interrupted: Callable[[], bool]) -> RunResult:
        """Train as many as were drawn."""
        outcome = RunResult()
        try:
            if self.selection.number and not interrupted():
                queue = TrialQueue(self._proposals, self.selection.number)
                outcome = train(Candidate, queue, TrialStates(self._hooks), self._between)
        finally:
            self.recorder.records.close()
        return outcome

    def _between(self) -> str | None:
        """Return why nothing more is to be trained: what follows a broken condition only adds to the price."""
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._looked_at = time.monotonic()
            if self._requests.look().stop:
                return STOPPED_BY_REQUEST
        return self.selection.trouble

    @property
    def _hooks(self) -> Hooks:
        return Hooks(
            on_start=self._on_start,
            on_plan=self._on_plan,
            on_draw=self.recorder.on_draw,
            on_epoch=self._on_epoch,
            on_restart=self.recorder.on_restart,
            on_end=self._on_end,
            on_undefined=self._undefined.add,
            on_failure=self.recorder.on_failure,
        )

    def _on_start(self, trial: str, config: Mapping[str, Any]) -> None:
        if trial in self._started:
            self.selection.begin(trial)
        self._started[trial] = dict(config["proposal"])
        self.recorder.on_start(trial, config)

    def _on_plan(self, trial: str, row: PlanRow) -> str | None:
        if trial in self._planned:
            self.selection.begin(trial)
        self._planned.add(trial)
        scores = planned_scores(row.plan)
        self.selection.plan(trial, whole_event(row.plan), None if scores is None else scores.event)
        return self.recorder.on_plan(trial, row)

    def _on_epoch(self, trial: str, row: EpochRow) -> str | None:
        reason = self.recorder.on_epoch(trial, row)
        for made_from in ("", *(one.made_from for one in row.free)):
            self.selection.score(self.recorder.records.points[trial, row.epoch, made_from])
        return reason

    def _on_end(self, trial: str, status: TrialStatus, reason: str, started_epochs: int) -> None:
        self.selection.end(trial, self._ending(trial, status))
        self.recorder.on_end(trial, status, reason, started_epochs)

    def _ending(self, trial: str, status: TrialStatus) -> Ending:
        match status:
            case TrialStatus.COMPLETED:
                plan = self.recorder.records.trials[trial].plan
                done = plan is not None and (trial, plan.epochs, "") in self.recorder.records.points
                return Ending.COMPLETED if done else Ending.CRASHED
            case TrialStatus.STOPPED:
                return Ending.STOPPED
            case TrialStatus.INTERRUPTED:
                return Ending.INTERRUPTED
            case _ if trial in self._undefined:
                return Ending.UNDEFINED
            case _ if trial not in self._planned and not can_be_planned(self._spec, self._data, self._started[trial]):
                return Ending.REFUSED
            case _:
                return Ending.CRASHED
