"""Every figure of a sweep, of a comparison and of a diagnosis; this package is the only door to Plotly.

`sweep_figures`, `comparison_figures` and `diagnosis_figures` find them: one module for each figure, see `_base`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table, Topic, figures_in
from dashboards.figures._choice import choose, has_content, is_empty, names_with_content, needs, refuse
from dashboards.figures._common import linear_epsilon
from dashboards.figures._notebook import NotebookFigure
from dashboards.figures._theme import DARK, FONT, LIGHT, MONOSPACE, Theme, exchange
from sweeper.results.comparison import Comparison

if TYPE_CHECKING:  # a diagnosis needs what trains, which takes seconds to import
    from sweeper.results.models.diagnosis import Diagnosis

__all__ = [
    "DARK",
    "FONT",
    "LIGHT",
    "MONOSPACE",
    "Figure",
    "FigureKind",
    "NotebookFigure",
    "Table",
    "Theme",
    "Topic",
    "as_json",
    "choose",
    "comparison_figures",
    "diagnosis_figures",
    "exchange",
    "has_content",
    "is_empty",
    "linear_epsilon",
    "names_with_content",
    "needs",
    "plotly_js",
    "refuse",
    "sweep_figures",
]

Figure: TypeAlias = go.Figure


def sweep_figures() -> Mapping[str, FigureKind[SweepData, Any]]:
    """Return the figures of a sweep by name, in the order of the report."""
    return figures_in(f"{__name__}.sweep", f"{__name__}.search", f"{__name__}.held_out", f"{__name__}.hyperparameters")


def comparison_figures() -> Mapping[str, FigureKind[Comparison, Any]]:
    """Return the figures of a comparison by name, in the order of its page."""
    return figures_in(f"{__name__}.comparison")


def diagnosis_figures() -> Mapping[str, FigureKind["Diagnosis", Any]]:
    """Return the figures of a diagnosis by name, in the order of its page."""
    return figures_in(f"{__name__}.diagnosis")


def as_json(figure: Figure) -> dict[str, Any]:
    """The figure as plain JSON values."""
    return dict(figure.to_plotly_json())


def plotly_js() -> str:
    """The source of plotly.js, to be put into a page."""
    return str(get_plotlyjs())
