"""The list of sweeps: those that wait, run, have ended, and those whose driver is gone."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from dashboards.live.fragments import age
from dashboards.live.snapshots import SweepSummary
from dashboards.live.view import Action, View
from dashboards.pages._html import Child, Html, join, tag
from dashboards.text import MISSING
from sweeper.records import SweepStatus
from sweeper.service.supervision.states import Standing

_HEADS = ("compare", "sweep", "state", "trials", "points", "hypervolume", "age")
_NUMERIC = ("trials", "points", "hypervolume")


def sweeps(standings: Sequence[Standing], rows: Sequence[SweepSummary], now: datetime, *, may_write: bool) -> Html:
    """The list of sweeps, with boxes to choose some for a comparison, and what can be done here."""
    links = [tag("a", "Submit a sweep", href=_to(Action.SUBMIT), class_="button", data_local=True)] if may_write else []
    title = tag("header", tag("h1", "Sweeps"), tag("p", *links, class_="actions") if links else None)
    if not standings:
        submit = tag("code", "sweeper submit SPEC")
        words = ("No sweep yet. Submit one with ", submit, ", or run one into the folder that is served.")
        return join([title, tag("p", *words, class_="none")])
    known = {row.name: row for row in rows}
    top = tag("tr", *(tag("th", h, scope="col", class_="number" if h in _NUMERIC else None) for h in _HEADS))
    body = (_row(one, known.get(one.name) or SweepSummary(one.name, ""), now) for one in standings)
    table = tag("table", tag("thead", top), tag("tbody", *body))
    form = tag(
        "form",
        tag("div", table, class_="scroll tall", tabindex=0, role="region", aria_label="Sweeps"),
        tag("p", tag("button", "Compare the chosen sweeps", type="submit", class_="button"), class_="actions"),
        action="/",
        method="get",
        data_local=True,
    )
    return join([title, form])


def _to(action: Action) -> str:
    return f"/{replace(View(), action=action).query()}"


def _row(standing: Standing, row: SweepSummary, now: datetime) -> Html:
    box = tag("input", type="checkbox", name="compare", value=row.name, aria_label=f"Compare {row.name}")
    link = tag("a", row.name, href=f"/{View(sweep=row.name).query()}", data_local=True, data_row=True)
    numbers: list[Child] = [MISSING if value is None else str(value) for value in (row.trials, row.points)]
    numbers.append(MISSING if row.hypervolume is None else f"{row.hypervolume:.3f}")
    mark = tag("small", "exploratory", class_="mark") if row.exploratory else None
    said = tag("small", standing.reason, class_="why", title=standing.reason) if standing.reason else None
    return tag(
        "tr",
        tag("td", tag("label", box, class_="box") if standing.started else None),
        tag("td", link, mark),
        tag("td", state(standing), said),
        *(tag("td", value, class_="number") for value in numbers),
        tag("td", age(row.started or standing.name[-15:], now)),
    )


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
