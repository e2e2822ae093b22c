"""What browsers fetch: figures as JSON, parts of the page as HTML, each made once for each state of a sweep.

Figures are drawn in the light theme; the page repaints them. What an address asks for beyond what a figure depends on
makes no second copy.
"""

import contextlib
import gzip
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from dashboards.data import SweepData, finite
from dashboards.figures import LIGHT, FigureKind, sweep_figures
from dashboards.figures._common import point_name
from dashboards.figures._staircases import staircase
from dashboards.live import fragments
from dashboards.live.comparison import Comparisons
from dashboards.live.encoding import Resource, drawn, html_resource, json_resource, load_pandas, ready
from dashboards.live.skeleton import FRONT
from dashboards.live.snapshots import Snapshot, Snapshots
from dashboards.live.trial_page import one_trial
from dashboards.live.view import Tab, View
from dashboards.pages import _sections as sections
from dashboards.pages import _tables as tables
from dashboards.pages._actions import actions_table
from dashboards.pages._html import Html, join, tag
from dashboards.pages._rehearsals import rehearsals_table
from dashboards.pages._trials import trials_table
from sweeper.errors import PickError, SweeperError, UnknownSweepError
from sweeper.privacy.pricing import UPPER_BOUND
from sweeper.results.pick import meeting

KINDS = ("figure", "part", "marks", "file")


class Resources:
    """What browsers fetch of the sweeps."""

    def __init__(self, snapshots: Snapshots, tracking: str | None = None) -> None:
        self._snapshots, self._tracking = snapshots, tracking
        self._comparisons = Comparisons(snapshots)

    def get(self, kind: str, name: str, view: View) -> Resource:
        """Return a figure, a part, marks or a file: ``figure/front``, ``part/head``, ``marks/front``, ``file/card.md``.

        Raises:
            SweeperError: no such sweep or resource, or a sweep without data.
        """
        if view.compares:
            return self._comparisons.get(kind, name, view)
        snapshot = self._snapshots.get(view.sweep)
        match kind, name:
            case "figure", "trial":
                return snapshot.once((kind, view.trial, view.linear), partial(_of_trial, snapshot, view))
            case "figure", _ if figure := sweep_figures().get(name):
                radius, linear = _options(snapshot, figure, view)
                make = partial(_figure, figure, snapshot, radius, linear)
                return snapshot.once((kind, name, radius, linear), make)
            case "part", "picked":
                return html_resource(fragments.picked(snapshot, view, self._address(snapshot)))
            case "part", "records":
                return snapshot.once((kind, name), lambda: html_resource(_records(snapshot, self._address(snapshot))))
            case "part", _ if name in _PARTS:
                return snapshot.once((kind, name), lambda: html_resource(_PARTS[name](snapshot)))
            case "file", _ if name in fragments.FILES:
                return _file(name, snapshot, view)
            case "marks", "front":
                return json_resource(marks(snapshot.sweep(), view))
        raise UnknownSweepError("Expected a figure or a part of the live page; got another name")

    def prepare(self, view: View) -> None:
        """Make what a page that is being opened asks for first, if anything can be made."""
        other = view.trial or view.solid or view.action or view.compares
        if view.sweep and view.tab is Tab.FRONT and not other:
            with contextlib.suppress(SweeperError):
                self.get("figure", FRONT, view)

    def _address(self, snapshot: Snapshot) -> str | None:
        return None if snapshot.data is None else fragments.tracking_address(snapshot.data, self._tracking)


def _records(snapshot: Snapshot, address: str | None) -> Html:
    named = partial(fragments.trial_link, snapshot.name)
    rehearsed = rehearsals_table(snapshot.sweep(), named)
    data, run_link = snapshot.sweep(), partial(fragments.run_link, address) if address is not None else lambda _: None
    return join([trials_table(data, run_link, named), tables.decisions_table(data), rehearsed])


