"""What the specs of compared sweeps differ in."""

from collections.abc import Sequence

from dashboards.live.snapshots import Snapshot
from dashboards.pages._html import Html, each, tag
from dashboards.pages._page import scrolling_table, section
from dashboards.text import MISSING, setting
from sweeper.service.standings import told_spec
from sweeper.specification.fields.nested import flatten


def spec_differences(snapshots: Sequence[Snapshot]) -> Html:
    """A table of the keys in which specs differ, a column for each sweep."""
    specs = [_flat(snapshot) for snapshot in snapshots]
    names = dict.fromkeys(name for spec in specs for name in spec)
    differing = [name for name in names if len({spec.get(name) for spec in specs}) > 1]
    if not differing:
        return section("specs", "Specs", tag("p", "The specs are the same."))
    heads = each("th", ["key", *(snapshot.name for snapshot in snapshots)], scope="col")
    rows = [
        tag("tr", tag("th", name, scope="row"), each("td", [spec.get(name, MISSING) for spec in specs]))
        for name in differing
    ]
    return section("specs", "What the specs differ in", scrolling_table(heads, rows))


def _flat(snapshot: Snapshot) -> dict[str, str]:
    manifest = snapshot.sweep().manifest
    content = {} if manifest is None else told_spec(manifest.spec)
    return {name: setting(value) for name, value in flatten(content).items() if name != "name"}
