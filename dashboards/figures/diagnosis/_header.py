"""What the figures of a diagnosis share: their header, the look of the two moments, and rows of small panels."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite
from typing import Any

import plotly.graph_objects as go

from dashboards.figures._base import FigureInfo
from dashboards.figures._common import new_figure
from dashboards.figures._theme import Theme
from dashboards.figures._ticks import log_ticks
from dashboards.text import show_epsilon
from sweeper.privacy.pricing import OWN
from sweeper.results.models.diagnosis import DiagnosedEpoch, Diagnosis

_PANEL_PIXELS = 120


def header(diagnosis: Diagnosis, title: str) -> dict[str, Any]:
    """The fields of `FigureInfo`."""
    epsilon = diagnosis.values.get("epsilon", float("inf"))
    return {
        "title": f"{escape(diagnosis.sweep)}, {escape(diagnosis.trial)}: {title}",
        "epsilon_title": f"{OWN} {show_epsilon(epsilon)} (fixed in advance), delta = {{number(diagnosis.delta)}}",
        "exploratory": diagnosis.exploratory,
    }


def moment(snapshot: DiagnosedEpoch) -> str:
    """When a snapshot was taken, in words.

    >>> moment(DiagnosedEpoch(epoch=3, diagnostics=None))
    'epoch 3'
    """
    return f"epoch {snapshot.epoch}" if snapshot.epoch else "initial weights"


@dataclass(frozen=True, slots=True)
class MomentValues:
    """Numbers at one moment, by what they are of; None where there is none."""

    moment: str
    values: tuple[float | None, ...]


def moment_marks(
    taken: MomentValues, names: Sequence[str], texts: Sequence[str], theme: Theme, *, late: bool, **look: Any
) -> go.Scatter:
    """Marks at a moment's values that are positive and finite: hollow for the first moment, full for the last."""
    color = theme.blue if late else theme.orange
    symbol = "circle" if late else "diamond-open"
    return go.Scatter(
        x=[value if value and isfinite(value) else None for value in taken.values],
        y=[escape(name) for name in names],
        mode="markers",
        marker={"symbol": symbol, "color": color, "line": {"width": 1.6, "color": color}},
        text=texts,
        hovertemplate=f"%{{y}}<br>{taken.moment}: %{{text}}<extra></extra>",
        name=taken.moment,
    ).update(look)


def panels(
    info: FigureInfo, theme: Theme, titles: Sequence[str], *, sizes: Sequence[int] | None = None, **layout: Any
) -> go.Figure:
    """A column of panels over one horizontal axis each, with a small heading above each.

    ``sizes`` says how tall the panels are, relative to each other; the default height grows with their number.
    """
    count = len(titles)
    height = layout.pop("height", 130 + _PANEL_PIXELS * max(count, 1))
    above = 1.0 + 24 / max(height - 130, _PANEL_PIXELS)  # the legend clears the first heading
    figure = new_figure(info, theme, empty=not count, height=height, legend={"y": above}, margin={"t": 72}, **layout)
    if count:
        figure.set_subplots(
            rows=count,
            cols=1,
            subplot_titles=[escape(title) for title in titles],
            vertical_spacing=min(56 / height, 1 / count),
            row_heights=None if sizes is None else list(sizes),
        )
        figure.update_annotations(
            selector=lambda note: note.name != "watermark",
            x=0,
            xanchor="left",
            font={"size": 12, "color": theme.muted},
        )
    return figure


def log_axis(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis over the positive values, with ticks at 1, 2 and 5 of each decade."""
    return {"type": "log", **log_ticks(values, steps=(1, 2, 5))}