def _growing(snapshot: Snapshot) -> Html | None:
    words = "This sweep runs: trials of the last seconds may be missing."
    price = None if snapshot.data is None else snapshot.data.result.price
    words += f" {UPPER_BOUND}" if price is not None and not price.fixed else ""
    return tag("p", words, class_="banner", role="note") if snapshot.running else None


_PARTS: dict[str, Callable[[Snapshot], Html]] = {
    "headline": lambda snapshot: sections.headline(snapshot.sweep()),
    "points": lambda snapshot: join(
        [
            tables.front_table(snapshot.sweep(), partial(fragments.trial_link, snapshot.name)),
            sections.by_class(snapshot.sweep()),
        ]
    ),
    "cost": lambda snapshot: join(
        [
            _growing(snapshot),
            sections.cost(snapshot.sweep()),
            sections.claim(snapshot.sweep()),
            sections.attacks(snapshot.sweep()),
        ]
    ),
    "people": lambda snapshot: join([actions_table(snapshot.sweep())]),
    "exports": lambda snapshot: join([fragments.exports(snapshot.sweep()), fragments.how_to_take(snapshot.sweep())]),
}


def _options(snapshot: Snapshot, kind: FigureKind[Any, Any], view: View) -> tuple[str, bool]:
    """Return what the figure depends on beside the sweep: a certificate that the sweep has, and the axis."""
    known = snapshot.data is not None and view.radius in snapshot.data.certificates
    radius = view.radius if known and kind.info_at is not None else ""
    return radius, view.linear and kind.epsilon_axis


def _figure(kind: FigureKind[SweepData, Any], snapshot: Snapshot, radius: str, linear: bool) -> Resource:
    return json_resource(drawn(kind, snapshot.sweep(), radius, linear=linear, running=snapshot.running))


def _of_trial(snapshot: Snapshot, view: View) -> Resource:
    """Return the curve of one trial beside the front of all."""
    load_pandas()
    kind, data = sweep_figures()["trajectories"], snapshot.sweep()
    info = kind.info(one_trial(data, view.trial))
    steps = staircase(data.front_points, data.utility, data.direction(data.utility))
    return json_resource(
        ready(kind, kind.plot(replace(info, steps=steps), LIGHT), linear=view.linear, running=snapshot.running)
    )


def marks(data: SweepData, view: View) -> dict[str, Any]:
    """What the filters mark on the front: their limits, the points within them, and the point they choose.

    Returns:
        ``allowed``, names of points, None where nothing is filtered; ``limits``, of epsilon and of the value on the
        vertical axis; ``point``, the place of the chosen one and its name, None without one.
    """
    axis = view.radius if view.radius in data.certificates else data.utility
    depth = axis if view.radius else data.certificate or data.utility
    try:
        allowed = meeting(data.result, view.max_epsilon, view.minimum)
        point = fragments.chosen(data, view)
    except PickError:
        allowed, point = (), None
    filtered = view.max_epsilon is not None or bool(view.minimum)
    content: dict[str, Any] = {
        "allowed": [point_name(p) for p in allowed] if filtered else None,
        "limits": {"epsilon": view.max_epsilon, "value": view.minimum.get(axis)},
        "point": None,
    }
    if point is not None and finite(point, "epsilon", axis):
        places = {"epsilon": "epsilon", "value": axis, "utility": data.utility, "depth": depth}
        content["point"] = {"name": point_name(point)}
        content["point"] |= {place: point.values.get(name) for place, name in places.items()}
    return content


def _file(name: str, snapshot: Snapshot, view: View) -> Resource:
    point = fragments.chosen(snapshot.sweep(), view)
    content = gzip.compress(fragments.file(snapshot, name, point).encode())
    media_type = "application/json" if name.endswith("json") else "text/markdown; charset=utf-8"
    filename = re.sub(r"[^A-Za-z0-9._-]", "_", f"{snapshot.name}-{point.name}-{name}")
    return Resource(content, media_type, filename)
