"""The list of sweeps: those that wait, run, have ended, and those whose driver is gone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType

from dashboards.live.fragments import age
from dashboards.live.snapshots import ListedSweep
from dashboards.live.view import Action, View
from dashboards.pages._html import Html, join, tag
from dashboards.pages._page import working_table
from dashboards.text import MISSING, show_epsilon
from sweeper.records import SweepStatus
from sweeper.rounding import in_brackets
from sweeper.service.supervision.states import Standing

_HEADS = ("sweep", "state", "by", "trials", "best", "price", "hypervolume", "age")
_WORDS = (
    "Best: of the model with the best score on validation rows, its score on test rows with a 95 % interval. "
    "Price: the epsilon of all that is released. Choose two or more to compare them."
)
_NUMERIC = ("trials", "best", "price", "hypervolume")


def sweeps(
    standings: Sequence[Standing],
    rows: Sequence[ListedSweep],
    now: datetime,
    left: Mapping[str, float] = MappingProxyType({}),
    *,
    may_write: bool,
) -> Html:
    """The list of sweeps, with boxes to choose some for a comparison, and what can be done here.

    ``left`` is about how many seconds those take that run, by name, where that is known.
    """
    links = [tag("a", "Submit a sweep", href=_to(Action.SUBMIT), class_="button", data_local=True)] if may_write else []
    title = tag("header", tag("h1", "Sweeps"), tag("p", *links, class_="actions") if links else None, class_="titled")
    if not standings:
        submit = tag("code", "sweeper submit SPEC")
        words = ("No sweep yet. Submit one with ", submit, ", or run one into the folder that is served.")
        return join([title, tag("p", *words, class_="none")])
    known = {row.name: row for row in rows}
    heads = [tag("th", tag("span", "compare", class_="unseen"), scope="col"), *map(_head, _HEADS)]
    body = (_row(one, known.get(one.name) or ListedSweep(one.name, ""), now, left.get(one.name)) for one in standings)
    button = tag("button", "Compare the chosen sweeps", type="submit", class_="button")
    table = working_table("sweeps", heads, body, cards="boxes")
    form = tag("form", table, tag("p", button, class_="actions"), action="/", method="get", data_local=True)
    return join([title, tag("section", tag("p", _WORDS), form, class_="list")])


def _head(name: str) -> Html:
    button = tag("button", name, type="button")
    return tag("th", button, scope="col", class_="number" if name in _NUMERIC else None, data_name=name)


def _to(action: Action) -> str:
    return f"/{replace(View(), action=action).query()}"


def _row(standing: Standing, row: ListedSweep, now: datetime, left: float | None) -> Html:
    box = tag("input", type="checkbox", name="compare", value=row.name, aria_label=f"Compare {row.name}")
    link = tag("a", row.name, href=f"/{View(sweep=row.name).query()}", data_local=True, data_row=True)
    mark = tag("small", "exploratory", class_="mark") if row.exploratory else None
    said = tag("small", standing.reason, class_="why", title=standing.reason) if standing.reason else None
    if standing.state is SweepStatus.RUNNING and left is not None:
        said = tag("small", f"about {duration(left)} left", class_="why")
    by = row.by or ("" if standing.submission is None else standing.submission.by)
    started = row.started or standing.name[-15:]
    first, second = row.scores
    beside = tag("small", second, class_="why") if second else None
    return tag(
        "tr",
        tag("td", tag("label", box, class_="box") if standing.started else None),
        tag("td", link, mark, data_value=row.name),
        tag("td", state(standing), said, data_value=standing.state.value),
        tag("td", by or MISSING, data_value=by),
        _number(row.trials, _trials(row, standing)),
        _number(row.best, first or MISSING, row.utility, beside),
        _number(row.price, MISSING if row.price is None else f"{show_epsilon(row.price)}{row.doubt}"),
        _number(
            row.hypervolume,
            MISSING if row.hypervolume is None else f"{row.hypervolume:.3f}{in_brackets(row.hypervolume_interval)}",
        ),
        tag("td", age(started, now), data_value=f"at {started}"),
    )


def _trials(row: ListedSweep, standing: Standing) -> str:
    runs = standing.state is SweepStatus.RUNNING
    if row.rehearsed is not None:
        done, planned = row.rehearsed
        return f"rehearsing {done} of {planned}" if standing.runs else f"{done} of {planned} rehearsed"
    if row.trials is None:
        return MISSING
    if runs and row.trials == row.planned:
        return f"{row.trials}, scoring test rows"
    if runs and not row.begun:
        return "starting workers"
    return str(row.trials) if row.planned in (None, row.trials) else f"{row.trials} of {row.planned}"


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(40), duration(400), duration(9000)
    ('1 min', '7 min', '2.5 h')
    """
    if seconds < 5400:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / 3600:.1f} h"


def _number(value: float | None, text: str, of: str = "", below: Html | None = None) -> Html:
    small = tag("small", f" {of}") if of and value is not None else None
    return tag("td", text, small, below, class_="number", data_value="" if value is None else value)


def state(standing: Standing) -> Html:
    """How a sweep stands, with its place in the line where it waits.

    >>> state(Standing(name="s", state=SweepStatus.QUEUED, place=2))
    '<span class="status queued">queued, number 2 in line</span>'
    """
    place = f", number {standing.place} in line" if standing.place is not None else ""
    return tag("span", in_words(standing.state) + place, class_=f"status {standing.state.value}")


def in_words(state: SweepStatus) -> str:
    """How a sweep stands, as people read it.

    >>> in_words(SweepStatus.WAITING)
    'waiting for the cluster'
    """
    return "waiting for the cluster" if state is SweepStatus.WAITING else state.value
