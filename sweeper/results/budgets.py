"""What budgets buy: the best values within some epsilons, as metrics and in words.

The epsilon of a point is that of one training whose configuration and epoch were fixed in advance. Where the sweep
releases its winner alone, as a private selection does, no such number is told: it holds for no winner.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from sweeper.privacy.pricing import Price
from sweeper.records import Objective, Point
from sweeper.results.front import Front
from sweeper.results.highlights import FINALS_FIRST, best, finals_first, lead_lines, test_text, value_text
from sweeper.rounding import number_of, round_up
from sweeper.tracking.names import ARTIFACT_LINK, best_name, escape_markdown

EPSILONS = (1.0, 2.0, 3.0, 5.0, 8.0)
OWN = "if its configuration and epoch were fixed in advance; a model chosen by these numbers costs the price"


def tells_own_epsilons(front: Front) -> bool:
    """Whether the epsilons of single trainings mean anything: they do where every point may leave at a price."""
    return bool(front.ledger) and all(price.released for price in front.ledger.values())


@dataclass(frozen=True, slots=True)
class WithinBudget:
    """The best points at epsilon <= ``epsilon``, by the name of an objective; None if there is none."""

    epsilon: float
    best: Mapping[str, Point | None]


def best_within(points: Iterable[Point], objective: Objective, epsilon: float) -> Point | None:
    """Return the point that is best in an objective at this epsilon or less, None if there is none."""
    return best((point for point in points if point.values.get("epsilon", float("inf")) <= epsilon), objective)


def best_by_budget(
    points: Sequence[Point], objectives: Iterable[Objective], epsilons: Iterable[float] = EPSILONS
) -> tuple[WithinBudget, ...]:
    """Return what each budget buys, in every objective but epsilon."""
    wanted = [one for one in objectives if one.name != "epsilon"]
    return tuple(WithinBudget(e, {one.name: best_within(points, one, e) for one in wanted}) for e in epsilons)


def best_values(points: Sequence[Point], objectives: Sequence[Objective]) -> dict[str, float]:
    """Return the best value of each objective but epsilon, and the best within each of `EPSILONS`, by name.

    Names are those of metrics: ``best/accuracy``, ``best/accuracy/eps3``.
    """
    found = {}
    for one in objectives:
        if one.name == "epsilon":
            continue
        name = best_name(one.name)
        limits = {name: float("inf")} | {f"{name}/eps{epsilon:g}": epsilon for epsilon in EPSILONS}
        for key, epsilon in limits.items():
            point = best_within(points, one, epsilon)
            if point is not None and isfinite(point.values[one.name]):
                found[key] = point.values[one.name]
                ends = point.interval(one.name)
                found |= {} if ends is None else {f"{key}/low": ends[0], f"{key}/high": ends[1]}
    return found


def description(front: Front, *, status: str, page: str | None = None, rehearsed: str = "") -> str:
    """Return what a sweep found and costs, as Markdown for those who see its run alone.

    ``rehearsed`` says what was rehearsed before the first trial.
    """
    points = number_of(front.total, "point")
    counts = f"{number_of(front.trials_begun, 'trial')}, {len(front.on_front)} of {points} on the front"
    blocks = [f"**{escape_markdown(front.sweep)}**: {status}; {counts}."]
    if front.claim.exploratory:
        blocks.append("**Exploratory: no guarantee.** The numbers below are no privacy guarantee.")
    if lead := lead_lines(front):
        first, *scores = map(escape_markdown, lead)
        scores += filter(None, [front.claim.radii_in_words(front.objectives)])
        blocks.append("\n".join([f"**{first}**", "", *(f"- {one}" for one in scores)]))
    blocks += _costs(front.ledger)
    blocks += [rehearsed] if rehearsed else []
    if tells_own_epsilons(front) and front.on_front:
        noisy = f" {FINALS_FIRST}" if finals_first(front.front_points) else ""
        blocks += ["## Best points by own epsilon", _table(front), f"Own epsilon: of one training, {OWN}.{noisy}"]
    blocks.append("## Where to look")
    links = [f"[Live page]({page})"] if page else []
    report = f"[Report]({ARTIFACT_LINK}front.html), `front.html` among the artifacts of this run"
    blocks.append("\n".join(f"- {one}" for one in [*links, report]))
    return "\n\n".join(blocks) + "\n"


def _costs(ledger: Mapping[str, Price]) -> Iterator[str]:
    statements = dict.fromkeys(price.in_words for price in ledger.values() if price.statement)
    yield from statements or ["Nothing has been released yet."]
    winner = ledger.get("winner")
    if winner is not None and winner.exposure is not None:
        yield winner.qualify(winner.exposure.risk.in_words())


def _table(front: Front) -> str:
    names = [one for one in front.objectives if one.name != "epsilon"]
    tested = any(point.test for point in front.front_points)
    scores = "validation, test score" if tested else "validation score"
    heads = ["own epsilon at most", *(f"best {one.name}: {scores}, point" for one in names)]
    rows, before = [heads, ["---"] * len(heads)], None
    for budget in best_by_budget(front.front_points, names):
        if any(budget.best.values()) and budget.best != before:
            cells = ["" if one is None else _with_point(one, name, tested) for name, one in budget.best.items()]
            rows.append([f"{budget.epsilon:g}", *cells])
            before = budget.best
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _with_point(point: Point, name: str, tested: bool) -> str:
    scores = f"{value_text(point, name)}, {test_text(point, name)}" if tested else value_text(point, name)
    return f"{scores}: {point.label}, own epsilon {round_up(point.values['epsilon'])}"
