"""When a trial ends early: rungs, ranks and projections. Pure decisions, a function of the events in their order.

At a *rung*, an epoch of a bracket, a trial goes on if it is among the best 1/eta of the trials that have reached that
rung of its bracket (asynchronous successive halving, Li et al. 2020, arXiv 1810.05934). Two orders of trials:

* ``front``: by non-dominated rank over all objectives; trials of one rank by what each adds to the hypervolume of that
  rank. Between rungs a trial also ends when it can no longer matter: its epsilon at every later epoch is known, so if
  even an optimistic continuation is nowhere better than the front found so far, nothing is lost.
* ``margin``: by the distance of its utility from the best that other trials have at its epsilon or below.

Scores that decide are releases like any other; ending a trial on them is covered by the epsilon of all its planned
epochs, which is what the ledger charges.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log
from typing import Any

import numpy as np

from sweeper.pareto import Box, FrontArchive, costs, exclusive, nondominated
from sweeper.records import Direction, Objective, Point
from sweeper.settings import Scheduler, SearchSettings

# What every objective but epsilon, all of them shares of 1, may gain per unit of log epoch without being noise.
NOISE_FLOOR = 0.02


def make_scheduler(search: SearchSettings, objectives: Sequence[Objective]) -> "RungScheduler | None":
    """Return what ends the trials of a sweep early, ``None`` for nothing."""
    orders = {Scheduler.HYPERBAND: Order.FRONT, Scheduler.ASHA: Order.MARGIN}
    if search.scheduler is Scheduler.NONE:
        return None
    order = orders[search.scheduler]
    return RungScheduler(objectives, order=order, eta=search.eta, grace=search.grace, brackets=search.brackets)


class Order(enum.Enum):
    """How trials at a rung are compared."""

    FRONT = "front"
    MARGIN = "margin"


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
        kept: how many of them may go on.
    """

    trial: str
    epoch: int
    goes_on: bool
    reason: str
    rung: int | None = None
    rank: int | None = None
    of: int | None = None
    kept: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class _Progress:
    """One trial: its bracket, its epsilons, its points by epoch."""

    bracket: int
    curve: Sequence[float]
    points: dict[int, Point] = field(default_factory=dict)


