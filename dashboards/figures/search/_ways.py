"""Ways of trials through the plane of epsilon and utility: their lines and marks, and their entries in a legend."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import log10
from typing import Any

import plotly.graph_objects as go

from dashboards.figures._common import interval_bars, marks, reached
from dashboards.figures._theme import Theme
from sweeper.records import Interval, TrialStatus

_PALE = 0.6  # opacity of bars beside others
_BARS = 5  # pixels between the intervals of two trials at one epsilon
_AXES = (880, 300)  # pixels of the width of the axes of a picture, about; of a column
_PIECES = 12  # of a line between two epochs
_NAME = ((0.035, 0.04), (0.07, 0.05))  # of a trial, as shares of the axes of a page and of a column


SERIES = ("epochs", "moments", "epsilons", "values", "intervals")  # of a trajectory, one place for each model


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One trial's models in the order of their epochs; by epoch, why it continued or ended there."""

    trial: str
    stage: int | None  # of the sweep's budget, from 0
    status: TrialStatus
    reason: str
    epochs: tuple[int, ...]
    moments: tuple[str, ...]  # epochs, and of what averages are made, in words
    epsilons: tuple[float, ...]
    values: tuple[float, ...]
    intervals: tuple[Interval | None, ...]  # of noisy scores
    passed: Mapping[int, str]
    ended: Mapping[int, str]


def paths(
    trajectories: Sequence[Trajectory],
    color: str,
    utility: str,
    group: str,
    width: float,
    *,
    opacity: float,
    bars: bool,
) -> go.Scatter:
    """The ways of trials that look alike; with ``bars`` the intervals of noisy scores, unless they are many."""
    texts: list[str] = []
    for t in trajectories:
        texts += [*(_text(t, i, utility) for i in range(len(t.epochs))), ""]
    return go.Scatter(
        x=[epsilon for t in trajectories for epsilon in (*t.epsilons, None)],
        y=[value for t in trajectories for value in (*t.values, None)],
        mode="lines",
        line={"color": color, "width": width},
        opacity=opacity,
        error_y=_bars(trajectories, color) if bars else None,
        text=texts,
        hovertemplate="%{text}<extra></extra>",
        legendgroup=group,
        showlegend=False,
        name=group,
    )


def bars_beside(trajectories: Sequence[Trajectory], color: str, group: str, factor: float) -> list[go.Scatter]:
    """The intervals of noisy scores, beside their points: at so many times their epsilons those of others stand free.

    Nothing where no interval is known, or they are many.
    """
    bars = _bars(trajectories, color)
    if bars is None:
        return []
    bars |= {"thickness": 1.5, "width": 0}
    x = [x and factor * x for t in trajectories for x in (*t.epsilons, None)]
    y = [y for t in trajectories for y in (*t.values, None)]
    look = {"mode": "markers", "marker": {"opacity": 0}, "opacity": _PALE, "hoverinfo": "skip", "showlegend": False}
    return [go.Scatter(x=x, y=y, error_y=bars, legendgroup=group, **look)]


def _bars(trajectories: Sequence[Trajectory], color: str) -> dict[str, Any] | None:
    """The intervals of noisy scores; a place for the gap behind each trajectory, as its line has."""
    values = [value for t in trajectories for value in (*t.values, 0.0)]
    return interval_bars(values, [interval for t in trajectories for interval in (*t.intervals, None)], color)


def passes(trajectories: Iterable[Trajectory], color: str, utility: str, *, size: int) -> go.Scatter:
    """Where a scheduler let a trial continue."""
    found = [
        (t.epsilons[i], t.values[i], f"{_text(t, i, utility)}<br>{escape(t.passed[epoch])}")
        for t in trajectories
        for i, epoch in enumerate(t.epochs)
        if epoch in t.passed
    ]
    marker = {"symbol": "cross-thin", "size": size, "color": color, "line": {"width": 1.2, "color": color}}
    x, y, texts = [x for x, _, _ in found], [y for _, y, _ in found], [text for _, _, text in found]
    return marks(x, y, texts, marker, name="continued after a decision")


