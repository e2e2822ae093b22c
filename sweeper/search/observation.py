"""What trials tell a sampler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import TypedDict

from sweeper.pareto.dominance import Box, FrontArchive, costs, exclusive
from sweeper.records import Objective, Point, Scalar
from sweeper.specification.constraints import OutcomeConstraint


@dataclass(frozen=True, slots=True)
class Observation:
    """One earlier trial, as a sampler may be told of it; its values are finite and in the order of the objectives."""

    params: Mapping[str, Scalar]
    values: tuple[float, ...]
    violations: Mapping[str, float]


class Outcome(TypedDict):
    """How a trial ended, or one of its epochs; as rows of the journal have it, infinite numbers are texts."""

    values: Sequence[float]  # in the order of the objectives
    violations: Mapping[str, float]  # by how much each constraint is missed, by its text


class EpochOutcome(Outcome):
    """What a sampler is told of an epoch."""

    epoch: int


class Observations:
    """The epochs of the open trials, and which of them a sampler is told when a trial ends.

    Those that are on the front of all trials, or the last one.
    """

    def __init__(self, objectives: Sequence[Objective], constraints: Sequence[OutcomeConstraint]) -> None:
        self._objectives, self._constraints = tuple(objectives), tuple(constraints)
        self.region: tuple[OutcomeConstraint, ...] = ()  # where the search was steered
        self._archive = FrontArchive(self._objectives)
        self._arrived: list[Point] = []  # epochs that are not in the archive yet
        self._epochs: dict[str, list[Point]] = {}

    def open(self, trial: str) -> None:
        """Collect the epochs of a trial."""
        self._epochs[trial] = []

    def close(self, trial: str) -> None:
        """Forget the epochs of a trial; those on the front stay there."""
        del self._epochs[trial]

    def add(self, point: Point) -> None:
        """Take in an epoch; one without a number for every objective counts for nothing."""
        if self._values(point) is not None:
            self._arrived.append(point)
            if point.trial in self._epochs:
                self._epochs[point.trial].append(point)

    def of(self, trial: str, most: int) -> list[EpochOutcome]:
        """Return what a sampler is told of an open trial, the best epoch first; nothing if no epoch counts."""
        return [self._observed(point) for point in self._contributing(trial, most)]

    def judge(self, violations: Mapping[str, float], values: Sequence[float]) -> dict[str, float]:
        """Return the violations of an outcome in the region, beside those that it has of the constraints."""
        named = {objective.name: value for objective, value in zip(self._objectives, values, strict=True)}
        kept = {text: missed for text, missed in violations.items() if text in map(str, self._constraints)}
        return kept | {str(one): one.violation(named) for one in self.region}

    def _contributing(self, trial: str, most: int) -> list[Point]:
        self._archive.add(self._arrived)
        self._arrived.clear()
        front = list(self._archive.points)
        mine = [i for i, point in enumerate(front) if point.trial == trial]
        if not mine:
            return self._epochs[trial][-1:]
        added = exclusive(Box.default(self._objectives).placed(costs(front, self._objectives), self._objectives))
        best = sorted(mine, key=lambda i: (-added[i], front[i].epoch))
        return [front[i] for i in best[:most]]

    def _observed(self, point: Point) -> EpochOutcome:
        wanted = (*self._constraints, *self.region)
        violations = {str(one): one.violation(point.values) for one in wanted}
        return {"epoch": point.epoch, "values": self._values(point) or (), "violations": violations}

    def _values(self, point: Point) -> tuple[float, ...] | None:
        values = [point.values.get(objective.name) for objective in self._objectives]
        if any(not isinstance(value, int | float) or isnan(value) for value in values):
            return None
        return tuple(float(value) for value in values if value is not None)
