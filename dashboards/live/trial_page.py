"""The page of one trial: how it ended, what it reached, its configuration, its log, and what people said about it."""

from collections.abc import Container, Sequence
from dataclasses import replace
from urllib.parse import quote

from dashboards.data import SweepData
from dashboards.live.fragments import API, run_link, status
from dashboards.live.header import TITLES
from dashboards.live.snapshots import Snapshot
from dashboards.live.view import Action, Tab, View
from dashboards.pages._html import Child, Html, each, join, tag
from dashboards.pages._page import scrolling_table, section
from dashboards.text import MISSING, setting, show_test, show_value, split_lead, title_of, when, whole
from sweeper.errors import SweeperError, UnknownSweepError
from sweeper.privacy.pricing import value_name
from sweeper.records import Point, TrialStatus
from sweeper.results.display import epsilon_first
from sweeper.results.front_record import FrontTrial
from sweeper.results.highlights import best_of_trial
from sweeper.results.trial_log import trial_log
from sweeper.store.notes import Notes, SignedText, read_notes


def trial_page(
    snapshot: Snapshot, id_: str, run_address: str | None, *, runs: bool, offers: Container[Action] | None
) -> Html:
    """The top of a trial's page: how it stands or ended, why, and what can be done.

    ``offers`` is what can be done with its sweep, ``None`` for one who may not write.

    Raises:
        UnknownSweepError: no such trial.
    """
    data = snapshot.sweep()
    trial = known_trial(data, id_)
    ended = data.how_stands(id_, runs=runs)
    reason = f": {trial.reason}" if trial.reason else None
    back = tag("a", data.name, href=f"/{View(sweep=snapshot.name).query()}", data_local=True)
    stage = data.result.stage_of(id_) if len(data.result.stages) > 1 else None
    return tag(
        "header",
        tag("p", back, class_="eyebrow"),
        tag("h1", id_),
        tag("nav", *_neighbours(snapshot, id_), class_="links", aria_label="Other trials"),
        tag("p", status(ended), reason, None if stage is None else f"; stage {stage + 1} of {len(data.result.stages)}"),
        _reached(data, id_),
        tag("div", *_links(snapshot, id_, run_address, offers), class_="links"),
    )


def trial_records(snapshot: Snapshot, id_: str) -> Html:
    """What stands below a trial's curve: its scores, what people said, its configuration, and its log.

    Raises:
        UnknownSweepError: no such trial.
    """
    data = snapshot.sweep()
    known_trial(data, id_)
    said = _said(_notes(snapshot, id_))
    return join([_scores(data, id_), said, _configuration(data, id_), _log(snapshot, id_)])


def known_trial(data: SweepData, id_: str) -> FrontTrial:
    """Return a trial.

    Raises:
        UnknownSweepError: no such trial.
    """
    if id_ not in data.trials:
        raise UnknownSweepError("Expected a trial of this sweep, as the table of trials has it; got another one")
    return data.trials[id_]


def one_trial(data: SweepData, id_: str) -> SweepData:
    """Return a sweep as if this were its only trial."""
    known_trial(data, id_)
    points = tuple(point for point in data.points if point.trial == id_)
    best = best_of_trial(data.result, id_)  # which stands out here, whether or not another trial is better
    shown = {point.key for point in points if point.key in data.result.on_front} | ({best.key} if best else set())
    trials = {id_: data.trials[id_]}
    return replace(data, result=replace(data.result, trials=trials, points=points, on_front=frozenset(shown)))


def _reached(data: SweepData, id_: str) -> Html | None:
    """The score of the best model of a trial, on test rows where one of its points is on the front; None before any."""
    name = data.utility
    found = best_of_trial(data.result, id_)
    if found is None:
        return None
    at = f", epoch {found.moment}"
    if found.key not in data.result.on_front:
        words = f"{whole(show_value(found, name))} {title_of(name)} on validation rows"
        others = sum(key[0] == id_ for key in data.result.on_front)
        where = f"That point is not on the front, {others} of its others are" if others else "None of its points is"
        return tag("p", "Best: ", tag("strong", words), f"{at}. {where}{'' if others else ' on the front'}.")
    value, unit, note = split_lead(found, name, data.result.claim)
    return tag("p", "Best: ", tag("strong", f"{value} {unit}"), f"{at} ({note}).")


def _neighbours(snapshot: Snapshot, id_: str) -> list[Html]:
    """Links to the trials before and after this one, and to the table of all."""
    ids = list(snapshot.sweep().trials)
    at = ids.index(id_)
    found = {"Previous": ids[at - 1] if at else None, "Next": ids[at + 1] if at + 1 < len(ids) else None}
    links = [
        tag("a", f"{words}: {other}", href=f"/{View(sweep=snapshot.name, trial=other).query()}", data_local=True)
        for words, other in found.items()
        if other is not None
    ]
    table = View(sweep=snapshot.name, tab=Tab.TRIALS)
    return [*links, tag("a", "The table of trials", href=f"/{table.query()}", data_local=True)]


