"""A privacy filter: trainings of any noise and length are admitted as long as they fit; what did not run is refunded.

The Renyi filter of Feldman and Zrnic (2021, arXiv 2008.11193), at one order that is fixed before any row is read.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from clipless.privacy.accounting.renyi_filter import RenyiFilter, best_order
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import in_one_split, scores_event
from sweeper.privacy.entries import Charged, Entry
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.pricing import Price
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending._base import Budget, Request, answer_alike
from sweeper.rounding import round_up

_ROOM = 1.0 + 1e-6  # for roundings of the divergences


@dataclass(frozen=True, kw_only=True)
class Filter(Budget):
    """A budget that is kept by a privacy filter."""

    order: int  # of the Renyi divergences

    name: ClassVar[str] = "filter"
    refunds: ClassVar[bool] = True

    @classmethod
    def cut(cls, request: Request) -> Self:
        """Return the filter at the order at which most trials like the first one fit."""
        order = best_order(request.trial, request.epsilon, request.delta)
        return cls(order=order, epsilon=request.epsilon, delta=request.delta)

    @classmethod
    def plan_multipliers(cls, request: Request) -> tuple[float, float]:
        """Return those at which the filter admits every release; its bound is looser than that of a fixed number."""
        renyi, counts = cls.cut(request).renyi, (request.planned_releases, request.planned_points)
        validation, test = (
            sigma * math.sqrt(renyi.spent([scores_event(sigma, count, request.relation)]) / renyi.budget) * _ROOM
            for sigma, count in zip(super().plan_multipliers(request), counts, strict=True)
        )  # divergences of the Gaussian mechanism fall with the square of its noise
        return validation, test

    @cached_property
    def renyi(self) -> RenyiFilter:
        """What decides."""
        return RenyiFilter(self.order, self.epsilon, self.delta)

    def __post_init__(self) -> None:
        """Refuse fields that are out of range.

        Raises:
            AccountingError: one is.
        """
        self.renyi  # noqa: B018

    def refusal(
        self,
        entries: Sequence[Entry],
        tests: Sequence[PaidScores] = (),
        selection: Terms | None = None,  # noqa: ARG002
    ) -> str | None:
        """Return why the filter does not admit the last of these trainings, or of these releases of test scores.

        Trainings that ended early count with what they ran.

        Guarantees:
            Where a row is in one split by a rule of its own, what is admitted of each split adds up to no more than the
            budget; otherwise all of it together does.
        """
        scores = [event for entry in entries for event in entry.charged_scores]
        paid = [*(entry.scores for entry in entries if entry.scores is not None), *tests]
        splits = [[entry.spent for entry in entries], scores, [one.event for one in tests]]
        return self._refused(splits, apart=all(one.apart for one in paid))

    def test_refusal(self, entries: Sequence[Entry], tests: Sequence[PaidScores]) -> str | None:
        """Return why the filter does not admit the last of these releases, beside trainings that ran or are open."""
        return self.refusal(entries, tests)

    def _refused(self, splits: Sequence[Sequence[PoissonGaussian]], *, apart: bool) -> str | None:
        every = [event for events in splits for event in events]
        groups = [events for events in splits if events] if apart and in_one_split(every) else [every]
        if all(self.renyi.admits(events[:-1], events[-1]) for events in groups):
            return None
        return f"the budget of the sweep, privacy.sweep_epsilon = {self.epsilon:g}, has no room for it"

    def share(self, entries: Sequence[Entry]) -> float:
        """Return the share of the divergence that is spent, or promised to trials that run."""
        return self.renyi.spent(entry.spent for entry in entries) / self.renyi.budget

    def prices(self, charged: Charged, delta: float, *, tight: bool = False) -> dict[str, Price]:  # noqa: ARG002
        """Price the budget, whatever was spent of it."""
        epsilon = self.epsilon if delta >= self.delta else math.inf
        cost = (
            f"epsilon {round_up(epsilon)} at delta {delta!r}, the budget of the sweep, kept by a privacy filter at the "
            f"Renyi order {self.order:g} that was fixed before any row was read. It holds however results were "
            "used to propose, end and choose trials, and however many were run (Feldman and Zrnic 2021, arXiv "
            "2008.11193)."
        )
        return answer_alike(Price(epsilon=epsilon, delta=delta, events=len(charged.training), fixed=True), cost)

    def in_words(self, delta: float, expected: Callable[[], Price | None]) -> str:  # noqa: ARG002
        """Return the price, and what keeps it."""
        return (
            f"Everything the sweep releases: epsilon {round_up(self.epsilon)} at delta {self.delta!r}, however "
            f"many trials that is: a privacy filter at the Renyi order {self.order:g} refuses the trial that "
            "does not fit."
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {"accounting": self.name, "order": self.order, "epsilon": self.epsilon, "delta": self.delta}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read back what `to_json` wrote.

        Raises:
            KeyError, TypeError, AccountingError: something else.
        """
        return cls(order=content["order"], epsilon=float(content["epsilon"]), delta=float(content["delta"]))