def ends_of(
    trajectories: Sequence[Trajectory], color: str, utility: str, group: str, *, size: int, symbol: str, theme: Theme
) -> go.Scatter:
    """The marks at the ends of trials that ended alike."""
    status = trajectories[0].status
    epsilons, values = [t.epsilons[-1] for t in trajectories], [t.values[-1] for t in trajectories]
    texts = [
        _text(t, -1, utility) + f"<br>{status.value}{': ' + escape(t.reason) if t.reason else ''}" for t in trajectories
    ]
    rim = {"width": 0.8, "color": theme.paper} if "open" not in symbol else {}
    marker = {"symbol": symbol, "size": size, "color": color, "line": rim}
    return marks(epsilons, values, texts, marker, legendgroup=group, name=group)


def last_points(trajectories: Sequence[Trajectory], utility: str, group: str, marker: Mapping[str, Any]) -> go.Scatter:
    """Marks at the last points of ways that go on elsewhere."""
    epsilons, values = [t.epsilons[-1] for t in trajectories], [t.values[-1] for t in trajectories]
    texts = [_text(t, -1, utility) for t in trajectories]
    return marks(epsilons, values, texts, {**marker}, legendgroup=group, name=group)


def write_names(
    points: go.Scatter, trajectories: Sequence[Trajectory], figure: go.Figure, font: Mapping[str, Any], *, narrow: bool
) -> None:
    """Write the names of trials at their points, left above them or right below, where no other name nor the edge is.

    A name that has room at neither place is left out.
    """
    (first, last), (low, high) = figure.layout.xaxis.range, figure.layout.yaxis.range
    width, height = _NAME[narrow]
    places, names = [], []
    taken: list[tuple[float, float]] = []  # middles of names
    for t, epsilon, value in zip(trajectories, points.x, points.y, strict=True):
        x, y = (log10(epsilon) - first) / (last - first), (value - low) / (high - low)
        sides = {"top left": (x - width / 2, y + height / 2), "bottom right": (x + width / 2, y - height / 2)}
        free = [
            side
            for side, (middle, level) in sides.items()
            if width / 2 < middle < 1.0 - width / 2
            and all(abs(middle - other) > width or abs(level - above) > height for other, above in taken)
        ]
        taken += [sides[side] for side in free[:1]]
        places.append(free[0] if free else "top left")
        names.append(escape(t.trial) if free else "")
    hover = {"customdata": points.text, "hovertemplate": "%{customdata}<extra></extra>"}
    points.update(mode="markers+text", text=names, textposition=places, textfont=dict(font), **hover)


def _text(t: Trajectory, i: int, utility: str) -> str:
    found = reached(t.epsilons[i], utility, t.values[i], t.intervals[i])
    return f"<b>{escape(t.trial)}</b>, epoch {escape(t.moments[i])}<br>{found}"


def key(path: go.Scatter, ends: go.Scatter) -> go.Scatter:
    """The entry of a legend: a piece of the line, and the mark at its end."""
    look = {"line": path.line, "opacity": path.opacity, "legendgroup": ends.legendgroup, "name": ends.name}
    ends.update(showlegend=False)
    return go.Scatter(x=[None], y=[None], mode="lines+markers", marker=ends.marker, showlegend=True, **look)


def beside(figure: go.Figure, place: int, *, narrow: bool) -> float:
    """How many times its epsilon a bar stands at: the first one right of it, the second left, the third right again."""
    first, last = figure.layout.xaxis.range
    pixels = _BARS * ((place + 1) // 2) * (1 if place % 2 else -1)
    return float(10 ** ((last - first) * pixels / _AXES[narrow]))


def between(trajectories: Iterable[Trajectory]) -> list[tuple[float, float]]:
    """Places on the ways of trials, by epsilon and value, so near each other that nothing fits between two of them."""
    found: list[tuple[float, float]] = []
    for t in trajectories:
        found += zip(t.epsilons, t.values, strict=True)
        for (x, y), (to_x, to_y) in pairwise(zip(t.epsilons, t.values, strict=True)):
            shares = [i / _PIECES for i in range(1, _PIECES)]
            found += [(x * (to_x / x) ** share, y + share * (to_y - y)) for share in shares]
    return found
