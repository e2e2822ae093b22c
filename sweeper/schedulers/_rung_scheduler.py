"""When a trial ends early: rungs, ranks and projections. Pure decisions, a function of the events in their order.

At a *rung*, an epoch of a bracket, a trial goes on if it is among the best 1/eta of the trials that have reached that
rung of its bracket (asynchronous successive halving, Li et al. 2020, arXiv 1810.05934). Two orders of trials:

* ``front``: by how many dominate a trial in all objectives; those with as many above them by what each adds to the
  hypervolume of these equals. After every epoch, at rungs too, a trial also ends when it can no longer matter: its
  epsilon at every later epoch is known, so if even an optimistic continuation is nowhere better than the front found so
  far, nothing is lost. Only a trial that dominates all others at a rung goes on whatever the projection says.
* ``margin``: by the distance of its utility from the best that other trials have at its epsilon or below.

A score that is no number ends its trial, as failed. A score that was not computed after an epoch counts with its last
value at rungs, and where there is none yet, nothing is decided.

Scores that decide are releases like any other; ending a trial on them is covered by the epsilon of all its planned
epochs, which is what the ledger charges.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf, isnan, log
from typing import assert_never

import numpy as np

from sweeper.pareto.dominance import Floats, costs
from sweeper.records import Direction, Objective, Point
from sweeper.schedulers._base import Decision
from sweeper.schedulers._rungs import DominanceRung, Frontier, MarginRung, Margins, Standing
from sweeper.spec.search import Scheduler, SearchSettings

# What every objective but epsilon, all of them shares of 1, may gain per unit of log epoch: without being noise, and
# before there is an earlier epoch to compare with.
NOISE_FLOOR = 0.02
FIRST_GAIN = 0.2


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


@dataclass(slots=True)
class _Progress:
    """One trial: its bracket, its epsilons, its last values, and by epoch its costs and what was decided."""

    bracket: int
    curve: tuple[float, ...]
    values: dict[str, float] = field(default_factory=dict)
    rows: dict[int, Floats] = field(default_factory=dict)
    decisions: dict[int, Decision | None] = field(default_factory=dict)


class RungScheduler:
    """Decides after each epoch of each trial.

    Args:
        objectives: axes of the front.
        order: how trials are compared at a rung; ``front`` projects after every epoch too.
        eta: one in eta goes on, at least 2.
        grace: epochs before the first rung of the first bracket, and before the first projection.
        brackets: sets of rungs, ``grace * eta**(b + k)`` for bracket b; trials join them in turn, by their numbers.
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
        self._fronts: dict[tuple[int, int], DominanceRung] = {}
        self._gaps: dict[tuple[int, int], MarginRung] = {}
        self._archive = Frontier(len(self._objectives))
        self._utility = next(i for i, objective in enumerate(self._objectives) if objective.name != "epsilon")
        self._margins = Margins(0.0 if self._maximised(self._utility) else 1.0)

    def begin(self, trial: str, curve: Sequence[float], *, number: int = 1) -> None:
        """Take in a trial before its first epoch.

        Args:
            trial: its id.
            curve: its epsilon after each planned epoch.
            number: of the trial in its sweep, from 1; whenever it begins, it joins the bracket of its number.
        """
        if trial not in self._trials:
            self._trials[trial] = _Progress((number - 1) % self._brackets, tuple(curve))

    def judge(self, point: Point) -> Decision | None:
        """Take in an epoch and decide; None where there is nothing to decide. An epoch seen before changes nothing."""
        progress = self._trials[point.trial]
        if point.epoch not in progress.decisions:
            progress.decisions[point.epoch] = self._decide(progress, point)
        return progress.decisions[point.epoch]

    def _decide(self, progress: _Progress, point: Point) -> Decision | None:
        names = [objective.name for objective in self._objectives]
        if (broken := self._broken(point)) is not None:
            reason = f"{broken} is not a number after epoch {point.epoch}: ends"
            return Decision(trial=point.trial, epoch=point.epoch, goes_on=False, reason=reason, failed=True)
        progress.values |= {name: value for name, value in point.values.items() if name in names}
        if not all(name in progress.values for name in names):
            return None
        known = Point(trial=point.trial, epoch=point.epoch, values=progress.values)
        row = progress.rows[point.epoch] = costs([known], self._objectives)[0]
        if all(name in point.values for name in names):
            self._take(point, row)
        if point.epoch >= len(progress.curve):
            return None
        return self._at_epoch(progress, point, row)

    def _broken(self, point: Point) -> str | None:
        """Return the first objective whose value cannot be compared: NaN, or infinitely good."""
        for column, objective in enumerate(self._objectives):
            value = point.values.get(objective.name, 0.0)
            if isnan(value) or value == (inf if self._maximised(column) else -inf):
                return objective.name
        return None

    def _take(self, point: Point, row: Floats) -> None:
        """Compare later points with this one."""
        match self._order:
            case Order.FRONT:
                self._archive.add(row)
            case Order.MARGIN:
                self._margins.add(point.trial, point.values["epsilon"], row[self._utility])
            case _:
                assert_never(self._order)

    def _at_epoch(self, progress: _Progress, point: Point, row: Floats) -> Decision | None:
        decision, unbeaten = None, False
        if point.epoch in self._rung_epochs(progress):
            standing = self._stand(progress, point, row)
            decision, unbeaten = self._at_rung(point, standing), standing.unbeaten
        if self._order is Order.MARGIN or point.epoch < self._grace or unbeaten:
            return decision
        if decision is not None and not decision.goes_on:
            return decision
        return self._projected_end(progress, point) or decision

    def _rung_epochs(self, progress: _Progress) -> set[int]:
        epochs, epoch = set(), self._grace * self._eta**progress.bracket
        while epoch < len(progress.curve):
            epochs.add(epoch)
            epoch *= self._eta
        return epochs

    def _stand(self, progress: _Progress, point: Point, row: Floats) -> Standing:
        key = (progress.bracket, point.epoch)
        match self._order:
            case Order.FRONT:
                return self._fronts.setdefault(key, DominanceRung(self._objectives)).enter(point.trial, row)
            case Order.MARGIN:
                rung, epsilon = self._gaps.setdefault(key, MarginRung()), point.values["epsilon"]
                return rung.enter(point.trial, epsilon, row[self._utility], self._margins)
            case _:
                assert_never(self._order)

    def _at_rung(self, point: Point, standing: Standing) -> Decision:
        kept = ceil(standing.of / self._eta)
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

    def _projected_end(self, progress: _Progress, point: Point) -> Decision | None:
        """End a trial whose optimistic continuation is nowhere better than the front."""
        ahead = self._continuation(progress, point.epoch)
        if not all(self._archive.covers(row) for row in reversed(ahead)):
            return None
        best = ", ".join(f"{o.name} {abs(cost):.3g}" for o, cost in zip(self._objectives, ahead[-1], strict=True))
        reason = (
            f"even an optimistic continuation from epoch {point.epoch} to {len(progress.curve)} ({best}) stays behind "
            "the front found so far: ends"
        )
        return Decision(trial=point.trial, epoch=point.epoch, goes_on=False, reason=reason)

    def _continuation(self, progress: _Progress, epoch: int) -> Floats:
        """Return the cost rows of the later epochs if every objective keeps its recent gain per log epoch."""
        now, steps = progress.rows[epoch], np.log(np.arange(epoch + 1, len(progress.curve) + 1) / epoch)
        since = max((e for e in progress.rows if e <= max(1, epoch // 2) and e < epoch), default=None)
        ahead = np.empty((len(steps), len(self._objectives)))
        for column, objective in enumerate(self._objectives):
            if objective.name == "epsilon":
                ahead[:, column] = progress.curve[epoch:]
                continue
            gain = FIRST_GAIN if since is None else (progress.rows[since][column] - now[column]) / log(epoch / since)
            best = -1.0 if self._maximised(column) else 0.0
            ahead[:, column] = np.maximum(best, now[column] - max(gain, NOISE_FLOOR) * steps)
        return ahead

    def _maximised(self, column: int) -> bool:
        return self._objectives[column].direction is Direction.MAXIMIZE
