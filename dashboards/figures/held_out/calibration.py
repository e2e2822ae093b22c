"""Calibration of predicted probabilities on private test rows: released with the ROC curve, at no further cost."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, log
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table, Topic
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures._ticks import thin
from dashboards.figures.held_out import _released
from dashboards.figures.held_out._released import HeldOutCurve, LinesInfo
from dashboards.text import number
from sweeper.records import Point, ReleasedCurves, ScoreCurves

_SAYS_LITTLE = 0.5  # width of a band
_TOGETHER = (
    "triangles: bars that go on to 0; dotted: perfect calibration; p is of the misfit of all groups together: it may "
    "be small where each bar meets the diagonal"
)
_MOST_SILENT = 0.5  # of all groups, in a figure
_LEAST_P = 1 / 201  # of the 200 simulated statistics, none as large
_TICKS = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
_FEW_TICKS = (0.01, 0.5, 0.99)  # of a panel without room for all
_LEAST_SHARE = 5e-4  # beyond the outermost thresholds


def info(data: SweepData) -> LinesInfo:
    """Collect the groups of a few points of the front; none where noise hides most of them."""
    found = _collected(data)
    silent, groups = _count(found)
    return replace(found, lines=()) if silent > _MOST_SILENT * groups else found


def _collected(data: SweepData) -> LinesInfo:
    return _released.collected(data, "calibration on private test rows", _scores, _line)


def rows(info: LinesInfo) -> Table:
    """One row per group of each point, with the statistic of all groups of the point."""
    fits = [_fit(line.point) for line in info.lines for _ in line.x]
    return [row | fit for row, fit in zip(_released.rows(info, "predicted", "observed"), fits, strict=True)]


def plot(info: LinesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the figure; nothing for a sweep without curves of two classes."""
    title = "mean predicted probability of a group (axes of log-odds)"
    letters = _released.letters(info) if info.lines else 0
    share = f"share of class {_released.class_of(info)} (test)"
    places = [_log_odds(x) for line in info.lines for x in (*line.x, *line.y)]
    low, high = min([*places, _log_odds(_FEW_TICKS[0])]) - 0.4, max([*places, _log_odds(_FEW_TICKS[-1])]) + 0.4
    yaxis = {"title": {"text": share}, **_odds_axis(low, high, letters)}
    figure = _released.panels(
        info, theme, _odds_axis(low, high, letters), yaxis, title=title, note=_silent_in_words(info)
    )
    _released.make_square(figure)
    calibrated = _released.reference((low, high), (low, high), theme)
    for i, line in enumerate(info.lines):
        silent = _silent(line)
        others = [j for j in range(len(line.x)) if j not in silent]
        pale = _bars(line, silent, theme.line, "circle-open", 1)
        drawn = [pale, _bars(line, others, theme.blue, "circle", 2.5), _beyond(line, low, theme.muted), calibrated]
        for trace in drawn:
            figure.add_trace(trace, **_released.place(info, i))
    return figure


def _odds_axis(low: float, high: float, letters: float = inf) -> dict[str, Any]:
    """An axis of the logarithm of odds, with probabilities at its ticks: few where not all have room."""
    for ticks in (_TICKS, _FEW_TICKS):
        inside = [tick for tick in ticks if low <= _log_odds(tick) <= high]
        at, texts = [_log_odds(tick) for tick in inside], [f"{100 * tick:g}%" for tick in inside]
        kept = thin(at, texts, (low, high), letters)
        if len(kept) == len(inside):
            break
    return {"range": [low, high], "tickvals": [at[i] for i in kept], "ticktext": [texts[i] for i in kept]}


def _bars(line: HeldOutCurve, groups: Sequence[int], color: str, symbol: str, thickness: float) -> go.Scatter:
    """Groups with their bands as bars."""
    y, low, high = ([_log_odds(one[i]) for i in groups] for one in (line.y, line.below[1], line.above[1]))
    above = [end - middle for middle, end in zip(y, high, strict=True)]
    below = [middle - end for middle, end in zip(y, low, strict=True)]
    ends = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    return go.Scatter(
        x=[_log_odds(line.x[i]) for i in groups],
        y=y,
        mode="markers",
        marker={"color": color, "symbol": symbol, "size": 6},
        error_y={**ends, "color": color, "thickness": thickness, "width": 3},
        text=[f"{line.x[i]:.2%} predicted<br>{line.below[1][i]:.1%} to {line.above[1][i]:.1%}" for i in groups],
        hovertemplate="%{text}<extra></extra>",
    )


