"""The skeleton of the page: every control and the place of every figure; the page's script fills them.

A figure stands in its place once, whichever tab it belongs to; the page hides what its tab does not have.
"""

from dataclasses import replace
from typing import Any

from dashboards.figures import FigureKind, comparison_figures, sweep_figures
from dashboards.live.view import PREFIX, Tab, View
from dashboards.pages._html import Html, tag
from dashboards.pages._page import section

MINIMUMS = 3  # sliders for objectives beside epsilon
LARGEST_EPSILON = 2.0  # in its logarithm; the slider's right end is no limit
SMALLEST_EPSILON = -2.0
TRIAL = "trial"  # the figure of a trial's page
_CURVE = "One point per epoch, beside the front of all trials; a large ring where a scheduler compared it with others."
FRONT, FRONT_3D = "front", "front-3d"  # which share one place, above the others
PARTS_OF: dict[Tab, tuple[str, ...]] = {
    Tab.FRONT: ("picked", "headline", "points"),
    Tab.ROBUSTNESS: (),
    Tab.TRIALS: ("records", "people"),
    Tab.SEARCH: (),
    Tab.PRICE: ("cost",),
    Tab.EXPORT: ("exports",),
}
TITLES = {tab: tab.value.title() for tab in Tab}
_LATE = ("headline", "points", "people", "cost", "exports")  # below the figures, and filled after them
_MARKS = {-2.0: "0.01", -1.0: "0.1", 0.0: "1", 0.477: "3", 1.0: "10", 2.0: "any"}
_SHARES = {0.0: "0", 0.25: "25 %", 0.5: "50 %", 0.75: "75 %", 1.0: "100 %"}


