"""What the live page says in words and tables, beside what it takes from the report as it is.

Addresses of the service are relative to its root; texts reach the page only through `dashboards.pages._html`.
"""

from dataclasses import replace
from datetime import datetime
from functools import partial
from urllib.parse import quote, urlencode, urlsplit

from dashboards.data import PRICE, SweepData
from dashboards.live.snapshots import Snapshot
from dashboards.live.view import PREFIX, View
from dashboards.pages import _sections as sections
from dashboards.pages._html import Child, Html, each, tag
from dashboards.pages._page import section
from dashboards.text import MISSING, setting, show, show_epsilon, show_test, show_value, whole
from sweeper.errors import PickError, RecordError, SweeperError
from sweeper.privacy.card.make import Card, charged_to, make_card
from sweeper.privacy.pricing import value_name
from sweeper.records import Objective, Point
from sweeper.results.exporters import PRESETS
from sweeper.results.highlights import why_first
from sweeper.results.pick import meeting, pick
from sweeper.store.evidence import findings_about, read_evidence
from sweeper.store.jsonl import to_text

API = "/api/v1/sweeps"
FILES = {"card.md": "Card", "card.json": "Card as JSON", "config.json": "Configuration"}
_EXPORTS = (
    ("HTML", "front?format=html", "the report, one page that opens anywhere"),
    ("PNG", "front?format=png", "the front as a picture"),
    ("SVG", "front?format=svg", "the front as a drawing"),
    ("PDF", "front?format=pdf", "the front for a document"),
    *(
        (f"PDF, {name}", f"front?format=pdf&preset={name}", f"the front as wide as a paper's {name}, {width:g} mm")
        for name, (width, _) in PRESETS.items()
    ),
    ("JSON", "front?format=json", "the points of the front and what they cost"),
    ("CSV", "front?format=csv", "the points of the front as a table"),
    ("LaTeX", "front?format=tex", "points of the front as a table for a paper"),
    ("All points", "points?format=csv", "every point of every trial as a table"),
)
_STARTED = "%Y%m%d-%H%M%S"


def status(text: str) -> Html:
    """How a sweep or trial stands, as a word with a mark beside it."""
    return tag("span", text or "unknown", class_=f"status {text}" if text.isalpha() else "status")


def age(started: str, now: datetime) -> str:
    """How long ago a sweep began, as its folder says.

    >>> age("20260101-120000", datetime(2026, 1, 1, 14, 30))
    '2 h ago'
    """
    try:
        start = datetime.strptime(started, _STARTED)
    except ValueError:
        return MISSING
    seconds = (now - start).total_seconds()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def chosen(data: SweepData, view: View) -> Point:
    """Return the point that is chosen by hand, or else the best one within the conditions.

    Raises:
        PickError: there is none.
    """
    by_hand = next((point for point in data.front_points if point.key == view.point), None)
    return by_hand or pick(data.result, view.max_epsilon, view.minimum)


def picked(snapshot: Snapshot, view: View, run_address: str | None) -> Html:
    """The point that the conditions choose: its numbers, configuration, card, and what to take away."""
    data = snapshot.sweep()
    try:
        point = chosen(data, view)
        allowed = meeting(data.result, view.max_epsilon, view.minimum)
    except PickError as error:
        return tag("div", tag("p", str(error), class_="none"), role="status")
    by_hand = view.point is not None and point.key == view.point
    why = why_first(point, allowed, Objective(data.utility, data.direction(data.utility)))
    taken = f"What pick takes ({why}), of" if why else f"Best {data.utility} of"
    how = "Chosen by hand." if by_hand else f"{taken} {len(allowed)} points within these conditions."
    back = tag("a", "Back to the best one", href=f"/{replace(view, point=None).query()}", data_local=True)
    configuration = data.settings[point.trial]
    given = {key: setting(configuration[key]) for key in data.varying if configuration.get(key) is not None}
    settings = [tag("tr", tag("th", key, scope="row"), tag("td", value)) for key, value in given.items()]
    return tag(
        "div",
        tag("p", how, " ", back if by_hand else None, class_="test", role="status"),
        tag("h3", trial_link(snapshot.name, point.trial, row=False), f", epoch {point.moment}"),
        _warning(data, point),
        _values(data, point),
        tag("div", *_downloads(snapshot, point, run_address), class_="links"),
        tag("details", tag("summary", "Configuration"), tag("table", tag("tbody", *settings))) if settings else None,
        tag("details", tag("summary", "Privacy card"), tag("pre", _card_text(snapshot, point), tabindex=0)),
        class_="picked",
    )


