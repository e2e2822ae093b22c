"""The front in its three dimensions: epsilon, utility and certified accuracy."""

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic
from dashboards.figures._common import (
    header,
    hover_texts,
    label,
    log_ticks,
    new_figure,
    point_name,
    point_rows,
    value_axis,
)
from dashboards.figures._theme import LIGHT, Theme
from sweeper.records import Point

_WITH_LINES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Front3dInfo(FigureInfo):
    """Numbers of the three-dimensional front."""

    utility: str  # name on the second axis
    certificate: str | None  # name on the third axis; None when no point has a certificate, and nothing is drawn
    front: tuple[Point, ...]  # points of the front for which all three numbers are finite
    hover: tuple[str, ...]  # one text for each


def info(data: SweepData, *, certificate: str | None = None) -> Front3dInfo:
    """Compute the three-dimensional front, with ``certificate`` on the third axis; the sweep's own by default."""
    certificate = certificate or data.certificate
    names = ("epsilon", data.utility, certificate or "")
    front = tuple(point for point in data.front_points if finite(point, *names))
    return Front3dInfo(
        **header(data, "privacy, utility and robustness"),
        utility=data.utility,
        certificate=certificate,
        front=front,
        hover=hover_texts(data, front),
    )


def rows(info: Front3dInfo) -> Table:
    """The numbers of the figure: one row per point."""
    return point_rows(info.front)


def plot(info: Front3dInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the three-dimensional front; each of few points drops a line to the floor so that depth can be read."""
    epsilons = [point.values["epsilon"] for point in info.front]
    utilities = [point.values[info.utility] for point in info.front]
    certified = [point.values[info.certificate or ""] for point in info.front]
    scene = {
        "xaxis": {"type": "log", **log_ticks(epsilons, steps=(1, 2, 5)), "title": {"text": "epsilon"}},
        "yaxis": {**value_axis(info.utility), "title": {"text": escape(info.utility)}},
        "zaxis": {
            **value_axis(info.certificate or ""),
            "title": {"text": escape(info.certificate or "")},
            "rangemode": "tozero",
        },
        "camera": {"eye": {"x": -1.45, "y": -1.65, "z": 0.62}, "center": {"x": 0, "y": 0, "z": -0.17}},
        "aspectratio": {"x": 1.25, "y": 1.25, "z": 0.85},
    }
    margin = {"l": 8, "r": 8, "t": 48, "b": 8}
    figure = new_figure(info, theme, empty=not epsilons, height=520, scene=scene, margin=margin, showlegend=False)
    if not epsilons:
        return figure
    if len(epsilons) <= _WITH_LINES:
        figure.add_trace(_lines_to_the_floor(epsilons, utilities, certified, theme))
    figure.add_trace(
        go.Scatter3d(
            x=epsilons,
            y=utilities,
            z=certified,
            mode="markers",
            marker={
                "size": 5.5 if len(epsilons) <= _WITH_LINES else 3.5,
                "color": certified,
                "colorscale": theme.colorscale(),
                "line": {"color": theme.ink, "width": 0.5},
            },
            customdata=[point_name(point) for point in info.front],
            text=info.hover,
            hovertemplate="%{text}<extra></extra>",
            name=label(info.certificate or ""),
        )
    )
    return figure


def _lines_to_the_floor(
    epsilons: list[float], utilities: list[float], certified: list[float], theme: Theme
) -> go.Scatter3d:
    return go.Scatter3d(
        x=[x for x in epsilons for _ in range(3)],
        y=[y for y in utilities for _ in range(3)],
        z=[value for z in certified for value in (0.0, z, None)],
        mode="lines",
        line={"color": theme.faint, "width": 1.5},
        hoverinfo="skip",
    )


FIGURE: FigureKind[SweepData, Front3dInfo] = FigureKind(
    name="front-3d",
    heading="Privacy, utility and robustness together",
    summary="epsilon, utility and certified accuracy in space",
    caption="The points of the front; drag to turn.",
    position=60,
    info=info,
    plot=plot,
    rows=rows,
    info_at=lambda data, certificate: info(data, certificate=certificate),
    topic=Topic.FRONT,
    epsilon_axis=True,
    awaits=("The points of the front in space,<br>as soon as a trial has finished its first epoch"),
)
