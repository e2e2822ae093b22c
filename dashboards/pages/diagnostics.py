"""The page of a diagnosis: bounds, noise and clipping of one point, before its training and after."""

from dashboards.figures import diagnosis_figures
from dashboards.pages._html import Html, each, join, tag
from dashboards.pages._page import build, exploratory, header, scrolling_table, section
from dashboards.text import MISSING, number, show, show_epsilon
from sweeper.privacy.pricing import OWN
from sweeper.results.models.diagnosis import Diagnosis


def build_page(diagnosis: Diagnosis) -> str:
    """The page of a diagnosis as one HTML document."""
    title = f"{diagnosis.sweep}, {diagnosis.trial}: diagnostics"
    return build(title, _head(diagnosis), diagnosis_figures().values(), diagnosis, after=[_table(diagnosis)])


def _head(diagnosis: Diagnosis) -> Html:
    last = diagnosis.snapshots[-1].diagnostics
    epsilon = diagnosis.values.get("epsilon", float("inf"))
    left_out = f"{last.left_out} left out: not finite" if last.left_out else None
    place = (diagnosis.trial, f"epoch {diagnosis.epoch}", diagnosis.made_from)
    facts: dict[str, tuple[str, str | None]] = {
        "point": (", ".join(filter(None, place)), f"of {diagnosis.epochs} planned"),
        OWN: (show_epsilon(epsilon), f"fixed in advance, delta = {number(diagnosis.delta)}"),
        "method": (diagnosis.method.value, f"loss: {diagnosis.loss}"),
        "noise multiplier": (number(diagnosis.noise_multiplier), f"batches of {number(diagnosis.batch_size)} expected"),
        "rows": (f"{last.rows} of {diagnosis.data}", left_out or "validation, declared public"),
    }
    if "accuracy" in diagnosis.values:
        facts["accuracy"] = (show("accuracy", diagnosis.values["accuracy"]), "validation")
    return header("Diagnostics", diagnosis.sweep, exploratory() if diagnosis.exploratory else None, facts)


def _table(diagnosis: Diagnosis) -> Html:
    heads = (
        *("parameter", "entries", "worst case", "clips at", "largest", "median", "guard's largest", "reached"),
        *("rows scaled", "noise std", "noise / gradient"),
    )
    rows = []
    for p in diagnosis.snapshots[-1].diagnostics.parameters:
        texts = [
            str(p.size),
            _number(p.worst_case),
            _number(p.sensitivity),
            number(p.own.largest),
            number(p.own.median),
            number(p.guard_bound.largest),
            _percent(p.tightness),
            _percent(p.acted),
            number(p.noise_std),
            number(p.noise_to_gradient),
        ]
        rows.append(tag("tr", tag("td", p.name), each("td", texts, class_="number")))
    head = join([tag("th", heads[0], scope="col"), each("th", heads[1:], scope="col", class_="number")])
    words = f"At epoch {diagnosis.epoch}; norms of one row's contribution to the gradient of each parameter."
    return section("parameters", "Parameters", tag("p", words), scrolling_table(head, rows))


def _number(value: float | None) -> str:
    return MISSING if value is None else number(value)


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{number(100 * share)} %"
