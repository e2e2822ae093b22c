"""Lines side by side: what a measurement gave at several settings, for several contenders."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go

from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import DASHES, SYMBOLS, log_ticks, new_figure
from dashboards.figures._theme import LIGHT, Theme

_APART = 0.1  # of the width, between panels
_CLOSE_TICKS, _MOST_TICKS = 8, 16


@dataclass(frozen=True, slots=True)
class Measured:
    """One line: a contender's values at the settings ``x``."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines over one axis.

    Attributes:
        title: above the panel.
        x_title, y_title: of the axes.
        log_x, log_y: whether an axis is logarithmic.
    """

    title: str
    lines: tuple[Measured, ...]
    x_title: str
    y_title: str
    log_x: bool = True
    log_y: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelsInfo(FigureInfo):
    """Panels from left to right; lines of one name are drawn alike."""

    panels: tuple[Panel, ...]


def info(panels: Sequence[Panel]) -> PanelsInfo:
    """Take the panels as they are."""
    return PanelsInfo(title="", epsilon_title="", exploratory=False, panels=tuple(panels))


def rows(info: PanelsInfo) -> Table:
    """One row per mark."""
    return [
        {"panel": panel.title, "name": line.name, "x": x, "y": y}
        for panel in info.panels
        for line in panel.lines
        for x, y in zip(line.x, line.y, strict=True)
    ]


def plot(info: PanelsInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the panels."""
    figure = new_figure(info, theme, empty=not info.panels, height=560, margin={"t": 110, "l": 90, "b": 80})
    names = list(dict.fromkeys(line.name for panel in info.panels for line in panel.lines))
    width = (1.0 + _APART) / max(1, len(info.panels))
    for number, panel in enumerate(info.panels, start=1):
        place = "" if number == 1 else str(number)
        domain = [(number - 1) * width, number * width - _APART]
        x = [value for one in info.panels if one.x_title == panel.x_title for line in one.lines for value in line.x]
        y = [value for one in info.panels if one.y_title == panel.y_title for line in one.lines for value in line.y]
        figure.update_layout(
            {
                f"xaxis{place}": _axis(panel.x_title, x, panel.log_x) | {"domain": domain, "anchor": f"y{place}"},
                f"yaxis{place}": _axis(panel.y_title, y, panel.log_y) | {"anchor": f"x{place}"},
            }
        )
        middle = {"x": sum(domain) / 2, "y": 1.02, "xref": "paper", "yref": "paper"}
        middle |= {"xanchor": "center", "yanchor": "bottom"}
        figure.add_annotation(text=escape(panel.title), showarrow=False, **middle)
        for line in panel.lines:
            first = all(line.name != one.name for before in info.panels[: number - 1] for one in before.lines)
            figure.add_trace(_scatter(line, names.index(line.name), theme, place, shown=first))
    figure.update_layout(legend={"orientation": "h", "x": 0, "y": 1.1, "yanchor": "bottom"})
    return figure


def _axis(title: str, values: Sequence[float], logarithmic: bool) -> dict[str, Any]:
    """An axis over the values of all panels that show the same; a logarithmic one over many decades has few ticks."""
    scale: dict[str, Any] = {"rangemode": "tozero"}
    if logarithmic:
        scale = {"type": "log", **log_ticks(values)}
        if len(scale.get("tickvals", ())) > _CLOSE_TICKS:
            scale = {"type": "log", **log_ticks(values, steps=(1, 3))}
        if len(scale.get("tickvals", ())) > _MOST_TICKS:
            scale = {"type": "log", "range": scale["range"], "dtick": 2, "exponentformat": "power"}
    return {"title": {"text": escape(title)}, "tickfont": {"size": 12}, **scale}


def _scatter(line: Measured, index: int, theme: Theme, place: str, *, shown: bool) -> go.Scatter:
    color = theme.ink if index == 0 else theme.hue(index - 1)
    return go.Scatter(
        x=line.x,
        y=line.y,
        name=escape(line.name),
        mode="lines+markers",
        line={"color": color, "width": 2, "dash": DASHES[index % len(DASHES)]},
        marker={"symbol": SYMBOLS[index % len(SYMBOLS)], "size": 7, "color": color},
        xaxis=f"x{place}",
        yaxis=f"y{place}",
        legendgroup=line.name,
        showlegend=shown,
    )


FIGURE: FigureKind[Sequence[Panel], PanelsInfo] = FigureKind(
    name="panels",
    heading="Measured",
    summary="lines of several contenders side by side",
    caption="One panel for each measurement; lines of one name are of one contender.",
    position=20,
    info=info,
    plot=plot,
    rows=rows,
)
