"""The budget of a sweep, cut into slots before any row is read.

A stage has as many slots as trials, all of one event: sampling rate, noise multiplier and steps of one trial. A trial
fills a slot of its stage if the slot's event dominates its own (`clipless.privacy.accounting.domination`). Everything
that is released costs the composition of all slots and spare steps, used or not: a number that is fixed before the
first result, so that it holds however results are used (``docs/mathematics.md``, "A budget in slots").

Spare steps are what a stage has for epochs that a killed attempt drew and the next one draws again.

A budget may hold a private selection instead of a first stage (``exploration.py``): its candidates train at a whisper,
and the one slot beside it is that of the final, which trains the configuration of the winner.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

from scipy import optimize

from clipless.errors import AccountingError
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import Composed, Event, PoissonGaussian
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.selection import Terms
from sweeper.records import trial_number
from sweeper.specification.stages import StagePlan

_AIM = 0.999  # of the budget: where the search for the noise aims
_TOLERANCE = 1e-3  # of the logarithm of the noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Slots of one loudness."""

    slot: PoissonGaussian  # what one trial may spend, all its repeats together
    trials: int  # the number of slots
    spare: int  # steps of the slot's mechanism beside them

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


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What the trials of a sweep may spend, stage by stage."""

    epsilon: float  # what was asked for, at delta
    delta: float
    stages: tuple[Stage, ...]
    # releases of scores of private validation rows, ``None`` where scores are free; those of the candidates of a
    # private selection are in its terms
    scores: PaidScores | None = None
    tests: PaidScores | None = None  # the same of test rows
    selection: Terms | None = None  # the private selection from which the final follows, ``None`` without one

    @property
    def trials(self) -> int:
        """The number of slots."""
        return sum(stage.trials for stage in self.stages)

    @property
    def shares(self) -> tuple[float, ...]:
        """What each stage has of the signal: of the sum over all steps of ``(q / sigma)^2``.

        The mean number of candidates of a private selection counts as the first stage.
        """
        terms = self.selection
        whispers = [] if terms is None else [terms.repetitions.mean * loudness(terms.event) ** 2]
        signals = [*whispers, *(loudness(one.pool) ** 2 for one in self.stages)]
        return tuple(signal / sum(signals) for signal in signals)

    @property
    def candidates(self) -> "Budget":
        """The budget whose slots give the candidates of the private selection their noise.

        Raises:
            AccountingError: it has none.
        """
        if self.selection is None:
            raise AccountingError("Expected a budget with a private selection, got one without")
        return replace(self, stages=(Stage(slot=self.selection.event, trials=1, spare=0),), selection=None)

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
        others = [paid.event for paid in (self.scores, self.tests) if paid is not None]
        alone = [_epsilon((event,), delta) for event in others]
        if self.selection is None:
            return max([slots_epsilon(self.stages, delta, self.delta), *alone])
        return max([*self._with_selection(self.selection, delta), *alone])

    def _with_selection(self, terms: Terms, delta: float) -> list[float]:
        """Return what candidates and final cost together on training rows and, where scores are paid for, on others."""
        final = Composed(tuple(stage.pool for stage in self.stages))
        usable = _delta_left(self.stages, delta, self.delta)
        costs = [_explored_epsilon(terms.priced, terms.repetitions, final, usable) if usable > 0.0 else math.inf]
        if terms.scores is not None:
            scores = terms.scores.with_steps(0) if self.scores is None else self.scores.event
            costs.append(_explored_epsilon(terms.scores, terms.repetitions, scores, delta))
        return costs

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        stages = [{"slot": one.slot.to_json(), "trials": one.trials, "spare": one.spare} for one in self.stages]
        content: dict[str, Any] = {"epsilon": self.epsilon, "delta": self.delta, "stages": stages}
        more = {"scores": self.scores, "tests": self.tests, "selection": self.selection}
        return content | {name: one.to_json() for name, one in more.items() if one is not None}

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
        terms = Terms.from_json(content["selection"]) if "selection" in content else None
        return cls(
            epsilon=float(content["epsilon"]), delta=float(content["delta"]), stages=stages, selection=terms, **paid
        )


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
        return tuple(make_stage(plan, trial, spare, noise) for plan in plans)

    noise = least_noise(lambda noise: slots_epsilon(stages(noise), delta, delta), epsilon)
    return Budget(epsilon=epsilon, delta=delta, stages=stages(noise))


def loudness(event: PoissonGaussian) -> float:
    """Return the signal of a training: its cost grows with it, and squares of it add up."""
    return event.sampling_rate * math.sqrt(event.steps) / event.noise_multiplier


def make_stage(plan: StagePlan, trial: PoissonGaussian, spare: int, noise: float) -> Stage:
    """Return a stage with its share of a signal of which the whole has the noise of one trial."""
    steps = plan.trials * trial.steps + spare
    slot = replace(trial, noise_multiplier=noise * math.sqrt(steps / (plan.share * trial.steps)))
    return Stage(slot=slot, trials=plan.trials, spare=spare)


@lru_cache(maxsize=256)
def slots_epsilon(stages: tuple[Stage, ...], delta: float, domination_delta: float) -> float:
    """Return what all slots and spare steps cost at delta, those included that trials only dominate up to a slack.

    ``domination_delta`` is the delta of which the slack is a share.
    """
    usable = _delta_left(stages, delta, domination_delta)
    return _epsilon(tuple(stage.pool for stage in stages), usable) if usable > 0.0 else math.inf


def _delta_left(stages: Sequence[Stage], delta: float, domination_delta: float) -> float:
    """Return the delta at which to price slots, without what trials exceed them by."""
    from clipless.privacy.accounting.domination import delta_of_slots  # takes seconds, and few who read sweeps price

    filled = sum(stage.pool.steps // stage.slot.steps for stage in stages)
    return delta - domination_delta + delta_of_slots(domination_delta, filled)


def _explored_epsilon(candidate: PoissonGaussian, repetitions: Repetitions, final: Event, delta: float) -> float:
    from clipless.privacy.accounting.selection_composed import explored_epsilon  # likewise

    return explored_epsilon(candidate, repetitions, final, delta)


def _epsilon(events: tuple[PoissonGaussian, ...], delta: float) -> float:
    from clipless.privacy.accounting.claim import claim

    return claim(Composed(events), delta).epsilon


def least_noise(price: Callable[[float], float], epsilon: float, *, near: float = 1.0, step: float = 1.0) -> float:
    """Return the least noise at which ``price`` is at most epsilon, to a thousandth or two.

    The search begins ``near`` and goes on in steps of the logarithm.

    Raises:
        AccountingError: no noise that can be priced is enough, or the least is more than is needed.
    """
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