def _links(snapshot: Snapshot, id_: str, run_address: str | None, offers: Container[Action] | None) -> list[Child]:
    data = snapshot.sweep()
    view, run = View(sweep=snapshot.name, trial=id_), data.trials[id_].run_id
    found: list[Child] = [run_link(run_address, run)] if run and run_address else []
    if offers is not None:
        running = data.trials[id_].status == TrialStatus.RUNNING.value
        actions = [Action.STOP_TRIAL] if running and snapshot.running else []
        like_it = [Action.ENQUEUE] if Action.ENQUEUE in offers else []
        for action in (*actions, Action.NOTE, Action.TAG, *like_it):
            words = "Enqueue one like it" if action is Action.ENQUEUE else TITLES[action]
            found.append(tag("a", words, href=f"/{replace(view, action=action).query()}", data_local=True))
    return found


def _scores(data: SweepData, id_: str) -> Html:
    points = [point for point in data.points if point.trial == id_]
    names = epsilon_first(dict.fromkeys(name for point in points for name in point.values))
    if not points:
        return section("scores", "Scores", tag("p", "No point yet; the first comes with the first epoch."))
    rows = [_row(data, point, names) for point in points]
    shown = [name for name in rows[0] if any(row[name] != MISSING for row in rows)]
    words = {name: None if name in ("epoch", "front", "model") else "number" for name in shown}
    heads = join(tag("th", value_name(name), scope="col", class_=word) for name, word in words.items())
    lines = [tag("tr", *(tag("td", row[name], class_=word) for name, word in words.items())) for row in rows]
    return section("scores", "Scores", scrolling_table(heads, lines))


def _row(data: SweepData, point: Point, names: Sequence[str]) -> dict[str, Child]:
    """Return the cells of a point by the heads of their columns; of each score that of test rows comes first."""
    scores = [name for name in names if name != "epsilon"]
    on_front = point.key in data.result.on_front
    pick = f"/{View(sweep=data.directory, point=point.key).query()}"
    cells: dict[str, Child] = {"epoch": point.moment}
    if "epsilon" in names:
        cells["epsilon"] = _value(point, "epsilon")
    for name in scores:
        cells |= {f"{name}, test": show_test(point, name), f"{name}, validation": _value(point, name)}
    cells["front"] = tag("a", "pick it", href=pick, data_local=True) if on_front else MISSING
    return {**cells, "model": _model(data, point) if on_front else MISSING}


def _value(point: Point, name: str) -> str:
    return show_value(point, name) if name in point.values else MISSING


def _model(data: SweepData, point: Point) -> Child:
    if not point.model:
        return MISSING
    address = f"{API}/{quote(data.directory, safe='')}/models/{quote(point.trial, safe='')}/{point.epoch}"
    address += f"?made_from={quote(point.made_from)}" if point.made_from else ""
    return tag("a", "model", href=address, download=True)


def _configuration(data: SweepData, id_: str) -> Html:
    varying = set(data.varying)
    rows = []
    for name, value in data.settings[id_].items():
        differs = tag("td", "differs" if name in varying else "is the same")
        rows.append(tag("tr", tag("th", name, scope="row"), tag("td", setting(value)), differs))
    heads = each("th", ["hyperparameter", "value", "in other trials"], scope="col")
    return section("configuration", "Configuration", scrolling_table(heads, rows))


def _notes(snapshot: Snapshot, id_: str) -> Notes:
    try:
        return read_notes(snapshot.ledger.parent).get(id_, Notes())
    except SweeperError:
        return Notes()


def _said(notes: Notes) -> Html:
    if not notes.texts and not notes.tags:
        return section("notes", "Notes", tag("p", "None yet."))
    texts = tag("ul", *(tag("li", one.text, _signed(one)) for one in notes.texts), class_="plain")
    tags = tag("ul", *(tag("li", f"{key} = {one.text}", _signed(one)) for key, one in notes.tags), class_="plain")
    return section("notes", "Notes", texts if notes.texts else None, tags if notes.tags else None)


def _signed(one: SignedText) -> Html | None:
    """Who wrote it and when, where the row says it."""
    return tag("small", f" {one.by}, {when(one.at)}", class_="signed") if one.by else None


def _log(snapshot: Snapshot, id_: str) -> Html | None:
    """What happened, in order; none of a private selection, and no error, which the owner alone may read."""
    manifest = snapshot.sweep().manifest
    if manifest is None or manifest.selects_privately:
        return None
    try:
        text = trial_log(snapshot.ledger.parent, id_, whole=False)
    except SweeperError:
        return None
    return section("log", "Log", tag("pre", text, tabindex=0))
