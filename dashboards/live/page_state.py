"""What the page shows: the answer that its script asks for every two seconds.

It names the fragments and figures by their places, each with an address that changes when its content may have, and
says where the controls stand. The address of the page holds everything that was chosen; nothing else is kept.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log10

from dashboards.data import SweepData
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
from dashboards.text import is_fraction, number, radius_of, show
from sweeper.errors import SweeperError
from sweeper.privacy.pricing import OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """A condition on the point to pick, as a slider and a box show it."""

    name: str  # of the value
    label: str  # the condition in words
    box_label: str  # of the box for the number
    slider: float  # where the slider stands: the value, or the logarithm of an epsilon
    box: float | None  # the number in the box, None for any
    percent: bool  # whether the box counts in percent


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """What the page shows: all that the browser needs to know."""

    resources: Mapping[str, str] = field(default_factory=dict)  # by place on the page, where to fetch its content
    title: str = "Sweeps"  # of the window
    tab: str = ""  # of the sweep, empty on other pages
    links: Mapping[str, str] = field(default_factory=dict)  # by place on the page, the address that it leads to
    state: str = ""  # of the sweep, in a word; empty on other pages
    notice: str = ""  # why something is missing, in a sentence
    solid: bool = False  # whether the front is drawn in three dimensions
    linear: bool = False  # whether epsilon has a linear axis
    radius: int = 0  # which of the radii the front is drawn for
    radii: Sequence[tuple[str, str]] = ()  # what stands on the radius slider, and its mark; the utility first
    filters: Sequence[Slider] = ()  # epsilon first; none before there is a point to pick


def show_view(snapshots: Snapshots, parts: DynamicFragments, view: View) -> PageState:
    """Return what a view shows of the sweeps as they are."""
    try:
        if view.action is not None:
            return _form(view)
        if view.sweep:
            return _standing(snapshots, parts, view)
        if view.account:
            return _account(parts, view)
        if view.accounts:
            address = _address("part", "accounts", View(accounts=True), parts.account_token())
            return PageState(resources={"part-accounts": address}, title="Accounts")
        if view.compared:
            return _comparison([snapshots.get(name) for name in view.compared], view)
        return PageState(resources={"part-sweeps": _address("part", "sweeps", View(), parts.token())})
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
    return replace(shown, state=standing.state.value)


def _account(parts: DynamicFragments, view: View) -> PageState:
    token = parts.account_token(view.account)
    own, page = View(account=view.account), View(account=view.account, behind=view.behind)
    resources = {"part-account": _address("part", "account", own, token)}
    resources["part-entries"] = _address("part", "entries", page, token)
    resources["part-verdict"] = _address("part", "verdict", own, parts.verdict_token())
    return PageState(resources=resources, title=f"Account {view.account}")


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
    names = (snapshot.data.utility, *snapshot.data.certificates)
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
        links=_links(snapshot.data, view, filters),
        solid=view.solid,
        linear=view.linear,
        radius=names.index(view.radius) if view.radius in names else 0,
        radii=[(names[0], "0"), *((name, radius_of(name) or "0") for name in names[1:])],
        filters=filters_of(snapshot.data, view) if snapshot.data.points else (),
    )


def _comparison(snapshots: Sequence[Snapshot], view: View) -> PageState:
    asked = View(compared=view.compared, anyway=view.anyway, linear=view.linear)
    token = "-".join(snapshot.token[:6] for snapshot in snapshots)
    missing = next((snapshot for snapshot in snapshots if snapshot.data is None), None)
    if missing is not None:
        return PageState(notice=f"{missing.name}: {missing.trouble}", title="Comparison")
    resources = {"part-compared": _address("part", "compared", asked, token)}
    resources |= {f"figure-{name}": _address("figure", name, asked, token) for name in comparison_figures()}
    return PageState(resources=resources, title="Comparison")


def _address(kind: str, name: str, view: View, token: str) -> str:
    query = view.query()
    return f"{PREFIX}{kind}/{name}{query}{'&' if query else '?'}v={token}"


def _links(data: SweepData, view: View, filters: View) -> dict[str, str]:
    """Return where the tabs lead that have anything, and where the search can be steered to where the filters are."""
    robust = not data.points or bool(data.certificates) or any(point.curves is not None for point in data.front_points)
    shown = [tab for tab in Tab if robust or tab is not Tab.ROBUSTNESS or tab is view.tab]
    tabs = {f"tab-{tab.value}": f"/{replace(view, tab=tab).query()}" for tab in shown}
    return {**tabs, "steer": f"/{replace(filters, point=None, action=Action.STEER).query()}"}


def filters_of(data: SweepData, view: View) -> tuple[Slider, ...]:
    """Return the conditions on the point to pick: of epsilon, and of the objectives that have a slider."""
    limit = view.max_epsilon
    place = LARGEST_EPSILON if limit is None or limit <= 0 else round(log10(limit), 2)
    epsilon = Slider(
        name="epsilon",
        label=f"{OWN} ≤ {'any' if limit is None else number(limit)}",
        box_label=f"{OWN} ≤ as a number",
        slider=min(max(place, SMALLEST_EPSILON), LARGEST_EPSILON),
        box=limit,
        percent=False,
    )
    names = [objective.name for objective in data.result.objectives if objective.name != "epsilon"]
    return (epsilon, *(_minimum(name, view.minimum.get(name)) for name in names[:MINIMUMS]))


def _minimum(name: str, floor: float | None) -> Slider:
    percent = is_fraction(name)
    return Slider(
        name=name,
        label=f"{name} ≥ {'any' if floor is None else show(name, floor)}",
        box_label=f"{name} ≥ as a number" + ", in percent" * percent,
        slider=min(max(floor or 0.0, 0.0), 1.0),
        box=floor if floor is None or not percent else float(f"{100 * floor:.6g}"),
        percent=percent,
    )
