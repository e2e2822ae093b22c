"""A budget that is cut before any row is read: what all such budgets have in common.

Everything that is released costs the composition of all slots and spare steps, used or not: a number that is fixed
before the first result, so that it holds however results are used (``docs/mathematics.md``, "A budget in slots").
Scores of private rows have pools of releases of their own. A row is in one split, so that these are beside what
training costs, not on top of it.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from clipless.errors import AccountingError
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import in_one_split
from sweeper.privacy.entries import Entry
from sweeper.privacy.evaluation.paid_scores import PaidScores, ScoreNoise
from sweeper.privacy.spending._base import (
    TEST,
    TRAINING,
    VALIDATION,
    Budget,
    Expect,
    Releases,
    Request,
    UnmetRequestError,
)
from sweeper.privacy.spending._stages import composed_epsilon, scores_refusal
from sweeper.rounding import round_up
from sweeper.specification.fields.messages import BrokenRule

_LARGER = 2.0  # times the budget, or the share of the first part, among other cuts


@dataclass(frozen=True, kw_only=True)
class CutBudget(Budget):
    """A budget whose price is that of all its parts, used or not."""

    # releases of scores of private validation rows, ``None`` where scores are free
    scores: PaidScores | None = None
    tests: PaidScores | None = None  # the same of test rows

    first_part: ClassVar[str] = "stage 1"  # the part with most noise
    fewer_scores: ClassVar[str] = ", leave it out, or lower search.trials"  # what else makes scores cost less

    @cached_property
    def price(self) -> float:
        """Epsilon of everything that the sweep may release, at most what was asked for."""
        return self.price_at(self.delta)

    @abstractmethod
    def price_at(self, delta: float) -> float:
        """Return that epsilon at another delta."""

    @property
    @abstractmethod
    def planned_trainings(self) -> tuple[PoissonGaussian, ...]:
        """What trainings that are seen may spend, each a release of its own; a private selection comes beside them."""

    def plan_releases(
        self,
        noise: ScoreNoise | None,  # noqa: ARG002
        expect: Expect,  # noqa: ARG002
    ) -> Releases:
        """Return every part, used or not, and the pools of scores."""
        if self.score_pools is None:
            return {TRAINING: self.planned_trainings}
        validation, test = self.score_pools
        return {TRAINING: self.planned_trainings, VALIDATION: (validation.event,), TEST: (test.event,)}

    @property
    @abstractmethod
    def shares(self) -> tuple[float, ...]:
        """What each part has of the squared signal of all."""

    @abstractmethod
    def with_shares(self, epsilon: float, shares: Sequence[float]) -> "CutBudget":
        """Return the same cut of another budget, or with other shares; it has nothing for scores.

        Raises:
            AccountingError: no noise that can be priced is right for it.
        """

    def slots_price(self, of_training: float, delta: float) -> float:
        """Return the larger of what training costs and what the pools of scores do."""
        return max([of_training, *(composed_epsilon((event,), delta) for event in self.pools)])

    @property
    def pools(self) -> tuple[PoissonGaussian, ...]:
        """What scores of the rows of each split may spend."""
        return tuple(paid.event for paid in (self.scores, self.tests) if paid is not None)

    @property
    def score_pools(self) -> tuple[PaidScores, PaidScores] | None:
        """Both pools, where scores are paid for."""
        return None if self.scores is None or self.tests is None else (self.scores, self.tests)

    def test_refusal(self, entries: Sequence[Entry], tests: Sequence[PaidScores]) -> str | None:  # noqa: ARG002
        """Return why the pool of test scores has no room for the last of these releases."""
        return scores_refusal(self.tests, tests, sum(paid.event.steps for paid in tests), "test")

    def validation_refusal(self, entries: Sequence[Entry]) -> str | None:
        """Return why the pool of validation scores has no room for those of the last of these trainings."""
        scores = [entry.scores for entry in entries if entry.scores is not None]
        releases = sum(event.steps for entry in entries for event in entry.charged_scores)
        return scores_refusal(self.scores, scores, releases, "validation")

    def other_cuts(self) -> Mapping[str, "CutBudget"]:
        """Return the same budget with another share for its first part, and a larger budget."""
        wanted = {f"sweep_epsilon: {_LARGER * self.epsilon:g}": (_LARGER * self.epsilon, list(self.shares))}
        if len(self.shares) > 1:
            factors = {"half": 1 / _LARGER, "twice": _LARGER}
            first = {
                f"{self.first_part} with {name} the share": (self.epsilon, self._shares_with(factor))
                for name, factor in factors.items()
            }
            wanted = first | wanted
        cuts = {}
        for name, (epsilon, given) in wanted.items():
            if min(given) > 0.0:
                try:
                    cuts[name] = self.with_shares(epsilon, given)
                except AccountingError:  # no noise that can be priced is right for it
                    continue
        return cuts

    def _shares_with(self, factor: float) -> list[float]:
        """Return the shares with that of the first part multiplied; the others keep their proportions."""
        first, *others = self.shares
        left = (1.0 - factor * first) / (1.0 - first)
        return [factor * first, *(left * share for share in others)]

    def with_scores(self, request: Request, releases: int, points: int) -> Self:
        """Return the budget with pools for scores of private rows, where the request has noise for them.

        Args:
            request: what the budget was cut from.
            releases: of scores of validation rows that all parts may make.
            points: of the front, at most, each of which may have one release of test scores or curves.

        Raises:
            UnmetRequestError: these rows may be in several splits, or their scores cost more than the budget.
        """
        noise = request.noise
        if noise is None:
            return self
        if not (noise.apart and in_one_split([request.training])):
            expected = "add-or-remove-one, and data whose rows are assigned to splits one by one, with "
            expected += "privacy.score_noise"
            remedy = "set privacy.accounting: filter"
            raise UnmetRequestError(BrokenRule("privacy.sweep_epsilon", self.epsilon, expected, remedy))
        budget = replace(self, scores=noise.paid(releases))
        if budget.price > budget.epsilon:  # which training alone does not exceed
            expected = f"noise with which {releases} releases of scores cost at most the budget, not "
            expected += round_up(budget.price)
            remedy = f"raise it to {round_up(self.least_noise_of_scores(request, releases))}{self.fewer_scores}"
            raise UnmetRequestError(BrokenRule("privacy.score_noise", noise.noise_multiplier, expected, remedy))
        return replace(budget, tests=noise.paid_test(min(self._affordable_tests(request, noise), points)))

    def least_noise_of_scores(self, request: Request, releases: int) -> float:
        """Return about the least noise multiplier of scores with which so many releases cost at most the budget."""
        from clipless.privacy.accounting.calibration import noise_multiplier_for  # takes seconds to import

        return noise_multiplier_for(self.epsilon, self.delta, 1.0, releases, request.relation)

    def _affordable_tests(self, request: Request, noise: ScoreNoise) -> int:
        """Return how many points the budget has test scores or curves for."""
        from clipless.privacy.accounting.calibration import noise_multiplier_for, steps_for

        sigma = noise.paid_test(1).event.noise_multiplier
        try:
            return steps_for(self.epsilon, self.delta, sigma, 1.0, request.relation)
        except AccountingError:
            field = "score_noise" if noise.curves is None else "curve_noise"
            expected = "noise with which the test scores or curves of one point cost at most the budget"
            least = noise_multiplier_for(self.epsilon, self.delta, 1.0, 1, request.relation)
            remedy = f"raise it to {round_up(least)}"
            raise UnmetRequestError(BrokenRule(f"privacy.{field}", sigma, expected, remedy)) from None

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; each way adds its parts."""
        content: dict[str, Any] = {"accounting": self.name, "epsilon": self.epsilon, "delta": self.delta}
        pools = {"scores": self.scores, "tests": self.tests}
        return content | {name: one.to_json() for name, one in pools.items() if one is not None}


def read_pools(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `CutBudget` from what ``to_json`` wrote."""
    pools = {name: PaidScores.from_json(content[name]) for name in ("scores", "tests") if name in content}
    return {"epsilon": float(content["epsilon"]), "delta": float(content["delta"]), **pools}
