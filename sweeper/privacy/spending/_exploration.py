"""A budget that holds a private selection and one final: candidates train with much noise, their winner with little.

Before any row is read it is cut into what every candidate of the selection may spend and one slot for the final, with
spare steps. Together they cost `clipless.privacy.accounting.selection_composed.explored_epsilon`, whatever the
selection has chosen for the final: the sweep releases the winner, the final, and nothing else of the candidates.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import Composed, Event, PoissonGaussian
from sweeper.privacy.entries import ChargedEvents, Entry
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.exposures import Release, release_explored
from sweeper.privacy.pricing import Price, price, signal_of
from sweeper.privacy.selection import Terms, same_event
from sweeper.privacy.spending._base import QUESTIONS, BudgetPart, Request, Spending, answer_alike
from sweeper.privacy.spending._composition import law_in_words, price_broken_selection, release_charged
from sweeper.privacy.spending._cut import CutBudget, read_pools
from sweeper.privacy.spending._stages import Stage, delta_left, least_noise, shares, slots_epsilon, slots_slack
from sweeper.privacy.spending.slots import Slots
from sweeper.rounding import round_up
from sweeper.specification.stages import StagePlan

SELECTION, FINAL = "selection", "final"  # the parts of the budget
_MORE_NOISE = 1.05  # factor of a search for the noise of scores
_NEAR = 0.03  # step of the logarithm of the noise in a search that begins near its end
_UNSEEN = (
    "The price within the budget holds if nobody saw more of the candidates of the private selection than its winner: "
    "who reads their folder while they train, or learns how long that takes, may learn more than it covers. Where a "
    "condition of the selection breaks, no final is trained, and the price composes every candidate."
)
_NOT_SELECTED = (
    "Nothing can be released: the price is that of a private selection and its final, and the ledger does not say that "
    "the selection has ended."
)


@dataclass(frozen=True, kw_only=True)
class Exploration(CutBudget):
    """What the candidates of a private selection and the final may spend; pools of scores are those of the final.

    It is long because each question about a budget has two answers here, of the selection and of its final.
    """

    terms: Terms
    final: Stage

    name: ClassVar[str] = "exploration"
    first_part: ClassVar[str] = "candidates"
    fewer_scores: ClassVar[str] = " or lower training.epochs"
    conditions: ClassVar[tuple[str, ...]] = (_UNSEEN,)

    @classmethod
    def cut(cls, request: Request) -> "Exploration":
        """Cut a budget between the candidates of the private selection that the spec asks for and its final.

        Raises:
            ValueError: the request has no law of the number of candidates.
        """
        given, scores = (request.epsilon, request.delta, request.law, request.trial), request.scores_of_candidates
        budget = cls.of_share(*given, share=request.share, spare=request.spare, scores=scores)
        releases = request.epochs + request.spare_epochs
        return budget.with_scores(request, releases, releases + request.epochs)  # points of the winner too

    def least_noise_of_scores(self, request: Request, releases: int) -> float:
        """Return it within a twentieth: scores of candidates cost as those of a selection do."""
        least = super().least_noise_of_scores(request, releases)
        while _price_with_noise(request, least, releases) > self.epsilon:
            least *= _MORE_NOISE
        return least

    @classmethod
    def of_share(
        cls,
        epsilon: float,
        delta: float,
        repetitions: Repetitions,
        trial: PoissonGaussian,
        *,
        share: float,
        spare: int = 0,
        scores: PoissonGaussian | None = None,
    ) -> "Exploration":
        """Cut a budget between candidates and one final, which run as many steps at the same rate as ``trial``.

        The share of the signal, the sum over steps of ``(q / sigma)^2``, is that of the mean number of candidates.

        Args:
            epsilon: of everything, at delta.
            delta: the probability the guarantee may fail with.
            repetitions: distribution of the number of candidates.
            trial: a trial of the sweep; its noise multiplier does not count.
            share: of the candidates, between 0 and 1.
            spare: further steps of the final.
            scores: what each candidate spends on scores of private validation rows, ``None`` where they are free.

        Raises:
            AccountingError: no noise that can be priced is enough, or the least is more than is needed.
        """
        plan = StagePlan(1, 1.0 - share)

        def cut(noise: float, scores: PoissonGaussian | None = None) -> "Exploration":
            event = replace(trial, noise_multiplier=noise * math.sqrt(repetitions.mean / share))
            terms = Terms(event=event, repetitions=repetitions, scores=scores)
            return Exploration(epsilon=epsilon, delta=delta, terms=terms, final=Stage.of(plan, trial, spare, noise))

        candidates = StagePlan(max(round(repetitions.mean), 1), share)
        near = _noise_if_seen(epsilon, delta, trial, candidates, plan, spare)
        return cut(least_noise(lambda noise: cut(noise).price, epsilon, near=near, step=_NEAR), scores)

    @property
    def selection(self) -> Terms:
        """The private selection, none of whose conditions has broken."""
        return self.terms

    @property
    def candidates(self) -> Spending:
        """A slot for each candidate."""
        stage = Stage(slot=self.terms.event, trials=1, spare=0)
        return Slots(epsilon=self.epsilon, delta=self.delta, stages=(stage,))

    @property
    def named_slots(self) -> Mapping[str, PoissonGaussian]:
        """What a candidate spends, and the slot of the final."""
        return {SELECTION: self.terms.event, FINAL: self.final.slot}

    @property
    def planned_trainings(self) -> tuple[PoissonGaussian, ...]:
        """The final and its spare steps."""
        return self.final.releases

    @property
    def shares(self) -> tuple[float, ...]:
        """What the mean number of candidates has of the squared signal of all, and the final."""
        return shares([self.final.pool], self.terms.repetitions.mean * signal_of(self.terms.event) ** 2)

    def slot_of(self, trial: str) -> PoissonGaussian:  # noqa: ARG002
        """Return the slot of the final, the only trial that is seen while it trains."""
        return self.final.slot

    def stage_of(self, trial: str, selection: Terms | None = None) -> int | None:  # noqa: ARG002
        """Return 0 for the final; candidates of a selection that has not ended, or has broken, fill no slot."""
        return None if selection is None or selection.broken else 0

    def refusal(
        self,
        entries: Sequence[Entry],
        tests: Sequence[PaidScores] = (),  # noqa: ARG002
        selection: Terms | None = None,
    ) -> str | None:
        """Return why the last of these trainings is no candidate before the selection has held, and no final after it.

        Guarantees:
            A final that is not refused is dominated by its slot and the spare steps. A candidate that is not refused
            spends what the selection prices.
        """
        asking = entries[-1]
        if selection is None:
            return "the private selection in the budget has not begun"
        if not selection.broken:
            if asking.stage != 0:
                return f"it belongs to no stage of the budget, privacy.sweep_epsilon = {self.epsilon:g}"
            own = [entry for entry in entries if entry.stage == 0]
            refused = self.final.refusal(own, self.delta, "stage 1 of the budget")
            return refused or self.validation_refusal(entries)
        if asking.stage is not None:
            return "the private selection in the budget has no winner, whose configuration it would train"
        scores = None if asking.scores is None else asking.scores.event
        if not same_event(self.terms.event, asking.planned) or scores != self.terms.scores:
            return "it would spend another event than a candidate of the private selection in the budget"
        return None

    def share(self, entries: Sequence[Entry]) -> float:
        """Return the share of the candidates, which are promised theirs, and that of the final once it has begun."""
        candidates, final = self.shares
        return candidates + final * any(entry.stage is not None for entry in entries)

    def price_at(self, delta: float) -> float:
        """Return what candidates and final cost together on training rows and, where scores are paid for, on others."""
        usable = delta_left((self.final,), delta, self.delta)
        pool = Composed((self.final.pool,))
        costs = [self._explored_epsilon(self.terms.priced, pool, usable) if usable > 0.0 else math.inf]
        if self.terms.scores is not None:
            scores = self.terms.scores.with_steps(0) if self.scores is None else self.scores.event
            costs.append(self._explored_epsilon(self.terms.scores, scores, delta))
        return self.slots_price(max(costs), delta)

    def _explored_epsilon(self, candidate: PoissonGaussian, final: Event, delta: float) -> float:
        from clipless.privacy.accounting.selection_composed import explored_epsilon  # takes seconds

        return explored_epsilon(candidate, self.terms.repetitions, final, delta)

    def prices(self, charged: ChargedEvents, delta: float, *, tight: bool = False) -> dict[str, Price]:
        """Price selection and final together, or every candidate where a condition broke; nothing before its end."""
        if charged.selection is None:
            return dict.fromkeys(QUESTIONS, Price(epsilon=math.inf, delta=delta, events=0, statement=_NOT_SELECTED))
        if charged.selection.broken:
            return price_broken_selection(charged, delta, tight=tight)
        epsilon = self.price_at(delta)
        cost = _statement(epsilon, delta, self.terms, self.final)
        fixed = Price(epsilon=epsilon, delta=delta, events=1 + len(charged.training), fixed=True)
        return answer_alike(fixed, cost)

    def release(self, charged: ChargedEvents, *, tight: bool = False) -> Release | None:
        """Return selection and final, and the pools of scores; every candidate where a condition broke."""
        if charged.selection is None or charged.selection.broken:
            return None if charged.selection is None else release_charged(charged, tight=tight)
        return _release(self)

    def in_words(self, delta: float, expected: Callable[[], Price | None]) -> str:  # noqa: ARG002
        """Return the price and the cut."""
        return (
            f"Price: epsilon {round_up(self.price)} at delta {self.delta!r}, for the winner, the final and every model "
            "of both, however results are used. It is fixed, as long as the conditions of private selection hold: the "
            f"budget was cut into a private selection ({self.terms.repetitions.mean:g} trials on average) and one "
            "final before any row is read."
        )

    def parts(self) -> Sequence[BudgetPart]:
        """Return the selection and the final."""
        from sweeper.privacy.spending._winner import Winner

        candidates, final = self.shares
        alone = Winner(terms=replace(self.terms, scores=None)).price_at(self.delta)
        selected, trained = f"{self.terms.repetitions.mean:g} on average", f"{self.final.trials}"
        pool = price([self.final.pool], self.delta).epsilon
        return [
            BudgetPart(name=SELECTION, trials=selected, share=candidates, slot=self.terms.event, epsilon=alone),
            BudgetPart(name=FINAL, trials=trained, share=final, slot=self.final.slot, epsilon=pool),
        ]

    def with_shares(self, epsilon: float, shares: Sequence[float]) -> "Exploration":
        """Return the same selection and final in another budget, or with other shares."""
        given = epsilon, self.delta, self.terms.repetitions, self.final.slot
        return self.of_share(*given, share=shares[0], spare=self.final.spare)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return super().to_json() | {"selection": self.terms.to_json(), "final": self.final.to_json()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read back what ``to_json`` wrote.

        Raises:
            KeyError, TypeError, AccountingError: something else.
        """
        terms, final = Terms.from_json(content["selection"]), Stage.from_json(content["final"])
        return cls(terms=terms, final=final, **read_pools(content))


