"""Histograms of norms against their bounds: of contributions to each parameter, and of inputs by colour space."""

import enum
from dataclasses import dataclass

import plotly.graph_objects as go

from clipless.diagnostics import Histogram
from dashboards.figures._common import FigureInfo
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.diagnosis._header import axis_name, header, log_axis, moment, panels
from dashboards.text import number
from sweeper.results.diagnosis import Diagnosis


class Look(enum.Enum):
    """How a curve is drawn, and what that stands for."""

    NOW = "now"
    BEFORE = "before"
    GUARD = "guard"


@dataclass(frozen=True, slots=True)
class Curve:
    """Shares of rows over the bins of a histogram."""

    name: str
    look: Look
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
    curves: tuple[Curve, ...]
    marks: tuple[Mark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NormsInfo(FigureInfo):
    """Numbers of a figure of histograms."""

    panels: tuple[NormPanel, ...]
    axis: str
    logarithmic: bool


def gradient_info(diagnosis: Diagnosis) -> NormsInfo:
    """Contributions to each parameter: exact norms at each moment, and what the guard takes the last ones to be."""
    before, now = diagnosis.snapshots[0], diagnosis.snapshots[-1]
    when = moment(now)
    found = []
    for earlier, parameter in zip(before.diagnostics.parameters, now.diagnostics.parameters, strict=True):
        curves = (
            _curve(when, Look.NOW, parameter.own.histogram),
            _curve(moment(before), Look.BEFORE, earlier.own.histogram),
            _curve(f"{when}, as the guard sees it", Look.GUARD, parameter.guard_bound.histogram),
        )
        marks = [("clips at", parameter.sensitivity), ("worst case", parameter.worst_case)]
        found.append(
            NormPanel(
                f"{parameter.name}, {parameter.size} entries; {number(100 * parameter.acted)} % of rows are scaled at "
                f"{when}",
                tuple(filter(None, curves)),
                tuple(Mark(name, value) for name, value in marks if value is not None),
            )
        )
    return NormsInfo(
        **header(diagnosis, "norms of gradients"),
        panels=tuple(found),
        axis="norm of one row's contribution to the gradient",
        logarithmic=True,
    )


def input_info(diagnosis: Diagnosis) -> NormsInfo:
    """Inputs as trained on, with the input ball, and in every colour space that there is."""
    found = []
    for index, one in enumerate(diagnosis.inputs):
        marks = [Mark("declared bound", one.bound)]
        if index == 0 and diagnosis.input_radius is not None:
            marks.append(Mark("input ball", diagnosis.input_radius))
        curve = _curve("rows", Look.NOW, one.norms.histogram)
        title = f"{one.space}: median {number(one.norms.median)}, largest {number(one.norms.largest)}"
        found.append(NormPanel(title, () if curve is None else (curve,), tuple(marks)))
    return NormsInfo(
        **header(diagnosis, "norms of inputs"), panels=tuple(found), axis="norm of one row", logarithmic=False
    )


def _curve(name: str, look: Look, histogram: Histogram) -> Curve | None:
    """Shares of all rows, those below the first edge among them; None where every norm is 0."""
    total = sum(histogram.counts) + histogram.below
    if not histogram.counts:
        return None
    return Curve(name, look, histogram.edges, tuple(count / total for count in histogram.counts))


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
        figure.layout[axis_name("x", row)].update(**axis, showticklabels=row == len(info.panels))
        figure.layout[axis_name("y", row)].update(range=[0, 1.08], showticklabels=False, ticks="", showgrid=False)
    if info.panels:
        figure.layout[axis_name("x", len(info.panels))].update(title={"text": info.axis})
    return figure


def _area(curve: Curve, theme: Theme, *, legend: bool) -> go.Scatter:
    """The outline of a histogram, as high as its tallest bin; it begins and ends at 0."""
    edges, peak = curve.edges, max(curve.shares) or 1.0
    color, dash = {
        Look.NOW: (theme.blue, "solid"),
        Look.BEFORE: (theme.orange, "dash"),
        Look.GUARD: (theme.purple, "dot"),
    }[curve.look]
    texts = [
        f"{number(low)} to {number(high)}: {number(100 * share)} % of rows"
        for low, high, share in zip(edges[:-1], edges[1:], curve.shares, strict=True)
    ]
    return go.Scatter(
        x=[edges[0], *edges],
        y=[0.0, *(share / peak for share in curve.shares), 0.0],
        mode="lines",
        line={"shape": "hv", "width": 1.8, "color": color, "dash": dash},
        fill="tozeroy" if curve.look is Look.NOW else None,
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
