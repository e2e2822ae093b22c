"""The top of the report: what the best model reaches and costs, what to compare it with, and on which terms."""

from collections.abc import Iterator

from clipless.datasets.metadata import units_word
from dashboards.data import SweepData
from dashboards.pages._html import Html, tag
from dashboards.pages._page import exploratory, facts_list, section
from dashboards.pages._sections import constant_in_words, facts, utilities
from dashboards.summary import best_of
from dashboards.text import (
    also_on_test,
    delta_text,
    lead_with_test,
    number,
    show_epsilon,
    title_of,
)
from sweeper.records import Objective, Point, SweepStatus
from sweeper.results.display import go_on_with
from sweeper.results.highlights import why_first
from sweeper.rounding import number_of
from sweeper.specification.search import SmoothingPlan, SmoothingSettings, plan_smoothing
from sweeper.store.trial_standings import LOST_REASON

EYEBROW = "Sweep report"
RUNNING = "Running: test scores are still to come"
_SO_FAR = "the price is an upper bound of what is charged so far, computed more closely when the sweep ends"


def top(data: SweepData) -> Html:
    """Name, warnings, and the result in three lines, so that the front stands on the first screen."""
    return tag(
        "header",
        tag("p", EYEBROW, class_="eyebrow"),
        tag("h1", data.name),
        exploratory(" The conditions below say what.") if data.result.claim.exploratory else None,
        _running(data),
        *_lines(data),
        tag("p", _terms(data), class_="terms"),
        class_="brief",
    )


def _running(data: SweepData) -> Html | None:
    """Mark the report of a sweep that has not ended: its numbers change."""
    if data.manifest is None or data.manifest.status is not SweepStatus.RUNNING:
        return None
    price, said = data.result.price, f"Lost: {LOST_REASON}" if data.lost else RUNNING
    words = said if price is None or price.fixed else f"{said}; {_SO_FAR}"
    goes_on = f" {go_on_with(data.directory, lost=True, later=data.later)}" if data.lost else ""
    return tag("p", tag("strong", f"{words}."), goes_on, class_="banner", role="note")


def terms(data: SweepData) -> Html:
    """The terms under which every epsilon of the page is stated, and what was trained."""
    return section("terms", "Terms, and what was trained", facts_list(facts(data)))


def _terms(data: SweepData) -> str:
    claim = data.result.claim
    counts = f"{claim.population} training {units_word(claim.unit)}"
    unit = "" if claim.unit == "row" else f" (unit: {claim.unit})"
    relation = ", ".join(data.relations) or "relation not recorded"
    return f"{claim.data}, {counts}{unit}, scored on {claim.evaluation} rows. {delta_text(data)}, {relation}."


def _lines(data: SweepData) -> Iterator[Html]:
    best = best_of(data, data.utility)
    if best is None:
        yield tag("p", "No point yet: nothing can be said about the models of this sweep.", class_="result")
        return
    result, note = _reached(data, best)
    yield tag("p", *result, class_="result")
    if why := why_first(best, data.front_points, Objective(data.utility, data.direction(data.utility))):
        yield tag("p", f"It is what pick takes ({why}).")
    others = [name for name in utilities(data) if name != data.utility and name in best.values]
    also = ", ".join(also_on_test(best, name, data.result.claim) for name in others)
    words = [f"{note}.", *([f"Same model: {also}."] if others else [])]
    constant = constant_in_words(data, "test" if data.utility in (best.test or {}) else "validation")
    doubted = data.doubt(best)
    yield tag(
        "p",
        " ".join([*words, *([constant] if constant else [])]),
        *([" ", tag("strong", f"{doubted}.")] if doubted else []),
    )
    smoothed = smoothing_in_words(data, best)
    if smoothed:
        yield tag("p", smoothed, class_="terms")


def _reached(data: SweepData, best: Point) -> tuple[list[Html | str], str]:
    """Value and price of the best model, and a note on how well that value is known."""
    name, price = data.utility, data.result.price
    value, note = lead_with_test(best, name, data.result.claim)
    note = note[0].upper() + note[1:]
    if price is None:
        return [tag("strong", value), "; the price of this sweep is not known."], note
    released = data.result.ledger.get("everything", price).released
    what = "one model or all" if released else "this model alone"
    bought = tag("strong", f"epsilon {show_epsilon(price.epsilon)}")
    return [tag("strong", value), " for ", bought, f", the price of {what}{price.doubt}."], note


def smoothing_in_words(data: SweepData, point: Point) -> str:
    """How many rows and draws smoothed certificates rest on, empty where the sweep has none."""
    plan, counts = _smoothing(data), point.smoothed
    if plan is None and counts is None:
        return ""
    names = ", ".join(map(title_of, data.smoothed)) or "smoothed accuracy"
    validation = "" if plan is None else f"at most {plan.rows} validation rows, {number_of(plan.draws, 'draw')} each"
    tested = ""
    if counts is not None:
        tested = (
            f"{number_of(counts.rows, 'test row')}, {number_of(counts.draws, 'draw')} each "
            f"({number_of(counts.abstained, 'row')} undecided, counted as wrong)"
        )
    alpha = plan.alpha if plan is not None else counts.alpha if counts is not None else 0.0
    rows = "; ".join(filter(None, (validation, tested)))
    return (
        f"{names[0].upper()}{names[1:]}: votes of the model under noise, on {rows}. A row's certificate is wrong with "
        f"probability at most {number(alpha)}."
    )


def _smoothing(data: SweepData) -> SmoothingPlan | None:
    """Return how smoothed certificates of validation rows were made, as the spec of the sweep says."""
    if data.manifest is None or not data.smoothed:
        return None
    settings = data.manifest.spec.get("search", {}).get("smoothing")
    chosen = None if settings is None else SmoothingSettings.model_validate(settings)
    return plan_smoothing(data.smoothed, chosen, seed=0)
