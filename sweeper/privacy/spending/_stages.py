"""Stages of a budget that is cut into slots: what they may spend, what they cost, and how much noise that takes.

A stage has as many slots as trials, all of one event: sampling rate, noise multiplier and steps of one trial. Spare
steps are what a stage has for epochs that a killed attempt drew and the next one draws again.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

from clipless.errors import AccountingError
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from sweeper.privacy.entries import Entry
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.pricing import signal_of
from sweeper.specification.stages import StagePlan

_AIM = 0.999  # of the budget: where the search for the noise aims
_TOLERANCE = 1e-3  # of the logarithm of the noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Slots of one signal."""

    slot: PoissonGaussian  # what one trial may spend, all its repeats together
    trials: int  # the number of slots
    spare: int  # steps of the slot's mechanism beside them

    @classmethod
    def of(cls, plan: StagePlan, trial: PoissonGaussian, spare: int, noise: float) -> "Stage":
        """Return a stage with its share of a signal of which the whole has the noise of one trial."""
        steps = plan.trials * trial.steps + spare
        slot = replace(trial, noise_multiplier=noise * math.sqrt(steps / (plan.share * trial.steps)))
        return cls(slot=slot, trials=plan.trials, spare=spare)

    @property
    def releases(self) -> tuple[PoissonGaussian, ...]:
        """Every slot and the spare steps, each as a release of its own."""
        spare = (self.slot.with_steps(self.spare),) if self.spare else ()
        return (*(self.slot for _ in range(self.trials)), *spare)

    @property
    def pool(self) -> PoissonGaussian:
        """Everything that the stage may spend."""
        return self.slot.with_steps(self.trials * self.slot.steps + self.spare)

    def needs(self, event: PoissonGaussian, steps: int, delta: float) -> int:
        """Return the steps of the pool that a trial takes which has planned ``event`` and spends ``steps`` of it.

        A trial of the slot's own mechanism, or of more noise, takes as many as it spends; one of another sampling rate,
        or of more steps with more noise, takes whole slots, for it is dominated as a whole. The only trial of a stage
        may be dominated, up to the slack of ``delta``, by its slot and all spare steps together. Where others could
        take these, a choice between them and it would look at what it has drawn, and domination says nothing of parts.
        """
        from clipless.privacy.accounting.domination import dominates  # takes seconds, as below

        slot = self.slot
        own = event.sampling_rate == slot.sampling_rate and event.noise_multiplier >= slot.noise_multiplier
        if own and event.steps <= slot.steps:
            return steps
        if self.trials == 1 and steps > event.steps > 0 and dominates(self.pool, event.with_steps(steps), delta):
            return self.pool.steps
        return math.ceil(steps / event.steps) * slot.steps if event.steps else 0

    def taken(self, entries: Sequence[Entry], delta: float) -> int:
        """Return the steps of the pool that trials take: of attempts that were killed, those that they drew.

        The steps of a pool are all alike, and so many of them are composed whatever each of them is used for.
        """
        last = {entry.trial: entry for entry in entries}
        steps: dict[tuple[str, PoissonGaussian], int] = {}
        for entry in entries:
            key = entry.trial, entry.planned
            used = entry.charged if entry is last[entry.trial] else entry.spent
            steps[key] = steps.get(key, 0) + used.steps
        return sum(self.needs(planned, count, delta) for (_, planned), count in steps.items())

    def refusal(self, entries: Sequence[Entry], delta: float, name: str) -> str | None:
        """Return why no slot is left for the last of these trainings of the stage, or none that covers it.

        Guarantees:
            What is not refused is dominated by the slots and spare steps that nothing else has taken, in both
            directions in which neighbours may differ.
        """
        from clipless.privacy.accounting.domination import dominates

        if not dominates(self.slot, entries[-1].planned, delta):
            return f"it would spend more than a slot of {name}, with noise multiplier {self.slot.noise_multiplier:.4g}"
        if self.taken(entries, delta) > self.pool.steps:
            return f"no slot of {name} is left for it: its {self.trials} and the spare steps are taken"
        return None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"slot": self.slot.to_json(), "trials": self.trials, "spare": self.spare}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Stage":
        """Read back what `to_json` wrote.

        Raises:
            KeyError, TypeError, AccountingError: something else.
        """
        slot = PoissonGaussian.from_json(content["slot"])
        return cls(slot=slot, trials=int(content["trials"]), spare=int(content["spare"]))


def shares(pools: Sequence[PoissonGaussian], *more: float) -> tuple[float, ...]:
    """Return what each pool has of the squared signal of all; ``more`` are squared signals in front of them."""
    signals = [*more, *(signal_of(pool) ** 2 for pool in pools)]
    return tuple(one / sum(signals) for one in signals)


@lru_cache(maxsize=256)
def slots_epsilon(
    stages: tuple[Stage, ...], delta: float, domination_delta: float, sketch: PoissonGaussian | None = None
) -> float:
    """Return what all slots and spare steps cost at delta, those included that trials only dominate up to a slack.

    ``domination_delta`` is the delta of which the slack is a share. A ``sketch`` of the training rows is composed with
    them.
    """
    usable = delta_left(stages, delta, domination_delta)
    events = (*(stage.pool for stage in stages), *(() if sketch is None else (sketch,)))
    return composed_epsilon(events, usable) if usable > 0.0 else math.inf


