"""What a budget buys: the best points at the price of the sweep, beside their own epsilons, fixed in advance.

Two ways to spend a budget are known from one finished sweep. Its own: at its price, and not below it,
every point may leave. And, for comparison, one training whose configuration and epoch were fixed in advance, which
nothing that this sweep has shown could choose.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import inf, isfinite
from typing import Any

import plotly.graph_objects as go

from dashboards.data import PRICE, SweepData
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic
from dashboards.figures._common import (
    LOG,
    epsilon_axis,
    header,
    interval_bars,
    last_epsilon,
    marks,
    new_figure,
    with_room,
    zoom,
)
from dashboards.figures._references import Reference, draw_references, references
from dashboards.figures._scores import VALIDATION, intervals_in_words
from dashboards.figures._staircases import EXPLORER, Step, best_in_words, rows_axis, staircase, step_lines, step_row
from dashboards.figures._tested import ON_TEST, Tested, crosses_in_words, crosses_of_lines, heights, tested
from dashboards.figures._theme import LIGHT, Theme
from dashboards.summary import best_of
from dashboards.text import delta_text, in_parentheses, in_sentence, radius_of, short_title, show, show_epsilon
from sweeper.privacy.pricing import OWN, Price
from sweeper.records import Point

_BEYOND = 1.5  # how far the axis goes beyond the price
_LOOKS = (("solid", "circle"), ("6px,3px", "square"))  # of the utility and of the certificate
_SWEEP, _ADVANCE = PRICE, OWN
_ON_TEST = (f"these models {ON_TEST}", "these on test rows")


@dataclass(frozen=True, slots=True)
class Bought:
    """What is known of one value."""

    name: str
    alone: tuple[Step, ...]  # its staircase over the points' own epsilons
    best: Step | None  # the best point, at the price of the sweep; None where that is not known or not finite
    tested: tuple[Tested, ...]  # the same model on test rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceInfo(FigureInfo):
    """Numbers of the price figure."""

    values: tuple[Bought, ...]  # utility, and the certificate where there is one
    right_end: float
    doubt: str  # behind the price, where it is not proven or no guarantee
    lines: tuple[Reference, ...]  # what to compare the utility with


def info(data: SweepData) -> PriceInfo:
    """Compute what budgets buy: one training fixed in advance, and any model of the sweep."""
    price = data.result.price
    epsilon = inf if price is None else price.epsilon
    names = [data.utility, *([data.certificate] if data.certificate else [])]
    values = tuple(value for name in names if (value := _bought(data, name, epsilon)).alone)
    last = max(last_epsilon(data.points), epsilon if isfinite(epsilon) else 0.0)
    sure = "; price not proven" if price is not None and price.unproven else ""
    return PriceInfo(
        **header(data, "best at own epsilon and at the price", *names)
        | {
            "epsilon_title": f"{OWN} (thin), epsilon paid (thick){LOG}, {delta_text(data)}{sure}{about_crosses(values)}"
        },
        values=values,
        doubt=_doubt(data, price),
        right_end=_BEYOND * last,
        lines=references(data, data.utility),
    )


def about_crosses(values: Sequence[Bought]) -> str:
    """Return what the axis says of crosses, where one of several marked models has none."""
    return "; without a cross: not tested" if _is_one_untested(values) else ""


def _is_one_untested(values: Sequence[Bought]) -> bool:
    """Whether a marked model has no cross, and another has one."""
    is_tested = [bool(value.tested) for value in values if value.best is not None]
    return any(is_tested) and not all(is_tested)


def _bought(data: SweepData, name: str, epsilon: float) -> Bought:
    best = best_of(data, name)
    reached = None if best is None or not isfinite(epsilon) else _step(best, name, epsilon)
    on_test = tested(data.result, [] if reached is None else [reached], name, is_sure=True)
    return Bought(name, staircase(data.front_points, name, data.direction(name)), reached, on_test)


def _step(point: Point, name: str, epsilon: float) -> Step:
    return Step(epsilon, point.values[name], *point.key, point.interval(name))


def rows(info: PriceInfo) -> Table:
    """The numbers of the figure: one row per step of each line, by the way to spend the budget."""
    table = []
    for value in info.values:
        after = [] if value.best is None else [value.best]
        ways = ((_ADVANCE, value.alone), (_SWEEP, after), (ON_TEST, [one.as_step for one in value.tested]))
        table += [{"way": way, "name": value.name} | step_row(step, "value") for way, steps in ways for step in steps]
    return table


def plot(info: PriceInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw what budgets buy: thin in advance, thick from the price of the sweep on; dashed what is certified."""
    epsilons = [step.epsilon for value in info.values for step in value.alone]
    axis = epsilon_axis(info, [*epsilons, *([info.right_end] if epsilons else [])])
    yaxis = rows_axis(info, *(value.name for value in info.values)) | {"range": _span(info)}
    figure = new_figure(info, theme, empty=not epsilons, height=420, xaxis=axis, yaxis=yaxis)
    for i, value in enumerate(info.values):
        figure.add_traces(_traces(value, info, theme, 10.0 ** axis["range"][1], theme.hue(i), _LOOKS[i]))
    if epsilons:
        on_test = [(value.tested, theme.hue(i)) for i, value in enumerate(info.values)]
        figure.add_traces(crosses_of_lines(figure, on_test, theme, narrow=info.narrow, names=_ON_TEST))
        draw_references(figure, info, info.lines, info.values[0].name, theme)
    return with_room(figure, info)


