"""The comparison of sweeps: their fronts, what can be said of their difference, and what their specs differ in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from dashboards.figures import comparison_figures
from dashboards.live import fragments
from dashboards.live.encoding import Resource, drawn, html_resource, json_resource
from dashboards.live.snapshots import Snapshot, Snapshots
from dashboards.live.view import View
from dashboards.pages import comparison as compared
from dashboards.pages._html import Child, Html, each, join, tag
from dashboards.pages._page import scrolling_table, section
from dashboards.text import MISSING, in_yaml
from sweeper.errors import UnknownSweepError
from sweeper.results.comparison import Comparison, ComparisonError, compare
from sweeper.service.cache import SharedCache
from sweeper.store.manifest import told_spec

KEPT_COMPARISONS = 8
_ASIDE = ("name", "privacy.account")  # which make no other spec
_LONG = 60  # letters of a value that is not folded
_RANGES = {"uniform", "int", "log", "log_int"}


class Comparisons:
    """The last comparisons that somebody asked for, each made once for each state of its sweeps."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots
        self._kept: SharedCache[SharedCache[Any]] = SharedCache(KEPT_COMPARISONS)

    def get(self, kind: str, name: str, view: View) -> Resource:
        """Return a part of a comparison, ``part/compared``, or a figure.

        Raises:
            SweeperError: no such sweep or resource, or a sweep without data.
        """
        snapshots = [self._snapshots.get(sweep) for sweep in view.compared]
        state = "/".join([*(f"{snapshot.name}={snapshot.token}" for snapshot in snapshots), str(view.anyway)])
        kept = self._kept.get(state, SharedCache)

        def comparison() -> Comparison:
            return cast("Comparison", kept.get("comparison", lambda: _compare(snapshots, view)))

        def make() -> Resource:
            if kind == "part":
                return html_resource(join([_compared(comparison, view), spec_differences(snapshots)]))
            return _overlaid(name, comparison, view)

        if name not in (("compared",) if kind == "part" else comparison_figures()):
            raise UnknownSweepError("Expected a figure or a part of a comparison; got another name")
        return cast("Resource", kept.get((kind, name, view.linear), make))


def _overlaid(name: str, comparison: Callable[[], Comparison], view: View) -> Resource:
    try:
        made = comparison()
    except ComparisonError:
        return json_resource(None)
    kind = comparison_figures()[name]
    return json_resource(drawn(kind, made, linear=view.linear and kind.epsilon_axis))


def _compare(snapshots: list[Snapshot], view: View) -> Comparison:
    return compare([(snapshot.name, snapshot.sweep().result) for snapshot in snapshots], anyway=view.anyway)


def _compared(comparison: Callable[[], Comparison], view: View) -> Html:
    try:
        made = comparison()
    except ComparisonError as error:
        return fragments.refused(str(error), view)
    title = " and ".join(group.name for group in made.groups)
    return join([compared.head(made, title), compared.differences(made), compared.table(made)])


def spec_differences(snapshots: Sequence[Snapshot]) -> Html:
    """A table of the keys in which specs differ, a column for each sweep, values as a spec writes them."""
    specs = [dict(_settings(snapshot)) for snapshot in snapshots]
    names = dict.fromkeys(name for spec in specs for name in spec)
    differing = [name for name in names if len({spec.get(name) for spec in specs}) > 1]
    if not differing:
        return section("specs", "Specs", tag("p", "The specs are the same."))
    heads = each("th", ["key", *(snapshot.name for snapshot in snapshots)], scope="col")
    rows = [
        tag("tr", tag("th", name, scope="row"), each("td", [_folded(s.get(name)) for s in specs])) for name in differing
    ]
    words = f"Values as a spec writes them; {MISSING} where it has none."
    return section("specs", "What the specs differ in", tag("p", words), scrolling_table(heads, rows, sides=True))


def _settings(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield the settings of a spec with their dotted names, but for its name and for who pays."""
    manifest = snapshot.sweep().manifest
    content = {} if manifest is None else told_spec(manifest.spec)
    return ((name, in_yaml(value)) for name, value in _leaves(content, "") if name not in _ASIDE)


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield what a spec sets, ranges whole; of lists of sections each by its place, so that what is alike stays out."""
    match value:
        case Mapping() if (value or not name) and not _RANGES & value.keys():
            for key, inner in value.items():
                yield from _leaves(inner, f"{name}.{key}" if name else str(key))
        case list() if any(isinstance(one, Mapping) for one in value):
            for i, inner in enumerate(value):
                yield from _leaves(inner, f"{name}[{i + 1}]")
        case _:
            yield name, value


def _folded(text: str | None) -> Child:
    """A value; a long one with its beginning, which opens it."""
    if text is None or len(text) <= _LONG:
        return MISSING if text is None else tag("code", text)
    return tag("details", tag("summary", tag("code", f"{text[:_LONG]}…")), tag("code", text))
