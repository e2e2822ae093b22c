"""Every figure of a sweep, and of a diagnosis: ``info`` computes its numbers, ``plot(info, theme)`` draws them.

This package is the only door to Plotly.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from dashboards.data import SweepData
from dashboards.figures import (
    clipping,
    configurations,
    front,
    front3d,
    hypervolume,
    noise,
    norm_panels,
    robustness,
    temperature,
    tightness,
    trajectories,
)
from dashboards.figures._theme import DARK, FONT, LIGHT, MONOSPACE, Theme, exchange
from sweeper.diagnosis import Diagnosis

__all__ = [
    "DARK",
    "DIAGNOSTIC_FIGURES",
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
    "temperature": lambda data, theme: temperature.plot(temperature.info(data), theme),
    "front-3d": lambda data, theme: front3d.plot(front3d.info(data), theme),
    "trajectories": lambda data, theme: trajectories.plot(trajectories.info(data), theme),
    "hypervolume": lambda data, theme: hypervolume.plot(hypervolume.info(data), theme),
    "configurations": lambda data, theme: configurations.plot(configurations.info(data), theme),
}

DIAGNOSTIC_FIGURES: Mapping[str, Callable[[Diagnosis, Theme], Figure]] = {
    "tightness": lambda diagnosis, theme: tightness.plot(tightness.info(diagnosis), theme),
    "gradients": lambda diagnosis, theme: norm_panels.plot(norm_panels.gradient_info(diagnosis), theme),
    "noise": lambda diagnosis, theme: noise.plot(noise.info(diagnosis), theme),
    "clipping": lambda diagnosis, theme: clipping.plot(clipping.info(diagnosis), theme),
    "clipping-parameters": lambda diagnosis, theme: clipping.plot(clipping.parameter_info(diagnosis), theme),
    "inputs": lambda diagnosis, theme: norm_panels.plot(norm_panels.input_info(diagnosis), theme),
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
