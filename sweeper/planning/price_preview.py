"""What a sweep costs, said before anything is spent: in one line, and as the cut of its budget beside other cuts."""

from collections.abc import Sequence

from clipless.datasets import Dataset
from clipless.errors import AccountingError, CliplessError
from clipless.plans.plan import Plan
from clipless.privacy.accounting.renyi_filter import RenyiFilter
from clipless.privacy.events import PoissonGaussian
from sweeper.errors import SpecError
from sweeper.planning.budget_plan import planned
from sweeper.privacy.budget import Budget, cut_budget
from sweeper.privacy.evaluation.score_noise import ScoreNoise
from sweeper.privacy.exploration import cut_exploration
from sweeper.privacy.prices import answers, composed
from sweeper.privacy.pricing import Price
from sweeper.privacy.selection import Terms
from sweeper.rounding import round_up
from sweeper.search.space import sample
from sweeper.specification.spec import Spec
from sweeper.specification.stages import StagePlan

ESTIMATED_CONFIGURATIONS = 4  # that stand for all trials where the price is not fixed
_LARGER = 2.0  # times the budget, or the share of the explorers, in the table of other cuts


def announcement(spec: Spec, data: Dataset, budget: Budget | RenyiFilter | None = None) -> str:
    """Return the price of a sweep as one line: exactly where it has a budget, else about.

    Raises:
        SpecError: scores of private rows that cannot be paid for.
    """
    if budget is not None:
        return f"{spec.name}: {budget_in_words(budget)}"
    noise, plans = ScoreNoise.of(spec, data), _first_plans(spec, data)
    if not plans:
        return f"{spec.name}: what it will cost is not known: none of its first configurations can be planned."
    cost = planned_cost(spec, plans, noise)
    return (
        f"{spec.name}: everything, and so any model that is chosen after a look, will cost about epsilon "
        f"{round_up(cost.epsilon, 3)} at delta {cost.delta!r}, if all {cost.events} trials spend what the first "
        "configurations would. Set privacy.sweep_epsilon to bound it."
    )


def selection_announcement(spec: Spec, terms: Terms) -> str:
    """Return the price of a private selection as one line."""
    return f"{spec.name}: {selection_in_words(terms, spec.privacy.delta)}"


def selection_in_words(terms: Terms, delta: float) -> str:
    """Return what the winner of a private selection costs."""
    winner = answers([], delta, selection=terms)["winner"]
    return (
        f"The winner of the sweep, and nothing else, can leave at epsilon {round_up(winner.epsilon)} at delta "
        f"{winner.delta!r}, if the conditions of private selection hold."
    )


def budget_in_words(budget: Budget | RenyiFilter) -> str:
    """Return what everything costs that the sweep releases."""
    if isinstance(budget, RenyiFilter):
        return (
            f"Everything the sweep releases: epsilon {round_up(budget.epsilon)} at delta {budget.delta!r}, however "
            f"many trials that is: a privacy filter at the Renyi order {budget.order:g} refuses the trial that does "
            "not fit."
        )
    if budget.selection is not None:
        return (
            f"Everything the sweep releases: epsilon {round_up(budget.price)} at delta {budget.delta!r}, whatever the "
            "final is used for, if the conditions of private selection hold. The budget was cut into a private "
            f"selection ({budget.selection.repetitions.mean:g} trials on average) and one final before any row is read."
        )
    slots = " + ".join(str(stage.trials) for stage in budget.stages) + " slot" + "s" * (budget.trials > 1)
    return (
        f"Everything the sweep releases: epsilon {round_up(budget.price)} at delta {budget.delta!r}, whatever results "
        f"are used for. The budget was cut into {slots} before any row is read."
    )


def planned_cost(spec: Spec, plans: Sequence[Plan], noise: ScoreNoise | None = None) -> Price:
    """Price all trials of the sweep as if each spent what one of these plans does, in turn.

    Scores of test rows, whose number is not known before, are not in it.
    """
    return composed(planned_events(spec, plans, noise), spec.privacy.delta, apart=noise is None or noise.apart)


def planned_events(
    spec: Spec, plans: Sequence[Plan], noise: ScoreNoise | None
) -> tuple[list[PoissonGaussian], list[PoissonGaussian]]:
    """Return what all trials would spend on training rows, and on scores of private validation rows."""
    every, repeats = [plans[i % len(plans)] for i in range(spec.trials)], spec.search.repeats
    events = [plan.event().with_steps(repeats * plan.event().steps) for plan in every]
    return events, [] if noise is None else [noise.paid(repeats * plan.epochs).event for plan in every]


def other_cuts(budget: Budget) -> dict[str, Budget]:
    """Return cuts that a user may prefer: another share for the explorers, a larger budget."""
    wanted = {f"sweep_epsilon: {_LARGER * budget.epsilon:g}": (_LARGER * budget.epsilon, list(budget.shares))}
    if len(budget.shares) > 1:
        who = "explorers" if budget.selection is None else "candidates"
        factors = {f"{who} with half the share": 1 / _LARGER, f"{who} with twice the share": _LARGER}
        wanted = {name: (budget.epsilon, _shares(budget, factor)) for name, factor in factors.items()} | wanted
    cuts = {}
    for name, (epsilon, given) in wanted.items():
        if min(given) > 0.0:
            try:
                cuts[name] = _cut(budget, epsilon, given)
            except AccountingError:  # no noise that can be priced is right for it
                continue
    return cuts


def _cut(budget: Budget, epsilon: float, shares: Sequence[float]) -> Budget:
    first, terms = budget.stages[0], budget.selection
    if terms is not None:
        law, spare = terms.repetitions, first.spare
        return cut_exploration(epsilon, budget.delta, law, first.slot, share=shares[0], spare=spare)
    plans = [StagePlan(stage.trials, share) for stage, share in zip(budget.stages, shares, strict=True)]
    return cut_budget(epsilon, budget.delta, plans, first.slot, spare=first.spare)


def _shares(budget: Budget, factor: float) -> list[float]:
    """Return the shares with that of the explorers multiplied; the other stages keep their proportions."""
    first, *others = budget.shares
    left = (1.0 - factor * first) / (1.0 - first)
    return [factor * first, *(left * share for share in others)]


def _first_plans(spec: Spec, data: Dataset) -> list[Plan]:
    """Return the plans of the first configurations that have one."""
    plans = []
    for proposal in sample(spec.space, min(spec.trials, ESTIMATED_CONFIGURATIONS)):
        try:
            plans.append(planned(spec, data, proposal)[1])
        except (SpecError, CliplessError):
            continue
    return plans
