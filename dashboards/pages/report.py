"""The report of a sweep: one HTML file that opens anywhere, offline, on a phone and on paper.

Everything is inside the file, plotly.js included, and its content security policy forbids it to load anything
else. Text reaches the page only through `dashboards.pages._html`, which escapes it. Figures are drawn once, in the
light theme, and repainted by the page when the reader's browser prefers dark.
"""

from collections.abc import Callable
from dataclasses import dataclass
from html import unescape

from dashboards.data import SweepData
from dashboards.figures import FIGURES, LIGHT, Figure, is_empty
from dashboards.figures.sweep import configurations, front, hypervolume, trajectories
from dashboards.pages import _sections as sections
from dashboards.pages import _tables as tables
from dashboards.pages._html import Html, tag
from dashboards.pages._page import COMPLETE, document, panel


@dataclass(frozen=True, slots=True)
class Panel:
    """Where a figure stands in the report: its heading, how to read it, and what of very much it shows."""

    figure: str
    heading: str
    caption: str
    cut: Callable[[SweepData], str] = lambda _: ""
    wide: bool = False  # scrolls sideways on a phone instead of shrinking


def _drawn(limit: int, total: int, what: str) -> str:
    return f" Drawn: {limit} of {total} {what}." if total > limit else ""


PANELS = (
    Panel(
        "front",
        "The front",
        "The line is what is achievable at epsilon ≤ x. Points of the front that lie below it give up some "
        "utility for a better certificate. The ring marks the knee, beyond which every gain costs most. Hover over a "
        "point for its trial, epoch and configuration.",
        lambda data: _drawn(front.DRAWN_DOMINATED, len(data.points) - len(data.front_points), "dominated points"),
    ),
    Panel(
        "architectures",
        "Which kind of network",
        "Every line picks its own models among the trials of its kind. A kind with more trials had more chances.",
    ),
    Panel(
        "repeats",
        "How much is luck",
        "Every point above is the mean of several trainings of one configuration. The solid line is attained by at "
        "least half of these repeats, the band reaches from what all of them attain to what the best of them does.",
    ),
    Panel(
        "robustness",
        "Robustness at each radius",
        "Every line picks its own models: the best certified accuracy at that radius, within each epsilon. "
        "A certified example keeps its prediction under every perturbation of at most that Euclidean norm.",
    ),
    Panel(
        "temperature",
        "Temperature, radius and membership",
        "One row per temperature of the loss. Every cell picks its own model: the best accuracy, and the best "
        "certified accuracy at each radius, with what an attack left of it where one was run. Beside them, how well "
        "membership inference tells training rows from validation rows on the most accurate model of the row: an "
        "AUROC of 50 % is guessing, and so is an advantage of a few percent where rows are few.",
        wide=True,
    ),
    Panel("front-3d", "Privacy, utility and robustness together", "The points of the front; drag to turn."),
    Panel(
        "trajectories",
        "How the trials got there",
        "One line per trial, one point per epoch; the mark at the end says how the trial ended, a ring that it was "
        "compared with others and went on.",
        lambda data: _drawn(trajectories.DRAWN_TRIALS, len(data.trials), "trials, those on the front among them"),
    ),
    Panel(
        "hypervolume",
        "What more trials brought",
        "Hypervolume of the front after each trial: where the curve is flat, more trials of this kind add little.",
        lambda data: _drawn(hypervolume.DRAWN_STEPS, len(data.trials), "trials"),
    ),
    Panel(
        "importances",
        "What mattered",
        "Share of the differences between trials, at their last epoch, that goes with each setting, as a random forest "
        "learnt it and predicts trials it has not seen; the last panel is the hypervolume of a trial's own points. It "
        "speaks of the trials that were tried, not of all that could be.",
        wide=True,
    ),
    Panel(
        "configurations",
        "Configurations",
        "One line per trial, through its configuration to what it reached at its last epoch. "
        "Drag along an axis to keep only the trials that pass there; drag a name to move an axis.",
        lambda data: _drawn(configurations.DRAWN_TRIALS, len(data.trials), "trials"),
        wide=True,
    ),
)


def build_report(data: SweepData) -> str:
    """The report as one HTML document."""
    figures = {name: figure for name, draw in FIGURES.items() if not is_empty(figure := draw(data, LIGHT))}
    parts = (
        sections.head(data),
        tag(
            "main",
            sections.headline(data),
            *(panel(p.figure, p.heading, p.caption + p.cut(data), wide=p.wide) for p in PANELS if p.figure in figures),
            tables.front_table(data),
            sections.cost(data),
            sections.claim(data),
            sections.how_to_pick(data),
            tag("section", tag("h2", "Records"), tables.decisions_table(data), tables.trials_table(data), id="records"),
        ),
        tag("footer", tag("div", sections.versions(data), tag("p", COMPLETE))),
    )
    return document(f"{data.name}: sweep report", parts, figures)


def build_page(name: str, figure: Figure) -> str:
    """One figure of a sweep or a comparison as an HTML document of its own."""
    title = str(figure.layout.title.text)  # escaped already: a figure's texts are markup
    place = tag("main", panel(name, Html(title), "", wide=any(p.wide for p in PANELS if p.figure == name)))
    return document(unescape(title), (place, tag("footer", tag("div", tag("p", COMPLETE)))), {name: figure})
