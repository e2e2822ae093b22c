"""What browsers fetch: figures as JSON, parts of the page as HTML, each made once for each state of a sweep.

Figures are drawn in the light theme; the page repaints them. What an address asks for beyond what a figure depends on
makes no second copy.
"""

import contextlib
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeVar, cast

from dashboards.data import SweepData, finite
from dashboards.figures import (
    LIGHT,
    Figure,
    FigureKind,
    as_json,
    comparison_figures,
    is_empty,
    linear_epsilon,
    sweep_figures,
)
from dashboards.figures._common import point_name, staircase
from dashboards.live import fragments
from dashboards.live.skeleton import FRONT
from dashboards.live.snapshots import Snapshot, Snapshots
from dashboards.live.spec_differences import spec_differences
from dashboards.live.trial_page import one_trial
from dashboards.live.view import Tab, View
from dashboards.pages import _sections as sections
from dashboards.pages import _tables as tables
from dashboards.pages import comparison as compared
from dashboards.pages._html import Html, join, tag
from dashboards.pages._page import strip_title
from sweeper.errors import PickError, SweeperError, UnknownSweepError
from sweeper.results.comparison import Comparison, ComparisonError, compare
from sweeper.results.pick import meeting
from sweeper.service.cache import SharedCache
from sweeper.store.jsonl import plain

T = TypeVar("T")
KINDS = ("figure", "part", "marks", "file")
KEPT_COMPARISONS = 8


@dataclass(frozen=True, slots=True)
class Resource:
    """One answer, compressed."""

    content: bytes
    media_type: str
    filename: str = ""


class Resources:
    """What browsers fetch of the sweeps."""

    def __init__(self, snapshots: Snapshots, tracking: str | None = None) -> None:
        self._snapshots, self._tracking = snapshots, tracking
        self._compared: SharedCache[SharedCache[Any]] = SharedCache(KEPT_COMPARISONS)

    def get(self, kind: str, name: str, view: View) -> Resource:
        """Return a figure, a part, marks or a file: ``figure/front``, ``part/head``, ``marks/front``, ``file/card.md``.

        Raises:
            SweeperError: no such sweep or resource, or a sweep without data.
        """
        if view.compares:
            return self._of_comparison(kind, name, view)
        snapshot = self._snapshots.get(view.sweep)
        match kind, name:
            case "figure", "trial":
                return snapshot.once((kind, view.trial, view.linear), partial(_of_trial, snapshot, view))
            case "figure", _ if figure := sweep_figures().get(name):
                radius, linear = _options(snapshot, figure, view)
                make = partial(_figure, figure, snapshot, radius, linear)
                return snapshot.once((kind, name, radius, linear), make)
            case "part", "picked":
                return _html(fragments.picked(snapshot, view, self._address(snapshot)))
            case "part", "records":
                return snapshot.once((kind, name), lambda: _html(_records(snapshot, self._address(snapshot))))
            case "part", _ if name in _PARTS:
                return snapshot.once((kind, name), lambda: _html(_PARTS[name](snapshot)))
            case "file", _ if name in fragments.FILES:
                return _file(name, snapshot, view)
            case "marks", "front":
                return _json(marks(snapshot.sweep(), view))
        raise UnknownSweepError("Expected a figure or a part of the live page; got another name")

    def prepare(self, view: View) -> None:
        """Make what a page that is being opened asks for first, if anything can be made."""
        other = view.trial or view.solid or view.action or view.compares
        if view.sweep and view.tab is Tab.FRONT and not other:
            with contextlib.suppress(SweeperError):
                self.get("figure", FRONT, view)

    def _address(self, snapshot: Snapshot) -> str | None:
        return None if snapshot.data is None else fragments.tracking_address(snapshot.data, self._tracking)

    def _of_comparison(self, kind: str, name: str, view: View) -> Resource:
        """Return a part of a comparison; the last few comparisons are kept, each for one state of its sweeps."""
        snapshots = [self._snapshots.get(sweep) for sweep in view.compared]
        state = "/".join([*(f"{snapshot.name}={snapshot.token}" for snapshot in snapshots), str(view.anyway)])
        kept = self._compared.get(state, SharedCache)

        def comparison() -> Comparison:
            return cast("Comparison", kept.get("comparison", lambda: _compare(snapshots, view)))

        def make() -> Resource:
            if kind == "part":
                return _html(join([_compared(comparison, view), spec_differences(snapshots)]))
            return _overlaid(name, comparison, view)

        if name not in (("compared",) if kind == "part" else comparison_figures()):
            raise UnknownSweepError("Expected a figure or a part of a comparison; got another name")
        return cast("Resource", kept.get((kind, name, view.linear), make))


