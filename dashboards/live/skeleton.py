"""The skeleton of the page: every control and the place of every figure; what is in them comes later.

A figure stands in its place once, whichever tab it belongs to; the page hides what its tab does not have.
"""

from dataclasses import replace
from typing import Any

from dash import dcc, html

from dashboards.figures import FigureKind, comparison_figures, sweep_figures
from dashboards.live.view import Tab

TICK_MILLISECONDS = 2000
MINIMUMS = 3  # sliders for objectives beside epsilon
LARGEST_EPSILON = 2.0  # in its logarithm; the slider's right end is no limit
SMALLEST_EPSILON = -2.0
TRIAL = "trial"  # the figure of a trial's page
_CURVE = "One point per epoch, beside the front of all trials; a ring where the trial was compared with others."
FRONT, FRONT_3D = "front", "front-3d"  # which share one place, above the others
PARTS_OF: dict[Tab, tuple[str, ...]] = {
    Tab.FRONT: ("picked", "headline", "points"),
    Tab.ROBUSTNESS: (),
    Tab.TRIALS: ("records",),
    Tab.SEARCH: (),
    Tab.COST: ("cost",),
    Tab.EXPORT: ("exports",),
}
TITLES = {tab: tab.value.title() for tab in Tab}
_LATE = ("headline", "points", "records", "cost", "exports")  # below the figures, and filled after them
_LOCAL: Any = {"data-local": "true"}
_MARKS = {-2: "0.01", -1: "0.1", 0: "1", 0.477: "3", 1: "10", 2: "any"}
_SHARES = {0: "0", 0.25: "25 %", 0.5: "50 %", 0.75: "75 %", 1: "100 %"}


def layout() -> html.Div:
    """Return the page without its numbers."""
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Interval(id="tick", interval=TICK_MILLISECONDS),
            dcc.Store(id="shown"),
            dcc.Store(id="theme"),
            dcc.Store(id="click"),
            html.Div(id="done", hidden=True),
            html.A("Skip to the content", href="#content", className="skip"),
            _bar(),
            html.Main(
                [
                    html.H1("Not found", id="missing", hidden=True),
                    html.P(id="notice", role="status", hidden=True, className="banner"),
                    html.Div(id="part-sweeps"),
                    html.Div(id="part-action"),
                    html.Div(id="part-head"),
                    html.Div(id="part-trial"),
                    _panel(replace(sweep_figures()["trajectories"], name=TRIAL, heading="Curve", caption=_CURVE)),
                    html.Div(id="part-trial-records"),
                    _tabs(),
                    _views(),
                    _front(),
                    *map(_panel, _others()),
                    html.Div(id="part-compared"),
                    *map(_panel, comparison_figures().values()),
                    *(html.Div(id=f"part-{name}", className="late") for name in _LATE),
                ],
                id="content",
                tabIndex=-1,
            ),
        ],
        className="live",
    )


def _aria(**words: str) -> Any:
    return {f"aria-{key}": value for key, value in words.items()}


def figures_of(tab: Tab) -> tuple[str, ...]:
    """Return the names of a tab's figures in the order of the report; the front in space shares the front's place."""
    found = sweep_figures().values()
    return tuple(kind.name for kind in found if kind.topic.value == tab.value and kind.name != FRONT_3D)


def _others() -> list[FigureKind[Any, Any]]:
    """The figures beside the front, tab by tab."""
    return [sweep_figures()[name] for tab in Tab for name in figures_of(tab) if name != FRONT]


def _bar() -> html.Div:
    return html.Div(
        [
            html.A("Sweeper", href="/", className="brand", **_LOCAL),
            html.Span(id="pulse", role="status", className="pulse"),
            html.A("Sign out", id="sign-out", href="/?do=sign-out", className="button session", **_LOCAL),
            html.Button("Theme", id="switch", type="button", className="button", title="Dark or light"),
        ],
        className="bar",
        role="banner",
    )


