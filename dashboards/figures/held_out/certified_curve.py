"""Certified accuracy of private test rows at every radius: one release for each point, with a band."""

from dataclasses import replace
from math import ceil, floor

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table, Topic
from dashboards.figures._common import percent_axis
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.held_out import _released
from dashboards.figures.held_out._released import HeldOutCurve, LinesInfo, Outline
from dashboards.text import in_parentheses, show
from sweeper.records import Point, ReleasedCurves

_TOGETHER = ",\N{NO-BREAK SPACE}"  # the ends of an interval stay in one line
_STEPS = "bands are steps: between two released radii a curve may fall anywhere"
_NEXT_TO_NOTHING = 0.02  # of certified accuracy
_TICKS = 6  # of radii in a panel, at most
_FAR_ABOVE = 0.3  # of certified accuracy, above 0


def info(data: SweepData) -> LinesInfo:
    """Collect the curves of a few points of the front."""
    return _released.collected(data, "certified accuracy of private test rows", _whole, _line)


def rows(info: LinesInfo) -> Table:
    """One row per radius of each point."""
    return _released.rows(info, "radius", "certified")


def plot(info: LinesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the figure; nothing for a sweep without curves."""
    axis = f"Euclidean radius in {info.radius_unit}".replace(", ", _TOGETHER)
    yaxis = {
        "title": {"text": "certified accuracy (test)"},
        **percent_axis("accuracy"),
        "range": [_start(info), _top(info)],
    }
    xaxis = {"range": [0, _end(info)], "nticks": _TICKS}
    figure = _released.panels(info, theme, xaxis, yaxis, title=axis, note=_note(info))
    for i, line in enumerate(info.lines):
        stepped = replace(line, below=_lower_steps(*line.below), above=_upper_steps(*line.above))
        for trace in _released.band(stepped, theme.blue):
            figure.add_trace(trace, **_released.place(info, i))
        for one in info.constant:  # a constant answer has every radius
            line = _released.reference((0.0, _end(info)), (one.value, one.value), theme)
            figure.add_trace(line, **_released.place(info, i))
    return figure


def _note(info: LinesInfo) -> str:
    constant = [
        f"dotted: {one.words}, {show('accuracy', one.value)}{in_parentheses('accuracy', one.interval)}"
        for one in info.constant
    ]
    return "; ".join([_STEPS, *constant])


def _upper_steps(radii: tuple[float, ...], ends: tuple[float, ...]) -> Outline:
    """The upper end of the band at every radius: up to the next radius no curve that falls rises above it."""
    return (radii[0], *(r for r in radii[1:] for _ in range(2))), (*(y for y in ends[:-1] for _ in range(2)), ends[-1])


def _lower_steps(radii: tuple[float, ...], ends: tuple[float, ...]) -> Outline:
    """The lower end at every radius: before the next radius a curve may have fallen to what bounds it there."""
    return (*(r for r in radii[:-1] for _ in range(2)), radii[-1]), (ends[0], *(y for y in ends[1:] for _ in range(2)))


def _end(info: LinesInfo) -> float:
    """Where the axis ends: at the first radius from which on all curves are next to nothing, else at the last one."""
    radii = [radius for line in info.lines[:1] for radius in line.x]  # the same for all
    seen = [x for line in info.lines for x, y in zip(line.x, line.y, strict=True) if y > _NEXT_TO_NOTHING]
    return next((radius for radius in radii if radius > max(seen, default=0.0)), max(radii, default=1.0))


def _start(info: LinesInfo) -> float:
    """Where the vertical axis begins: at a whole ten percent below all bands, at 0 where that saves little room."""
    end = _end(info)
    ends = [y for line in info.lines for x, y in zip(*line.below, strict=True) if x <= end]
    lowest = min([*ends, *(one.value for one in info.constant)], default=0.0)
    below = floor(10 * lowest) / 10
    return below if below >= _FAR_ABOVE else 0.0


def _top(info: LinesInfo) -> float:
    """Where the vertical axis ends: at a whole ten percent above all bands."""
    highest = max((y for line in info.lines for y in line.above[1]), default=1.0)
    return min(ceil(10 * highest) / 10, 1.0) + 0.01


def _remarks(data: SweepData) -> str:
    found = info(data)
    beyond = f" Beyond the axis no released curve is above {100 * _NEXT_TO_NOTHING:g} %."
    begins = f" The vertical axis begins at {100 * _start(found):g} %." if _start(found) else ""
    return _released.left_out(data, _whole) + begins + (beyond if _is_cut(found) else "")


def _is_cut(info: LinesInfo) -> bool:
    return any(line.x[-1] > _end(info) for line in info.lines)


def _whole(curves: ReleasedCurves) -> ReleasedCurves:
    return curves


def _line(point: Point, curves: ReleasedCurves) -> HeldOutCurve:
    low, high = (f"{100 * ends[0]:.1f}" for ends in (curves.certified_low, curves.certified_high))
    accuracy = f"accuracy {show('accuracy', curves.certified[0])}", f"[{low}, {high}] at radius 0"
    below, above = (curves.radii, curves.certified_low), (curves.radii, curves.certified_high)
    return HeldOutCurve(point, accuracy, curves.radii, curves.certified, below, above)


FIGURE: FigureKind[SweepData, LinesInfo] = FigureKind(
    name="certified-curve",
    heading="Certified accuracy at every radius",
    summary="certified accuracy of private test rows over the radius, released as one curve for each point",
    caption=(
        "Released once for each point of the front, with noise that the ledger holds; a panel for each, the best one "
        "first. The true curve of the distribution that the rows come from lies in the band at all radii at once with "
        "the stated confidence: the band covers the noise and that the rows are a sample. It has steps because "
        "certified accuracy never rises with the radius, and may fall anywhere between two released radii. The "
        "thickest line joins what was released."
    ),
    position=42,
    info=info,
    plot=plot,
    rows=rows,
    gestures_here=lambda data: " A double click shows all radii." if _is_cut(info(data)) else "",
    remarks=_remarks,
    topic=Topic.ROBUSTNESS,
    wide=True,
    needs="points of the front that released curves",
)
