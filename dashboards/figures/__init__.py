"""Every figure of a sweep and of a comparison: ``info`` computes, ``plot(info, theme)`` draws it.

``rows(info)`` are the same numbers as a table, for a file. Those of a diagnosis, which need what
trains, are in ``diagnostics``. This package is the only door to Plotly.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from dashboards.data import SweepData
from dashboards.figures._common import Rows, linear_epsilon
from dashboards.figures._theme import DARK, FONT, LIGHT, MONOSPACE, Theme, exchange
from dashboards.figures.comparison import attainment, hypervolumes, overlay
from dashboards.figures.sweep import (
    architectures,
    configurations,
    front,
    front3d,
    hypervolume,
    importances,
    robustness,
    temperature,
    trajectories,
)
from sweeper.results.comparison import Comparison

__all__ = [
    "COMPARISON_FIGURES",
    "COMPARISON_NUMBERS",
    "DARK",
    "FIGURES",
    "FONT",
    "LIGHT",
    "MONOSPACE",
    "NUMBERS",
    "Figure",
    "Rows",
    "Theme",
    "as_json",
    "exchange",
    "is_empty",
    "linear_epsilon",
    "plotly_js",
]

Figure: TypeAlias = go.Figure
D = TypeVar("D")
I = TypeVar("I")  # noqa: E741 - the info of a figure
Draw = Callable[[D, Theme], Figure]
Count = Callable[[D], Rows]


def _shown(
    info: Callable[[D], I], plot: Callable[[I, Theme], Figure], rows: Callable[[I], Rows]
) -> tuple[Draw[D], Count[D]]:
    """A figure and its numbers as functions of the data."""
    return lambda data, theme: plot(info(data), theme), lambda data: rows(info(data))


_OF_SWEEPS: Mapping[str, tuple[Draw[SweepData], Count[SweepData]]] = {
    "front": _shown(front.info, front.plot, front.rows),
    "architectures": _shown(architectures.info, architectures.plot, architectures.rows),
    "repeats": _shown(attainment.info_of_repeats, attainment.plot, attainment.rows),
    "robustness": _shown(robustness.info, robustness.plot, robustness.rows),
    "temperature": _shown(temperature.info, temperature.plot, temperature.rows),
    "front-3d": _shown(front3d.info, front3d.plot, front3d.rows),
    "trajectories": _shown(trajectories.info, trajectories.plot, trajectories.rows),
    "hypervolume": _shown(hypervolume.info, hypervolume.plot, hypervolume.rows),
    "importances": _shown(importances.info, importances.plot, importances.rows),
    "configurations": _shown(configurations.info, configurations.plot, configurations.rows),
}
_OF_COMPARISONS: Mapping[str, tuple[Draw[Comparison], Count[Comparison]]] = {
    "fronts": _shown(overlay.info, overlay.plot, overlay.rows),
    "attainment": _shown(attainment.info, attainment.plot, attainment.rows),
    "hypervolumes": _shown(hypervolumes.info, hypervolumes.plot, hypervolumes.rows),
}

FIGURES: Mapping[str, Draw[SweepData]] = {name: draw for name, (draw, _) in _OF_SWEEPS.items()}
NUMBERS: Mapping[str, Count[SweepData]] = {name: count for name, (_, count) in _OF_SWEEPS.items()}
COMPARISON_FIGURES: Mapping[str, Draw[Comparison]] = {name: draw for name, (draw, _) in _OF_COMPARISONS.items()}
COMPARISON_NUMBERS: Mapping[str, Count[Comparison]] = {name: count for name, (_, count) in _OF_COMPARISONS.items()}


def is_empty(figure: Figure) -> bool:
    """Whether the figure has nothing to show."""
    return len(figure.data) == 0


def as_json(figure: Figure) -> dict[str, Any]:
    """The figure as plain JSON values."""
    content: dict[str, Any] = figure.to_plotly_json()
    return content


def plotly_js() -> str:
    """The source of plotly.js, to be put into a page."""
    return str(get_plotlyjs())
