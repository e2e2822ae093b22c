"""The numbers of a sweep in a few rows: the best points within a budget, and the front as a table.

Points are chosen on validation values; test values are only ever shown beside them.
"""

from math import inf
from typing import Any

from dashboards.data import CAUGHT, PRICE, SweepData, finite
from sweeper.privacy.pricing import Price
from sweeper.records import MEMBERSHIP, Objective, Point, TrialStatus
from sweeper.results.budgets import WithinBudget, best_by_budget, best_within
from sweeper.specification.objectives import attack_radius_text
from sweeper.store.actions import ActionKind
from sweeper.store.trial_standings import LOST, OPEN, WAITING

BUDGETS = (1.0, 3.0, 8.0)
BALANCED = "test balanced accuracy"


def best_of(data: SweepData, name: str, epsilon: float = inf) -> Point | None:
    """The point of the front that is best in ``name`` at this epsilon or less; the cheaper one of equals."""
    usable = (point for point in data.front_points if finite(point, "epsilon", name))
    return best_within(usable, Objective(name, data.direction(name)), epsilon)


def total_price(data: SweepData) -> Price | None:
    """Return the price of the sweep; that of its winner where nothing else may leave."""
    everything = data.result.ledger.get("everything")
    return everything if everything is not None and everything.released else data.result.price


def trials_done(data: SweepData) -> tuple[int, float]:
    """Return how many trials have ended for good, and that number with the shares of those that run, or go on later."""
    left = {id_ for id_, trial in data.trials.items() if trial.status in OPEN}
    last: dict[str, int] = {}
    for point in data.points:
        if point.trial in left:
            last[point.trial] = max(last.get(point.trial, 0), point.epoch)
    planned = {id_: int((data.trials[id_].sampling or {}).get("epochs") or 0) for id_ in last}
    ended = sum(trial.status not in OPEN for trial in data.trials.values())
    return ended, ended + sum(min(epoch / planned[id_], 1.0) for id_, epoch in last.items() if planned[id_])


def times_resumed(data: SweepData) -> int:
    """Return how often people let a sweep go on that had stopped or ended."""
    return sum(action.kind in (ActionKind.RESUME, ActionKind.EXTEND) for action in data.actions)


def cut_off(data: SweepData) -> int:
    """Return how many trials ended within their first epoch, and begin anew when their sweep is resumed."""
    scored = {point.trial for point in data.points}
    ends = {id_: data.how_stands(id_, runs=False) for id_ in data.trials if id_ not in scored}
    return sum(one in (TrialStatus.INTERRUPTED.value, LOST) for one in ends.values())


def has_begun(data: SweepData) -> bool:
    """Whether any trial of a running sweep has begun; before, it starts workers or waits for room."""
    return any(data.how_stands(id_) != WAITING for id_ in data.trials)


def budgets(data: SweepData) -> tuple[WithinBudget, ...]:
    """The headline: what each budget buys, in every objective but epsilon."""
    points = [point for point in data.front_points if finite(point, "epsilon")]
    return best_by_budget(points, data.result.objectives, BUDGETS)


def front_rows(data: SweepData) -> list[dict[str, Any]]:
    """One row per point of the front, by epsilon: identity, values, test values, accountants, configuration.

    Every row has the same keys, in the same order; a value that a point lacks is None. Points no
    better than the majority-class baseline are left out, unless all are such.
    """
    names = _value_names(data)
    counted = any(point.classes is not None for point in data.useful_points)
    risky = any(point.risk is not None for point in data.useful_points)
    noisy = [name for name in names if any(point.interval(name) for point in data.front_points)]
    accountants = sorted({name for point in data.front_points for name in point.accountants})
    return [
        {
            "trial": point.trial,
            "epoch": point.epoch,
            **_values(point, names, data.result.price),
            **({CAUGHT: point.risk and point.risk.caught[1]} if risky else {}),
            **_ends(point, noisy),
            **({BALANCED: point.classes and point.classes.balanced_accuracy} if counted else {}),
            **{f"epsilon {name}": point.accountants.get(name) for name in accountants},
            **{f"config {name}": data.settings[point.trial].get(name) for name in data.varying},
            "made from": point.made_from,
            "model": point.model,
        }
        for point in data.useful_points
    ]


def _ends(point: Point, names: list[str]) -> dict[str, float | None]:
    """The ends of the intervals of noisy scores."""
    row: dict[str, float | None] = {}
    for name in names:
        for text, interval in ((name, point.interval(name)), (f"test {name}", point.test_interval(name))):
            low, high = interval or (None, None)
            row |= {f"{text} low": low, f"{text} high": high}
    return row


def _values(point: Point, names: list[str], price: Price | None) -> dict[str, float | None]:
    """Each value with its test value beside it; attacks have none, and epsilon has the price of the sweep."""
    row: dict[str, float | None] = {}
    for name in names:
        row[name] = point.values.get(name)
        if name == "epsilon" and price is not None:
            row[PRICE] = price.epsilon
        if not (name == "epsilon" or name in MEMBERSHIP or attack_radius_text(name) is not None):
            row[f"test {name}"] = (point.test or {}).get(name)
    return row


def _value_names(data: SweepData) -> list[str]:
    """Objectives first, then other values, then the remaining certificates by radius."""
    objectives = [objective.name for objective in data.result.objectives]
    certificates = [name for name in data.certificates if name not in objectives]
    others = dict.fromkeys(name for point in data.front_points for name in point.values)
    return [*objectives, *(name for name in others if name not in (*objectives, *certificates)), *certificates]
