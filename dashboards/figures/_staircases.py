"""Staircases: what is achievable within an epsilon, and how figures draw that."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite, nan
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dashboards.data import finite
from dashboards.figures._base import FigureInfo
from dashboards.figures._common import (
    SYMBOLS,
    beside,
    epsilon_axis,
    interval_bars,
    interval_row,
    label,
    new_figure,
    percent_axis,
    reached,
    value_axis,
)
from dashboards.figures._theme import Theme
from dashboards.text import in_sentence, radius_of, show_epsilon
from sweeper.privacy.pricing import OWN
from sweeper.records import Direction, Interval, Objective, Point
from sweeper.results.pick import surest
from sweeper.specification.objectives import AUROC, needs_two_classes

EXPLORERS = "dot"  # the dash of a line left of finals
EXPLORER = "circle-open"  # the mark of explorers, where finals come first
_MANY_STEPS = 12  # of one staircase


@dataclass(frozen=True, slots=True)
class Step:
    """From ``epsilon`` on, ``value`` is achievable; ``point`` achieves it."""

    epsilon: float
    value: float
    trial: str
    epoch: int
    made_from: str = ""
    interval: Interval | None = None  # of a value that is an estimate from noisy scores
    is_explorer: bool = False  # whether it lies left of the points among which the best is looked for

    @property
    def moment(self) -> str:
        """The epoch, and what the model was made from, in words."""
        return f"{self.epoch}, {self.made_from}" if self.made_from else str(self.epoch)


def own_epsilon(point: Point) -> float:
    """Return the epsilon of one training, NaN where it is not known."""
    return point.values.get("epsilon", nan)


def best_in_words(name: str, steps: Sequence[Step]) -> str:
    """Return the last step of a staircase as text: what is best in a value, and from which own epsilon on."""
    return f"{in_sentence(name, steps[-1].value, steps[-1].interval)} at {OWN} {show_epsilon(steps[-1].epsilon)}"


def staircase(
    points: Iterable[Point],
    name: str,
    direction: Direction = Direction.MAXIMIZE,
    *,
    at: Callable[[Point], float] = own_epsilon,
) -> tuple[Step, ...]:
    """What is achievable at epsilon <= x, or at another number of a point: each step is better than every one before.

    Points without a finite epsilon or value are passed over. At equal epsilon the better point counts, of equal ones
    the first.

    Where scores are noisy, it passes through the points among which the best is looked for: finals, see
    `sweeper.results.pick.surest`. Left of the first of them it passes through explorers, whose steps may be higher.
    """
    known = [point for point in points if isfinite(at(point)) and finite(point, name)]
    chosen = surest(known, Objective(name, direction))
    first = min(map(at, chosen), default=nan)
    explorers = _climb([point for point in known if at(point) < first], name, direction.sign, at, is_explorer=True)
    return (*explorers, *_climb(chosen, name, direction.sign, at, is_explorer=False))


def _climb(
    points: Sequence[Point], name: str, sign: float, at: Callable[[Point], float], *, is_explorer: bool
) -> list[Step]:
    """The points that are better than every one before them."""
    places = np.fromiter(map(at, points), np.float64, len(points))
    values = sign * np.fromiter((point.values[name] for point in points), np.float64, len(points))
    order = np.lexsort((-values, places))
    ahead = values[order] >= np.maximum.accumulate(values[order])
    steps = [
        Step(at(p), p.values[name], p.trial, p.epoch, p.made_from, p.interval(name), is_explorer)
        for p in (points[i] for i in order[ahead].tolist())
    ]
    kept: list[Step] = []
    for step in sorted(steps, key=lambda s: (s.epsilon, -sign * s.value)):
        if not kept or sign * step.value > sign * kept[-1].value:
            kept.append(step)
    return kept


def step_lines(
    steps: Sequence[Step],
    right_end: float,
    color: str,
    *,
    name: str,
    width: float = 2,
    dash: str = "solid",
) -> list[go.Scatter]:
    """A staircase, drawn to the right end of the axis; dotted as far as it passes through explorers."""
    explorers, others = _apart(steps)
    lines = []
    if explorers:
        lines.append(_step_line(explorers, others[0].epsilon, color, f"{name}, explorers", width, EXPLORERS))
        name = f"{name}, finals"
    return [*lines, _step_line(others, right_end, color, name, width, dash)]


def _step_line(steps: Sequence[Step], end: float, color: str, name: str, width: float, dash: str) -> go.Scatter:
    return go.Scatter(
        x=[*(step.epsilon for step in steps), *[end][: len(steps)]],
        y=[step.value for step in (*steps, *steps[-1:])],
        mode="lines",
        line={"shape": "hv", "width": width, "color": color, "dash": dash},
        name=name,
        hoverinfo="skip",
    )


def band(steps: Sequence[Step], right_end: float, color: str, *, name: str) -> list[go.Scatter]:
    """The intervals of a staircase, drawn to the right end of the axis; nothing where none is known."""
    known = [(step.epsilon, *step.interval) for step in steps if step.interval is not None]
    x = [*(epsilon for epsilon, _, _ in known), *[right_end][: len(known)]]
    look = {"x": x, "mode": "lines", "line": {"shape": "hv", "width": 0, "color": color}, "hoverinfo": "skip"}
    lows, highs = [low for _, low, _ in known], [high for _, _, high in known]
    return [
        go.Scatter(y=[*lows, *lows[-1:]], showlegend=False, **look),
        go.Scatter(y=[*highs, *highs[-1:]], fill="tonexty", fillcolor=color, name=name, **look),
    ][: 2 * bool(known)]


def _apart(steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """The steps of explorers, and the others, which some are wherever there is a step."""
    return [step for step in steps if step.is_explorer], [step for step in steps if not step.is_explorer]


def curve_lines(
    steps: Sequence[Step], right_end: float, color: str, symbol: str, *, name: str, texts: Sequence[str]
) -> list[go.Scatter]:
    """One of several staircases, told apart by colour and mark, and drawn to the right end of the axis.

    Its line is solid, for dashes of a staircase look like gaps in it, but dotted with open marks through explorers.
    Every step is marked, many with smaller marks.
    """
    explorers, others = _apart(steps)
    by_step = dict(zip(steps, texts, strict=True))
    size = 7 if len(steps) <= _MANY_STEPS else 5
    look: dict[str, Any] = {"color": color, "legendgroup": name, "name": name, "size": size}
    drawn = [_marked(others, right_end, [by_step[step] for step in others], symbol=symbol, dash="solid", **look)]
    if explorers:
        opened = symbol if symbol.endswith("-open") else f"{symbol}-open"
        said = [by_step[step] for step in explorers]
        line = _marked(explorers, others[0].epsilon, said, symbol=opened, dash=EXPLORERS, **look)
        drawn.append(line.update(showlegend=False))
    bars = interval_bars([step.value for step in steps], [step.interval for step in steps], color)
    if bars:
        x, y = [step.epsilon for step in steps], [step.value for step in steps]
        hidden = {"marker": {"opacity": 0}, "hoverinfo": "skip", "showlegend": False, "legendgroup": name}
        drawn.append(go.Scatter(x=x, y=y, mode="markers", error_y=bars, **hidden))
    return drawn


def _marked(
    steps: Sequence[Step],
    end: float,
    texts: Sequence[str],
    *,
    color: str,
    symbol: str,
    size: int,
    dash: str,
    **more: Any,
) -> go.Scatter:
    """A line with a mark at each step; its end, where the last value still holds, has none."""
    return go.Scatter(
        x=[*(step.epsilon for step in steps), end],
        y=[step.value for step in (*steps, steps[-1])],
        mode="lines+markers",
        line={"shape": "hv", "width": 1.6, "color": color, "dash": dash},
        marker={
            "size": [*[size] * len(steps), 0],
            "symbol": symbol,
            "color": color,
            "opacity": 1,
            "line": {"width": 1 if symbol.endswith("-open") else 0, "color": color},
        },
        cliponaxis=False,
        text=[*texts, ""],
        hovertemplate="%{text}<extra></extra>",
        **more,
    )


def rows_axis(info: FigureInfo, *names: str) -> dict[str, Any]:
    """An axis of several values: shares of rows, what the first is called, or all their kinds where they differ."""
    if not names:
        return {}
    if len({_measure(name) for name in names}) > 1:
        kinds = dict.fromkeys(label(name) if radius_of(name) is None else "certified accuracy" for name in names)
        title = f"{' and '.join(kinds)}{beside(info)}"
        return {"title": {"text": title.replace(", 95", ",<br>95")}, **percent_axis(*names)}
    if _measure(names[0]) != "accuracy":
        return value_axis(info, names[0]) | percent_axis(*names)
    title = f"rows decided correctly{beside(info)}".replace(", 95", ",<br>95")
    return {"title": {"text": title}, **percent_axis(*names)}


def _measure(name: str) -> str:
    """What a score measures, whatever the radius: accuracy, AUROC, or itself."""
    if needs_two_classes(name):
        return AUROC
    return name if radius_of(name) is None else "accuracy"


def curve_look(theme: Theme, index: int) -> tuple[str, str]:
    """Colour and mark of one of several lines."""
    return (theme.hue(index % 6 - 1) if index % 6 else theme.ink), SYMBOLS[index % len(SYMBOLS)]


@dataclass(frozen=True, slots=True)
class Staircase:
    """One staircase as it is drawn.

    Its name in the legend, what its values are, words before each step's text, and its colour and mark where these
    mean something.
    """

    legend: str
    value: str
    steps: tuple[Step, ...]
    before: str = ""
    look: tuple[str, str] | None = None


def step_row(step: Step, value: str) -> dict[str, Any]:
    """A step as a row of a table, its value under the name given."""
    return {
        "epsilon": step.epsilon,
        value: step.value,
        "trial": step.trial,
        "epoch": step.epoch,
        "made_from": step.made_from,
        **interval_row(step.interval),
    }


def draw(
    info: FigureInfo, theme: Theme, curves: Sequence[Staircase], right_end: float, *, height: int, yaxis: dict[str, Any]
) -> go.Figure:
    """Draw staircases over one epsilon axis, told apart by colour and mark."""
    epsilons = [step.epsilon for stairs in curves for step in stairs.steps]
    axis = epsilon_axis(info, [*epsilons, *([right_end] if epsilons else [])])
    figure = new_figure(info, theme, empty=not epsilons, height=height, xaxis=axis, yaxis=yaxis, showlegend=True)
    for i, stairs in enumerate(curves):
        texts = [_text(stairs, step) for step in stairs.steps]
        look = stairs.look or curve_look(theme, i)
        figure.add_traces(curve_lines(stairs.steps, right_end, *look, name=stairs.legend, texts=texts))
    figure.add_traces(explorers_key([stairs.steps for stairs in curves], theme))
    return figure


def explorers_key(lines: Iterable[Sequence[Step]], theme: Theme) -> list[go.Scatter]:
    """What the legend shows for explorers of several lines; nothing where there are none."""
    if not any(step.is_explorer for steps in lines for step in steps):
        return []
    look = {"color": theme.muted, "symbol": EXPLORER, "size": 7}
    line = {"color": theme.muted, "dash": EXPLORERS, "width": 1.6}
    return [go.Scatter(x=[None], y=[None], mode="lines+markers", marker=look, line=line, name="explorers")]


def _text(stairs: Staircase, step: Step) -> str:
    where = f"{stairs.before}{escape(step.trial)}, epoch {escape(step.moment)}"
    return f"{where}<br>{reached(step.epsilon, stairs.value, step.value, step.interval)}"
