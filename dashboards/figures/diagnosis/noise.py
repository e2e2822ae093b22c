"""Noise against gradient: which parameters learn from the rows, and which from the noise."""

from dataclasses import dataclass
from math import isfinite

import plotly.graph_objects as go

from dashboards.figures._base import FigureInfo, FigureKind
from dashboards.figures._common import new_figure
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.diagnosis._header import MomentValues, header, log_axis, moment, moment_marks
from dashboards.text import number
from sweeper.results.models.diagnosis import Diagnosis

WHOLE = "all parameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseInfo(FigureInfo):
    """Numbers of the noise figure; no ratios without noise."""

    names: tuple[str, ...]
    ratios: tuple[MomentValues, ...]  # noise to gradient, by parameter and over all of them


def info(diagnosis: Diagnosis) -> NoiseInfo:
    """Collect the ratios of one step at the expected batch size."""
    taken = [(moment(snapshot), snapshot.diagnostics) for snapshot in diagnosis.snapshots]
    ratios = [
        MomentValues(when, (*(p.noise_to_gradient for p in found.parameters), found.noise_to_gradient))
        for when, found in taken
    ]
    return NoiseInfo(
        **header(diagnosis, "noise against gradient"),
        names=(*(parameter.name for parameter in taken[0][1].parameters), WHOLE),
        ratios=tuple(one for one in ratios if any(one.values)),
    )


def plot(info: NoiseInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the ratios on a logarithmic axis; right of 1, a step is more noise than gradient."""
    values = [value for one in info.ratios for value in one.values if value and isfinite(value)]
    xaxis = {
        **log_axis([*values, 1.0]),
        "title": {"text": "norm of the noise / norm of the summed gradient, in one step"},
    }
    yaxis = {"autorange": "reversed", "type": "category"}
    height = 140 + 34 * len(info.names)
    figure = new_figure(info, theme, empty=not values, height=height, xaxis=xaxis, yaxis=yaxis)
    if not values:
        return figure
    for index, one in enumerate(info.ratios):
        texts = [number(value or 0.0) for value in one.values]
        figure.add_trace(moment_marks(one, info.names, texts, theme, late=index > 0, marker_size=10))
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
