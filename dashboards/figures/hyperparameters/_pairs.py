"""What slices, contours and ranks share: the searched hyperparameters, those that go along with the utility first."""

from collections.abc import Sequence
from html import escape
from itertools import combinations
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._common import new_figure
from dashboards.figures._theme import Theme
from dashboards.figures.hyperparameters._compared import mark
from dashboards.figures.hyperparameters.configurations import Axis, ConfigurationsInfo
from dashboards.text import MISSING, setting, show

FEW = 6  # distinct values that are compared as groups
LEAST_TRIALS = 4
PANEL_HEIGHT = 380


def find_axes(info: ConfigurationsInfo, objectives: Sequence[str]) -> tuple[Axis, ...]:
    """Return the axes of hyperparameters, the one that explains most of the utility first."""
    axes = [axis for axis in info.axes if axis.name not in objectives]
    if len(info.trials) < LEAST_TRIALS:
        return ()
    return tuple(sorted(axes, key=lambda axis: -measure_explained(axis.positions, info.colors)))


def measure_explained(positions: Sequence[float], values: Sequence[float]) -> float:
    """Return the share of the variance of values that their place on an axis explains, roughly.

    It is that between groups where there are few places, the squared correlation of the ranks otherwise.
    """
    x, y = np.asarray(positions, float), np.asarray(values, float)
    if len(y) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    places = np.unique(x)
    if len(places) > FEW:
        return float(np.corrcoef(ranks(x), ranks(y))[0, 1] ** 2)
    between = sum(np.sum(x == place) * (y[x == place].mean() - y.mean()) ** 2 for place in places)
    return float(between / np.sum((y - y.mean()) ** 2))


def ranks(values: Any) -> Any:
    """Return the place of each value in ascending order, from 0; equal ones share theirs."""
    _, first, counts = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts) + (counts - 1) / 2)[first]


def pairs(axes: Sequence[Axis]) -> list[tuple[Axis, Axis]]:
    """Return pairs of the first axes."""
    return list(combinations(axes[:3], 2))


def both(first: Axis, second: Axis) -> list[int]:
    """Return which trials have a value on both axes."""
    values = zip(first.values, second.values, strict=True)
    return [i for i, (a, b) in enumerate(values) if a is not None and b is not None]


def panels(info: ConfigurationsInfo, theme: Theme, count: int, **layout: Any) -> go.Figure:
    """Return a figure of so many panels side by side; a sentence where there is none."""
    figure = new_figure(info, theme, empty=not count, height=PANEL_HEIGHT, showlegend=False)
    if count:
        figure.set_subplots(1, count, horizontal_spacing=0.22 / max(count, 2), **layout)
        mark(figure, info.note, theme)
    else:
        words = f"fewer than {LEAST_TRIALS} trials with different hyperparameters"
        figure.update_annotations(selector={"text": "no points yet"}, text=words)
    return figure


def frame(figure: go.Figure, column: int, x: Axis, y: Axis | None = None) -> None:
    """Give a panel the ticks of its axes."""
    figure.update_xaxes(**_ticks(x), row=1, col=column)
    if y is not None:
        figure.update_yaxes(**_ticks(y), row=1, col=column)


def _ticks(axis: Axis) -> dict[str, Any]:
    return {
        "title": {"text": escape(axis.label)},
        "tickvals": axis.tick_positions,
        "ticktext": axis.tick_texts,
        "type": "linear",
    }


def texts(info: ConfigurationsInfo, axes: Sequence[Axis], chosen: Sequence[int]) -> list[str]:
    """Return what stands beside the mark of each trial."""
    found = []
    for i in chosen:
        lines = [
            f"<b>{escape(info.trials[i])}</b>",
            f"{escape(info.color_name)}: {show(info.color_name, info.colors[i])}",
        ]
        lines += [f"{escape(axis.label)}: {_in_words(axis.values[i])}" for axis in axes]
        found.append("<br>".join(lines))
    return found


def _in_words(value: Any) -> str:
    return MISSING if value is None else escape(setting(value))


def objectives_of(data: SweepData) -> list[str]:
    """Return the names of the objectives."""
    return [objective.name for objective in data.result.objectives]