def _span(info: PriceInfo) -> list[float] | None:
    """The range of the vertical axis."""
    steps = [step for value in info.values for step in (*value.alone, *([value.best] if value.best else []))]
    found = [one for value in info.values for one in value.tested]
    return zoom(heights(steps, found), [line.value for line in info.lines])


def _traces(
    value: Bought, info: PriceInfo, theme: Theme, right_end: float, color: str, look: tuple[str, str]
) -> list[go.Scatter]:
    """The lines of a value: own ones to the price, and from it on to the end of the axis what every larger one buys."""
    dash, symbol = look
    advance = f"at {OWN}" if info.narrow else _ADVANCE
    name = escape(short_title(value.name))  # the whole title would be cut on a phone
    if info.still and not (info.narrow and info.doubt) and (radius := radius_of(value.name)):
        name = f"certified, L2 radius {escape(radius)}"
    bars = interval_bars([step.value for step in value.alone], [step.interval for step in value.alone], theme.muted)
    end = right_end if value.best is None else value.best.epsilon
    traces = step_lines(value.alone, end, color, name=f"{name}, {advance}", width=1.2, dash=dash)
    traces += [_bars(value.alone, bars, color)] if bars else []
    if value.best is not None:
        paid = show_epsilon(value.best.epsilon)
        whose = f"{escape(value.best.trial)}, epoch {escape(value.best.moment)}"
        reached = show(value.name, value.best.value) + in_parentheses(value.name, value.best.interval)
        scored = f"{name} ({VALIDATION})" if info.narrow else name  # which the axis says on a page
        words = f"{scored}, {_SWEEP} {paid}{info.doubt}: {reached}" + ("" if info.narrow else f", {whose}")
        traces += step_lines((value.best,), right_end, color, name=words, width=3, dash=dash)
        text = f"{_SWEEP}: epsilon {paid}{info.doubt}<br>{name} {reached}<br>{whose}"
        marker = {"size": 8, "color": color, "symbol": symbol}
        bars = interval_bars([value.best.value], [value.best.interval], color)
        traces.append(marks([value.best.epsilon], [value.best.value], [text], marker, error_y=bars, showlegend=False))
    return traces


def _bars(steps: Sequence[Step], bars: dict[str, Any], color: str) -> go.Scatter:
    """The intervals of the steps of a line, whose corners are not all steps."""
    x, y = [step.epsilon for step in steps], [step.value for step in steps]
    marker = {"size": 5, "color": color, "symbol": [EXPLORER if step.is_explorer else "circle" for step in steps]}
    return go.Scatter(x=x, y=y, mode="markers", marker=marker, error_y=bars, hoverinfo="skip", showlegend=False)


def _untested(data: SweepData) -> str:
    """Why a mark has no cross, where another has one."""
    return " A mark without a cross is a model that is not scored on test rows." * _is_one_untested(info(data).values)


def _drawn(info: PriceInfo) -> str:
    """The price, and what line a score is compared with where one is drawn."""
    paid = next((value.best.epsilon for value in info.values if value.best is not None), None)
    words = "" if paid is None else f" The price of the sweep is epsilon {show_epsilon(paid)}{info.doubt}."
    low, high = _span(info) or (-inf, inf)
    is_near = any(low <= line.value <= high for line in info.lines)
    return words + " Dashes and dots: what it is compared with, which the legend names." * is_near


def _doubt(data: SweepData, price: Price | None) -> str:
    if data.result.claim.exploratory:
        return " (exploratory: no guarantee)"
    return "" if price is None else price.doubt


def _found(info: PriceInfo) -> str:
    bought = [(value.name, value.best) for value in info.values if value.best is not None]
    alone = f"Fixed in advance, the best: {best_in_words(info.values[0].name, info.values[0].alone)}."
    if not bought:
        return alone
    values = [in_sentence(name, step.value, step.interval) for name, step in bought]
    paid = f"epsilon {show_epsilon(bought[0][1].epsilon)}{info.doubt}"
    return f"The price, {paid}, buys at best {', or '.join(values)}. {alone}"


FIGURE: FigureKind[SweepData, PriceInfo] = FigureKind(
    name="price",
    heading="What a budget buys",
    summary=("the best points at the price of the sweep, beside their own epsilons, fixed in advance"),
    caption=(
        "Solid: the first objective beside epsilon. Thick: the best model of this sweep by each score, at its price. "
        "Thin: the best points at their own epsilon. The gap between the last step of a thin line and the price pays "
        "for the other trainings, for spare steps, and for later epochs that gave no better model."
    ),
    terms=(
        "A smaller budget buys no model. An own epsilon holds for one training whose configuration and epoch were "
        "fixed in advance; a choice by this figure costs the price instead."
    ),
    position=15,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    awaits="The price beside own epsilons,<br>as soon as a trial has finished its first epoch",
    remarks=lambda data: (
        _drawn(info(data))
        + (" Dashed: what is certified." if data.certificate else "")
        + intervals_in_words(data)
        + crosses_in_words(data.result, data.utility)
        + _untested(data)
    ),
    topic=Topic.FRONT,
    epsilon_axis=True,
)
