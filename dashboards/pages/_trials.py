"""The table of trials: how each ended, its best epoch, and its configuration; to sort, filter, reduce and compare."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from dashboards.data import SweepData, chosen_trials, finite
from dashboards.figures._common import short_names
from dashboards.pages._html import Child, Html, tag
from dashboards.pages._page import section, working_table
from dashboards.text import MISSING, setting, show_value
from sweeper.privacy.pricing import OWN, value_name
from sweeper.records import Objective, Point
from sweeper.results.highlights import best_by_trial

SHOWN_TRIALS = 1000
_TAKEN = ("trial", "stage", "ended", "why", "epochs", "best epoch", "epsilon", "accuracy", "run")
FIRST_SETTINGS = 8  # columns of hyperparameters that are shown before somebody chooses
_WORDS = (
    f"Filter by words and conditions with commas between them: completed, {OWN} < 3. "
    "Choose two or more trials to compare them."
)


def trials_table(
    data: SweepData,
    run_link: Callable[[str], Html | None] = lambda _: None,
    named: Callable[[str], Child] = str,
) -> Html:
    """The trials; of very many those on the front and others, evenly spread.

    ``run_link`` makes a link of the id of a trial's tracking run, if one can; ``named`` returns what stands for the id
    of a trial.
    """
    shown = chosen_trials(data, list(data.trials), SHOWN_TRIALS)
    links = {id_: link for id_ in shown if (run := data.trials[id_].run_id) and (link := run_link(run)) is not None}
    numeric = {name for name in data.varying if _is_numeric(data, name)}
    first = tag("th", tag("span", "choose", class_="unseen"), scope="col")
    heads = [first, *_heads(data, numeric, has_links=bool(links))]
    epochs = Counter(point.trial for point in data.points if not point.made_from)
    judged = Objective(data.utility, data.direction(data.utility))
    known = (point for point in data.points if finite(point, data.utility))
    best = best_by_trial(known, judged)
    rows = [
        tag("tr", *_cells(data, id_, epochs[id_], best.get(id_), named(id_), numeric), _link(links, id_))
        for id_ in shown
    ]
    total = len(data.trials)
    cut = f" Shown: {len(shown)} of {total} trials, those on the front among them; all of them are in front.csv."
    words = tag("p", _WORDS, cut if len(shown) < total else None)
    return section("trials", "Trials", words, working_table("trials", heads, rows, compares="trials", cards="boxes"))


def _heads(data: SweepData, numeric: Set[str], *, has_links: bool) -> Iterable[Html]:
    yield _head("trial")
    if len(data.result.stages) > 1:
        yield _head("stage", number=True)
    yield _head("ended")
    if _says_why(data):
        yield _head("why")
    yield _head("epochs", number=True, hidden=True)
    yield _head("best epoch", number=True)
    for objective in data.result.objectives:
        yield _head(value_name(objective.name), number=True)
    for i, (name, short) in enumerate(short_names(data.varying, _TAKEN).items()):
        yield _head(name, short, number=name in numeric, hidden=i >= FIRST_SETTINGS)
    if has_links:
        yield _head("run", hidden=True)


def _head(name: str, short: str = "", *, number: bool = False, hidden: bool = False) -> Html:
    button = tag("button", short or name, type="button", title=name if short else None)
    return tag("th", button, scope="col", class_="number" if number else None, data_name=name, data_hidden=hidden)


def _cells(
    data: SweepData, id_: str, epochs: int, best: Point | None, named: Child, numeric: Set[str]
) -> Iterable[Html]:
    trial, flat, stands = data.trials[id_], data.settings[id_], data.how_stands(id_)
    box = tag("input", type="checkbox", value=id_, data_choose=True, aria_label=f"Compare {id_}")
    yield tag("td", tag("label", box, class_="box"))
    yield tag("td", named, data_value=id_)
    if len(data.result.stages) > 1:
        stage = data.result.stage_of(id_)
        yield _number(None if stage is None else stage + 1, MISSING if stage is None else str(stage + 1))
    yield tag("td", tag("span", stands, class_=f"status {stands}"), data_value=stands)
    if _says_why(data):
        yield tag("td", trial.reason or MISSING, class_="long", data_value=trial.reason)
    yield _number(epochs, str(epochs))
    yield _number(None, MISSING) if best is None else _number(best.epoch, best.moment)
    for objective in data.result.objectives:
        value = None if best is None else best.values.get(objective.name)
        yield _number(value, MISSING if best is None or value is None else show_value(best, objective.name))
    for name in data.varying:
        yield _setting(flat.get(name), numeric=name in numeric)


def _says_why(data: SweepData) -> bool:
    """Whether any trial ended otherwise than by its plan."""
    return any(trial.reason for trial in data.trials.values())


def _setting(value: Any, *, numeric: bool) -> Html:
    if value is None:
        return tag("td", MISSING, class_="number" if numeric else None, data_value="")
    text = setting(value)
    return _number(float(value), text) if numeric else tag("td", text, data_value=text)


def _number(value: float | None, text: str) -> Html:
    return tag("td", text, class_="number", data_value="" if value is None else value)


def _is_numeric(data: SweepData, name: str) -> bool:
    """Whether all values of a hyperparameter that there are are numbers."""
    values = (flat.get(name) for flat in data.settings.values())
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values if value is not None)


def _link(links: Mapping[str, Html], id_: str) -> Html | None:
    return tag("td", links.get(id_, MISSING)) if links else None
