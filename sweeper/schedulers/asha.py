"""``asha``: rungs ordered by how far a trial's utility exceeds the best of the others at its epsilon or below."""

from collections.abc import Sequence
from typing import Any

from sweeper.pareto.dominance import Floats
from sweeper.records import Objective, Point
from sweeper.schedulers._rungs import MarginRung, Margins, Rank, RungScheduler


class Asha(RungScheduler):
    """Compares the first objective that is not epsilon."""

    def __init__(self, objectives: Sequence[Objective], **options: Any) -> None:
        super().__init__(objectives, **options)
        self._rungs: dict[tuple[int, int], MarginRung] = {}
        self._utility = next(i for i, objective in enumerate(self.objectives) if objective.name != "epsilon")
        self._margins = Margins(0.0 if self.maximized(self._utility) else 1.0)

    def learn(self, point: Point, row: Floats) -> None:
        """Compare later points with the utility that this one has at its epsilon."""
        self._margins.add(point.trial, point.values["epsilon"], row[self._utility])

    def rank(self, bracket: int, point: Point, row: Floats) -> Rank:
        """Order by the margin over other trials at the same epsilon."""
        rung = self._rungs.setdefault((bracket, point.epoch), MarginRung())
        return rung.enter(point.trial, point.values["epsilon"], row[self._utility], self._margins)