def _warning(data: SweepData, point: Point) -> Html | None:
    said = sections.nearly_constant(data, point) or data.doubt(point)
    return tag("p", f"{said}.", class_="warning") if said else None


def _values(data: SweepData, point: Point) -> Html:
    names = [objective.name for objective in data.result.objectives if objective.name in point.values]
    names += [name for name in point.values if name not in names]
    rows = []
    for name in names:
        if name == "epsilon":
            rows.append(_whole_row(value_name(name), show_value(point, name)))
            price = data.result.price
            rows += [] if price is None else [_whole_row(PRICE, f"{show_epsilon(price.epsilon)}{price.doubt}")]
            continue
        shown = [whole(show_test(point, name)), whole(show_value(point, name))]
        rows.append(tag("tr", tag("th", value_name(name), scope="row"), each("td", shown, class_="number")))
    if point.classes is not None:
        shown = [show("balanced accuracy", point.classes.balanced_accuracy), MISSING]
        rows.append(tag("tr", tag("th", "balanced accuracy", scope="row"), each("td", shown, class_="number")))
    heads = tag("tr", tag("td"), each("th", ["test", "validation"], scope="col"))
    return tag("table", tag("thead", heads), tag("tbody", *rows))


def _whole_row(name: str, text: str) -> Html:
    """A row of what is of no split."""
    return tag("tr", tag("th", name, scope="row"), tag("td", text, class_="number", colspan=2))


def _downloads(snapshot: Snapshot, point: Point, run_address: str | None) -> list[Html]:
    asked = View(sweep=snapshot.name, point=point.key).query()
    model = f"{API}/{quote(snapshot.name, safe='')}/models/{quote(point.trial, safe='')}/{point.epoch}"
    model += f"?made_from={quote(point.made_from)}" if point.made_from else ""
    links = [tag("a", "Model", href=model, download=True)] if point.model else []
    links += [tag("a", what, href=f"{PREFIX}file/{name}{asked}", download=True) for name, what in FILES.items()]
    run = snapshot.sweep().trials[point.trial].run_id
    return [*links, *([run_link(run_address, run)] if run and run_address else [])]


def file(snapshot: Snapshot, name: str, point: Point) -> str:
    """Return what one of `FILES` holds: the card of a point in words or as JSON, or its configuration.

    Raises:
        SweeperError: there is no card of it.
    """
    if name == "config.json":
        return to_text(snapshot.sweep().trials[point.trial].config, indent=2) + "\n"
    made = card(snapshot, point)
    return made.to_markdown() if name == "card.md" else to_text(made.to_json(), indent=2) + "\n"


def card(snapshot: Snapshot, point: Point) -> Card:
    """Return the privacy card of a point.

    Raises:
        RecordError: its plan was not recorded.
    """
    trial, front = snapshot.sweep().recorded.get(point.trial), snapshot.sweep().result
    if trial is None:
        raise RecordError("The trial of this point was not recorded, so that there is no card")
    last = max(other.epoch for other in front.points if other.trial == trial.id)
    make = partial(make_card, sweep=front.sweep, trial=trial, point=point, claim=front.claim, ledger=front.ledger)
    attempts = partial(charged_to, trial.id, snapshot.ledger)
    audits = partial(read_evidence, snapshot.ledger.parent)
    return snapshot.once(
        ("card", point.key),
        lambda: make(last_epoch=last, attempts=attempts(), audits=findings_about(trial.id, audits())),
    )


