"""The three prices of a sweep: of its winner, its front, and everything, each with a statement in words.

Without a budget and private selection all three are the composition of everything charged. A budget is priced itself,
once for all, with the private selection that it may hold. Under private selection without a budget the winner's price
is that of the best of a secret random number of independent candidates, if every condition held. A row of data is in
one split only: where a neighbouring data set changes one split, training and scores of private rows together cost the
largest price of a split (``clipless.privacy.noisy_counts``), otherwise their composition. That it does takes
add-or-remove-one, and data whose rows are assigned to splits one by one.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from clipless.privacy.accounting.private_selection import LAW, Repetitions
from clipless.privacy.accounting.renyi_filter import RenyiFilter
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import epsilon_of_splits, in_one_split
from sweeper.privacy.budget import Budget
from sweeper.privacy.pricing import Price, price
from sweeper.privacy.selection import Terms
from sweeper.rounding import round_up

_EVERY_TRIAL = "The choice looked at every trial and is charged for each"
_WHY_COMPOSED = (
    "the finer price of a winner needs search.selection: private, where the number of trials is drawn at random and "
    "kept secret, configurations come independently from one fixed prior, all trials spend the same and train to their "
    "end, and nobody but the winner is seen; this sweep did not promise that."
)
_UNPRICED = (
    "was not released. Its price would be the composition of every training; no number is stated, because it would "
    "give away how many there were, which the winner's price keeps secret."
)
_NOT_SELECTED = (
    "Nothing can be released: the price is that of a private selection and its final, and the ledger does not say that "
    "the selection has ended."
)


def answers(
    charged: Sequence[PoissonGaussian],
    delta: float,
    *,
    tight: bool = False,
    selection: Terms | None = None,
    validation: Sequence[PoissonGaussian] = (),
    test: Sequence[PoissonGaussian] = (),
    apart: bool = True,
    budget: Budget | RenyiFilter | None = None,
) -> dict[str, Price]:
    """Say what releasing the winner, the front, or everything costs.

    Args:
        charged: what every training is charged on the training rows.
        delta: at which epsilon is stated.
        tight: take seconds for a smaller epsilon, see ``pricing.price``.
        selection: of a sweep that selected privately, with the conditions that were broken.
        validation: what every training is charged for scores of private validation rows.
        test: what is charged for scores of private test rows; under private selection those of the winner alone.
        apart: whether the split of a row depends on that row alone, where there are private scores.
        budget: of the sweep; its price is that of all three, whatever was charged, unless it holds a private selection
            of which a condition broke.

    Returns:
        An answer each for ``winner``, ``front`` and ``everything``. Behind a private selection whose conditions held,
        none of them depends on the number of trainings, which is secret.
    """
    if isinstance(budget, Budget) and budget.selection is not None and not (selection and selection.broken):
        return _explored(budget, budget.selection, delta, trainings=None if selection is None else len(charged))
    if selection is not None and not selection.broken:
        return _selected(selection, test, delta)
    if budget is not None and selection is None:
        return _budgeted(budget, delta, len(charged))
    everything = composed([charged, validation, test], delta, tight=tight, apart=apart)
    cost = (
        f"epsilon {round_up(everything.epsilon)} at delta {delta!r}, the composition of every training of the sweep "
        f"({everything.events}){_with_scores([*validation, *test], apart)}"
    )
    why = f"{_EVERY_TRIAL}: {_WHY_COMPOSED}" if selection is None else _broken(selection)
    statements = {
        "winner": f"Releasing one model: {cost}. {why}",
        "front": f"Releasing the front and its models: {cost}. {_EVERY_TRIAL}.",
        "everything": f"Releasing every model of every epoch: {cost}.",
    }
    return {question: replace(everything, statement=text) for question, text in statements.items()}


def _budgeted(budget: Budget | RenyiFilter, delta: float, trainings: int) -> dict[str, Price]:
    """Price the budget, of which nothing depends on what the sweep found; ``trainings`` have used it so far."""
    if isinstance(budget, Budget):
        epsilon = budget.price_at(delta)
        why = (
            f"the composition of all slots ({budget.trials}) into which the budget of the sweep was cut before any row "
            "was read, used or not. It holds however results were used to propose, end and choose trials "
            "(Zhu, Dong and Wang 2022, arXiv 2106.08567)."
        )
    else:
        epsilon = budget.epsilon if delta >= budget.delta else math.inf
        why = (
            f"the budget of the sweep, kept by a privacy filter at the Renyi order {budget.order:g} that was fixed "
            "before any row was read. It holds however results were used to propose, end and choose trials, and "
            "however many were run (Feldman and Zrnic 2021, arXiv 2008.11193)."
        )
    price_ = Price(epsilon=epsilon, delta=delta, events=trainings, fixed=True)
    cost = f"epsilon {round_up(epsilon)} at delta {delta!r}, {why}"
    return {
        "winner": replace(price_, statement=f"Releasing one model: {cost} That is the price of all of them."),
        "front": replace(price_, statement=f"Releasing the front and its models: {cost}"),
        "everything": replace(price_, statement=f"Releasing every model of every epoch: {cost}"),
    }


def _explored(budget: Budget, terms: Terms, delta: float, trainings: int | None) -> dict[str, Price]:
    """Price a private selection and the final behind it; ``trainings`` of that so far, None before the selection."""
    if trainings is None:
        unknown = Price(epsilon=math.inf, delta=delta, events=0, statement=_NOT_SELECTED)
        return dict.fromkeys(("winner", "front", "everything"), unknown)
    epsilon = budget.price_at(delta)
    price_ = Price(epsilon=epsilon, delta=delta, events=1 + trainings, fixed=True)
    cost = (
        f"epsilon {round_up(epsilon)} at delta {delta!r}, the price of a private selection and of the final that "
        "trains the configuration of its winner, cut before any row was read: the best of a secret random number of "
        f"independent trials ({_law(terms.repetitions)}), of which each spends epsilon "
        f"{round_up(price([terms.event], delta).epsilon)}, and one training that may spend "
        f"{round_up(price([budget.stages[-1].pool], delta).epsilon)}. Its conditions held, as far as they are checked "
        "(Papernot and Steinke 2022, arXiv 2110.03620; Zhu, Dong and Wang 2022, arXiv 2106.08567)."
    )
    return {
        "winner": replace(price_, statement=f"Releasing one model: {cost} That is the price of all of them."),
        "front": replace(price_, statement=f"Releasing the front and its models: {cost}"),
        "everything": replace(
            price_, statement=f"Releasing every model of every epoch of the winner and of the final: {cost}"
        ),
    }


def _selected(selection: Terms, test: Sequence[PoissonGaussian], delta: float) -> dict[str, Price]:
    epsilon = max(
        selection_epsilon(selection.priced, selection.repetitions, delta),
        0.0 if selection.scores is None else selection_epsilon(selection.scores, selection.repetitions, delta),
        price(test, delta).epsilon,
    )
    single = max(price([event], delta).epsilon for event in (selection.event, selection.scores) if event)
    winner = (
        f"Releasing the winner and nothing else: epsilon {round_up(epsilon)} at delta {delta!r}, the price of the best "
        f"of a secret random number of independent trials ({_law(selection.repetitions)}), of which each spends "
        f"epsilon {round_up(single)}; its conditions held, as far as they are checked: commands and service "
        "refuse to show a selection that runs, and its owner sees to it that nobody opens its files otherwise "
        "(Papernot and Steinke 2022, arXiv 2110.03620; its privacy profile, where that says less)."
    )
    unpriced = Price(epsilon=math.inf, delta=delta, events=0)
    return {
        "winner": Price(epsilon=epsilon, delta=delta, events=1, statement=winner, fixed=True),
        "front": replace(unpriced, statement=f"The front {_UNPRICED}"),
        "everything": replace(unpriced, statement=f"Everything else {_UNPRICED}"),
    }


def composed(
    splits: Sequence[Sequence[PoissonGaussian]], delta: float, *, tight: bool = False, apart: bool = True
) -> Price:
    """Price what was spent on training, validation and test rows together.

    The events of the training rows come first; ``tight`` and ``apart`` are as in `answers`.
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


def _broken(selection: Terms) -> str:
    return (
        f"Private selection ({_law(selection.repetitions)}) was asked for, but its price does not hold: "
        f"{' '.join(selection.broken)} So every training is charged."
    )


def _law(repetitions: Repetitions) -> str:
    return f"{LAW}, mean {repetitions.mean:g}"
