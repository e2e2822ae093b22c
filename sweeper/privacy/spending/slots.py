"""A budget in slots: stages of trials with a fixed noise each, quiet explorers first and finals with little noise.

A trial fills a slot of its stage if the slot's event dominates its own (`clipless.privacy.accounting.domination`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, ClassVar, Self

from clipless.privacy.events import PoissonGaussian
from sweeper.privacy.entries import ChargedEvents, Entry
from sweeper.privacy.evaluation.paid_scores import PaidScores, ScoreNoise
from sweeper.privacy.exposures import Release, release_slots
from sweeper.privacy.pricing import FOR_ALL, Price, price
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending._base import BudgetPart, Request, answer_alike
from sweeper.privacy.spending._cut import CutBudget, read_pools
from sweeper.privacy.spending._stages import (
    Stage,
    all_own,
    least_noise,
    share_of_sketch,
    shares,
    sketch_of_share,
    slots_epsilon,
    slots_slack,
)
from sweeper.records import trial_number
from sweeper.rounding import round_up
from sweeper.specification.stages import StagePlan, early_scores


@dataclass(frozen=True, kw_only=True)
class Slots(CutBudget):
    """What the trials of a sweep may spend, stage by stage."""

    stages: tuple[Stage, ...]
    sketch: PoissonGaussian | None = None  # of the training rows, drawn before the first trial

    name: ClassVar[str] = "slots"

    @classmethod
    def cut(cls, request: Request) -> Self:
        """Cut a budget into stages as the spec divides it."""
        given = request.epsilon, request.delta, request.stages, request.trial
        budget = cls.of_plans(*given, spare=request.spare, sketch_share=request.sketch_share)
        return budget.with_scores(request, request.planned_releases, request.planned_releases)

    @classmethod
    def of_plans(
        cls,
        epsilon: float,
        delta: float,
        plans: Sequence[StagePlan],
        trial: PoissonGaussian,
        *,
        spare: int = 0,
        sketch_share: float = 0.0,
    ) -> Self:
        """Cut a budget into slots for trials that run as many steps at the same sampling rate as ``trial``.

        The signal of a stage, the sum over its steps of ``(q / sigma)^2``, is its share of all; the noise is the least
        for which the composition of all slots, and of the sketch, costs no more than epsilon.

        Args:
            epsilon: of everything, at delta.
            delta: the probability the guarantee may fail with.
            plans: the stages.
            trial: a trial of the sweep; its noise multiplier does not count.
            spare: further steps of each stage.
            sketch_share: of the signal, for a sketch of the training rows; see `sketch_of_share`.

        Raises:
            AccountingError: no noise that can be priced is enough, or the least is more than is needed.
        """

        def stages(noise: float) -> tuple[Stage, ...]:
            return tuple(Stage.of(plan, trial, spare, noise) for plan in plans)

        sketch = sketch_of_share(sketch_share, epsilon, delta, trial.relation)
        noise = least_noise(lambda noise: slots_epsilon(stages(noise), delta, delta, sketch), epsilon)
        return cls(epsilon=epsilon, delta=delta, stages=stages(noise), sketch=sketch)

    @property
    def stage_trials(self) -> tuple[int, ...]:
        """The number of slots of each stage."""
        return tuple(stage.trials for stage in self.stages)

    @property
    def named_slots(self) -> Mapping[str, PoissonGaussian]:
        """The slot of each stage."""
        return {f"stage {number}": stage.slot for number, stage in enumerate(self.stages, start=1)}

    @property
    def planned_trainings(self) -> tuple[PoissonGaussian, ...]:
        """The sketch, every slot and the spare steps, each as a release of its own."""
        first = [] if self.sketch is None else [self.sketch]
        return (*first, *(release for stage in self.stages for release in stage.releases))

    @property
    def shares(self) -> tuple[float, ...]:
        """What each stage has of the squared signal of all stages."""
        return shares([stage.pool for stage in self.stages])

    @property
    def sketch_share(self) -> float:
        """What the sketch has of the squared signal of one release that costs the whole budget, 0 without one."""
        return share_of_sketch(self.sketch, self.epsilon, self.delta)

    def stage_of(self, trial: str, selection: Terms | None = None) -> int:  # noqa: ARG002
        """Return the stage of a trial by its number in the sweep; the last one's beyond all slots."""
        ends = list(accumulate(self.stage_trials))
        number = trial_number(trial)
        return next((stage for stage, end in enumerate(ends) if number <= end), len(ends) - 1)

    def slot_of(self, trial: str) -> PoissonGaussian:
        """Return the slot of the stage of a trial."""
        return self.stages[self.stage_of(trial)].slot

    def most_scores(self, trial: str, noise: ScoreNoise) -> int | None:
        """Return fewer for an explorer where epochs of finals are chosen: the last, by which the search compares them.

        A stage of few trials has some more of each.
        """
        stage = self.stage_of(trial)
        is_final = stage == len(self.stages) - 1
        return noise.final_scores if is_final or noise.final_scores is None else early_scores(self.stage_trials[stage])

    def refusal(
        self,
        entries: Sequence[Entry],
        tests: Sequence[PaidScores] = (),  # noqa: ARG002
        selection: Terms | None = None,  # noqa: ARG002
    ) -> str | None:
        """Return why no slot is left for the last of these trainings, or none that covers it; see `Stage.refusal`."""
        stage = entries[-1].stage
        if stage is None or not 0 <= stage < len(self.stages):
            return f"it belongs to no stage of the budget, privacy.sweep_epsilon = {self.epsilon:g}"
        own = [entry for entry in entries if entry.stage == stage]
        refused = self.stages[stage].refusal(own, self.delta, f"stage {stage + 1} of the budget")
        return refused or self.validation_refusal(entries)

    def share(self, entries: Sequence[Entry]) -> float:
        """Return the share of the slots that trials have begun to fill, each with its stage's part of the signal.

        The sketch, which comes first, has its share from the beginning.
        """
        begun = {entry.trial: entry.stage for entry in entries if entry.stage is not None}
        each = [share / stage.trials for share, stage in zip(self.shares, self.stages, strict=True)]
        return self.sketch_share + (1.0 - self.sketch_share) * sum(each[stage] for stage in begun.values())

    def price_at(self, delta: float) -> float:
        """Return what sketch, slots and spare steps, or releases of scores, cost at a delta, the larger of both."""
        return self.slots_price(slots_epsilon(self.stages, delta, self.delta, self.sketch), delta)

    def prices(self, charged: ChargedEvents, delta: float, *, tight: bool = False) -> dict[str, Price]:  # noqa: ARG002
        """Price all slots, of which nothing depends on what the sweep found."""
        epsilon = self.price_at(delta)
        cost = (
            f"epsilon {round_up(epsilon)} at delta {delta!r}, {FOR_ALL}, however results are used: the composition of "
            f"all slots ({sum(self.stage_trials)}){' and one sketch of the training rows' * (self.sketch is not None)} "
            "into which the budget was cut before any row was read, used or not (Zhu, Dong and Wang 2022, arXiv "
            "2106.08567)."
        )
        return answer_alike(Price(epsilon=epsilon, delta=delta, events=len(charged.training), fixed=True), cost)

    def release(self, charged: ChargedEvents, *, tight: bool = False) -> Release:  # noqa: ARG002
        """Return sketch, slots and spare steps, and the pools of scores."""
        sketch = () if self.sketch is None else (self.sketch,)
        slots, own = (*(stage.pool for stage in self.stages), *sketch), all_own(self.stages, charged.training)
        return release_slots(slots, self.pools, slots_slack(self.stages, self.delta), own=own)

    def in_words(self, delta: float, expected: Callable[[], Price | None]) -> str:  # noqa: ARG002
        """Return the price and the cut."""
        trials = self.stage_trials
        sketch = "a sketch and " if self.sketch is not None else ""
        return (
            f"Price: epsilon {round_up(self.price)} at delta {self.delta!r}, {FOR_ALL}, however results are used. It "
            f"is fixed before any row is read, for {sketch}{' + '.join(map(str, trials))} "
            f"trial{'s' * (sum(trials) > 1)}."
        )

    def parts(self) -> Sequence[BudgetPart]:
        """Return the sketch, where there is one, and the stages."""
        left = 1.0 - self.sketch_share
        first = [] if self.sketch is None else [_part_of_sketch(self.sketch, self.sketch_share, self.delta)]
        return first + [
            BudgetPart(
                name=f"{number}",
                trials=f"{stage.trials}",
                share=left * share,
                slot=stage.slot,
                epsilon=price([stage.pool], self.delta).epsilon,
            )
            for number, (stage, share) in enumerate(zip(self.stages, self.shares, strict=True), start=1)
        ]

    def with_shares(self, epsilon: float, shares: Sequence[float]) -> Self:
        """Return the same stages in another budget, or with other shares."""
        first = self.stages[0]
        plans = [StagePlan(stage.trials, share) for stage, share in zip(self.stages, shares, strict=True)]
        return self.of_plans(epsilon, self.delta, plans, first.slot, spare=first.spare, sketch_share=self.sketch_share)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        sketch = {} if self.sketch is None else {"sketch": self.sketch.to_json()}
        return super().to_json() | {"stages": [stage.to_json() for stage in self.stages]} | sketch

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read back what ``to_json`` wrote.

        Raises:
            KeyError, TypeError, AccountingError: something else.
        """
        sketch = PoissonGaussian.from_json(content["sketch"]) if "sketch" in content else None
        return cls(stages=tuple(map(Stage.from_json, content["stages"])), sketch=sketch, **read_pools(content))


def _part_of_sketch(sketch: PoissonGaussian, share: float, delta: float) -> BudgetPart:
    return BudgetPart(
        name="sketch", trials="1 release", share=share, slot=sketch, epsilon=price([sketch], delta).epsilon
    )
