"""Histograms of norms against their bounds: what the figures of gradients and of inputs share."""

import enum
from dataclasses import dataclass

import plotly.graph_objects as go

from clipless.diagnostics import Histogram
from dashboards.figures._base import FigureInfo
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.diagnosis._header import log_axis, panels
from dashboards.text import number


class CurveKind(enum.Enum):
    """What a curve counts, which decides how it is drawn."""

    NOW = "now"
    BEFORE = "before"
    GUARD = "guard"


@dataclass(frozen=True, slots=True)
class NormCurve:
    """Shares of rows over the bins of a histogram."""

    name: str
    kind: CurveKind
    edges: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A number that norms are compared with."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class NormPanel:
    """One histogram panel."""

    title: str
    curves: tuple[NormCurve, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NormsInfo(FigureInfo):
    """Numbers of a figure of histograms."""

    panels: tuple[NormPanel, ...]
    axis: str
    logarithmic: bool


def histogram_curve(name: str, kind: CurveKind, histogram: Histogram) -> NormCurve | None:
    """Shares of all rows, those below the first edge among them; None where every norm is 0."""
    total = sum(histogram.counts) + histogram.below
    if not histogram.counts:
        return None
    return NormCurve(name, kind, histogram.edges, tuple(count / total for count in histogram.counts))


def plot(info: NormsInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw one panel below the other over one range, bounds as vertical lines, every curve at its own scale."""
    figure = panels(info, theme, [panel.title for panel in info.panels])
    values = [v for p in info.panels for v in (*(e for c in p.curves for e in c.edges), *(m.value for m in p.marks))]
    axis = log_axis(values) if info.logarithmic else {"range": [0, 1.03 * max(values, default=1.0)]}
    shown: set[str] = set()
    for row, panel in enumerate(info.panels, start=1):
        for curve in panel.curves:
            figure.add_trace(_area(curve, theme, legend=curve.name not in shown), row=row, col=1)
            shown.add(curve.name)
        for mark in panel.marks:
            figure.add_trace(_line(mark, theme, legend=mark.name not in shown), row=row, col=1)
            shown.add(mark.name)
        figure.update_xaxes(**axis, showticklabels=row == len(info.panels), row=row, col=1)
        figure.update_yaxes(range=[0, 1.08], showticklabels=False, ticks="", showgrid=False, row=row, col=1)
    if info.panels:
        figure.update_xaxes(title={"text": info.axis}, row=len(info.panels), col=1)
    return figure


def _area(curve: NormCurve, theme: Theme, *, legend: bool) -> go.Scatter:
    """The outline of a histogram, as high as its tallest bin; it begins and ends at 0."""
    edges, peak = curve.edges, max(curve.shares) or 1.0
    color, dash = {
        CurveKind.NOW: (theme.blue, "solid"),
        CurveKind.BEFORE: (theme.orange, "dash"),
        CurveKind.GUARD: (theme.purple, "dot"),
    }[curve.kind]
    texts = [
        f"{number(low)} to {number(high)}: {number(100 * share)} % of rows"
        for low, high, share in zip(edges[:-1], edges[1:], curve.shares, strict=True)
    ]
    return go.Scatter(
        x=[edges[0], *edges],
        y=[0.0, *(share / peak for share in curve.shares), 0.0],
        mode="lines",
        line={"shape": "hv", "width": 1.8, "color": color, "dash": dash},
        fill="tozeroy" if curve.kind is CurveKind.NOW else None,
        text=["", *texts, ""],
        hovertemplate="%{text}<extra>" + curve.name + "</extra>",
        name=curve.name,
        legendgroup=curve.name,
        showlegend=legend,
    )


def _line(mark: Mark, theme: Theme, *, legend: bool) -> go.Scatter:
    inner = mark.name in ("clips at", "input ball")
    return go.Scatter(
        x=[mark.value, mark.value],
        y=[0.0, 1.05],
        mode="lines",
        line={"color": theme.red if inner else theme.ink, "width": 2, "dash": "solid" if inner else "longdashdot"},
        hovertemplate=f"{mark.name}: {number(mark.value)}<extra></extra>",
        name=mark.name,
        legendgroup=mark.name,
        showlegend=legend,
    )
