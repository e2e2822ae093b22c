"""No budget: every training pays for itself, and everything that leaves costs the composition of all of them.

A row of data is in one split only: where a neighbouring data set changes one split, training and scores of private rows
together cost the largest price of a split (``clipless.privacy.noisy_counts``), otherwise their composition. That it
does takes add-or-remove-one, and data whose rows are assigned to splits one by one.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from clipless.privacy.accounting.private_selection import LAW, Repetitions
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import epsilon_of_splits, in_one_split
from sweeper.privacy.entries import ChargedEvents
from sweeper.privacy.exposures import Release, release_composition
from sweeper.privacy.pricing import FOR_ALL, GROWS, Price, price
from sweeper.privacy.spending._base import PriceWith, Request, Resumed, Spending, answer_alike
from sweeper.rounding import number_of, round_up

_AS_DEAREST = "if each spends what the dearest of the first configurations and of the ends of the search would"


@dataclass(frozen=True, kw_only=True)
class Composition(Spending):
    """Every training is admitted, and charged."""

    name: ClassVar[str] = "composition"

    @classmethod
    def cut(cls, request: Request) -> Self:  # noqa: ARG003
        """Return it; there is nothing to cut."""
        return cls()

    def prices(self, charged: ChargedEvents, delta: float, *, tight: bool = False) -> dict[str, Price]:
        """Price the composition of everything that was charged."""
        return _composed_answers(charged, delta, tight=tight)

    def release(self, charged: ChargedEvents, *, tight: bool = False) -> Release | None:
        """Return the composition of everything that was charged."""
        return release_charged(charged, tight=tight)

    def in_words(self, delta: float, expected: Callable[[], Price | None]) -> str:  # noqa: ARG002
        """Return about what it will cost, if all trials spend what the dearest of the first configurations would."""
        cost = expected()
        if cost is None:
            return "Price: not known, for none of its first configurations can be planned."
        trials = (
            "that of its only trial, if it spends what the first configuration would"
            if cost.events == 1
            else f"the composition of all {cost.events} trials, {_AS_DEAREST}"
        )
        return (
            f"Price: about epsilon {round_up(cost.epsilon)} at delta {cost.delta!r}, {FOR_ALL}: {trials}. {GROWS} "
            "privacy.sweep_epsilon fixes it beforehand."
        )

    def resumed_in_words(self, resumed: Resumed, price_with: PriceWith) -> str | None:
        """Return what is spent, and about what it will cost with what is to come; ``None`` where nothing is spent."""
        charged, begun, left = resumed.charged, resumed.begun, resumed.left
        spent = price_with(charged, 0)
        if spent is None or not any((charged.training, charged.validation, charged.test)):
            return None
        at, least, by = f"at delta {spent.delta!r}, {FOR_ALL}", round_up(spent.epsilon), charged.trainings_in_words
        more = "; scores of test rows may add to it" if resumed.scores_test else ""
        if not (begun or left):
            how = "at least epsilon" if more else "epsilon"
            return f"Price: {how} {least} {at}, all of it spent already ({by}){more}. {GROWS}"
        total = price_with(resumed.planned, left)
        if total is None:
            return (
                f"Price: at least epsilon {least} {at}, which is spent already ({by}). What trials to come add is "
                "not known, for none of the first configurations can be planned."
            )
        parts = [f"what is spent already (at most epsilon {least}, {by})"]
        parts += [f"{number_of(begun, 'trial')} to go on with"] if begun else []
        parts += [f"{number_of(left, 'trial')} to begin, {_AS_DEAREST}"] if left else []
        return (
            f"Price: about epsilon {round_up(max(total.epsilon, spent.epsilon))} {at}: the composition of "
            f"{', '.join(parts[:-1])} and {parts[-1]}{more}. {GROWS}"
        )


def release_charged(charged: ChargedEvents, *, tight: bool) -> Release | None:
    """Return the composition of everything that was charged, ``None`` of nothing."""
    splits = (charged.training, charged.validation, charged.test)
    return release_composition(splits, apart=charged.apart, tight=tight)


def price_broken_selection(charged: ChargedEvents, delta: float, *, tight: bool) -> dict[str, Price]:
    """Price every training behind a private selection of which a condition broke.

    Raises:
        ValueError: there was no private selection.
    """
    terms = charged.selection
    if terms is None:
        raise ValueError("Expected a private selection of which a condition broke, got none")
    why = (
        f"Private selection ({law_in_words(terms.repetitions)}) was asked for, but its price does not hold: "
        f"{' '.join(terms.broken)} So every training is charged."
    )
    return _composed_answers(charged, delta, f" {why}", tight=tight)


def _composed_answers(charged: ChargedEvents, delta: float, why: str = "", *, tight: bool) -> dict[str, Price]:
    splits = [charged.training, charged.validation, charged.test]
    everything = compose(splits, delta, tight=tight, apart=charged.apart)
    cost = (
        f"epsilon {round_up(everything.epsilon)} at delta {delta!r}, {FOR_ALL}: the composition of "
        f"{_trainings_in_words(charged)}{_with_scores([*charged.validation, *charged.test], charged.apart)}"
    )
    return answer_alike(everything, f"{cost}.{why}")


def _trainings_in_words(charged: ChargedEvents) -> str:
    if charged.again:
        return f"every training of the sweep ({charged.trainings_in_words})"
    return f"every trial of the sweep ({len(charged.training)})"


def earlier_statement(statement: str) -> str:
    """Return the statement of a price as earlier versions made it, which called every attempt a trial.

    >>> earlier_statement("the composition of every training of the sweep (9 attempts at 4 trials).")
    'the composition of every trial of the sweep (9).'
    """
    return re.sub(
        r"every training of the sweep \((\d+) attempts at \d+ trials?\)", r"every trial of the sweep (\1)", statement
    )


def compose(
    splits: Sequence[Sequence[PoissonGaussian]], delta: float, *, tight: bool = False, apart: bool = True
) -> Price:
    """Price what was spent on training, validation and test rows together.

    Args:
        splits: events; those of the training rows come first.
        delta: at which epsilon is stated.
        tight: take seconds for a smaller epsilon, see `pricing.price`.
        apart: whether the split of a row depends on that row alone.
    """
    epsilon = epsilon_of_splits(splits, lambda events: price(events, delta, tight=tight).epsilon, apart=apart)
    return Price(epsilon=epsilon, delta=delta, events=len(splits[0]))


def _with_scores(scores: Sequence[PoissonGaussian], apart: bool) -> str:
    if not scores:
        return ""
    if not apart:
        return " and of every score of private rows, for the data do not say that the split of a row is its own matter"
    if in_one_split(scores):
        return " or of every score of the private rows of a split, whichever is more, for a row is in one split only"
    return " and of every score of private rows, for replacing a row can reach two splits"


def law_in_words(repetitions: Repetitions) -> str:
    """Return the distribution of the number of candidates of a private selection."""
    return f"{LAW}, mean {repetitions.mean:g}"
