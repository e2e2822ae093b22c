"""Whether the budget of a sweep has room for what is entered next; a text says why not.

The last of the trainings that are given, or of the releases of test scores, is the one that asks. All of them count as
drawn.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clipless.privacy.accounting.renyi_filter import RenyiFilter
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import in_one_split
from sweeper.privacy.budget import Budget, Stage
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.selection import Terms, same_event

if TYPE_CHECKING:
    from sweeper.privacy.charges import Entry


def refused_by_slots(budget: Budget, entries: "Sequence[Entry]") -> str | None:
    """Return why no slot is left for a training, or none that covers it.

    Guarantees:
        What is not refused is dominated by the slots and spare steps of its stage that nothing else has taken, in both
        directions in which neighbours may differ.
    """
    from clipless.privacy.accounting.domination import dominates  # takes seconds

    asking = entries[-1]
    if asking.stage is None or not 0 <= asking.stage < len(budget.stages):
        return f"it belongs to no stage of the budget, privacy.sweep_epsilon = {budget.epsilon:g}"
    stage, name = budget.stages[asking.stage], f"stage {asking.stage + 1} of the budget"
    if not dominates(stage.slot, asking.planned, budget.delta):
        return f"it would spend more than a slot of {name}, with noise multiplier {stage.slot.noise_multiplier:.4g}"
    if _taken(stage, [entry for entry in entries if entry.stage == asking.stage], budget.delta) > stage.pool.steps:
        return f"no slot of {name} is left for it: its {stage.trials} and the spare steps are taken"
    scores = [entry.scores for entry in entries if entry.scores is not None]
    releases = sum(event.steps for entry in entries for event in entry.charged_scores)
    return _refused_scores(budget.scores, scores, releases, "validation")


def refused_by_exploration(budget: Budget, selection: Terms | None, entries: "Sequence[Entry]") -> str | None:
    """Return why a budget with a private selection has no room for a training.

    ``selection`` is what the ledger knows of it. Before its end, nothing but its candidates may train; and once its
    conditions have held, nothing but the final.

    Guarantees:
        As `refused_by_slots` for the final. A candidate that is not refused spends what the selection prices.
    """
    asking, terms = entries[-1], budget.selection
    if selection is None or terms is None:
        return "the private selection in the budget has not begun"
    if not selection.broken:
        return refused_by_slots(budget, entries)
    if asking.stage is not None:
        return "the private selection in the budget has no winner, whose configuration it would train"
    scores = None if asking.scores is None else asking.scores.event
    if not same_event(terms.event, asking.planned) or scores != terms.scores:
        return "it would spend another event than a candidate of the private selection in the budget"
    return None


def refused_tests_by_slots(budget: Budget, tests: Sequence[PaidScores]) -> str | None:
    """Return why the budget has no room for the last of these releases of scores of private test rows."""
    return _refused_scores(budget.tests, tests, sum(paid.event.steps for paid in tests), "test")


def refused_by_filter(budget: RenyiFilter, entries: "Sequence[Entry]", tests: Sequence[PaidScores]) -> str | None:
    """Return why the filter does not admit the last of these trainings, or of these releases of scores of test rows.

    Trainings that ended early count with what they ran.

    Guarantees:
        All that is admitted, whichever of them is asked for last, adds up to no more than the budget: on each split by
        itself where they are apart, together where they are not.
    """
    scores = [event for entry in entries for event in entry.charged_scores]
    paid = [*(entry.scores for entry in entries if entry.scores is not None), *tests]
    splits = [[entry.spent for entry in entries], scores, [one.event for one in tests]]
    return _refused_events(budget, splits, apart=all(one.apart for one in paid))


def _taken(stage: Stage, entries: "Sequence[Entry]", delta: float) -> int:
    """Return the steps of the stage's pool that its trials take: of attempts that were killed, those that they drew.

    The steps of a pool are all alike, and so many of them are composed whatever each of them is used for.
    """
    last = {entry.trial: entry for entry in entries}
    steps: dict[tuple[str, PoissonGaussian], int] = {}
    for entry in entries:
        key = entry.trial, entry.planned
        used = entry.charged if entry is last[entry.trial] else entry.spent
        steps[key] = steps.get(key, 0) + used.steps
    return sum(stage.needs(planned, count, delta) for (_, planned), count in steps.items())


def _refused_scores(pool: PaidScores | None, paid: Sequence[PaidScores], releases: int, split: str) -> str | None:
    if not paid:
        return None
    if pool is None:
        return f"the budget of the sweep has nothing for scores of private {split} rows"
    if not all(one.apart and _no_louder(one.event, pool.event) for one in paid):
        return f"its scores of private {split} rows have less noise than the budget of the sweep says"
    if releases > pool.event.steps:
        return f"the {pool.event.steps} releases of scores of private {split} rows in the budget are taken"
    return None


def _no_louder(event: PoissonGaussian, pool: PoissonGaussian) -> bool:
    same = (event.relation, event.sampling_rate) == (pool.relation, pool.sampling_rate)
    return same and event.noise_multiplier >= pool.noise_multiplier


def _refused_events(budget: RenyiFilter, splits: Sequence[Sequence[PoissonGaussian]], *, apart: bool) -> str | None:
    every = [event for events in splits for event in events]
    groups = [events for events in splits if events] if apart and in_one_split(every) else [every]
    if all(budget.admits(events[:-1], events[-1]) for events in groups):
        return None
    return f"the budget of the sweep, privacy.sweep_epsilon = {budget.epsilon:g}, has no room for it"
