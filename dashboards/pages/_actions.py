"""Who did what to a sweep, as a table."""

from dashboards.data import SweepData
from dashboards.pages._html import Html, each, join, tag
from dashboards.pages._page import scrolling_table, section
from dashboards.text import MISSING, when
from sweeper.store.actions import Action, ActionKind

_IN_WORDS = {
    ActionKind.STOP: "stopped",
    ActionKind.RESUME: "resumed",
    ActionKind.EXTEND: "extended",
    ActionKind.ENQUEUE: "enqueued a configuration",
    ActionKind.STEER: "steered the search",
    ActionKind.NOTE: "noted",
    ActionKind.TAG: "tagged",
}


def actions_table(data: SweepData) -> Html | None:
    """Who stopped, extended, steered or annotated, newest first; None where nobody did anything."""
    if not data.actions:
        return None
    heads = each("th", ["when", "who", "did", "trial", "what"], scope="col")
    rows = [_row(action) for action in reversed(data.actions)]
    return section("actions", "Who did what", scrolling_table(join([heads]), rows))


def _row(action: Action) -> Html:
    did = _IN_WORDS[action.kind]
    if action.kind is ActionKind.STEER and not action.detail:
        did = "let the search go everywhere"
    what = f"{action.detail} trials in all" if action.kind is ActionKind.EXTEND else action.detail
    cells = [when(action.at), action.by, did, action.trial or MISSING]
    return tag("tr", each("td", cells), tag("td", what or MISSING, class_="long"))