def _release(budget: Exploration) -> Release:
    """Return selection and final on training rows and, where scores are paid for, on others, and the pools."""
    parts: tuple[tuple[PoissonGaussian, PoissonGaussian | None], ...] = ((budget.terms.priced, budget.final.pool),)
    if budget.terms.scores is not None:
        parts += ((budget.terms.scores, None if budget.scores is None else budget.scores.event),)
    slack = slots_slack((budget.final,), budget.delta)
    return release_explored(parts, budget.terms.repetitions, budget.pools, slack)


def _price_with_noise(request: Request, sigma: float, releases: int) -> float:
    """Return the price of what is requested, with scores of this noise multiplier."""
    if request.noise is None:
        return 0.0
    noise, given = replace(request.noise, noise_multiplier=sigma), (request.epsilon, request.delta, request.law)
    scores = replace(request, noise=noise).scores_of_candidates
    budget = Exploration.of_share(*given, request.trial, share=request.share, spare=request.spare, scores=scores)
    return replace(budget, scores=noise.paid(releases)).price


def _noise_if_seen(
    epsilon: float, delta: float, trial: PoissonGaussian, candidates: StagePlan, final: StagePlan, spare: int
) -> float:
    """Return the noise of the final if all candidates were seen, a mean number of them: quickly, and nearly right."""

    def price_of(noise: float) -> float:
        stages = (Stage.of(candidates, trial, 0, noise), Stage.of(final, trial, spare, noise))
        return slots_epsilon(stages, delta, delta)

    return least_noise(price_of, epsilon)


def _statement(epsilon: float, delta: float, terms: Terms, final: Stage) -> str:
    """Return what the epsilon of selection and final covers, with the price of one candidate and of the final."""
    return (
        f"epsilon {round_up(epsilon)} at delta {delta!r}, for every model of every epoch of the winner and of the "
        "final: that of a private selection and of the final that trains the configuration of its winner, cut before "
        "any row was read: the best of a secret random number of independent trials "
        f"({law_in_words(terms.repetitions)}), of which each spends epsilon "
        f"{round_up(price([terms.event], delta).epsilon)}, and one training that may spend "
        f"{round_up(price([final.pool], delta).epsilon)}. Its conditions held, as far as they are checked (Papernot "
        "and Steinke 2022, arXiv 2110.03620; Zhu, Dong and Wang 2022, arXiv 2106.08567)."
    )
