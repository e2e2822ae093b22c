"""Rungs: the base of the schedulers that compare trials at them, who is ahead at one, and what can still come.

At a *rung*, an epoch of a bracket, a trial continues if it is among the best 1/eta of the trials that have reached that
rung of its bracket (asynchronous successive halving, Li et al. 2020, arXiv 1810.05934). Subclasses of `RungScheduler`
order the trials.

A row holds one point, a column one objective, smaller is better (``pareto.costs``). No rank depends on the order in
which the trials of a rung arrived, and taking one more in costs time in proportion to what is there, not to its square.

References:
    Fonseca, Fleming (1993), Genetic algorithms for multiobjective optimization (rank by dominance count)
    Deb et al. (2002), A fast and elitist multiobjective genetic algorithm: NSGA-II (crowding distance)
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np

from sweeper.pareto.dominance import Box, Floats, exclusive
from sweeper.records import Objective, Point
from sweeper.schedulers._base import Decision, Scheduler, TrialProgress

# Exclusive hypervolumes cost 0.1 ms for 300 points of three objectives, 70 ms for four, 600 ms for five.
_MOST_AXES = 3


@dataclass(frozen=True, slots=True)
class Rank:
    """Where a trial stands at its rung; ``unbeaten`` if all others are worse in every respect, as for the first."""

    rank: int
    of: int
    why: str
    unbeaten: bool


class DominanceRung:
    """A rung ordered by how many dominate a trial, then by what it alone adds to the hypervolume of its equals.

    Who dominates another has fewer above it, so the order never contradicts dominance.
    """

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self._objectives = tuple(objectives)
        self._trials: list[str] = []
        self._rows = np.empty((0, len(self._objectives)))
        self._above = np.empty(0, dtype=np.int64)  # how many dominate each

    def enter(self, trial: str, row: Floats) -> Rank:
        """Take in a trial that was not here, and say where it stands."""
        here = self._rows
        above = int(((here <= row).all(axis=1) & (here < row).any(axis=1)).sum())
        below = (row <= here).all(axis=1) & (row < here).any(axis=1)
        self._trials.append(trial)
        self._rows = np.concatenate([here, row[None]])
        self._above = np.append(self._above + below, above)
        ahead = int((self._above < above).sum()) + self._ahead_of_equals(above)
        return Rank(ahead + 1, len(self._trials), f"{above} of them dominate it", bool(below.all()))

    def _ahead_of_equals(self, above: int) -> int:
        """How many of those that as many dominate as the newest are before it; equal ones by name."""
        newest = self._trials[-1]
        equals = sorted(np.flatnonzero(self._above == above).tolist(), key=self._trials.__getitem__)
        added = self._spread(self._rows[equals])
        at = equals.index(len(self._trials) - 1)
        tied = np.flatnonzero(added == added[at])
        return int((added > added[at]).sum()) + sum(self._trials[equals[i]] < newest for i in tied)

    def _spread(self, rows: Floats) -> Floats:
        if rows.shape[1] > _MOST_AXES:
            return crowding(rows)
        return exclusive(Box.default(self._objectives).placed(rows, self._objectives))


def crowding(rows: Floats) -> Floats:
    """Return the crowding distance of each row: by column, the gap between its neighbours; infinite at the ends."""
    distance = np.zeros(len(rows))
    for column in rows.T:
        order = np.argsort(column, kind="stable")
        least, most = column[order[[0, -1]]]
        distance[order[[0, -1]]] = inf
        if least < most < inf:
            distance[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / (most - least)
    return distance


class Margins:
    """For every epsilon, the least cost of trials there or below, and the least without the trial that has it."""

    def __init__(self, worst: float) -> None:
        self._worst = worst
        self._numbers: dict[str, int] = {}  # of trials
        self._known: list[tuple[float, float, int]] = []  # epsilon, cost, trial; those that change something
        self._new: list[tuple[float, float, int]] = []
        self._steps = np.array([[-inf, worst, -1, worst]])  # epsilon, and from there on: least cost, whose, next one's

    def number(self, trial: str) -> int:
        """Return what stands for a trial in arrays."""
        return self._numbers.setdefault(trial, len(self._numbers))

    def add(self, trial: str, epsilon: float, cost: float) -> None:
        """Take in a point."""
        self._new.append((epsilon, cost, self.number(trial)))

    def of(self, points: Floats) -> Floats:
        """Return by how much each cost undercuts what other trials have at that epsilon or below.

        ``points`` has the columns epsilon, cost, number of the trial.
        """
        if self._new:
            self._climb()
        at = self._steps[np.searchsorted(self._steps[:, 0], points[:, 0], side="right") - 1]
        margins: Floats = np.where(at[:, 2] == points[:, 2], at[:, 3], at[:, 1]) - points[:, 1]
        return margins

    def _climb(self) -> None:
        best, owner, second = self._worst, -1, self._worst
        points, steps = [], [(-inf, best, owner, second)]
        for epsilon, cost, trial in sorted(self._known + self._new):
            if cost < best:
                best, owner, second = cost, trial, second if trial == owner else best
            elif trial != owner and cost < second:
                second = cost
            else:
                continue
            points.append((epsilon, cost, trial))
            steps.append((epsilon, best, owner, second))
        self._known, self._new, self._steps = points, [], np.array(steps)


class MarginRung:
    """A rung ordered by how far trials are above what others have at the same epsilon."""

    def __init__(self) -> None:
        self._trials: list[str] = []
        self._points = np.empty((0, 3))

    def enter(self, trial: str, epsilon: float, cost: float, margins: Margins) -> Rank:
        """Take in a trial that was not here, and say where it stands; equal ones by name."""
        self._trials.append(trial)
        self._points = np.concatenate([self._points, [[epsilon, cost, margins.number(trial)]]])
        all_ = margins.of(self._points)
        mine = all_[-1]
        tied = np.flatnonzero(all_ == mine)
        ahead = int((all_ > mine).sum()) + sum(self._trials[i] < trial for i in tied)
        side = "above" if mine >= 0 else "below"
        return Rank(ahead + 1, len(all_), f"{abs(mine):.3g} {side} the others at its epsilon", False)


class Frontier:
    """The rows that no other row dominates, in ``rows``."""

    def __init__(self, axes: int) -> None:
        self.rows = np.empty((0, axes))

    def add(self, row: Floats) -> None:
        """Take in a row."""
        if not self.covers(row):
            kept = self.rows[~(row <= self.rows).all(axis=1)]
            self.rows = np.concatenate([kept, row[None]])

    def covers(self, row: Floats) -> bool:
        """Whether a row is nowhere better than one that is here."""
        return bool((self.rows <= row).all(axis=1).any())


class RungScheduler(Scheduler):
    """Base of the schedulers with rungs, at ``grace * eta**(b + k)`` epochs for bracket b."""

    @abstractmethod
    def rank(self, bracket: int, point: Point, row: Floats) -> Rank:
        """Take a trial into the rung of this epoch in its bracket, and say where it stands."""

    def rungs(self, epochs: int) -> Sequence[int]:
        """Return the rungs of all brackets."""
        return sorted({rung for bracket in range(self.brackets) for rung in self._rung_epochs(bracket, epochs)})

    def decide(self, progress: TrialProgress, point: Point, row: Floats) -> Decision | None:
        """Decide at rungs."""
        standing = self.standing(progress, point, row)
        return None if standing is None else self.at_rung(point, standing)

    def standing(self, progress: TrialProgress, point: Point, row: Floats) -> Rank | None:
        """Return where a trial stands at the rung of this epoch, None where there is no rung."""
        at_rung = point.epoch in self._rung_epochs(progress.bracket, len(progress.curve))
        return self.rank(progress.bracket, point, row) if at_rung else None

    def at_rung(self, point: Point, standing: Rank) -> Decision:
        """Let the best one in eta continue."""
        kept = ceil(standing.of / self.eta)
        goes_on = standing.rank <= kept
        verdict = "goes on" if goes_on else "ends"
        place = f"rank {standing.rank} of {standing.of} at the rung of epoch {point.epoch} ({standing.why})"
        return Decision(
            trial=point.trial,
            epoch=point.epoch,
            goes_on=goes_on,
            reason=f"{place}, where the best {kept} go on: {verdict}",
            rung=point.epoch,
            rank=standing.rank,
            of=standing.of,
            kept=kept,
        )

    def _rung_epochs(self, bracket: int, epochs: int) -> set[int]:
        found, epoch = set(), self.grace * self.eta**bracket
        while epoch < epochs:
            found.add(epoch)
            epoch *= self.eta
        return found
