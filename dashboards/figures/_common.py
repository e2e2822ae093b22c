"""What several figures share: texts, axes, the staircase of a front, and the exploratory watermark."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite, nan
from typing import Any

import numpy as np
import plotly.graph_objects as go

from clipless.datasets.metadata import in_feature_units
from dashboards.data import SweepData, finite
from dashboards.figures._base import NOTHING_YET, FigureInfo, Table
from dashboards.figures._scores import VALIDATION, half_width, scores_in_words, up_to
from dashboards.figures._theme import Theme, template
from dashboards.figures._ticks import log_ticks, minor_ticks
from dashboards.text import (
    delta_text,
    in_parentheses,
    is_fraction,
    number,
    radius_of,
    setting,
    show,
    show_epsilon,
    show_test,
    show_value,
    title_of,
)
from sweeper.privacy.pricing import OWN, OWN_EPSILON, Price, value_name
from sweeper.records import Direction, Interval, Objective, Point
from sweeper.results.comparison import Comparison
from sweeper.results.pick import surest

PRICE_OF_SWEEP = "price of the sweep"  # what a model of it costs, whichever it is
_COLUMN_LETTERS = 44  # of the title of an axis in one line
WATERMARK = "exploratory: no guarantee"
_HOVER_LINES = 8
_EMPTY_HEIGHT = 160
_SMALLEST_SPREAD = 0.05  # to either side of the values of an axis whose values are all alike
_PERCENT = [  # as many digits as the distance of the ticks asks for, however far a reader zooms
    {"dtickrange": [None, 9e-4], "value": ".2%"},
    {"dtickrange": [9e-4, 9e-3], "value": ".1%"},
    {"dtickrange": [9e-3, None], "value": ".0%"},
]
_MANY_STEPS = 12  # of one staircase
MANY = 60  # more marks than this are drawn smaller
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")
_MIDDLE: dict[str, Any] = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False}


def epsilon_title(data: SweepData) -> str:
    """What the epsilon axis promises: each value holds for an epoch fixed in advance; a model costs the price."""
    price = data.result.price
    paid = "" if price is None else f"; {PRICE_OF_SWEEP}: {show_epsilon(price.epsilon)}"
    return f"{OWN_EPSILON}, {delta_text(data)}{paid}"


def epsilon_axis(info: FigureInfo, epsilons: Iterable[float], shown: Iterable[float] = ()) -> dict[str, Any]:
    """A logarithmic epsilon axis with ticks where people quote budgets: 1, 2, 3, 5, 8, 10.

    It begins and ends with ``shown``, if there are any; the ticks of the other epsilons are there for who zooms out.
    """
    whole = log_ticks(epsilons, extra=(8,))
    near = log_ticks(shown, extra=(8,))
    if near:
        ticks = sorted({*whole["tickvals"], *near["tickvals"]})
        whole = {"range": near["range"], "tickvals": ticks, "ticktext": [number(tick) for tick in ticks]}
    return {"type": "log", "title": {"text": _in_lines(info.epsilon_title, info)}, **whole, **minor_ticks(whole)}


def linear_epsilon(figure: go.Figure) -> go.Figure:
    """Give the epsilon axis of a figure that has one a linear scale from 0, and return the figure."""
    linear = {"type": "linear", "range": None, "tickvals": None, "ticktext": None, "rangemode": "tozero"}
    for axis in (figure.layout.xaxis, figure.layout.scene.xaxis):
        if axis.type == "log":
            axis.update(linear)
    figure.update_xaxes(minor=None)
    return figure


def label(name: str) -> str:
    """A value's name in words, for Plotly, which understands some markup."""
    return escape(title_of(name))


def value_axis(info: FigureInfo, name: str) -> dict[str, Any]:
    """An axis of one objective."""
    return {"title": {"text": _in_lines(f"{label(name)} ({info.scores})", info)}, **percent_axis(name)}


def _in_lines(title: str, info: FigureInfo) -> str:
    """The title of an axis, in two lines where a column has no room for one."""
    sign = ";" if ";" in title else ","
    return title.replace(f"{sign} ", f"{sign}<br>", 1) if info.narrow and len(title) > _COLUMN_LETTERS else title