def _beyond(line: HeldOutCurve, low: float, color: str) -> go.Scatter:
    """Marks at the lower edge below bars that go on to 0, which an axis of odds does not have."""
    found = [i for i in range(len(line.x)) if line.below[1][i] <= _LEAST_SHARE]
    marker = {"symbol": "triangle-down", "size": 8, "color": color}
    x, y = [_log_odds(line.x[i]) for i in found], [low] * len(found)
    return go.Scatter(x=x, y=y, mode="markers", marker=marker, hoverinfo="skip", cliponaxis=False)


def _silent(line: HeldOutCurve) -> list[int]:
    """The groups whose bands say little."""
    return [i for i in range(len(line.x)) if line.above[1][i] - line.below[1][i] > _SAYS_LITTLE]


def _count(info: LinesInfo) -> tuple[int, int]:
    """How many groups say little, and how many there are."""
    return sum(len(_silent(line)) for line in info.lines), sum(len(line.x) for line in info.lines)


def _silent_in_words(info: LinesInfo) -> str:
    """How many groups say little, and that p is of all of them; empty where there is nothing to draw."""
    silent, groups = _count(info)
    words = f"{_TOGETHER}; much noise in {silent} of {groups} groups (pale)" if silent else _TOGETHER
    return words if groups else ""


def _lacks(data: SweepData) -> str:
    """How many groups noise hides, and the remedy, where these are most; empty where there are no curves."""
    silent, groups = _count(_collected(data))
    words = f"too much noise in {silent} of {groups} groups"
    return f"{words} (remedy: a smaller privacy.curve_noise or more test rows)" if silent else ""


def _remarks(data: SweepData) -> str:
    silent, groups = _count(info(data))
    words = f" There is much noise in {silent} of {groups} groups." if silent else ""
    return _released.left_out(data, _scores) + words


def _fit(point: Point) -> dict[str, float]:
    scores = None if point.curves is None else point.curves.scores
    return {} if scores is None else {"hosmer_lemeshow": scores.hosmer_lemeshow, "p_value": scores.p_value}


def _log_odds(share: float) -> float:
    inside = min(max(share, _LEAST_SHARE), 1.0 - _LEAST_SHARE)
    return log(inside / (1.0 - inside))


def _scores(curves: ReleasedCurves) -> ScoreCurves | None:
    return curves.scores


def _line(point: Point, scores: ScoreCurves) -> HeldOutCurve:
    p = f"p ≤ {number(_LEAST_P, 1)}" if scores.p_value <= _LEAST_P else f"p {number(scores.p_value, 2)}"
    x = scores.group_predicted
    fit = "Hosmer-Lemeshow", f"{p} (simulated)"  # the statistic alone, with noise in it, has no scale
    return HeldOutCurve(point, fit, x, scores.group_rates, (x, scores.group_low), (x, scores.group_high))


FIGURE: FigureKind[SweepData, LinesInfo] = FigureKind(
    name="calibration",
    heading="Calibration on private test rows",
    summary="observed shares over predicted probabilities of private test rows, and the Hosmer-Lemeshow statistic",
    caption=(
        "At most ten groups of about equal size by predicted probability, from the counts that the ROC curve was "
        "released with: fewer where several tenths of the rows lie between two thresholds or noise leaves a group "
        "empty. A panel for each point, the best one first. The bars cover the noise: the share among these rows is in "
        "them, for all groups at once. On the dotted diagonal the share is what was predicted: bars of a calibrated "
        "model meet it. Bars wider than 50 points say little and are pale. The p-value is that of calibrated models "
        "under the same noise, and small where the model is not calibrated. It may be small where each bar meets the "
        "diagonal: the statistic adds up the misfit of all groups and is compared with simulations of the noise in "
        "that sum, while bars allow for the largest noise at any threshold."
    ),
    position=46,
    info=info,
    plot=plot,
    rows=rows,
    remarks=_remarks,
    topic=Topic.FRONT,
    wide=True,
    needs="points of the front that released curves of two classes, with little noise",
    lacks=_lacks,
)
