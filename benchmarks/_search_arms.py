"""What `search.py` compares the package's schedulers with: stopping by chance, by accuracy, by rank, by foresight.

At the same rungs, ``grace * eta**k``, all but `Foresight` let one in eta of those that have reached one go on.
"""

from collections.abc import Callable, Sequence
from math import ceil

import numpy as np
from _search_curves import Trajectory

from sweeper.pareto.dominance import Box, Floats, costs, nondominated, volume
from sweeper.records import Objective, Point
from sweeper.schedulers._rungs import Frontier, crowding

ETA, GRACE = 3, 1


class Halving:
    """Asynchronous successive halving by any order of the points of a rung, best first."""

    def __init__(self, order: Callable[[Sequence[Point]], Sequence[int]]) -> None:
        self._order = order
        self._rungs: dict[int, list[Point]] = {}
        self._planned: dict[str, int] = {}

    def begin(self, trial: str, trajectory: Trajectory) -> None:
        """Take in a trial."""
        self._planned[trial] = len(trajectory.curve)

    def goes_on(self, point: Point) -> bool:
        """Decide after an epoch."""
        if point.epoch not in rung_epochs(self._planned[point.trial]):
            return True
        rung = self._rungs.setdefault(point.epoch, [])
        rung.append(point)
        return list(self._order(rung)).index(len(rung) - 1) < ceil(len(rung) / ETA)


class ByChance:
    """Ends a trial at a rung with probability ``1 - 1 / eta``."""

    def __init__(self, seed: int) -> None:
        self._luck = np.random.default_rng(seed)
        self._planned: dict[str, int] = {}

    def begin(self, trial: str, trajectory: Trajectory) -> None:
        """Take in a trial."""
        self._planned[trial] = len(trajectory.curve)

    def goes_on(self, point: Point) -> bool:
        """Decide after an epoch."""
        return point.epoch not in rung_epochs(self._planned[point.trial]) or self._luck.random() * ETA < 1


class Foresight:
    """Knows the future: ends a trial when what is left of it adds too little hypervolume an epoch to the front so far.

    No scheduler can know this much. With ``least`` 0, nothing that would reach the front is ever lost.
    """

    def __init__(self, objectives: Sequence[Objective], least: float) -> None:
        self._objectives, self._least = objectives, least
        self._box, self._front = Box.default(objectives), Frontier(len(objectives))
        self._rows: dict[str, Floats] = {}

    def begin(self, trial: str, trajectory: Trajectory) -> None:
        """Take in a trial whose values are known."""
        points = [Point(trial=trial, epoch=i, values=values) for i, values in enumerate(trajectory.known, start=1)]
        self._rows[trial] = costs(points, self._objectives)

    def goes_on(self, point: Point) -> bool:
        """Decide after an epoch."""
        rows = self._rows[point.trial]
        self._front.add(rows[point.epoch - 1])
        left = rows[point.epoch :]
        if all(self._front.covers(row) for row in left):
            return False
        before, after = (self._volume(more) for more in (left[:0], left))
        return after - before >= self._least * len(left)

    def _volume(self, more: Floats) -> float:
        return volume(self._box.scaled(np.concatenate([self._front.rows, more]), self._objectives))


def rung_epochs(epochs: int) -> set[int]:
    """The rungs of a trial of so many epochs; its last epoch is none."""
    found, epoch = set(), GRACE
    while epoch < epochs:
        found.add(epoch)
        epoch *= ETA
    return found


def by_accuracy(points: Sequence[Point]) -> list[int]:
    """Most accurate first."""
    return sorted(range(len(points)), key=lambda i: -points[i].values["accuracy"])


def by_rank(objectives: Sequence[Objective]) -> Callable[[Sequence[Point]], list[int]]:
    """Non-dominated rank, ties by crowding distance (Deb et al. 2002), as multi-objective ASHA is meant."""

    def order(points: Sequence[Point]) -> list[int]:
        matrix, left, found = costs(points, objectives), np.arange(len(points)), []
        while len(left):
            front = nondominated(matrix[left])
            crowded = crowding(matrix[left[front]])
            found += [int(left[front][i]) for i in np.argsort(-crowded, kind="stable")]
            left = left[~front]
        return found

    return order