def percent_axis(*names: str) -> dict[str, Any]:
    """How an axis writes its ticks: as percentages if all the values are shares, else as Plotly does."""
    return {"tickformat": ".0%", "tickformatstops": _PERCENT} if all(map(is_fraction, names)) else {}


def rows_axis(info: FigureInfo, *names: str) -> dict[str, Any]:
    """An axis of several values of one kind: shares of the validation rows, else what the first one is called."""
    if not names:
        return {}
    if not all(name == "accuracy" or radius_of(name) is not None for name in names):
        return value_axis(info, names[0]) | percent_axis(*names)
    title = f"share of rows decided correctly<br>({info.scores.replace(', ', ',<br>') if info.narrow else info.scores})"
    return {"title": {"text": title}, **percent_axis(*names)}


def zoom(values: Iterable[float], near: Iterable[float] = ()) -> list[float] | None:
    """Range of an axis that shows all the values, and lines beside them that are nearer than half their spread.

    >>> zoom([0.83, 0.88])
    [0.825, 0.885]
    >>> zoom([0.83, 0.88], near=[0.81, 0.12])
    [0.803, 0.887]
    """
    usable = [value for value in values if isfinite(value)]
    if not usable:
        return None
    low, high = min(usable), max(usable)
    if low == high:
        return [round(low - _SMALLEST_SPREAD, 6), round(high + _SMALLEST_SPREAD, 6)]
    reach = (high - low) / 2
    for line in near:
        if low - reach <= line <= high + reach:
            low, high = min(low, line), max(high, line)
    pad = 0.1 * (high - low)
    return [round(low - pad, 6), round(high + pad, 6)]


@dataclass(frozen=True, slots=True)
class Step:
    """From ``epsilon`` on, ``value`` is achievable; ``point`` achieves it."""

    epsilon: float
    value: float
    trial: str
    epoch: int
    made_from: str = ""
    interval: Interval | None = None  # of a value that is an estimate from noisy scores

    @property
    def moment(self) -> str:
        """The epoch, and what the model was made from, in words."""
        return f"{self.epoch}, {self.made_from}" if self.made_from else str(self.epoch)


def staircase(points: Iterable[Point], name: str, direction: Direction = Direction.MAXIMIZE) -> tuple[Step, ...]:
    """What is achievable at epsilon <= x: each step is better than every one before it.

    Points without a finite epsilon or value are passed over. At equal epsilon the better point counts. Where scores are
    noisy, it passes through the points among which the best is looked for: finals, see `sweeper.results.pick.surest`.
    """
    sign = direction.sign
    points = surest([point for point in points if finite(point, "epsilon", name)], Objective(name, direction))
    steps = [
        Step(p.values["epsilon"], p.values[name], *p.key, p.interval(name)) for p in _candidates(points, name, sign)
    ]
    kept: list[Step] = []
    for step in sorted(steps, key=lambda s: (s.epsilon, -sign * s.value, s.trial, s.epoch, s.made_from)):
        if not kept or sign * step.value > sign * kept[-1].value:
            kept.append(step)
    return tuple(kept)


def _candidates(points: Sequence[Point], name: str, sign: float) -> list[Point]:
    """The points that may be steps: finite, and nowhere behind what smaller epsilons reach."""
    count = len(points)
    epsilons = np.fromiter((p.values.get("epsilon", nan) for p in points), np.float64, count)
    values = sign * np.fromiter((p.values.get(name, nan) for p in points), np.float64, count)
    usable = np.flatnonzero(np.isfinite(epsilons) & np.isfinite(values))
    order = usable[np.lexsort((-values[usable], epsilons[usable]))]
    ahead = values[order] >= np.maximum.accumulate(values[order])
    return [points[i] for i in order[ahead].tolist()]


