"""The part of a page about rehearsals: which configurations were rehearsed, what they showed, and which were trained.

It stands apart from all that a sweep releases: a rehearsal has no epsilon, no model and no point.
"""

from collections.abc import Callable

from dashboards.data import SweepData, evenly, varying
from dashboards.pages._html import Child, Html, join, tag
from dashboards.pages._page import scrolling_table, section
from dashboards.text import MISSING, rehearsed_text, setting, show, show_value
from sweeper.results.highlights import best_of_trial
from sweeper.results.rehearsal_ranking import RankedRehearsal
from sweeper.rounding import number_of
from sweeper.specification.fields.nested import flatten

SHOWN = 300
VOLUME = "hypervolume"


def rehearsals_table(data: SweepData, named: Callable[[str], Child] = str) -> Html | None:
    """The configurations that were rehearsed, best first; None of a sweep without rehearsals.

    ``named`` returns what stands for the id of a trial.
    """
    if not data.rehearsals_planned:
        return None
    source = data.rehearsal_source
    done, planned = len(data.rehearsals), data.rehearsals_planned
    first = "the one whose epochs dominate the largest hypervolume"
    if any(one.error is not None for one in data.rehearsals):
        first = "the one that did best on public tables, which none beat by more than the margin of error of rehearsals"
    count = (
        number_of(done, "configuration")
        if done >= planned
        else f"{done} of {number_of(planned, 'configuration')} so far"
    )
    words = tag(
        "p",
        tag("strong", f"{count}. {rehearsed_text(source)}. "),
        "Each was trained on one half of these rows and scored on the other, and the other way round, with as much "
        "noise in a mean over a batch as a final has; scores are means over both. Rehearsals read no training row, "
        f"{source.cost_in_words}, have no epsilon, and none is on the front. They decide which configurations are "
        f"trained: {first}{_others(data)}.",
    )
    if not data.rehearsals:
        return section("rehearsals", "Rehearsals", words)
    flats = {one.id: flatten(one.configuration.config) for one in data.rehearsals}
    settings = varying(flats)
    scores = [objective.name for objective in data.result.objectives if objective.name != "epsilon"]
    volume = [VOLUME] if len(scores) > 1 else []  # of one score it is that score
    numeric = ["place", *scores, *volume]
    titles = ["place", "configuration", *(f"{name}, rehearsed" for name in scores), *volume, "trained as", *settings]
    columns = ["place", "configuration", *scores, *volume, "trained as", *settings]
    heads = [
        tag("th", tag("button", title, type="button"), scope="col", class_="number" if name in numeric else None)
        for title, name in zip(titles, columns, strict=True)
    ]
    shown = evenly(data.rehearsals, SHOWN)
    rows = [_row(one, flats[one.id], scores, settings, _with_score(data, named)) for one in shown]
    cut = f"Shown: {len(shown)} of {done}, evenly spread over their places; rehearsals.jsonl has all of them."
    return section(
        "rehearsals",
        "Rehearsals",
        words,
        tag("p", doubt, class_="banner", role="note") if (doubt := data.rehearsals.doubt) else None,
        tag("p", cut) if len(shown) < done else None,
        scrolling_table(join(heads), rows),
    )


def _with_score(data: SweepData, named: Callable[[str], Child]) -> Callable[[str], Child]:
    """Return what stands for the id of a trial, with its best score: to compare with what was rehearsed."""

    def name(trial: str) -> Child:
        point = best_of_trial(data.result, trial)
        return named(trial) if point is None else join([named(trial), f": {show_value(point, data.utility)}"])

    return name


def _others(data: SweepData) -> str:
    """Which configurations are trained behind the first one; empty where a single final is planned."""
    stages = data.result.stages
    finals = stages[-1] if stages else 0 if data.manifest is None else data.manifest.course.trials
    return "" if finals == 1 else ", and then those that add most to the hypervolume of its epochs"


def _row(
    one: RankedRehearsal,
    flat: dict[str, object],
    scores: list[str],
    settings: tuple[str, ...],
    named: Callable[[str], Child],
) -> Html:
    values = {} if one.best is None else one.best.values
    cells = [_number(one.place, None if one.place is None else str(one.place)), tag("td", one.id, data_value=one.id)]
    cells += [_number(values.get(name), show(name, values[name]) if name in values else None) for name in scores]
    if len(scores) > 1:
        cells.append(_number(one.volume, None if one.volume is None else f"{one.volume:.3f}"))
    trained: list[Child] = [named(trial) for trial in one.trials] or [one.configuration.reason or MISSING]
    cells.append(tag("td", *trained, data_value=", ".join(one.trials)))
    cells += [tag("td", MISSING if flat.get(name) is None else setting(flat[name])) for name in settings]
    return tag("tr", *cells)


def _number(value: float | None, text: str | None) -> Html:
    return tag("td", MISSING if text is None else text, class_="number", data_value="" if value is None else value)
