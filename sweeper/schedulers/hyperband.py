"""``hyperband``: rungs ordered by dominance over all objectives, and an end for trials that can no longer matter.

At a rung, trials are ordered by how many dominate them; those with equally many by what each adds to the hypervolume of
these equals. After every epoch, at rungs too, a trial also ends when its future is known to be hopeless: its epsilon at
every later epoch is known, so if even an optimistic continuation is nowhere better than the front found so far, nothing
is lost. Only a trial that dominates all others at a rung continues whatever the projection says.
"""

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np

from sweeper.pareto.dominance import Floats
from sweeper.records import Objective, Point
from sweeper.rounding import round_up
from sweeper.schedulers._base import Decision, TrialProgress
from sweeper.schedulers._rungs import DominanceRung, Frontier, Rank, RungScheduler

# What every objective but epsilon, all of them shares of 1, may gain per unit of log epoch: without being noise, and
# before there is an earlier epoch to compare with.
NOISE_FLOOR = 0.02
FIRST_GAIN = 0.2


class Hyperband(RungScheduler):
    """Compares all objectives, and projects each trial after its epochs, from ``grace`` on."""

    def __init__(self, objectives: Sequence[Objective], **options: Any) -> None:
        super().__init__(objectives, **options)
        self._rungs: dict[tuple[int, int], DominanceRung] = {}
        self._archive = Frontier(len(self.objectives))

    def learn(self, point: Point, row: Floats) -> None:  # noqa: ARG002
        """Put the point on the front that later ones have to reach."""
        self._archive.add(row)

    def rank(self, bracket: int, point: Point, row: Floats) -> Rank:
        """Order by how many trials dominate one."""
        rung = self._rungs.setdefault((bracket, point.epoch), DominanceRung(self.objectives))
        return rung.enter(point.trial, row)

    def decide(self, progress: TrialProgress, point: Point, row: Floats) -> Decision | None:
        """Decide at rungs, and end a trial anywhere else that cannot reach the front."""
        standing = self.standing(progress, point, row)
        decision = None if standing is None else self.at_rung(point, standing)
        ends = decision is not None and not decision.goes_on
        unbeaten = standing is not None and standing.unbeaten
        if ends or unbeaten or point.epoch < self.grace:
            return decision
        return self._project_end(progress, point) or decision

    def _project_end(self, progress: TrialProgress, point: Point) -> Decision | None:
        ahead = self._continuation(progress, point.epoch)
        if not all(self._archive.covers(row) for row in reversed(ahead)):
            return None
        best = ", ".join(_in_words(o.name, abs(cost)) for o, cost in zip(self.objectives, ahead[-1], strict=True))
        reason = (
            f"even an optimistic continuation from epoch {point.epoch} to {len(progress.curve)} ({best}) stays behind "
            "the front found so far: ends"
        )
        return Decision(trial=point.trial, epoch=point.epoch, goes_on=False, reason=reason)

    def _continuation(self, progress: TrialProgress, epoch: int) -> Floats:
        """Return the cost rows of the later epochs if every objective keeps its recent gain per log epoch."""
        now, steps = progress.rows[epoch], np.log(np.arange(epoch + 1, len(progress.curve) + 1) / epoch)
        since = max((e for e in progress.rows if e <= max(1, epoch // 2) and e < epoch), default=None)
        ahead = np.empty((len(steps), len(self.objectives)))
        for column, objective in enumerate(self.objectives):
            if objective.name == "epsilon":
                ahead[:, column] = progress.curve[epoch:]
                continue
            gain = FIRST_GAIN if since is None else (progress.rows[since][column] - now[column]) / log(epoch / since)
            best = -1.0 if self.maximized(column) else 0.0
            ahead[:, column] = np.maximum(best, now[column] - max(gain, NOISE_FLOOR) * steps)
        return ahead


def _in_words(name: str, value: float) -> str:
    return f"{name} {round_up(value) if name == 'epsilon' else f'{value:.3g}'}"
