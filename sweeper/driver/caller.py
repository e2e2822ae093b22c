"""Trials that a caller proposes: what the thread of the caller and that of the driver share.

A configuration is asked for as ``sweeper enqueue`` asks, by a row in the sweep's folder, so that a kill loses none. The
driver starts no trial that nobody has proposed; everything else, above all the ledger, is that of every sweep.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from sweeper.backend.queue import TrialQueue
from sweeper.driver.recording.recorder import Recorder
from sweeper.errors import TrialError
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.pricing import Price
from sweeper.records import Point, Scalar, Trial, TrialStatus
from sweeper.results.display import lines_in_html, point_in_words
from sweeper.results.highlights import best
from sweeper.rounding import number_of
from sweeper.search.optuna_search import Search
from sweeper.store.requests import check_configuration, enqueue

PROPOSED = (
    "Configurations were proposed by whoever drove the sweep. The price holds if these proposals followed from what "
    "the sweep had released and from what is public; looking at private rows to make them is not in it."
)


@dataclass(frozen=True, kw_only=True, repr=False)
class TrainedTrial:
    """A trial that has ended, with what it has shown.

    Attributes:
        trial: its record: id, whole configuration, plan, end.
        configuration: its open hyperparameters by dotted name.
        points: of its epochs, by what is public or paid for: estimates with intervals where scores are noisy.
        point: the best of them in the first objective beside epsilon, ``None`` of a trial without points.
        stage: of the budget, from 1; ``None`` where it is not cut.
        price: of everything that the sweep has released by then, ``None`` where that is not known.
    """

    trial: Trial
    configuration: Mapping[str, Scalar]
    points: tuple[Point, ...]
    point: Point | None
    stage: int | None
    price: Price | None

    @property
    def values(self) -> Mapping[str, float]:
        """The values of ``point`` by objective; none of a trial without points."""
        return {} if self.point is None else self.point.values

    def __repr__(self) -> str:
        """Return what a terminal shows."""
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        """Return what a notebook shows, likewise."""
        return lines_in_html(self._lines())

    def _lines(self) -> list[str]:
        if self.point is None:
            return [f"{self.trial.id}: {self.trial.status.value}, {self.trial.reason or 'no epoch was scored'}"]
        return point_in_words(self.point, self.configuration, self.price)


@dataclass(slots=True, eq=False)
class Proposal:
    """A configuration that the caller waits for.

    Attributes:
        chosen: its open hyperparameters by name, those that are sampled left out.
        trial: the id of the trial that trains it, once there is one.
    """

    chosen: Mapping[str, Scalar]
    trial: str | None = None


class TrialCaller:
    """Who proposes the trials of a sweep.

    Guarantees:
        A sweep that selects privately, or that rehearses, is refused before anything of it is trained: what a caller
        would see of it, or choose by it, is not in the price.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._proposals: list[Proposal] = []
        self._unclaimed: dict[str, Mapping[str, Scalar]] = {}  # trials that nobody here waits for, with what was asked
        self._early: list[Mapping[str, Scalar]] = []  # asked for in an earlier run, and not begun
        self._results: dict[str, TrainedTrial] = {}
        self._trials = self._left = 0
        self._error: BaseException | None = None
        self._has_begun = self._is_over = False
        self.is_closed = False
        self.folder = Path()

    @staticmethod
    def admit(plan: SweepPlan, cluster: str | None) -> SweepPlan:
        """Return the plan of a sweep whose trials a caller proposes, with what that adds to its claim.

        Raises:
            TrialError: a plan whose trials nobody may propose, or a cluster.
        """
        if plan.spending.selection is not None:
            raise _refused(plan, "a sweep that shows its trials", "search.selection: private", "leave it out")
        if plan.rehearsals:
            raise _refused(plan, "no rehearsals", "search.rehearse", "set it to false")
        if cluster is not None:
            raise _refused(plan, "this machine to train on", f"the cluster {cluster}", "leave it out")
        conditions = tuple(dict.fromkeys([PROPOSED, *plan.claim.conditions]))
        claim = replace(plan.claim, conditions=conditions)
        fixed = plan.spending.budget is not None
        return replace(plan, claim=claim if fixed else claim.with_chosen(*plan.shared.space.open_costs))

    def queue(self, plan: SweepPlan, folder: Path, search: Search, recorder: Recorder) -> TrialQueue:
        """Return what starts the trials that the caller proposes; the driver asks for it as soon as it can train."""
        with self._changed:
            if not self._has_begun:
                self._take_up(plan, folder, search, recorder)
            return _CalledQueue(self, plan, search, recorder)

    def begin(self, trial: str, asked: Mapping[str, Scalar]) -> None:
        """Take that a trial begins which somebody asked for."""
        with self._changed:
            waits = next((one for one in self._proposals if one.trial is None and one.chosen == asked), None)
            if waits is None:
                self._unclaimed[trial] = asked
            else:
                waits.trial = trial

    def finish(self, result: TrainedTrial) -> None:
        """Take what a trial has shown that has ended."""
        with self._changed:
            self._results[result.trial.id] = result
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Take that the driver has ended."""
        with self._changed:
            self._is_over, self._error = True, error
            self._changed.notify_all()

    def wait_for_start(self) -> None:
        """Wait until the sweep can train, or raise why it cannot."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_begun or self._is_over)
            if self._error is not None:
                raise self._error

    def close(self) -> None:
        """Let the driver end as soon as no trial is left."""
        with self._changed:
            self.is_closed = True

    @property
    def left(self) -> int:
        """How many trials may still be proposed."""
        with self._changed:
            return self._left

    @property
    def results(self) -> list[TrainedTrial]:
        """The trials that have ended, in the order of their ids."""
        with self._changed:
            return [self._results[trial] for trial in sorted(self._results)]

    def propose(self, configurations: Iterable[Mapping[str, object]]) -> list[Proposal]:
        """Ask for configurations, or for trials of an earlier run that were asked for them and have not ended.

        Raises:
            SpecError: not values of the sweep's open hyperparameters.
            TrialError: too few trials are left, or the sweep has ended.

        Guarantees:
            All are asked for, or none and nothing is charged.
        """
        chosen = [check_configuration(self.folder, one) for one in configurations]
        with self._changed:
            unclaimed, early = dict(self._unclaimed), list(self._early)
            proposals, new = [], []
            for one in chosen:
                found = next((trial for trial, asked in unclaimed.items() if one.items() <= asked.items()), None)
                if found is not None:
                    del unclaimed[found]
                elif one in early:
                    early.remove(one)
                else:
                    new.append(one)
                proposals.append(Proposal(one, found))
            self._check_room(len(new))
            self._unclaimed, self._early = unclaimed, early
            self._left -= len(new)
            for one in new:
                enqueue(self.folder, one)
            self._proposals += proposals
        return proposals

    def wait_for(self, proposal: Proposal) -> TrainedTrial:
        """Wait until the trial of a proposal has ended, and return what it has shown.

        Raises:
            TrialError: it failed, or the sweep has ended before it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or proposal.trial in self._results)
            result = None if proposal.trial is None else self._results.get(proposal.trial)
            if result is None and self._error is not None:
                raise self._error
        if result is None:
            raise TrialError(f"Expected a sweep that runs until {dict(proposal.chosen)} is trained, but it has ended")
        if result.point is None:
            raise TrialError(f"{result!r}; propose another configuration")
        return result

    def _take_up(self, plan: SweepPlan, folder: Path, search: Search, recorder: Recorder) -> None:
        """Begin with what an earlier run of the sweep has left."""
        self._trials, self.folder = plan.trials, folder
        self._results = {
            trial: result_of(trial, plan, search, recorder)
            for trial, one in recorder.records.trials.items()
            if one.status not in (TrialStatus.RUNNING, TrialStatus.INTERRUPTED)
        }
        self._unclaimed = {trial: search.proposals[trial] for trial in recorder.unfinished}
        self._early = list(search.waiting)
        self._left = plan.trials - search.asked - len(self._early)
        self._has_begun = True
        self._changed.notify_all()

    def _check_room(self, trials: int) -> None:
        if not trials or not (self._is_over or self.is_closed or self._left < trials):
            return
        wanted = "another trial" if trials == 1 else f"{trials} trials"
        if self.is_closed or self._left >= trials:
            state = "it has ended"
        elif self._left:
            state = f"{number_of(self._left, 'trial')} of its plan {'is' if self._left == 1 else 'are'} left"
        else:
            state = f"all {self._trials} trials of its plan are taken"
        raise TrialError(f"Expected room for {wanted} in {self.folder}, but {state}; nothing was charged")


class _CalledQueue(TrialQueue):
    """Starts what was asked for, and nothing else, until the caller has no more to ask."""

    def __init__(self, caller: TrialCaller, plan: SweepPlan, search: Search, recorder: Recorder) -> None:
        barriers = accumulate(plan.spending.stage_trials)
        super().__init__(search, plan.trials, recorder.unfinished, barriers, recorder.spending.is_full)
        self._caller, self._plan, self._asked_for, self._recorder = caller, plan, search, recorder

    @property
    def finished(self) -> bool:
        """Whether every trial has ended, or the caller has no more to ask and those that were asked for have ended."""
        idle = not (self.running or self.left)
        return super().finished or (self._caller.is_closed and idle)

    @property
    def left(self) -> int:
        """How many trials could start now, with as many places as one likes."""
        again = len(self._again)
        return again + min(super().left - again, len(self._asked_for.waiting))

    def start(self) -> tuple[str, dict[str, Scalar]] | None:
        """Return the next trial that was asked for and its proposal, None if there is none now."""
        if not self.left:
            return None
        is_new, asked = not self._again, next(iter(self._asked_for.waiting), {})
        started = super().start()
        if started is not None and is_new:
            self._caller.begin(started[0], asked)
        return started

    def end(self, trial: str) -> None:
        """A trial has ended."""
        super().end(trial)
        self._caller.finish(result_of(trial, self._plan, self._asked_for, self._recorder))


def result_of(trial: str, plan: SweepPlan, search: Search, recorder: Recorder) -> TrainedTrial:
    """Return what a trial has shown that has ended."""
    records, prices = recorder.records, recorder.spending.prices()
    points = tuple(point for point in records.estimated().values() if point.trial == trial)
    judged = next((one for one in records.objectives if one.name != "epsilon"), None)
    stage = plan.spending.stage_of(trial)
    return TrainedTrial(
        trial=records.trials[trial],
        configuration=search.proposals.get(trial, {}),
        points=points,
        point=None if judged is None else best(points, judged),
        stage=None if stage is None else stage + 1,
        price=prices.get("everything"),
    )


def _refused(plan: SweepPlan, expected: str, got: str, remedy: str) -> TrialError:
    return TrialError(f"Expected {expected} where a caller proposes the trials of {plan.name}, got {got}; {remedy}")
