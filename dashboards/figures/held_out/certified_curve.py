"""Certified accuracy of private test rows at every radius: one release for each point, with a band."""

from dataclasses import replace
from html import escape

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table, Topic
from dashboards.figures._common import percent_axis
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.held_out import _released
from dashboards.figures.held_out._released import HeldOutCurve, LinesInfo
from dashboards.text import show
from sweeper.records import Point, ReleasedCurves


def info(data: SweepData) -> LinesInfo:
    """Collect the curves of a few points of the front."""
    found = _released.collected(data, "certified accuracy of private test rows", _whole, _line)
    return replace(found, radius_unit=data.result.claim.radius_unit)


def rows(info: LinesInfo) -> Table:
    """One row per radius of each point."""
    return _released.rows(info, "radius", "certified")


def plot(info: LinesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the figure; nothing for a sweep without curves."""
    yaxis = {"title": {"text": "certified accuracy (test)"}, **percent_axis("accuracy"), "range": [0, 1.02]}
    gap = "<br>" if info.narrow else " "
    title = f"Euclidean radius in {escape(info.radius_unit)};{gap}bands at {info.confidence:.0%}"
    xaxis = {"title": {"text": title}, "rangemode": "tozero"}
    return _released.draw(info, theme, {"xaxis": xaxis, "yaxis": yaxis}, height=460)


def _whole(curves: ReleasedCurves) -> ReleasedCurves:
    return curves


def _line(point: Point, curves: ReleasedCurves) -> HeldOutCurve:
    words = f"accuracy {show('accuracy', curves.certified[0])}"
    below, above = (curves.radii, curves.certified_low), (curves.radii, curves.certified_high)
    return HeldOutCurve(point, _released.legend(point, words), curves.radii, curves.certified, below, above)


FIGURE: FigureKind[SweepData, LinesInfo] = FigureKind(
    name="certified-curve",
    heading="Certified accuracy at every radius",
    summary="certified accuracy of private test rows over the radius, released as one curve for each point",
    caption=(
        "Released once for each point of the front, with noise that the ledger holds. The true curve of the "
        "distribution that the rows come from lies in the band at all radii at once with the stated confidence: the "
        "band covers the noise and that the rows are a sample."
    ),
    position=42,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: _released.left_out(data, _whole),
    topic=Topic.ROBUSTNESS,
    needs="points of the front that released curves",
)
