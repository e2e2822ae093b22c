"""The report of a sweep: one HTML file that opens anywhere, offline, on a phone and on paper.

Everything is inside the file, plotly.js included, and its content security policy forbids it to load anything
else. Text reaches the page only through `dashboards._html`, which escapes it. Figures are drawn once, in the
light theme, and repainted by the page when the reader's browser prefers dark.
"""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from dashboards import _sections as sections
from dashboards import _tables as tables
from dashboards._html import Html, json_script, tag
from dashboards.data import SweepData
from dashboards.figures import (
    DARK,
    FIGURES,
    FONT,
    LIGHT,
    MONOSPACE,
    Theme,
    as_json,
    exchange,
    is_empty,
    plotly_js,
)

# No network; plotly's WebGL figures compile their shaders' drivers with Function().
POLICY = "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'"


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
    assets = files("dashboards") / "assets"
    style = _variables() + (assets / "report.css").read_text(encoding="utf-8")
    script = (assets / "report.js").read_text(encoding="utf-8")
    document = tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", f"{data.name}: sweep report"),
            tag("style", Html(style)),
        ),
        tag(
            "body",
            sections.head(data),
            tag(
                "main",
                sections.headline(data),
                *(_panel(panel) for panel in PANELS if panel.figure in figures),
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
            json_script("figures", {f"plot-{name}": _untitled(as_json(figure)) for name, figure in figures.items()}),
            json_script("dark-colors", exchange(LIGHT, DARK)),
            tag("script", Html(plotly_js())),
            tag("script", Html(script)),
        ),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{document}\n"


def _panel(panel: Panel) -> Html:
    plot = tag("div", id=f"plot-{panel.figure}", class_="plot", role="img", aria_label=f"Figure: {panel.heading}")
    inner = tag("div", plot, class_="wide", tabindex=0) if panel.wide else plot
    return tag(
        "section",
        tag("h2", panel.heading),
        tag("figure", inner, tag("figcaption", panel.caption)),
        id=panel.figure,
    )


def _untitled(figure: dict[str, Any]) -> dict[str, Any]:
    """The page has headings: the figure's own title and the space for it go."""
    layout = {**figure["layout"]}
    layout.pop("title", None)
    layout["margin"] = {"l": 0, "r": 16, "t": 40, "b": 52, **layout.get("margin", {})}
    return {"data": figure["data"], "layout": layout}


def _variables() -> str:
    """Both themes as CSS variables."""
    fonts = f"--sans: {FONT}; --mono: {MONOSPACE};"
    return (
        f":root {{ {fonts} {_colors(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_colors(DARK)} }} }}\n"
        f"@media print {{ :root {{ {_colors(LIGHT)} }} }}\n"
    )


def _colors(theme: Theme) -> str:
    names = ("paper", "panel", "ink", "muted", "line", "grid", "blue", "orange")
    return " ".join(f"--{name}: {getattr(theme, name)};" for name in names)
