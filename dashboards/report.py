"""The report of a sweep: one HTML file that opens anywhere, offline, on a phone and on paper.

Everything is inside the file, plotly.js included, and its content security policy forbids it to load anything
else. Text reaches the page only through `dashboards._html`, which escapes it. Figures are drawn once, in the
light theme, and repainted by the page when the reader's browser prefers dark.
"""

from dataclasses import dataclass

from dashboards import _sections as sections
from dashboards import _tables as tables
from dashboards._html import tag
from dashboards._page import document, panel
from dashboards.data import SweepData
from dashboards.figures import FIGURES, LIGHT, is_empty


@dataclass(frozen=True, slots=True)
class Panel:
    """Where a figure stands in the report: its heading, and how to read it."""

    figure: str
    heading: str
    caption: str
    wide: bool = False  # scrolls sideways on a phone instead of shrinking


PANELS = (
    Panel(
        "front",
        "The front",
        "The line is what is achievable at epsilon ≤ x. Points of the front that lie below it give up some "
        "utility for a better certificate. Hover over a point for its trial, epoch and configuration.",
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
        "One line per trial, one point per epoch; the mark at the end says how the trial ended.",
    ),
    Panel(
        "hypervolume",
        "What more trials brought",
        "Hypervolume of the front after each trial: where the curve is flat, more trials of this kind add little.",
    ),
    Panel(
        "configurations",
        "Configurations",
        "One line per trial, through its configuration to what it reached at its last epoch. "
        "Drag along an axis to keep only the trials that pass there; drag a name to move an axis.",
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
            *(panel(p.figure, p.heading, p.caption, wide=p.wide) for p in PANELS if p.figure in figures),
            tables.front_table(data),
            sections.cost(data),
            sections.claim(data),
            sections.how_to_pick(data),
            tag("section", tag("h2", "Records"), tables.trials_table(data), id="records"),
        ),
        tag(
            "footer",
            tag(
                "div",
                sections.versions(data),
                tag("p", "This page is complete: it loads nothing from elsewhere."),
            ),
        ),
    )
    return document(f"{data.name}: sweep report", parts, figures)
