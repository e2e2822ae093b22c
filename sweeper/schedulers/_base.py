"""What a scheduler is: the base class of all of them, and what they decide.

A score that is not a number ends its trial as failed. A score that was not computed after an epoch counts with its last
value; before there is one, nothing is decided.

Scores that decide are releases like any other. The ledger charges a trial for all its planned epochs, which covers
ending it on them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isnan
from typing import Any

from sweeper.errors import SpecError
from sweeper.pareto.dominance import Floats, costs
from sweeper.records import Direction, Objective, Point
from sweeper.specification.fields.messages import show


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided about a trial, and why.

    Attributes:
        trial: its id.
        epoch: after which it was decided.
        goes_on: whether the trial trains on.
        reason: in one sentence.
        rung: the rung, None for a projection.
        rank: place among the trials of the rung, from 1.
        of: trials that have reached the rung, this one included.
        kept: how many of them may continue.
        failed: whether it ends because a score is no number.
    """

    trial: str
    epoch: int
    goes_on: bool
    reason: str
    rung: int | None = None
    rank: int | None = None
    of: int | None = None
    kept: int | None = None
    failed: bool = False


@dataclass(slots=True)
class TrialProgress:
    """One trial so far.

    Attributes:
        bracket: the set of rungs that it joined, from 0.
        curve: its epsilon after each planned epoch.
        values: the last value of each objective.
        rows: its costs by epoch, a column for each objective, smaller is better.
        decisions: what was decided by epoch.
    """

    bracket: int
    curve: tuple[float, ...]
    values: dict[str, float] = field(default_factory=dict)
    rows: dict[int, Floats] = field(default_factory=dict)
    decisions: dict[int, Decision | None] = field(default_factory=dict)


class Scheduler(ABC):
    """Base of the schedulers: decides after each epoch of each trial. A subclass says how in `decide`.

    Decisions are a function of the events in their order, so that a sweep that resumes takes the same ones again:
    a subclass keeps to that, and reads no clock and draws no random numbers.

    Args:
        objectives: axes of the front.
        eta: one in eta continues, at least 2.
        grace: the epoch after which the first decision comes, at least 1.
        brackets: sets of rungs; trials join them in turn, by their numbers.
    """

    def __init__(self, objectives: Sequence[Objective], *, eta: int = 3, grace: int = 1, brackets: int = 1) -> None:
        for name, value, least in (("eta", eta, 2), ("grace", grace, 1), ("brackets", brackets, 1)):
            if type(value) is not int or value < least:
                raise ValueError(f"Expected a whole number {name} >= {least}, got {name}={value!r}")
        self.objectives = tuple(objectives)
        self.eta, self.grace, self.brackets = eta, grace, brackets
        self._trials: dict[str, TrialProgress] = {}

    def begin(self, trial: str, curve: Sequence[float], *, number: int = 1) -> None:
        """Take in a trial before its first epoch.

        ``curve`` is its epsilon after each planned epoch. Whenever it begins, it joins the bracket of its ``number`` in
        the sweep, from 1.
        """
        if trial not in self._trials:
            self._trials[trial] = TrialProgress((number - 1) % self.brackets, tuple(curve))

    def judge(self, point: Point) -> Decision | None:
        """Take in an epoch and decide; None where there is nothing to decide. An epoch seen before changes nothing."""
        progress = self._trials[point.trial]
        if point.epoch not in progress.decisions:
            progress.decisions[point.epoch] = self._check_values(self._take_in(progress, point))
        return progress.decisions[point.epoch]

    @abstractmethod
    def decide(self, progress: TrialProgress, point: Point, row: Floats) -> Decision | None:
        """Decide after an epoch that is not the trial's last; None where there is nothing to decide.

        Args:
            progress: of the trial, this epoch included.
            point: the epoch, with the values that were computed after it.
            row: its costs, last values standing in for those that were not computed.
        """

    def rungs(self, epochs: int) -> Sequence[int]:  # noqa: ARG002
        """Return after which epochs a trial of so many is likely to be ended, increasing; after others it may be too.

        A privacy filter refunds whole stretches between them that never began (`sweeper.privacy.spending.filter`).
        """
        return ()

    def learn(self, point: Point, row: Floats) -> None:
        """Compare later points with this one, which has a value for every objective."""
        del point, row  # a scheduler that compares trials overrides this

    def maximized(self, column: int) -> bool:
        """Whether an objective is to be maximized."""
        return self.objectives[column].direction is Direction.MAXIMIZE

    def _check_values(self, decided: Any) -> Decision | None:
        if decided is None or isinstance(decided, Decision):
            return decided
        raise SpecError(
            f"Expected a Decision or None from the scheduler {type(self).__name__}, got {show(decided)}; "
            f"correct the plug-in"
        )

    def _take_in(self, progress: TrialProgress, point: Point) -> Decision | None:
        names = [objective.name for objective in self.objectives]
        if (broken := self._broken(point)) is not None:
            reason = f"{broken} is not a number after epoch {point.epoch}: ends"
            return Decision(trial=point.trial, epoch=point.epoch, goes_on=False, reason=reason, failed=True)
        progress.values |= {name: value for name, value in point.values.items() if name in names}
        if not all(name in progress.values for name in names):
            return None
        known = Point(trial=point.trial, epoch=point.epoch, values=progress.values)
        row = progress.rows[point.epoch] = costs([known], self.objectives)[0]
        if all(name in point.values for name in names):
            self.learn(point, row)
        return self.decide(progress, point, row) if point.epoch < len(progress.curve) else None

    def _broken(self, point: Point) -> str | None:
        """Return the first objective whose value cannot be compared: NaN, or infinitely good."""
        for column, objective in enumerate(self.objectives):
            value = point.values.get(objective.name, 0.0)
            if isnan(value) or value == (inf if self.maximized(column) else -inf):
                return objective.name
        return None
