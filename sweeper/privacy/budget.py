"""The budget of a sweep, cut into slots before any row is read.

A stage has as many slots as trials, all of one event: sampling rate, noise multiplier and steps of one trial. A trial
fills a slot of its stage if the slot's event dominates its own (`clipless.privacy.accounting.domination`). Everything
that is released costs the composition of all slots and spare steps, used or not: a number that is fixed before the
first result, so that it holds however results are used (``docs/mathematics.md``, "A budget in slots").

Spare steps are what a stage has for epochs that a killed attempt drew and the next one draws again.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from scipy import optimize

from clipless.errors import AccountingError
from clipless.privacy.events import Composed, PoissonGaussian
from sweeper.privacy.paid_scores import PaidScores
from sweeper.records import trial_number
from sweeper.spec.stages import StagePlan

_AIM = 0.999  # of the budget: where the search for the noise aims
_TOLERANCE = 1e-3  # of the logarithm of the noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Slots of one loudness.

    Attributes:
        slot: what one trial may spend, all its repeats together.
        trials: the number of slots.
        spare: steps of the slot's mechanism beside them.
    """

    slot: PoissonGaussian
    trials: int
    spare: int

    @property
    def pool(self) -> PoissonGaussian:
        """Everything that the stage may spend."""
        return self.slot.with_steps(self.trials * self.slot.steps + self.spare)

    def needs(self, event: PoissonGaussian, steps: int) -> int:
        """Return the steps of the pool that a trial takes which has planned ``event`` and spends ``steps`` of it.

        A trial of the slot's own mechanism, or of more noise, takes as many as it spends; one of another sampling rate,
        or of more steps with more noise, takes whole slots, for it is dominated as a whole.
        """
        slot = self.slot
        own = event.sampling_rate == slot.sampling_rate and event.noise_multiplier >= slot.noise_multiplier
        if own and event.steps <= slot.steps:
            return steps
        return math.ceil(steps / event.steps) * slot.steps if event.steps else 0


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the trials of a sweep may spend, stage by stage.

    Attributes:
        epsilon: what was asked for, at delta.
        scores: releases of scores of private validation rows, ``None`` where scores are free.
        tests: the same of test rows.
    """

    epsilon: float
    delta: float
    stages: tuple[Stage, ...]
    scores: PaidScores | None = None
    tests: PaidScores | None = None

    @property
    def trials(self) -> int:
        """The number of slots."""
        return sum(stage.trials for stage in self.stages)

    @property
    def shares(self) -> tuple[float, ...]:
        """What each stage has of the signal: of the sum over all steps of ``(q / sigma)^2``."""
        signals = [loudness(one.pool) ** 2 for one in self.stages]
        return tuple(signal / sum(signals) for signal in signals)

    def stage_of(self, number: int) -> int:
        """Return the index of a trial's stage by its number in the sweep, from 1; the last one's beyond all slots."""
        for index, stage in enumerate(self.stages):
            if number <= stage.trials:
                return index
            number -= stage.trials
        return len(self.stages) - 1

    def slot_of(self, trial: str) -> PoissonGaussian:
        """Return the slot that a trial fills, by its id."""
        return self.stages[self.stage_of(trial_number(trial))].slot

    @cached_property
    def price(self) -> float:
        """Epsilon of everything that the sweep may release, at most what was asked for."""
        return self.price_at(self.delta)

    def price_at(self, delta: float) -> float:
        """Return that epsilon at another delta."""
        training = slots_epsilon(self.stages, delta, self.delta)
        others = [paid.event for paid in (self.scores, self.tests) if paid is not None]
        return max([training, *(_epsilon((event,), delta) for event in others)])

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        stages = [{"slot": one.slot.to_json(), "trials": one.trials, "spare": one.spare} for one in self.stages]
        content: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "stages": stages}
        paid = {"scores": self.scores, "tests": self.tests}
        return content | {name: one.to_json() for name, one in paid.items() if one is not None}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Budget":
        """Read back what ``to_json`` wrote.

        Raises:
            KeyError, TypeError, AccountingError: something else.
        """
        stages = tuple(
            Stage(slot=PoissonGaussian.from_json(one["slot"]), trials=int(one["trials"]), spare=int(one["spare"]))
            for one in content["stages"]
        )
        paid = {name: PaidScores.from_json(content[name]) for name in ("scores", "tests") if name in content}
        return cls(epsilon=float(content["epsilon"]), delta=float(content["delta"]), stages=stages, **paid)


def cut_budget(
    epsilon: float, delta: float, plans: Sequence[StagePlan], trial: PoissonGaussian, *, spare: int = 0
) -> Budget:
    """Cut a budget into slots for trials that run as many steps at the same sampling rate as ``trial``.

    The signal of a stage, the sum over its steps of ``(q / sigma)^2``, is its share of all; the noise is the least for
    which the composition of all slots costs no more than epsilon.

    Args:
        epsilon: of everything, at delta.
        delta: the probability the guarantee may fail with.
        plans: the stages.
        trial: a trial of the sweep; its noise multiplier does not count.
        spare: further steps of each stage.

    Raises:
        AccountingError: no noise that can be priced is enough, or the least is more than is needed.
    """

    def stages(noise: float) -> tuple[Stage, ...]:
        return tuple(_stage(plan, trial, spare, noise) for plan in plans)

    noise = _least_noise(lambda noise: slots_epsilon(stages(noise), delta, delta), epsilon)
    return Budget(epsilon=epsilon, delta=delta, stages=stages(noise))


def loudness(event: PoissonGaussian) -> float:
    """Return the signal of a training: its cost grows with it, and squares of it add up."""
    return event.sampling_rate * math.sqrt(event.steps) / event.noise_multiplier


def _stage(plan: StagePlan, trial: PoissonGaussian, spare: int, noise: float) -> Stage:
    steps = plan.trials * trial.steps + spare
    slot = replace(trial, noise_multiplier=noise * math.sqrt(steps / (plan.share * trial.steps)))
    return Stage(slot=slot, trials=plan.trials, spare=spare)


@lru_cache(maxsize=256)
def slots_epsilon(stages: tuple[Stage, ...], delta: float, domination_delta: float) -> float:
    """Return what all slots and spare steps cost at delta, those included that trials only dominate up to a slack.

    ``domination_delta`` is the delta of which the slack is a share.
    """
    from clipless.privacy.accounting.domination import delta_of_slots  # takes seconds, and few who read sweeps price

    filled = sum(stage.pool.steps // stage.slot.steps for stage in stages)
    usable = delta - domination_delta + delta_of_slots(domination_delta, filled)
    return _epsilon(tuple(stage.pool for stage in stages), usable) if usable > 0.0 else math.inf


def _epsilon(events: tuple[PoissonGaussian, ...], delta: float) -> float:
    from clipless.privacy.accounting.claim import claim

    return claim(Composed(events), delta).epsilon


def _least_noise(price: Callable[[float], float], epsilon: float) -> float:
    """Return the least noise at which ``price`` is at most epsilon, to a thousandth or two."""
    from clipless.privacy.accounting.spending import LEAST_NOISE_MULTIPLIER, MOST_NOISE_MULTIPLIER

    def excess(log_noise: float) -> float:
        return math.log(min(max(price(math.exp(log_noise)), 1e-9), 1e9) / (_AIM * epsilon))

    low = high = 0.0
    least, most = math.log(LEAST_NOISE_MULTIPLIER), math.log(MOST_NOISE_MULTIPLIER)
    while excess(high) > 0.0:
        high += 1.0
        if high > most:
            raise AccountingError(f"Expected a budget that some noise can meet, got epsilon={epsilon!r}: raise it")
    while excess(low) <= 0.0:
        low -= 1.0
        if low < least:
            raise AccountingError(f"Expected a budget that is used up, got epsilon={epsilon!r}: lower it")
    log_noise = optimize.brentq(excess, low, high, xtol=_TOLERANCE)
    while price(math.exp(log_noise)) > epsilon:
        log_noise += _TOLERANCE
    return math.exp(log_noise)
