"""A private selection without a budget: of a secret random number of candidates the best one leaves, nothing else.

The price is that of repeat-and-select (Papernot and Steinke 2022, arXiv 2110.03620), if every condition held. Behind
one whose conditions held no price depends on the number of trainings, which is secret.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from sweeper.privacy.entries import ChargedEvents
from sweeper.privacy.evaluation.paid_scores import ScoreNoise
from sweeper.privacy.exposures import Release, release_selection
from sweeper.privacy.pricing import Price, price
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending._base import Expect, Releases, Request, Spending, score_front
from sweeper.privacy.spending._composition import law_in_words, price_broken_selection, release_charged
from sweeper.rounding import round_up

_UNPRICED = (
    "was not released. Its price would be the composition of every training; no number is stated, because it would "
    "give away how many there were, which the winner's price keeps secret."
)


@dataclass(frozen=True, kw_only=True)
class Winner(Spending):
    """The terms of the private selection, which every candidate pays for."""

    terms: Terms

    name: ClassVar[str] = "winner"

    @classmethod
    def cut(cls, request: Request) -> Self:
        """Return the terms among candidates that spend what the first configuration does.

        Raises:
            ValueError: the request has no law of the number of candidates.
        """
        return cls(terms=Terms(event=request.training, repetitions=request.law, scores=request.scores_of_candidates))

    @property
    def selection(self) -> Terms:
        """The private selection."""
        return self.terms

    def plan_releases(
        self,
        noise: ScoreNoise | None,
        expect: Expect,  # noqa: ARG002
    ) -> Releases:
        """Return the scores of test rows; candidates are part of the selection."""
        return score_front(noise)

    def price_at(self, delta: float) -> float:
        """Return what the winner costs at a delta if the conditions hold."""
        from clipless.privacy.accounting.selection_price import selection_epsilon  # takes seconds to import

        terms = self.terms
        of_scores = 0.0 if terms.scores is None else selection_epsilon(terms.scores, terms.repetitions, delta)
        return max(selection_epsilon(terms.priced, terms.repetitions, delta), of_scores)

    def prices(self, charged: ChargedEvents, delta: float, *, tight: bool = False) -> dict[str, Price]:
        """Price the winner, or every candidate where a condition broke."""
        if charged.selection is not None and charged.selection.broken:
            return price_broken_selection(charged, delta, tight=tight)
        terms = self.terms
        epsilon = max(self.price_at(delta), price(charged.test, delta).epsilon)
        single = max(price([event], delta).epsilon for event in (terms.event, terms.scores) if event)
        winner = (
            f"Price: epsilon {round_up(epsilon)} at delta {delta!r}, for the winner and nothing else, the best of a "
            f"secret random number of independent trials ({law_in_words(terms.repetitions)}), of which each "
            f"spends epsilon {round_up(single)}; its conditions held, as far as they are checked: commands and service "
            "refuse to show a selection that runs, and its owner sees to it that nobody opens its files otherwise "
            "(Papernot and Steinke 2022, arXiv 2110.03620; its privacy profile, where that says less)."
        )
        unpriced = Price(epsilon=math.inf, delta=delta, events=0)
        return {
            "winner": Price(epsilon=epsilon, delta=delta, events=1, statement=winner, fixed=True),
            "front": replace(unpriced, statement=f"The front {_UNPRICED}"),
            "everything": replace(unpriced, statement=f"Everything else {_UNPRICED}"),
        }

    def release(self, charged: ChargedEvents, *, tight: bool = False) -> Release | None:
        """Return the winner, and test scores of it; every candidate where a condition broke."""
        if charged.selection is not None and charged.selection.broken:
            return release_charged(charged, tight=tight)
        terms = self.terms
        candidates = (terms.priced, *(() if terms.scores is None else (terms.scores,)))
        return release_selection(candidates, terms.repetitions, tuple(charged.test))

    def in_words(self, delta: float, expected: Callable[[], Price | None]) -> str:  # noqa: ARG002
        """Return the price of the winner."""
        epsilon = round_up(self.price_at(delta))
        return (
            f"Price: epsilon {epsilon} at delta {delta!r}, for the winner and nothing else. It is fixed, as long as "
            "the conditions of private selection hold."
        )
