"""The report of a sweep: one HTML file that opens anywhere, offline, on a phone and on paper."""

from html import unescape
from typing import Any

from dashboards.data import SweepData
from dashboards.figures import Figure, FigureKind, Topic, sweep_figures
from dashboards.pages import _sections as sections
from dashboards.pages import _tables as tables
from dashboards.pages._actions import actions_table
from dashboards.pages._html import Html, tag
from dashboards.pages._page import build, document, footer, panel
from dashboards.pages._rehearsals import rehearsals_table
from dashboards.pages._top import terms, top
from dashboards.pages._trials import trials_table

FOLDS = {Topic.TRIALS: "How the trials went", Topic.SEARCH: "The search and its hyperparameters"}


def build_report(data: SweepData) -> str:
    """The report as one HTML document."""
    return build(
        f"{data.name}: sweep report",
        top(data),
        sweep_figures().values(),
        data,
        before=[
            sections.headline(data),
            sections.cost(data),
            terms(data),
            sections.claim(data),
            sections.attacks(data) or Html(),
            sections.how_to_pick(data),
            tables.front_table(data),
            sections.by_class(data) or Html(),
        ],
        after=[
            trials_table(data),
            rehearsals_table(data) or Html(),
            tables.decisions_table(data) or Html(),
            actions_table(data) or Html(),
        ],
        versions=sections.versions(data),
        folds=FOLDS,
    )


def build_figure_page(kind: FigureKind[Any, Any], figure: Figure) -> str:
    """One figure of a sweep or a comparison as an HTML document of its own."""
    title = str(figure.layout.title.text)  # escaped already: a figure's texts are markup
    main = tag("main", panel(kind.name, Html(title), wide=kind.wide))
    return document(unescape(title), (main, footer()), {kind.name: figure})