def _card_text(snapshot: Snapshot, point: Point) -> str:
    try:
        return card(snapshot, point).to_markdown()
    except SweeperError as error:
        return snapshot.sentence(error)


def tracking_address(data: SweepData, own: str | None) -> str | None:
    """Return where a browser finds the tracking server of a sweep, ``own`` if that is given, None if it has none.

    Name and password in an address are left out.
    """
    parts = urlsplit(own or ("" if data.manifest is None else data.manifest.tracking or ""))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def run_link(address: str, run_id: str) -> Html:
    """A link to a run of a tracking server."""
    where = f"{address}/#/runs/{quote(run_id, safe='')}"
    return tag("a", "MLflow run", href=where, target="_blank", rel="noopener noreferrer")


def trial_link(sweep: str, trial: str, *, row: bool = True) -> Html:
    """A link to the page of a trial; with ``row``, its whole row of a table leads there."""
    return tag("a", trial, href=f"/{View(sweep=sweep, trial=trial).query()}", data_local=True, data_row=row)


def exports(data: SweepData) -> Html:
    """The files that the service makes of the sweep."""
    base = _address(data)
    files = [(tag("a", what, href=f"{base}/{where}", download=True), words) for what, where, words in _EXPORTS]
    if sections.picked_model(data):
        papers = tag("a", "Papers", href=f"{base}/papers", download=True)
        files.append((papers, "the best model with its privacy card, hashes, ledger and spec, as a zip archive"))
    rows = [tag("li", link, f": {words}") for link, words in files]
    words = tag("p", "A single figure is saved as a picture by the camera in its corner.", class_="after")
    return section("files", "Files", tag("ul", *rows, class_="plain"), words)


def how_to_take(data: SweepData) -> Html | None:
    """Commands for another machine that take one model of the front; None before there is one.

    The page's script writes the address of the service where `_origin` stands.
    """
    if not sections.picked_model(data):
        return None
    most, least = sections.conditions(data)
    given = {"max_price": most} if most is not None else {}
    asked = [given] if least is None else [given, given | {"min": "=".join(least)}]
    curl: list[Child] = []
    for one in asked:
        query = f"?{urlencode(one)}" if one else ""
        where = f'{_address(data)}/papers{query}"\n'
        curl += ['curl -OJ -H "Authorization: Bearer $SWEEPER_TOKEN" \\\n  "', _origin(), where]
    limit = "" if most is None else f"max_price={most}"
    python = ['import sweeper\n\nservice = sweeper.connect("', _origin(), '", token="sweeper_...")\n']
    python += [f'picked = service.sweep("{data.directory}").pick({limit})\n']
    python += ['picked.write("picked")  # its papers\nmodel = picked.model()']
    words = (
        "A token to read is enough; whoever runs the service makes one with sweeper token. What comes is a zip archive "
        "of the model, its card, hashes, ledger and spec."
    )
    return section(
        "take",
        "Take one of these models",
        tag("p", sections.PICK, " ", words),
        sections.code(*curl),
        tag("p", "The same in Python:", class_="after"),
        sections.code(*python),
    )


def _address(data: SweepData) -> str:
    return f"{API}/{quote(data.directory, safe='')}"


def _origin() -> Html:
    return tag("span", "https://sweeper.example.org", data_origin=True)


def refused(reason: str, view: View) -> Html:
    """Why sweeps are not compared, and a link that compares them anyway."""
    anyway = replace(view, anyway=True)
    said = reason.partition("; --anyway")[0]
    link = tag("a", "Compare them anyway", href=f"/{anyway.query()}", data_local=True)
    can = [tag("p", link, " by the objectives that they share; the page then says what they differ in.")]
    head = tag("header", tag("p", "Comparison of sweeps", class_="eyebrow"), tag("h1", "These sweeps are not alike"))
    return tag("div", head, tag("p", f"{said}.", class_="banner", role="note"), *(can if said != reason else []))