def _overlaid(name: str, comparison: Callable[[], Comparison], view: View) -> Resource:
    try:
        made = comparison()
    except ComparisonError:
        return _json(None)
    kind = comparison_figures()[name]
    return _json(_drawn(kind, made, linear=view.linear and kind.epsilon_axis))


def _compare(snapshots: list[Snapshot], view: View) -> Comparison:
    return compare([(snapshot.name, snapshot.sweep().result) for snapshot in snapshots], anyway=view.anyway)


def _compared(comparison: Callable[[], Comparison], view: View) -> Html:
    try:
        made = comparison()
    except ComparisonError as error:
        return fragments.refused(str(error), view)
    title = " and ".join(group.name for group in made.groups)
    return join([compared.head(made, title), compared.differences(made), compared.table(made)])


def _records(snapshot: Snapshot, address: str | None) -> Html:
    named = partial(fragments.trial_link, snapshot.name)
    if address is None:
        return tables.records(snapshot.sweep(), named=named)
    return tables.records(snapshot.sweep(), partial(fragments.run_link, address), named)


def _growing(snapshot: Snapshot) -> Html | None:
    words = "every further trial adds to these prices, and the trials of the last seconds may be missing."
    return tag("p", f"This sweep runs: {words}", class_="banner", role="note") if snapshot.running else None


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
    "exports": lambda snapshot: join([fragments.exports(snapshot.name), sections.how_to_pick(snapshot.sweep())]),
}


def _options(snapshot: Snapshot, kind: FigureKind[Any, Any], view: View) -> tuple[str, bool]:
    """Return what the figure depends on beside the sweep: a certificate that the sweep has, and the axis."""
    known = snapshot.data is not None and view.radius in snapshot.data.certificates
    radius = view.radius if known and kind.info_at is not None else ""
    return radius, view.linear and kind.epsilon_axis


def _figure(kind: FigureKind[SweepData, Any], snapshot: Snapshot, radius: str, linear: bool) -> Resource:
    return _json(_drawn(kind, snapshot.sweep(), radius, linear=linear, running=snapshot.running))


def _of_trial(snapshot: Snapshot, view: View) -> Resource:
    """Return the curve of one trial beside the front of all."""
    load_pandas()
    kind, data = sweep_figures()["trajectories"], snapshot.sweep()
    info = kind.info(one_trial(data, view.trial))
    steps = staircase(data.front_points, data.utility, data.direction(data.utility))
    return _json(
        _ready(kind, kind.plot(replace(info, steps=steps), LIGHT), linear=view.linear, running=snapshot.running)
    )


def _drawn(
    kind: FigureKind[T, Any], data: T, radius: str = "", *, linear: bool, running: bool = False
) -> dict[str, Any] | None:
    load_pandas()
    return _ready(kind, kind.draw(data, certificate=radius), linear=linear, running=running)


def load_pandas() -> None:
    """Wait until pandas is whole: Plotly looks at it as soon as any thread, such as that of importances, imports it."""
    with contextlib.suppress(ImportError):
        import_module("pandas")


def _ready(kind: FigureKind[Any, Any], figure: Figure, *, linear: bool, running: bool) -> dict[str, Any] | None:
    """Return a figure as JSON; of an empty one what will appear in it while the sweep runs, and then None."""
    if is_empty(figure) and not (running and kind.awaits):
        return None
    return strip_title(as_json(linear_epsilon(figure) if linear else figure))


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


def _json(value: Any) -> Resource:
    text = json.dumps(plain(value), allow_nan=False, separators=(",", ":"))
    return Resource(gzip.compress(text.encode(), 4), "application/json")


def _html(markup: Html) -> Resource:
    return Resource(gzip.compress(str(markup).encode(), 4), "text/html; charset=utf-8")
