"""Every figure of a sweep: ``info(data)`` computes its numbers, ``plot(info, theme)`` draws them.

This package is the only door to Plotly.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from dashboards.data import SweepData
from dashboards.figures import configurations, front, front3d, hypervolume, robustness, trajectories
from dashboards.figures._theme import DARK, FONT, LIGHT, MONOSPACE, Theme, exchange

__all__ = [
    "DARK",
    "FIGURES",
    "FONT",
    "LIGHT",
    "MONOSPACE",
    "Figure",
    "Theme",
    "as_json",
    "exchange",
    "is_empty",
    "plotly_js",
]

Figure: TypeAlias = go.Figure
Draw = Callable[[SweepData, Theme], Figure]

FIGURES: Mapping[str, Draw] = {
    "front": lambda data, theme: front.plot(front.info(data), theme),
    "robustness": lambda data, theme: robustness.plot(robustness.info(data), theme),
    "front-3d": lambda data, theme: front3d.plot(front3d.info(data), theme),
    "trajectories": lambda data, theme: trajectories.plot(trajectories.info(data), theme),
    "hypervolume": lambda data, theme: hypervolume.plot(hypervolume.info(data), theme),
    "configurations": lambda data, theme: configurations.plot(configurations.info(data), theme),
}


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