def document(version: str, *, has_accounts: bool = False) -> str:
    """Return the page without its numbers; ``version`` changes with the files that it loads."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", "Sweeper"),
        tag("link", rel="icon", type="image/svg+xml", href=f"{PREFIX}icon.svg"),
        tag("link", rel="stylesheet", href=f"{PREFIX}page.css?v={version}"),
        tag("meta", name="plotly", content=f"{PREFIX}plotly.js?v={version}"),
        tag("script", src=f"{PREFIX}page.js?v={version}"),
    )
    words = "This page needs JavaScript; sweeper show and sweeper front do without."
    body = tag("body", tag("noscript", words), _skip(), _bar(has_accounts=has_accounts), _main(), class_="live")
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def figures_of(tab: Tab) -> tuple[str, ...]:
    """Return the names of a tab's figures in the order of the report; the front in space shares the front's place."""
    found = sweep_figures().values()
    return tuple(kind.name for kind in found if kind.topic.value == tab.value and kind.name != FRONT_3D)


def _skip() -> Html:
    return tag("a", "Skip to the content", href="#content", class_="skip")


def _bar(*, has_accounts: bool) -> Html:
    accounts = tag("a", "Accounts", href=f"/{View(accounts=True).query()}", class_="button", data_local=True)
    return tag(
        "div",
        tag("a", "Sweeper", href="/", class_="brand", data_local=True),
        accounts if has_accounts else None,
        tag("span", id="pulse", role="status", class_="pulse"),
        tag("a", "Sign out", id="sign-out", href="/?do=sign-out", class_="button session", data_local=True),
        tag("button", "Theme", id="switch", type="button", class_="button", title="Dark or light"),
        class_="bar",
        role="banner",
    )


def _main() -> Html:
    others = [sweep_figures()[name] for tab in Tab for name in figures_of(tab) if name != FRONT]
    return tag(
        "main",
        tag("h1", "Not found", id="missing", hidden=True),
        tag("p", id="notice", role="status", hidden=True, class_="banner"),
        tag("p", id="done", role="status", hidden=True, class_="done"),
        *(_part(name) for name in ("sweeps", "accounts", "account")),
        _part("verdict", section("verdict", "Verification", tag("p", "The entries are being verified."))),
        *(_part(name) for name in ("entries", "action", "head", "trial")),
        _panel(replace(sweep_figures()["trajectories"], name=TRIAL, heading="Curve", caption=_CURVE, terms="")),
        _part("trial-records"),
        _tabs(),
        _views(),
        _front(),
        _part("records"),
        *map(_panel, others),
        _part("compared"),
        *map(_panel, comparison_figures().values()),
        *(_part(name, class_="late") for name in _LATE),
        id="content",
        tabindex=-1,
    )


def _part(name: str, *meanwhile: Html, **more: str) -> Html:
    """The place of a part, with what stands there until it has come."""
    return tag("div", *meanwhile, id=f"part-{name}", hidden=True, **more)


def _tabs() -> Html:
    links = [tag("a", TITLES[tab], id=f"tab-{tab.value}", href="/", data_local=True) for tab in Tab]
    return tag("nav", *links, id="tabs", class_="tabs", hidden=True, aria_label="Parts of the sweep")


def _views() -> Html:
    """Views that this browser keeps: the address has everything that a view is, and a name is enough to find it."""
    name = tag("input", id="view-name", type="text", class_="text", maxlength=60)
    button = tag("button", "Save", id="save-view", type="button", class_="button")
    label = tag("label", "Name of this view", for_="view-name")
    form = tag("div", label, tag("div", name, button), class_="field")
    listed = tag("ul", id="views", class_="plain")
    return tag("details", tag("summary", "Saved views"), form, listed, id="saved-views", hidden=True)


def _front() -> Html:
    kind = sweep_figures()[FRONT]
    steer = tag("a", "Steer the search here", id="steer", href="/?do=steer", class_="button", data_local=True)
    filters = [_filter("max-epsilon", SMALLEST_EPSILON, LARGEST_EPSILON, _MARKS)]
    filters += [_filter(f"minimum-{i}", 0.0, 1.0, _SHARES) for i in range(MINIMUMS)]
    return tag(
        "section",
        tag("div", tag("div", tag("h2", kind.heading), _controls(), class_="above"), _figure(kind, _graph(kind))),
        tag(
            "aside",
            tag("h2", "Pick a point"),
            *filters,
            tag("p", steer, class_="actions steer"),
            _part("picked"),
            id="pick",
            tabindex=-1,
            class_="pick",
        ),
        id="section-front",
        class_="split",
        hidden=True,
    )


def _controls() -> Html:
    spaces = [_choice(f"space-{value}", words, "radio") for value, words in (("2d", "2-D"), ("3d", "3-D"))]
    slider = tag("input", id="radius", type="range", min=0, max=1, step=1, value=0)
    label = tag("label", "Robust to radius", id="label-radius", for_="radius")
    marks = tag("div", class_="marks", aria_hidden="true")
    return tag(
        "div",
        _group("Dimensions", "space", *spaces),
        _group("Epsilon axis", "axis", _choice("axis-log", "logarithmic", "checkbox")),
        tag("div", label, slider, marks, id="control-radius", class_="control grow"),
        class_="controls",
    )


def _choice(id_: str, words: str, type_: str) -> Html:
    return tag("label", tag("input", id=id_, type=type_, name=id_.partition("-")[0]), " ", words)


def _group(title: str, name: str, *choices: Html) -> Html:
    words = tag("span", title, id=f"label-{name}", class_="label")
    return tag("div", words, tag("div", *choices, role="group", aria_labelledby=f"label-{name}"), class_="control")


def _filter(name: str, low: float, high: float, marks: dict[float, str]) -> Html:
    """A slider, and a box for who would rather type the number."""
    places = [(f"left: {100 * (place - low) / (high - low):g}%", words) for place, words in marks.items()]
    return tag(
        "div",
        tag("label", id=f"label-{name}", for_=name),
        tag("input", type="number", class_="limit", step="any", min=0, placeholder="any"),
        tag("input", id=name, type="range", min=low, max=high, step=0.01),
        tag("div", *(tag("span", words, style=style) for style, words in places), class_="marks", aria_hidden="true"),
        id=f"control-{name}",
        class_="filter",
    )


def _panel(kind: FigureKind[Any, Any]) -> Html:
    graph = _graph(kind)
    inner = tag("div", graph, class_="wide", tabindex=0) if kind.wide else graph
    return tag("section", tag("h2", kind.heading), _figure(kind, inner), id=f"section-{kind.name}", hidden=True)


def _figure(kind: FigureKind[Any, Any], inner: Html) -> Html:
    return tag("figure", inner, tag("figcaption", " ".join(filter(None, (kind.terms, kind.caption + kind.gestures)))))


def _graph(kind: FigureKind[Any, Any]) -> Html:
    place = tag("div", tag("div"), id=f"figure-{kind.name}", class_="plot")
    return tag("div", place, role="group", class_="frame", aria_label=f"Figure: {kind.heading}")
