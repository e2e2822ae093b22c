"""Picking one point of a front."""

from collections.abc import Iterable, Mapping, Sequence
from math import inf, log

from sweeper.errors import PickError, SpecError
from sweeper.privacy.pricing import value_name
from sweeper.records import Direction, Objective, Point
from sweeper.results.front_record import FrontRecord
from sweeper.rounding import in_brackets, round_up
from sweeper.specification import objectives as names

# What to write in the place of keywords of the command, and of names in the report.
CONDITIONS = {
    "min": 'minimum={"certified@0.25": 0.4}',
    "epsilon": "max_epsilon=3, its own epsilon, or max_price=3, the price of the sweep",
    "price": "max_price=3",
    "sweep_epsilon": "max_price=3",
    "accuracy": 'minimum={"accuracy": 0.9}',
    "output": "the folder to write() of what it returns",
}


def pick(
    front: FrontRecord,
    max_epsilon: float | None = None,
    minimum: Mapping[str, float] | None = None,
    *,
    max_price: float | None = None,
) -> Point:
    """Return the point of best utility that meets the conditions.

    Utility is the first objective other than epsilon, on validation; ties go to the smaller epsilon. Points that an
    audit refuses are on no front and never picked; one whose model was not kept is only where all that meet the
    conditions are such. Where scores are noisy, utility is an estimate, and a point of an explorer is picked before a
    final only if its interval lies above that of every final.

    ``max_price`` is the largest price to accept, which is the same for every point; ``max_epsilon`` the largest own
    epsilon, fixed in advance; ``minimum`` has the smallest values to accept by objective,
    ``{"certified@36/255": 0.3}``.

    Raises:
        PickError: no such objective, a condition that is no number, or no share of an objective, a larger price, or no
            point that meets the conditions; names the nearest.
    """
    _check_price(front, max_price)
    ceiling, floors = _conditions(front, max_epsilon, minimum)
    candidates = front.front_points
    if not candidates:
        raise PickError(_empty(front))
    allowed = _meeting(candidates, ceiling, floors)
    if not allowed:
        _check_shares(floors)
        nearest = min(candidates, key=lambda point: _distance(point, ceiling, floors))
        raise PickError(_nearest(nearest, ceiling, floors) + _refusals(front))
    utility = next(o for o in front.objectives if o.name != "epsilon")
    with_model = [point for point in allowed if point.model is not None]
    return max(surest(with_model or allowed, utility), key=lambda point: rank(point, utility))


def surest(points: Sequence[Point], objective: Objective) -> Sequence[Point]:
    """Return the points among which the best in an objective is looked for: all, where scores are not noisy.

    Otherwise those of finals, or points that are better than every final beyond their intervals.
    """
    finals = [point for point in points if point.is_final]
    if not finals:
        return points
    worst, best = (0, 1) if objective.direction is Direction.MAXIMIZE else (1, 0)
    sign, highest = objective.direction.sign, max(finals, key=lambda point: rank(point, objective))
    bound = highest.interval(objective.name)
    ends = {point.key: point.interval(objective.name) for point in points}
    better = [
        point
        for point in points
        if bound is not None and (own := ends[point.key]) is not None and sign * own[worst] > sign * bound[best]
    ]
    return better or finals


def rank(point: Point, objective: Objective) -> tuple[float, float]:
    """Return by what points are compared: the value in an objective, of equals the smaller epsilon."""
    return objective.direction.sign * point.values.get(objective.name, -inf), -point.values.get("epsilon", inf)


def meeting(
    front: FrontRecord, max_epsilon: float | None = None, minimum: Mapping[str, float] | None = None
) -> tuple[Point, ...]:
    """Return the points of the front that meet the conditions, smallest epsilon first.

    Raises:
        PickError: no such objective, or a condition that is no number.
    """
    return _meeting(front.front_points, *_conditions(front, max_epsilon, minimum))


