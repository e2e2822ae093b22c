"""Noise against gradient: which parameters learn from the rows, and which from the noise."""

from dataclasses import dataclass
from html import escape
from math import isfinite

import plotly.graph_objects as go

from dashboards.figures._base import FigureInfo, FigureKind
from dashboards.figures._common import new_figure
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.diagnosis._header import header, log_axis, moment
from dashboards.text import number
from sweeper.results.diagnosis import Diagnosis

WHOLE = "all parameters"


@dataclass(frozen=True, slots=True)
class NoiseRatios:
    """Noise-to-gradient ratios at one moment, by parameter and over all of them."""

    moment: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseInfo(FigureInfo):
    """Numbers of the noise figure; no ratios without noise."""

    names: tuple[str, ...]
    ratios: tuple[NoiseRatios, ...]


def info(diagnosis: Diagnosis) -> NoiseInfo:
    """Collect the ratios of one step at the expected batch size."""
    taken = [(moment(snapshot), snapshot.diagnostics) for snapshot in diagnosis.snapshots]
    ratios = [
        NoiseRatios(when, (*(p.noise_to_gradient for p in found.parameters), found.noise_to_gradient))
        for when, found in taken
    ]
    return NoiseInfo(
        **header(diagnosis, "noise against gradient"),
        names=(*(parameter.name for parameter in taken[0][1].parameters), WHOLE),
        ratios=tuple(one for one in ratios if any(one.values)),
    )


def plot(info: NoiseInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the ratios on a logarithmic axis; right of 1, a step is more noise than gradient."""
    values = [value for one in info.ratios for value in one.values if isfinite(value) and value > 0]
    figure = new_figure(
        info,
        theme,
        empty=not values,
        height=140 + 34 * len(info.names),
        xaxis={
            **log_axis([*values, 1.0]),
            "title": {"text": "norm of the noise / norm of the summed gradient, in one step"},
        },
        yaxis={"autorange": "reversed", "type": "category"},
    )
    if not values:
        return figure
    for index, one in enumerate(info.ratios):
        color = theme.blue if index else theme.orange
        figure.add_trace(
            go.Scatter(
                x=[value if isfinite(value) and value > 0 else None for value in one.values],
                y=[escape(name) for name in info.names],
                mode="markers",
                marker={
                    "symbol": "circle" if index else "diamond-open",
                    "size": 10,
                    "color": color,
                    "line": {"width": 1.6, "color": color},
                },
                text=[number(value) for value in one.values],
                hovertemplate=f"%{{y}}<br>{one.moment}: %{{text}}<extra></extra>",
                name=one.moment,
            )
        )
    figure.add_vline(x=1.0, line={"color": theme.ink, "width": 1, "dash": "dot"})
    return figure


FIGURE: FigureKind[Diagnosis, NoiseInfo] = FigureKind(
    name="noise",
    heading="Noise against gradient",
    summary="the norm of the noise over that of the gradient, by parameter",
    caption=(
        "In one step at the expected batch size: the norm of the noise on a parameter over that of the summed, clipped "
        "gradient. Right of 1, a single step moves that parameter more by noise than by data."
    ),
    position=30,
    info=info,
    plot=plot,
)