def hover_texts(data: SweepData, points: Sequence[Point], *, configured: bool = True) -> tuple[str, ...]:
    """Trial, epoch, every value, its deviation over repeats, and the part of the configuration that varies, escaped.

    ``configured=False`` leaves the configuration out, where there are too many points to say it for each.
    """
    names = data.varying
    configurations: dict[str, str] = defaultdict(str)
    for id_ in {point.trial for point in points} if configured else ():
        flat = data.settings[id_]
        lines = [f"{escape(name)} = {escape(setting(flat[name]))}" for name in names if name in flat]
        more = [f"… and {len(lines) - _HOVER_LINES} more"] if len(lines) > _HOVER_LINES else []
        configurations[id_] = "<br>".join([*lines[:_HOVER_LINES], *more])
    return tuple(_hover(point, configurations[point.trial], data.result.price) for point in points)


def _hover(point: Point, configuration: str, price: Price | None) -> str:
    test: Mapping[str, float] = point.test or {}
    lines = [f"<b>{escape(point.trial)}</b>, epoch {escape(point.moment)}"]
    for name in point.values:
        deviation = point.deviation(name)
        spread = "" if deviation is None else f" ± {show(name, deviation)}"
        tested = f" (test {show_test(point, name)})" if name in test and name != "epsilon" else ""
        lines.append(f"{escape(value_name(name))}: {show_value(point, name)}{spread}{tested}")
    lines += [f"price: epsilon {show_epsilon(price.epsilon)}"] if price else []
    return "<br>".join([*lines, *([configuration] if configuration else [])])


def curve_line(
    steps: Sequence[Step],
    right_end: float,
    color: str,
    symbol: str,
    *,
    name: str,
    texts: Sequence[str],
) -> go.Scatter:
    """One of several staircases, told apart by colour and mark, and drawn to the right end of the axis.

    Its line is solid: dashes of a staircase look like gaps in it. Every step is marked, many with smaller marks.
    """
    size = 7 if len(steps) <= _MANY_STEPS else 5
    return go.Scatter(
        x=[*(step.epsilon for step in steps), right_end],
        y=[step.value for step in (*steps, steps[-1])],
        mode="lines+markers",
        line={"shape": "hv", "width": 1.6, "color": color},
        marker={
            "size": [*[size] * len(steps), 0],  # none at the end of the axis
            "symbol": symbol,
            "color": color,
            "opacity": 1,
            "line": {"width": 1 if symbol.endswith("-open") else 0, "color": color},
        },
        error_y=interval_bars([step.value for step in steps], [step.interval for step in steps], color),
        cliponaxis=False,
        text=[*texts, texts[-1]],
        hovertemplate="%{text}<extra></extra>",
        name=name,
    )


def interval_bars(values: Sequence[float], intervals: Sequence[Interval | None], color: str) -> dict[str, Any] | None:
    """The intervals of noisy scores as error bars, as far as they lie beyond the values; None without, or of many."""
    if not any(intervals) or len(values) > MANY:
        return None
    ends = [interval or (value, value) for value, interval in zip(values, intervals, strict=True)]
    above = [max(high - value, 0.0) for value, (_, high) in zip(values, ends, strict=True)]
    below = [max(value - low, 0.0) for value, (low, _) in zip(values, ends, strict=True)]
    look = {"color": color, "thickness": 1, "width": 3}
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look}


def curve_look(theme: Theme, index: int) -> tuple[str, str]:
    """Colour and mark of one of several lines."""
    return (theme.hue(index % 6 - 1) if index % 6 else theme.ink), SYMBOLS[index % len(SYMBOLS)]


def marks(x: Sequence[float], y: Sequence[Any], texts: Sequence[str], marker: Any, **more: Any) -> go.Scatter:
    """Marks with a text each."""
    hover = "%{text}<extra></extra>"
    return go.Scatter(x=x, y=y, mode="markers", marker=marker, text=texts, hovertemplate=hover, **more)


