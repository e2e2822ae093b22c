"""What happens on a click, a key and a tick: one decision in Python, and drawing in the browser.

`update` turns the address, the controls and the state of the sweeps into what is shown: addresses of resources that
the browser fetches. While nothing changes nothing is sent.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isfinite, log10
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, no_update

from dashboards.figures import comparison_figures, sweep_figures
from dashboards.live.dynamic import DynamicFragments
from dashboards.live.header import TITLES as TITLES_OF_ACTIONS
from dashboards.live.skeleton import (
    FRONT,
    FRONT_3D,
    LARGEST_EPSILON,
    MINIMUMS,
    PARTS_OF,
    SMALLEST_EPSILON,
    TITLES,
    TRIAL,
    figures_of,
)
from dashboards.live.snapshots import Snapshot, Snapshots
from dashboards.live.trial_page import known_trial
from dashboards.live.view import PREFIX, Action, Tab, View
from dashboards.text import number, radius_of, show
from sweeper.errors import SweeperError
from sweeper.records import PointKey

LABELLED = ("max-epsilon", *(f"minimum-{i}" for i in range(MINIMUMS)))
CONTROLS = ("space", "axis", "radius", *LABELLED)
_BEYOND_SLIDERS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """What the page shows: all that the browser needs to know."""

    resources: Mapping[str, str] = field(default_factory=dict)  # by place on the page, where to fetch its content
    title: str = "Sweeps"  # of the window
    tab: str = ""  # of the sweep, empty on other pages
    tabs: Mapping[str, str] = field(default_factory=dict)  # by tab, the address that leads there
    running: bool = False  # whether more may come
    state: str = ""  # of the sweep, in a word; empty on other pages
    notice: str = ""  # why something is missing, in a sentence
    names: Sequence[str] = ()  # of the objectives that have a slider
    radii: Sequence[str] = ()  # names of the certificates on the radius slider, the utility first
    search: str = ""  # the address that all this belongs to, from its question mark on
    click: int = 0  # when the last click was that was answered

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self) | {"names": list(self.names), "radii": list(self.radii)}

    @classmethod
    def parse(cls, known: Any) -> "PageState | None":
        """Return what a browser says that it shows, None if no page of ours shows such a thing."""
        if not isinstance(known, Mapping) or set(known) != set(cls.__dataclass_fields__):
            return None
        lists = known["names"], known["radii"]
        fits = all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists)
        return cls(**known) if fits and len(known["names"]) <= MINIMUMS else None


def show_view(snapshots: Snapshots, parts: DynamicFragments, view: View) -> PageState:
    """Return what a view shows of the sweeps as they are."""
    try:
        if view.action is not None:
            return _form(view)
        if view.sweep:
            return _standing(snapshots, parts, view)
        if view.compared:
            return _comparison([snapshots.get(name) for name in view.compared], view)
        return PageState(resources={"part-sweeps": _address("part", "sweeps", View(), parts.token())}, running=True)
    except SweeperError as error:
        return PageState(notice=snapshots.sentence(error), title="Not found")


def _form(view: View) -> PageState:
    """A form stays as it is while it is filled in: its address has no version, and browsers keep nothing under it."""
    resources = {"part-action": f"{PREFIX}part/action{view.query()}"}
    return PageState(resources=resources, title=TITLES_OF_ACTIONS[view.action or Action.SUBMIT])


def _standing(snapshots: Snapshots, parts: DynamicFragments, view: View) -> PageState:
    standing = parts.standing(view.sweep)
    if standing.started:
        snapshot = snapshots.get(view.sweep)
        token = f"{snapshot.token[:8]}{parts.token(view.sweep)[:8]}"
        shown = _trial(snapshot, view, token) if view.trial else _sweep(snapshot, view, token)
    else:
        head = {"part-head": _address("part", "head", View(sweep=view.sweep), parts.token(view.sweep))}
        shown = PageState(resources=head, title=view.sweep)
    return replace(shown, running=standing.runs, state=standing.state.value)


def _trial(snapshot: Snapshot, view: View, token: str) -> PageState:
    known_trial(snapshot.sweep(), view.trial)
    asked = View(sweep=view.sweep, trial=view.trial)
    resources = {f"part-{name}": _address("part", name, asked, token) for name in ("trial", "trial-records")}
    resources[f"figure-{TRIAL}"] = _address("figure", TRIAL, replace(asked, linear=view.linear), snapshot.token)
    return PageState(resources=resources, title=f"{snapshot.name}: {view.trial}")


def _sweep(snapshot: Snapshot, view: View, token: str) -> PageState:
    plain = View(sweep=view.sweep)
    head = {"part-head": _address("part", "head", plain, token)}
    if snapshot.data is None:
        return PageState(resources=head, title=snapshot.name)
    filters = replace(plain, max_epsilon=view.max_epsilon, minimum=view.minimum, point=view.point)
    resources = head
    for name in figures_of(view.tab):
        asked = replace(plain, linear=view.linear and sweep_figures()[name].epsilon_axis)
        drawn = name
        if name == FRONT:
            asked, drawn = replace(asked, radius=view.radius), FRONT_3D if view.solid else FRONT
            marked = replace(filters, radius=view.radius)
            resources["marks-front"] = _address("marks", "front", marked, snapshot.token)
        resources[f"figure-{name}"] = _address("figure", drawn, asked, snapshot.token)
    for name in PARTS_OF[view.tab]:
        resources[f"part-{name}"] = _address("part", name, filters if name == "picked" else plain, snapshot.token)
    return PageState(
        resources=resources,
        title=f"{snapshot.data.name}: {TITLES[view.tab].lower()}",
        tab=view.tab.value,
        tabs={tab.value: f"/{replace(view, tab=tab).query()}" for tab in Tab},
        names=objectives(snapshot),
        radii=radii(snapshot),
    )


def _comparison(snapshots: Sequence[Snapshot], view: View) -> PageState:
    asked = View(compared=view.compared, anyway=view.anyway, linear=view.linear)
    token = "-".join(snapshot.token[:6] for snapshot in snapshots)
    missing = next((snapshot for snapshot in snapshots if snapshot.data is None), None)
    if missing is not None:
        return PageState(notice=f"{missing.name}: {missing.trouble}", title="Comparison", running=True)
    resources = {"part-compared": _address("part", "compared", asked, token)}
    resources |= {f"figure-{name}": _address("figure", name, asked, token) for name in comparison_figures()}
    return PageState(resources=resources, title="Comparison", running=any(snapshot.running for snapshot in snapshots))


def _address(kind: str, name: str, view: View, token: str) -> str:
    query = view.query()
    return f"{PREFIX}{kind}/{name}{query}{'&' if query else '?'}v={token}"


def objectives(snapshot: Snapshot) -> tuple[str, ...]:
    """The objectives that have a slider: what the point to pick must reach at least."""
    if snapshot.data is None:
        return ()
    return tuple(o.name for o in snapshot.data.result.objectives if o.name != "epsilon")[:MINIMUMS]


def radii(snapshot: Snapshot) -> tuple[str, ...]:
    """What stands on the radius slider: the utility, then every certificate by radius."""
    return () if snapshot.data is None else (snapshot.data.utility, *snapshot.data.certificates)


def controlled(view: View, shown: PageState, values: Mapping[str, Any]) -> View:
    """Return the view that the controls ask for; a control that stands where the view puts it asks for nothing."""
    before = values_of(view, shown)
    moved = {name for name, value in before.items() if values[name] is not None and values[name] != value}
    if "space" in moved:
        view = replace(view, solid=values["space"] == "3d")
    if "axis" in moved:
        view = replace(view, linear="log" not in values["axis"])
    if "radius" in moved:
        index = int(values["radius"])
        view = replace(view, radius=shown.radii[index] if 0 < index < len(shown.radii) else "")
    if "max-epsilon" in moved:
        limit = float(values["max-epsilon"])
        view = replace(view, max_epsilon=None if limit >= LARGEST_EPSILON else float(f"{10**limit:.3g}"), point=None)
    for number_, name in enumerate(shown.names):
        if f"minimum-{number_}" in moved:
            floor = float(values[f"minimum-{number_}"])
            kept = {other: value for other, value in view.minimum.items() if other != name}
            view = replace(view, minimum=kept | ({name: floor} if floor > 0 else {}), point=None)
    return view


def values_of(view: View, shown: PageState) -> dict[str, Any]:
    """Return the value of every control for a view."""
    epsilon = LARGEST_EPSILON
    if view.max_epsilon is not None and view.max_epsilon > 0:
        epsilon = min(max(round(log10(view.max_epsilon), 2), SMALLEST_EPSILON), LARGEST_EPSILON)
    floors = {f"minimum-{i}": 0.0 for i in range(MINIMUMS)}
    floors |= {f"minimum-{i}": min(max(view.minimum.get(n, 0.0), 0.0), 1.0) for i, n in enumerate(shown.names)}
    return {
        "space": "3d" if view.solid else "2d",
        "axis": [] if view.linear else ["log"],
        "radius": shown.radii.index(view.radius) if view.radius in shown.radii else 0,
        "max-epsilon": epsilon,
        **floors,
    }


def labels_of(view: View, shown: PageState) -> dict[str, str]:
    """Return the words beside every filter, empty where it has no meaning."""
    limit = "any" if view.max_epsilon is None else number(view.max_epsilon)
    floors = [f"{name} ≥ {show(name, view.minimum[name]) if name in view.minimum else 'any'}" for name in shown.names]
    floors += [""] * (MINIMUMS - len(floors))
    return {"max-epsilon": f"epsilon ≤ {limit}", **{f"minimum-{i}": words for i, words in enumerate(floors)}}


def marks_of(shown: PageState) -> dict[int, str]:
    """Return the radii on the slider; 0 is the utility itself."""
    return {i: (radius_of(name) or "0") if i else "0" for i, name in enumerate(shown.radii or ("",))}


def register(page: Dash, snapshots: Snapshots, parts: DynamicFragments) -> None:
    """Let the page answer."""
    outputs = [
        Output("url", "search"),
        Output("shown", "data"),
        *(Output(name, "value") for name in CONTROLS),
        Output("radius", "marks"),
        Output("radius", "max"),
        *(Output(f"label-{name}", "children") for name in LABELLED),
    ]
    inputs = [Input("url", "search"), Input("tick", "n_intervals"), Input("click", "data")]

    @page.callback(outputs, [*inputs, *(Input(name, "value") for name in CONTROLS)], State("shown", "data"))
    async def _update(search: Any, _: Any, click: Any, *rest: Any) -> list[Any]:
        *values, known = rest
        asked = {name: value if _is_value(name, value) else None for name, value in zip(CONTROLS, values, strict=True)}
        text = search if isinstance(search, str) else ""
        return await asyncio.to_thread(update, snapshots, parts, text, click, asked, known)

    draw = ClientsideFunction("live", "page")
    page.clientside_callback(draw, Output("done", "children"), Input("shown", "data"), Input("theme", "data"))


def update(
    snapshots: Snapshots, parts: DynamicFragments, search: str, click: Any, values: Mapping[str, Any], known: Any
) -> list[Any]:
    """Return every output of the page, `dash.no_update` for what stays.

    What was moved or clicked is seen from what the page showed before, not from what Dash says has triggered: a tick
    that overtakes a click must not undo it.
    """
    shown_before = PageState.parse(known)
    view = View.parse(search)
    if shown_before is not None and shown_before.search == search:  # otherwise the reader followed a link
        view = controlled(view, shown_before, values)
        if stamp_of(click) != shown_before.click:
            view = boxed(view, shown_before, click)
            view = replace(view, point=clicked(click) or view.point)
    query = search if view == View.parse(search) else view.query()
    shown = replace(show_view(snapshots, parts, view), search=query, click=stamp_of(click))
    fresh = shown.to_json() != known
    wanted = values_of(view, shown)
    labels = labels_of(view, shown)
    marks = marks_of(shown)
    return [
        query if query != search else no_update,
        shown.to_json() if fresh else no_update,
        *(wanted[name] if wanted[name] != values[name] else no_update for name in CONTROLS),
        marks if fresh else no_update,
        len(marks) - 1 if fresh else no_update,
        *(labels[name] if fresh else no_update for name in LABELLED),
    ]


def _is_value(name: str, value: Any) -> bool:
    if name in ("space", "axis"):
        return isinstance(value, str if name == "space" else list)
    return isinstance(value, int | float) and abs(value) < _BEYOND_SLIDERS  # neither inf nor NaN


def stamp_of(click: Any) -> int:
    """Return when a click was, 0 without one."""
    time = click.get("time") if isinstance(click, Mapping) else None
    return time if isinstance(time, int) else 0


def boxed(view: View, shown: PageState, click: Any) -> View:
    """Return the view with its filters at a box that was drawn on the front; the same one without a box."""
    match click:
        case {"region": {"epsilon": int() | float() as epsilon, "value": int() | float() as value}}:
            name = view.radius or next(iter(shown.radii), "")
            if name and isfinite(epsilon) and epsilon > 0 and isfinite(value):
                floors = {**view.minimum, name: float(f"{value:.3g}")}
                return replace(view, max_epsilon=float(f"{epsilon:.3g}"), minimum=floors, point=None)
    return view


def clicked(click: Any) -> PointKey | None:
    """Return the point of a click, None for another place."""
    return View.parse(f"point={click.get('point')}").point if isinstance(click, Mapping) else None