def read_numbers(texts: Iterable[str] | None, example: str, option: str) -> dict[str, float]:
    """Return the numbers by objective of an option such as ``example``.

    Raises:
        PickError: not OBJECTIVE=NUMBER.
    """
    found = {}
    for text in texts or []:
        name, _, value = text.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            raise PickError(f"Expected OBJECTIVE=NUMBER such as {example}, got {text!r} ({option})") from None
    return found


def _conditions(
    front: FrontRecord, max_epsilon: float | None, minimum: Mapping[str, float] | None
) -> tuple[float, dict[str, float]]:
    floors = {_objective(front, name): _number(name, value) for name, value in (minimum or {}).items()}
    return inf if max_epsilon is None else _number("max_epsilon", max_epsilon), floors


def _check_price(front: FrontRecord, max_price: float | None) -> None:
    if max_price is None:
        return
    limit = _number("max_price", max_price)
    if front.price is None:
        raise PickError(f"The price of {front.sweep} is not known, so none of its models meets max_price = {limit:g}")
    if not front.price.epsilon <= limit:
        price = round_up(front.price.epsilon)
        raise PickError(
            f"Every model of {front.sweep} costs its price, epsilon {price}, more than max_price = {limit:g}; accept "
            f"{price}, or run a sweep with privacy.sweep_epsilon: {limit:g}"
        )


def _meeting(points: Iterable[Point], ceiling: float, floors: Mapping[str, float]) -> tuple[Point, ...]:
    return tuple(point for point in points if _distance(point, ceiling, floors) == 0.0)


def _number(name: str, value: float) -> float:
    if not -inf < value < inf:  # NaN fails
        raise PickError(f"Expected a finite number for {name}, got {value!r}")
    return float(value)


def _check_shares(floors: Mapping[str, float]) -> None:
    """Refuse a minimum that no share can reach, as every objective but epsilon is one; a percentage is asked about."""
    for name, floor in floors.items():
        if floor > 1.0:
            meant = f"; did you mean {floor / 100:g}?" if floor <= 100.0 else ""
            raise PickError(f"Expected a share from 0 to 1 as the minimum of {name}, got {floor:g}{meant}")


def _objective(front: FrontRecord, name: str) -> str:
    known = [objective.name for objective in front.objectives if objective.name != "epsilon"]
    try:
        found = [objective for objective in known if names.same(name, objective)]
    except SpecError as error:
        raise PickError(str(error)) from None
    if not found:
        raise PickError(
            f"Expected an objective of {front.sweep} to put a minimum on, got {name!r}; "
            + (names.near_name(name, known) or f"choose among {', '.join(known)}")
        )
    return found[0]


def _distance(point: Point, ceiling: float, floors: Mapping[str, float]) -> float:
    epsilon = point.values.get("epsilon", inf)
    excess = 0.0
    if not epsilon <= ceiling:
        excess = log(epsilon / ceiling) if 0 < ceiling < epsilon < inf else inf
    return excess + sum(max(0.0, floor - point.values[name]) for name, floor in floors.items())


def _empty(front: FrontRecord) -> str:
    if front.points and front.refused:
        return f"The front of {front.sweep} has no point{_refusals(front)}"
    return f"The front of {front.sweep} has no point yet; let a trial finish its first epoch"


def _refusals(front: FrontRecord) -> str:
    """Name what audits refuse, empty if that is nothing."""
    return "".join(f"; {trial or 'every point'} is {why}" for trial, why in front.refused.items())


def _nearest(point: Point, ceiling: float, floors: Mapping[str, float]) -> str:
    asked = [f"own epsilon <= {ceiling:g}"] * (ceiling < inf) + [
        f"{name} >= {floor:g}" for name, floor in floors.items()
    ]
    shown = {
        value_name(name): round_up(value) if name == "epsilon" else f"{value:.4g}{in_brackets(point.interval(name))}"
        for name, value in point.values.items()
    }
    found = ", ".join(f"{name}={text}" for name, text in shown.items())
    return (
        f"No point of the front has {' and '.join(asked)}; the nearest is trial {point.label}: "
        f"{found}; relax a condition or search longer"
    )
