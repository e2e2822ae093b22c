"""Schedulers that compare trials at rungs (asynchronous successive halving, Li et al. 2020, arXiv 1810.05934).

At a *rung*, an epoch of a bracket, a trial continues if it is among the best 1/eta of the trials that have reached that
rung of its bracket. Subclasses order the trials.
"""

from abc import abstractmethod
from math import ceil

from sweeper.pareto.dominance import Floats
from sweeper.records import Point
from sweeper.schedulers._base import Decision, Scheduler, TrialProgress
from sweeper.schedulers._rungs import Rank


class RungScheduler(Scheduler):
    """Base of the schedulers with rungs, at ``grace * eta**(b + k)`` epochs for bracket b."""

    @abstractmethod
    def rank(self, bracket: int, point: Point, row: Floats) -> Rank:
        """Take a trial into the rung of this epoch in its bracket, and say where it stands."""

    def decide(self, progress: TrialProgress, point: Point, row: Floats) -> Decision | None:
        """Decide at rungs."""
        standing = self.standing(progress, point, row)
        return None if standing is None else self.at_rung(point, standing)

    def standing(self, progress: TrialProgress, point: Point, row: Floats) -> Rank | None:
        """Return where a trial stands at the rung of this epoch, None where there is no rung."""
        at_rung = point.epoch in self._rung_epochs(progress)
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

    def _rung_epochs(self, progress: TrialProgress) -> set[int]:
        epochs, epoch = set(), self.grace * self.eta**progress.bracket
        while epoch < len(progress.curve):
            epochs.add(epoch)
            epoch *= self.eta
        return epochs