class RungScheduler:
    """Decides after each epoch of each trial.

    Args:
        objectives: axes of the front.
        order: how trials are compared at a rung; ``front`` projects between rungs too.
        eta: one in eta goes on, at least 2.
        grace: epochs before the first rung of the first bracket.
        brackets: sets of rungs, ``grace * eta**(b + k)`` for bracket b; trials join them in turn.
    """

    def __init__(
        self,
        objectives: Sequence[Objective],
        *,
        order: Order = Order.FRONT,
        eta: int = 3,
        grace: int = 1,
        brackets: int = 1,
    ) -> None:
        for name, value, least in (("eta", eta, 2), ("grace", grace, 1), ("brackets", brackets, 1)):
            if type(value) is not int or value < least:
                raise ValueError(f"Expected a whole number {name} >= {least}, got {name}={value!r}")
        self._objectives, self._order = tuple(objectives), order
        self._eta, self._grace, self._brackets = eta, grace, brackets
        self._trials: dict[str, _Progress] = {}
        self._rungs: dict[tuple[int, int], list[str]] = {}
        self._archive = FrontArchive(self._objectives)

    def begin(self, trial: str, curve: Sequence[float]) -> None:
        """Take in a trial before its first epoch, with its epsilon after each planned one."""
        if trial not in self._trials:
            self._trials[trial] = _Progress(len(self._trials) % self._brackets, tuple(curve))

    def judge(self, point: Point) -> Decision | None:
        """Take in an epoch and decide; None where there is nothing to decide."""
        progress = self._trials[point.trial]
        progress.points[point.epoch] = point
        self._archive.add([point])
        if point.epoch >= len(progress.curve):
            return None
        if point.epoch in self._rung_epochs(progress):
            return self._at_rung(point, progress.bracket)
        if self._order is Order.FRONT and point.epoch >= self._grace and self._is_hopeless(progress, point):
            reason = (
                f"even an optimistic continuation from epoch {point.epoch} to {len(progress.curve)} stays behind the "
                "front found so far"
            )
            return Decision(trial=point.trial, epoch=point.epoch, goes_on=False, reason=reason)
        return None

    def _rung_epochs(self, progress: _Progress) -> set[int]:
        epochs, epoch = set(), self._grace * self._eta**progress.bracket
        while epoch < len(progress.curve):
            epochs.add(epoch)
            epoch *= self._eta
        return epochs

    def _at_rung(self, point: Point, bracket: int) -> Decision:
        reached = self._rungs.setdefault((bracket, point.epoch), [])
        if point.trial not in reached:
            reached.append(point.trial)
        points = [self._trials[trial].points[point.epoch] for trial in reached]
        kept = ceil(len(points) / self._eta)
        order = by_front(points, self._objectives) if self._order is Order.FRONT else self._by_margin(points)
        rank = 1 + [points[i].trial for i in order].index(point.trial)
        goes_on = rank <= kept
        verdict = "goes on" if goes_on else "ends"
        place = f"rank {rank} of {len(points)} at the rung of epoch {point.epoch}"
        return Decision(
            trial=point.trial,
            epoch=point.epoch,
            goes_on=goes_on,
            reason=f"{place}, where the best {kept} go on: {verdict}",
            rung=point.epoch,
            rank=rank,
            of=len(points),
            kept=kept,
        )

    def _by_margin(self, points: Sequence[Point]) -> list[int]:
        """Order points by how far their utility is above what other trials reach at their epsilon or below."""
        utility = next(objective for objective in self._objectives if objective.name != "epsilon")
        sign = 1.0 if utility.direction is Direction.MAXIMIZE else -1.0
        margins = []
        for point in points:
            below = [
                sign * other.values[utility.name]
                for progress in self._trials.values()
                for other in progress.points.values()
                if other.trial != point.trial and other.values["epsilon"] <= point.values["epsilon"]
            ]
            margins.append(sign * point.values[utility.name] - max(below, default=min(0.0, sign)))
        return sorted(range(len(points)), key=lambda i: (-margins[i], points[i].trial))

    def _is_hopeless(self, progress: _Progress, point: Point) -> bool:
        earlier = [epoch for epoch in progress.points if epoch <= max(1, point.epoch // 2)]
        if point.epoch < 2 or not earlier:
            return False
        since = progress.points[max(earlier)]
        later = range(point.epoch + 1, len(progress.curve) + 1)
        future = [self._projected(progress, since, point, epoch) for epoch in later]
        front = costs([p for p in self._archive.points if p.trial != point.trial], self._objectives)
        if not len(front):
            return False
        ahead = costs(future, self._objectives)
        matched = [(front <= row).all(axis=1).any() for row in ahead]
        return all(matched)

    def _projected(self, progress: _Progress, since: Point, now: Point, epoch: int) -> Point:
        """Return the point of a later epoch if every objective keeps its recent gain per log epoch."""
        steps = log(epoch / now.epoch)
        values = {"epsilon": progress.curve[epoch - 1]}
        for objective in self._objectives:
            if objective.name == "epsilon":
                continue
            sign = 1.0 if objective.direction is Direction.MAXIMIZE else -1.0
            gained = sign * (now.values[objective.name] - since.values[objective.name])
            slope = max(NOISE_FLOOR, gained / log(now.epoch / since.epoch))
            values[objective.name] = min(1.0, max(0.0, now.values[objective.name] + sign * slope * steps))
        return Point(trial=now.trial, epoch=epoch, values=values)


def by_front(points: Sequence[Point], objectives: Sequence[Objective]) -> list[int]:
    """Order points from best to worst: by non-dominated rank, within it by exclusive hypervolume.

    Points that are not comparable come last; equals in everything by the name of their trial, so that the order in
    which they are given does not matter.
    """
    matrix, box = costs(points, objectives), Box.default(objectives)
    left = [i for i in range(len(points)) if not np.isnan(matrix[i]).any()]
    order: list[int] = []
    while left:
        mask = nondominated(matrix[left])
        rank = [i for i, chosen in zip(left, mask, strict=True) if chosen]
        added = exclusive(box.placed(matrix[rank], objectives))
        by_what_it_adds = sorted(zip(rank, added, strict=True), key=lambda pair: (-pair[1], points[pair[0]].trial))
        order += [i for i, _ in by_what_it_adds]
        left = [i for i in left if i not in set(rank)]
    incomparable = set(range(len(points))) - set(order)
    return order + sorted(incomparable, key=lambda i: points[i].trial)
