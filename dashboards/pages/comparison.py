"""The page of a comparison: fronts of several sweeps in one plane, and what can be said of their difference."""

from dashboards.figures import COMPARISON_FIGURES, LIGHT, is_empty
from dashboards.pages._html import Html, each, tag
from dashboards.pages._page import COMPLETE, document, panel
from sweeper.results.comparison import PRICE, Comparison, Run

PANELS = {
    "fronts": (
        "The fronts",
        "One line per sweep: what is achievable at epsilon ≤ x. Sweeps of one name share colour, dash and mark.",
    ),
    "attainment": (
        "What the runs attain",
        "For each name with several sweeps: the solid line is attained by at least half of them, the band reaches from "
        "what all of them attain to what the best of them does. Nothing is averaged.",
    ),
    "hypervolumes": (
        "Hypervolumes",
        "One mark per sweep, a tick for the mean of a name: the share of one box, the same for all, that the front "
        "dominates.",
    ),
}


def build_comparison(comparison: Comparison) -> str:
    """The comparison as one HTML document."""
    figures = {
        name: figure for name, draw in COMPARISON_FIGURES.items() if not is_empty(figure := draw(comparison, LIGHT))
    }
    title = " and ".join(group.name for group in comparison.groups)
    parts = (
        head(comparison, title),
        tag(
            "main",
            differences(comparison),
            *(panel(name, *PANELS[name]) for name in figures),
            table(comparison),
        ),
        tag("footer", tag("div", tag("p", COMPLETE))),
    )
    return document(f"{title}: comparison of sweeps", parts, figures)


def head(comparison: Comparison, title: str) -> Html:
    """Name the sweeps, and what speaks against comparing them."""
    marks = list(comparison.conflicts)
    if comparison.exploratory:
        marks.insert(0, "Exploratory: no guarantee. One of these sweeps used something that was not paid for.")
    banner = tag("div", *(tag("p", mark) for mark in marks), class_="banner", role="note") if marks else None
    return tag("header", tag("p", "Comparison of sweeps", class_="eyebrow"), tag("h1", title), banner)


def differences(comparison: Comparison) -> Html:
    """What can be said of the difference of each pair of names, and what looking at it costs."""
    said = [str(difference) for difference in comparison.differences]
    if len(said) > 1:
        said.append("The p-values are not corrected for the number of pairs.")
    return tag(
        "section",
        tag("h2", "Differences"),
        tag("ul", each("li", said or ["All of these are runs of one spec."]), class_="plain"),
        tag("p", PRICE, class_="after"),
        id="differences",
    )


def table(comparison: Comparison) -> Html:
    """One row per sweep."""
    heads = each("th", ["name", "sweep", "trials", "points", "on the front", "hypervolume"], scope="col")
    rows = [_row(group.name, run) for group in comparison.groups for run in group.runs]
    body = tag("table", tag("thead", tag("tr", heads)), tag("tbody", *rows))
    return tag("section", tag("h2", "Sweeps"), tag("div", body, class_="scroll", tabindex=0), id="sweeps")


def _row(name: str, run: Run) -> Html:
    front = run.front
    counts = [len(front.trials), len(front.points), len(front.on_front)]
    return tag("tr", each("td", [name, run.label, *counts, f"{run.hypervolume:.4f}"]))