def _tabs() -> html.Nav:
    links = [html.A(TITLES[tab], id=f"tab-{tab.value}", href="/", **_LOCAL) for tab in Tab]
    return html.Nav(links, id="tabs", className="tabs", hidden=True, **_aria(label="Parts of the sweep"))


def _views() -> html.Details:
    """Views that this browser keeps: the address has everything that a view is, and a name is enough to find it."""
    name = dcc.Input(id="view-name", type="text", className="text", maxLength=60)
    button = html.Button("Save", id="save-view", type="button", className="button")
    form = html.Div([html.Label("Name of this view", htmlFor="view-name"), html.Div([name, button])], className="field")
    listed = html.Ul(id="views", className="plain")
    return html.Details([html.Summary("Saved views"), form, listed], id="saved-views", hidden=True)


def _front() -> html.Section:
    front = sweep_figures()[FRONT]
    return html.Section(
        [
            html.Div([html.H2(front.heading), _controls(), _figure(front, _graph(front))]),
            html.Aside([html.H2("Pick a point"), *_filters(), _steer(), html.Div(id="part-picked")], className="pick"),
        ],
        id="section-front",
        className="split",
        hidden=True,
    )


def _controls() -> html.Div:
    spaces = [{"label": "2-D", "value": "2d"}, {"label": "3-D", "value": "3d"}]
    scales = [{"label": "logarithmic", "value": "log"}]
    radius = dcc.Slider(id="radius", min=0, max=1, step=None, value=0, marks={0: "0"}, included=False)
    return html.Div(
        [
            _group("Dimensions", "space", dcc.RadioItems(spaces, "2d", id="space", inline=True)),
            _group("Epsilon axis", "axis", dcc.Checklist(scales, ["log"], id="axis")),
            html.Div(
                [html.Label("Robust to radius", id="label-radius"), _labelled("radius", radius)],
                id="control-radius",
                className="control grow",
            ),
        ],
        className="controls",
    )


def _group(title: str, name: str, inner: Any) -> html.Div:
    words = html.Span(title, id=f"label-{name}", className="label")
    return html.Div([words, _labelled(name, inner)], className="control")


def _labelled(name: str, inner: Any) -> html.Div:
    return html.Div(inner, role="group", **_aria(labelledby=f"label-{name}"))


def _filters() -> list[Any]:
    epsilon = {"min": SMALLEST_EPSILON, "max": LARGEST_EPSILON, "value": LARGEST_EPSILON}
    share = {"min": 0, "max": 1, "value": 0}
    return [
        _filter("max-epsilon", "epsilon ≤ any", marks=_MARKS, included=True, **epsilon),
        *(_filter(f"minimum-{i}", "", marks=_SHARES, included=False, **share) for i in range(MINIMUMS)),
    ]


def _steer() -> html.P:
    """A link to the form that steers the search to where the filters are; shown to those who may."""
    link = html.A("Steer the search here", id="steer", href="/?do=steer", className="button", **_LOCAL)
    return html.P(link, className="actions steer")


def _filter(name: str, words: str, **options: Any) -> html.Div:
    slider = dcc.Slider(id=name, step=0.01, updatemode="mouseup", allow_direct_input=False, **options)
    inner = [html.Label(words, id=f"label-{name}"), _labelled(name, slider)]
    return html.Div(inner, id=f"control-{name}", className="filter")


def _panel(kind: FigureKind[Any, Any]) -> html.Section:
    graph = _graph(kind)
    inner = html.Div(graph, className="wide", tabIndex=0) if kind.wide else graph
    return html.Section([html.H2(kind.heading), _figure(kind, inner)], id=f"section-{kind.name}", hidden=True)


def _figure(kind: FigureKind[Any, Any], inner: html.Div) -> html.Figure:
    return html.Figure([inner, html.Figcaption(kind.caption)])


def _graph(kind: FigureKind[Any, Any]) -> html.Div:
    place = html.Div(html.Div(), id=f"figure-{kind.name}", className="plot")
    return html.Div(place, role="group", className="frame", **_aria(label=f"Figure: {kind.heading}"))