def short_names(names: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """The shortest ends of dotted names that stay distinct from each other and from ``taken``."""
    labels = {name: name.rpartition(".")[2] for name in names}
    found = [*labels.values(), *taken]
    return {name: name if found.count(label) > 1 else label for name, label in labels.items()}


def point_name(point: Point) -> str:
    """A point's identity as one text, by which a page knows what was clicked."""
    return ".".join(map(str, filter(None, point.key)))


def point_rows(points: Iterable[Point], **more: Any) -> Table:
    """One row per point: what identifies it, and its values."""
    return [{"trial": p.trial, "epoch": p.epoch, "made_from": p.made_from, **dict(p.values), **more} for p in points]


def header(data: SweepData, title: str, *names: str) -> dict[str, Any]:
    """The fields of `FigureInfo`, with scores of these names, by default of the utility.

    Radii behind an encoder are said to be no distances between raw rows.
    """
    units = "; radii in feature units" if in_feature_units(data.result.claim.radius_unit) else ""
    return {
        "title": f"{escape(data.name)}: {title}{units}",
        "epsilon_title": epsilon_title(data),
        "scores": scores_in_words(data.result, names or (data.utility,)),
        "exploratory": data.result.claim.exploratory,
    }


def new_figure(info: FigureInfo, theme: Theme, *, empty: bool, **layout: Any) -> go.Figure:
    """A figure in the theme: a watermark if the sweep is exploratory, a word if there is nothing to show."""
    figure = go.Figure()
    figure.update_layout(template=template(theme), title={"text": info.title}, **layout)
    if empty:
        figure.update_layout(height=_EMPTY_HEIGHT, xaxis={"visible": False}, yaxis={"visible": False})
        figure.add_annotation(text=NOTHING_YET, font={"color": theme.muted}, **_MIDDLE)
    if info.exploratory:
        watermark(figure, theme)
    return figure


def over_epsilon(
    info: FigureInfo,
    theme: Theme,
    epsilons: Sequence[float],
    name: str,
    *,
    height: int,
    shown: Sequence[float] = (),
    values: list[float] | None = None,
) -> go.Figure:
    """A figure of an objective over epsilon, empty without any; it opens at ``shown`` epsilons and ``values``."""
    xaxis = epsilon_axis(info, epsilons, shown)
    yaxis = value_axis(info, name) | ({"range": values} if values else {})
    return new_figure(info, theme, empty=not epsilons, height=height, xaxis=xaxis, yaxis=yaxis)


def reached(epsilon: float, name: str, value: float, interval: Interval | None = None) -> str:
    """An epsilon and what is reached there, in words, with the interval of a noisy score."""
    return f"{OWN} {show_epsilon(epsilon)}: {label(name)} {show(name, value)}{in_parentheses(name, interval)}"


def watermark(figure: go.Figure, theme: Theme) -> None:
    """Write across the figure that its numbers are no guarantee."""
    font = {"size": 38, "color": theme.watermark}
    figure.add_annotation(name="watermark", text=WATERMARK, textangle=-18, font=font, **_MIDDLE)


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


def last_epsilon(points: Iterable[Point]) -> float:
    """The largest finite epsilon of the points, 1 without any."""
    return max((point.values["epsilon"] for point in points if finite(point, "epsilon")), default=1.0)


def step_row(step: Step, value: str) -> dict[str, Any]:
    """A step as a row of a table, its value under the name given."""
    return {
        "epsilon": step.epsilon,
        value: step.value,
        "trial": step.trial,
        "epoch": step.epoch,
        "made_from": step.made_from,
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
        figure.add_trace(curve_line(stairs.steps, right_end, *look, name=stairs.legend, texts=texts))
    return figure


def _text(stairs: Staircase, step: Step) -> str:
    where = f"{stairs.before}{escape(step.trial)}, epoch {escape(step.moment)}"
    return f"{where}<br>{reached(step.epsilon, stairs.value, step.value, step.interval)}"


def compared(comparison: Comparison, title: str) -> dict[str, Any]:
    """The fields of `FigureInfo`."""
    deltas = {t.delta for run in comparison.runs for t in run.front.trials.values() if t.delta is not None}
    deltas_in_words = f"delta = {number(deltas.pop())}" if len(deltas) == 1 else "of different deltas"
    names = " and ".join(group.name for group in comparison.groups)
    halves = [half_width(run.front, (comparison.utility.name,)) for run in comparison.runs if run.front.points]
    known = [half for half in halves if half is not None]
    return {
        "title": f"{escape(names)}: {title}",
        "epsilon_title": f"{OWN_EPSILON}, {deltas_in_words}",
        "scores": f"{VALIDATION}, {up_to(max(known))}" if known and len(known) == len(halves) else VALIDATION,
        "exploratory": comparison.exploratory,
    }