@lru_cache(maxsize=256)
def sketch_of_share(share: float, epsilon: float, delta: float, relation: Relation) -> PoissonGaussian | None:
    """Return the sketch that has a share of the squared signal of one release that costs the whole budget.

    ``None`` without a share.

    Raises:
        AccountingError: no noise that can be priced costs the whole budget.
    """
    if not share:
        return None
    noise = _whole_noise(epsilon, delta, relation) / math.sqrt(share)
    return PoissonGaussian(noise_multiplier=noise, sampling_rate=1.0, steps=1, relation=relation)


def share_of_sketch(sketch: PoissonGaussian | None, epsilon: float, delta: float) -> float:
    """Return the share that `sketch_of_share` gave a sketch, 0 without one."""
    return 0.0 if sketch is None else (_whole_noise(epsilon, delta, sketch.relation) / sketch.noise_multiplier) ** 2


def _whole_noise(epsilon: float, delta: float, relation: Relation) -> float:
    from clipless.privacy.accounting.calibration import noise_multiplier_for  # takes seconds, as above

    return noise_multiplier_for(epsilon, delta, 1.0, 1, relation)


def delta_left(stages: Sequence[Stage], delta: float, domination_delta: float) -> float:
    """Return the delta at which to price slots, without what trials exceed them by."""
    return delta - slots_slack(stages, domination_delta)


def slots_slack(stages: Sequence[Stage], delta: float) -> float:
    """Return the part of delta by which trainings may exceed the slots that dominate them, all of them together."""
    from clipless.privacy.accounting.domination import delta_of_slots  # takes seconds, and few who read sweeps price

    return delta - delta_of_slots(delta, sum(stage.pool.steps // stage.slot.steps for stage in stages))


def all_own(stages: Sequence[Stage], trainings: Sequence[PoissonGaussian]) -> bool:
    """Return whether the slots' own mechanisms, with their steps, hold all of these trainings."""
    left: dict[PoissonGaussian, int] = {}
    for stage in stages:
        left[stage.slot.with_steps(0)] = left.get(stage.slot.with_steps(0), 0) + stage.pool.steps
    for event in trainings:
        mechanism = event.with_steps(0)
        left[mechanism] = left.get(mechanism, 0) - event.steps
    return min(left.values()) >= 0


def composed_epsilon(events: tuple[PoissonGaussian, ...], delta: float) -> float:
    """Return what events cost together, by the smaller of both accountants' bounds."""
    from clipless.privacy.accounting.claim import claim

    return claim(Composed(events), delta).epsilon


def least_noise(price: Callable[[float], float], epsilon: float, *, near: float = 1.0, step: float = 1.0) -> float:
    """Return the least noise at which ``price`` is at most epsilon, to a thousandth or two.

    The search begins ``near`` and goes on in steps of the logarithm.

    Raises:
        AccountingError: no noise that can be priced is enough, or the least is more than is needed.
    """
    from scipy import optimize

    from clipless.privacy.accounting.spending import LEAST_NOISE_MULTIPLIER, MOST_NOISE_MULTIPLIER

    @cache
    def excess(log_noise: float) -> float:
        return math.log(min(max(price(math.exp(log_noise)), 1e-9), 1e9) / (_AIM * epsilon))

    low = high = math.log(near)
    least, most = math.log(LEAST_NOISE_MULTIPLIER), math.log(MOST_NOISE_MULTIPLIER)
    while excess(high) > 0.0:
        high += step
        if high > most:
            raise AccountingError(f"Expected a budget that some noise can meet, got epsilon={epsilon!r}: raise it")
    while excess(low) <= 0.0:
        low -= step
        if low < least:
            raise AccountingError(f"Expected a budget that is used up, got epsilon={epsilon!r}: lower it")
    log_noise = optimize.brentq(excess, low, high, xtol=_TOLERANCE)
    while price(math.exp(log_noise)) > epsilon:
        log_noise += _TOLERANCE
    return math.exp(log_noise)


def scores_refusal(pool: PaidScores | None, paid: Sequence[PaidScores], releases: int, split: str) -> str | None:
    """Return why a pool of releases of scores of a split has no room for those that are paid."""
    if not paid:
        return None
    if pool is None:
        return f"the budget of the sweep has nothing for scores of private {split} rows"
    if not all(one.apart and _no_louder(one.event, pool.event) for one in paid):
        return f"its scores of private {split} rows have less noise than the budget of the sweep says"
    if releases > pool.event.steps:
        return f"the {pool.event.steps} releases of scores of private {split} rows in the budget are taken"
    return None


def _no_louder(event: PoissonGaussian, pool: PoissonGaussian) -> bool:
    same = (event.relation, event.sampling_rate) == (pool.relation, pool.sampling_rate)
    return same and event.noise_multiplier >= pool.noise_multiplier
