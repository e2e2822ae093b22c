"""What several figures share: texts, axes, the staircase of a front, and the exploratory watermark."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from math import ceil, isfinite
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from clipless.datasets.metadata import in_feature_units
from dashboards.data import SweepData, finite
from dashboards.figures._base import NOTHING_YET, FigureInfo, Table
from dashboards.figures._comparable import in_lines
from dashboards.figures._scores import compared_in_words, scores_in_words
from dashboards.figures._theme import Theme, template
from dashboards.figures._ticks import log_ticks, minor_ticks
from dashboards.text import (
    delta_text,
    in_parentheses,
    is_fraction,
    number,
    setting,
    show,
    show_epsilon,
    show_test,
    show_value,
    title_of,
)
from sweeper.pareto.dominance import Box
from sweeper.privacy.pricing import OWN, OWN_EPSILON, Price, value_name
from sweeper.records import Interval, Point
from sweeper.results.comparison import Comparison

PRICE_OF_SWEEP = "price of the sweep"  # what a model of it costs, whichever it is
_PAGE_TITLE = 105  # letters of one line of the title of an axis on a page
_TERMS_LETTERS = 72  # in one line of a column, of the small text below the name of an axis
_HEIGHT_LETTERS = (36, 28)  # of one along the height of a figure, on a page and in a column
WATERMARK = "exploratory: no guarantee"
SMALL_LINE = 15  # pixels of margin that a line of it takes
SMALL = "<span style='font-size:10.5px'>{}</span>"
LOG = ", log"  # behind what a logarithmic axis shows
FIRST_IN_LEGEND, LAST_IN_LEGEND = 999, 1001  # places before and behind traces without one
_OWN_LOG = f"{OWN_EPSILON.removesuffix(')')}{LOG})"
_HOVER_LINES = 8
_PAGE_LETTERS = 180  # that fit one row of a legend on a page
_SYMBOL_LETTERS = 9  # that a symbol of it takes
_TITLE, _ROW = 64, 19  # pixels above a figure for its title, and for a row of its legend
_LEAST_PAD = 0.02  # beyond the outermost hypervolumes
_SHORT_BAR = 0.06  # from end to end of a scale of colours whose ticks have a decimal
_ALONE = 0.05  # from the one value of a scale to either of its ends
_EMPTY_HEIGHT = 160
_BELOW_ZERO = 0.02  # share of an axis below 0 where no value is: marks at 0 are whole
_SMALLEST_SPREAD = 0.05  # to either side of the values of an axis whose values are all alike
_PERCENT = [  # as many digits as the distance of the ticks asks for, however far a reader zooms
    {"dtickrange": [None, 9e-4], "value": ".2%"},
    {"dtickrange": [9e-4, 9e-3], "value": ".1%"},
    {"dtickrange": [9e-3, None], "value": ".0%"},
]
MANY = 60  # more marks than this are drawn smaller
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")
_MIDDLE: dict[str, Any] = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper", "showarrow": False}


def epsilon_title(data: SweepData) -> str:
    """What the epsilon axis promises: each value holds for an epoch fixed in advance; a model costs the price."""
    price = data.result.price
    paid = "" if price is None else f"; {PRICE_OF_SWEEP}: {show_epsilon(price.epsilon)}{price.doubt}"
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
    title = info.epsilon_title.replace(OWN_EPSILON, _OWN_LOG)
    return {"type": "log", "title": {"text": title_below(title, info)}, **whole, **minor_ticks(whole)}


def linear_epsilon(figure: go.Figure) -> go.Figure:
    """Give the epsilon axis of a figure that has one a linear scale from 0, and return the figure."""
    linear = {"type": "linear", "range": None, "tickvals": None, "ticktext": None, "rangemode": "tozero"}
    for axis in (figure.layout.xaxis, figure.layout.scene.xaxis):
        if axis.type == "log":
            axis.update(linear, title={"text": axis.title.text.replace(LOG, "")})
    figure.update_xaxes(minor=None)
    return figure


def label(name: str) -> str:
    """A value's name in words, for Plotly, which understands some markup; pictures say which radius it is."""
    return escape(title_of(name)).replace("at radius", "at L2 radius")


def value_axis(info: FigureInfo, name: str) -> dict[str, Any]:
    """An axis of one objective."""
    title = f"{label(name)}{beside(info)}"
    if len(title) > _HEIGHT_LETTERS[info.narrow]:
        title = title.replace(" at L2", "<br>at L2").replace(", means", ",<br>means")
        title = title.replace(", 95", ",<br>95")
    return {"title": {"text": title}, **percent_axis(name)}


def beside(info: FigureInfo) -> str:
    """How sure scores are, behind the title of their axis; a column has more room for it below the other axis."""
    return "" if _is_said_below(info) else f" ({info.scores})"


def _is_said_below(info: FigureInfo) -> bool:
    return info.narrow and ", " in info.scores


def title_below(title: str, info: FigureInfo) -> str:
    """The title of a horizontal axis; in a column its name, and small below it all the rest, with how sure scores are.

    What the rest says of the axis begins with the first semicolon or delta.
    """
    if not info.narrow:
        return "<br>".join(in_lines(title, _PAGE_TITLE)) if len(title) > _PAGE_TITLE else title
    name, *terms = re.split(r"; |, (?=delta)", title)
    terms += [info.scores] if _is_said_below(info) else []
    terms += [info.test_scores] if ", " in info.test_scores else []
    return with_terms(name, terms)


def with_terms(name: str, terms: Iterable[str], letters: int = _TERMS_LETTERS) -> str:
    """The name of an axis of a column, and below it terms in small lines of so many letters."""
    lines = in_lines("; ".join(filter(None, terms)), letters)
    return "<br>".join([name, *(SMALL.format(line) for line in lines if line)])


def percent_axis(*names: str) -> dict[str, Any]:
    """How an axis writes its ticks: as percentages if all the values are shares, else as Plotly does."""
    return {"tickformat": ".0%", "tickformatstops": _PERCENT} if all(map(is_fraction, names)) else {}


def box_in_words(box: Box, letters: int) -> str:
    """What a hypervolume is a share of, in lines of so many letters."""
    ends: dict[str, list[str]] = {}
    for name, worst in box.reference.items():
        low, high = sorted((worst, box.ideal[name]))
        scale = LOG if name == "epsilon" and box.log_epsilon else ""
        span = f"({number(low)} to {number(high)}{scale})".replace(" ", "\N{NO-BREAK SPACE}")
        ends.setdefault(span, []).append(title_of(name))
    sides = ", ".join(f"{' and '.join(names)} {span}" for span, names in ends.items())
    lines = wrap(f"box: {sides}", letters)
    return "<br>".join(map(escape, lines))


def zoom(values: Iterable[float], near: Iterable[float] = ()) -> list[float] | None:
    """Range of an axis that shows all the values, and lines beside them that are nearer than half their spread.

    >>> zoom([0.83, 0.88])
    [0.825, 0.885]
    >>> zoom([0.83, 0.88], near=[0.81, 0.12])
    [0.803, 0.887]
    >>> zoom([0.0, 1.0])
    [-0.02, 1.1]
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
    first = low - pad if low < 0.0 else max(low - pad, -_BELOW_ZERO * (high - low))
    return [round(first, 6), round(high + pad, 6)]


def around(volumes: Sequence[float]) -> list[float] | None:
    """Range of an axis of hypervolumes, not so near that a small difference looks large.

    >>> around([0.3, 0.31])
    [0.28, 0.33]
    """
    if not volumes:
        return None
    low, high = min(volumes), max(volumes)
    pad = max(_LEAST_PAD, 0.1 * (high - low))
    return [round(max(low - pad, 0.0), 6), round(min(high + pad, 1.0), 6)]


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


def interval_bars(values: Sequence[float], intervals: Sequence[Interval | None], color: str) -> dict[str, Any] | None:
    """The intervals of noisy scores as error bars, as far as they lie beyond the values; None without, or of many."""
    if not any(intervals) or len(values) > MANY:
        return None
    pairs = list(zip(values, intervals, strict=True))
    above = [None if ends is None else max(ends[1] - value, 0.0) for value, ends in pairs]
    below = [None if ends is None else max(value - ends[0], 0.0) for value, ends in pairs]
    look = {"color": color, "thickness": 1, "width": 3}
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, **look}


def color_ends(values: Sequence[float]) -> dict[str, float]:
    """The ends of a scale of colours; a value that stands alone is in its middle."""
    low, high = min(values), max(values)
    pad = 0.0 if low < high else _ALONE
    return {"cmin": low - pad, "cmax": high + pad}


def color_bar(title: str, values: Sequence[float] = ()) -> dict[str, Any]:
    """A slim bar inside the right margin, its title along it, so that it fits a phone; whole percents unless near."""
    return {
        "title": {"text": title, "side": "right", "font": {"size": 12}},
        "thickness": 10,
        "len": 0.9,
        "outlinewidth": 0,
        "tickformat": ".1%" if values and max(values) - min(values) < _SHORT_BAR else ".0%",
        "tickfont": {"size": 11},
        "xpad": 8,
    }


def marks(x: Sequence[float], y: Sequence[Any], texts: Sequence[str], marker: Any, **more: Any) -> go.Scatter:
    """Marks with a text each."""
    hover = "%{text}<extra></extra>"
    return go.Scatter(x=x, y=y, mode="markers", marker=marker, text=texts, hovertemplate=hover, **more)


def said_in_legend(text: str, theme: Theme) -> go.Scatter:
    """Words in the legend of a picture, which has no page around it, beside no mark."""
    return go.Scatter(x=[None], y=[None], mode="markers", marker={"color": theme.paper}, name=text)


def bar_key(text: str, color: str) -> go.Scatter:
    """Words in the legend of a picture beside a mark like an error bar."""
    look = {"symbol": "line-ns", "size": 11, "color": color, "line": {"width": 1.5, "color": color}}
    return go.Scatter(x=[None], y=[None], mode="markers", marker=look, name=text)


def short_names(names: Sequence[str], taken: Sequence[str] = ()) -> dict[str, str]:
    """The shortest ends of dotted names that stay distinct from each other and from ``taken``; of a choice its place.

    >>> short_names(["training.loss.name", "model.width"])
    {'training.loss.name': 'loss', 'model.width': 'width'}
    """
    labels = {name: name.removesuffix(".name").rpartition(".")[2] for name in names}
    found = [*labels.values(), *taken]
    return {name: name if found.count(label) > 1 else label for name, label in labels.items()}


def point_name(point: Point) -> str:
    """A point's identity as one text, by which a page knows what was clicked."""
    return ".".join(map(str, filter(None, point.key)))


def point_rows(points: Iterable[Point], *names: str, **more: Any) -> Table:
    """One row per point: what identifies it, its values, those of the names on test rows, intervals of the first."""
    return [
        {"trial": p.trial, "epoch": p.epoch, "made_from": p.made_from, **dict(p.values), **_known(p, *names), **more}
        for p in points
    ]


def _known(point: Point, name: str = "", *others: str) -> dict[str, float | None]:
    if not name:
        return {}
    test = point.test or {}
    known = {
        **interval_row(point.interval(name)),
        "test": test.get(name),
        **interval_row(point.test_interval(name), "test "),
    }
    return known | {f"test {other}": test.get(other) for other in others}


def interval_row(interval: Interval | None, prefix: str = "") -> dict[str, float | None]:
    """The ends of an interval as columns of a table, empty where there is none."""
    low, high = interval or (None, None)
    return {f"{prefix}low": low, f"{prefix}high": high}


def header(data: SweepData, title: str, *names: str) -> dict[str, Any]:
    """The fields of `FigureInfo`, with scores of these names, by default of the utility.

    A sweep that is not called as its data is has their name behind its own; radii behind an encoder are said to be no
    distances between raw rows.
    """
    claim = data.result.claim
    units = "; radii in feature units" if in_feature_units(claim.radius_unit) else ""
    name = data.name if claim.data in data.name else f"{data.name} ({claim.data})"
    return {
        "title": f"{escape(name)}: {title}{units}",
        "epsilon_title": epsilon_title(data),
        "scores": scores_in_words(data.result, names or (data.utility,)),
        "exploratory": claim.exploratory,
    }


def new_figure(info: FigureInfo, theme: Theme, *, empty: bool, **layout: Any) -> go.Figure:
    """A figure in the theme: a watermark if the sweep is exploratory, a word if there is nothing to show."""
    figure = go.Figure(layout={"template": template(theme), "title": {"text": info.title}, **layout})
    if empty:
        figure.update_layout(height=_EMPTY_HEIGHT, xaxis={"visible": False}, yaxis={"visible": False})
        figure.add_annotation(text=NOTHING_YET, font={"color": theme.muted}, **_MIDDLE)
    if info.exploratory:
        watermark(figure, theme)
    return figure


def with_room(figure: go.Figure, info: FigureInfo) -> go.Figure:
    """Give a figure on a page room above its axes for the rows of a legend that is too long for one; return it.

    Pictures have their legend below.
    """
    names = [(trace.name or "").split("<br>") for trace in figure.data if trace.showlegend is not False]
    letters = [max(map(len, lines)) + _SYMBOL_LETTERS for lines in names]
    if not info.still and not info.narrow and sum(letters) > _PAGE_LETTERS:
        across = max(_PAGE_LETTERS // max(letters), 1)  # in several rows all names have the room of the longest
        rows = max(ceil(len(letters) / across), 2) + max(map(len, names)) - 1
        figure.update_layout(margin={"t": _TITLE + _ROW * rows})
        if figure.layout.height is not None:  # the axes stay as high
            figure.update_layout(height=figure.layout.height + _ROW * (rows - 1))
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


def last_epsilon(points: Iterable[Point]) -> float:
    """The largest finite epsilon of the points, 1 without any."""
    return max((point.values["epsilon"] for point in points if finite(point, "epsilon")), default=1.0)


def compared(comparison: Comparison, title: str, *, objective: str = "") -> dict[str, Any]:
    """The fields of `FigureInfo`, with scores of an objective, by default the utility."""
    deltas = {t.delta for run in comparison.runs for t in run.front.trials.values() if t.delta is not None}
    deltas_in_words = f"delta = {number(deltas.pop())}" if len(deltas) == 1 else "of different deltas"
    names = " and ".join(group.name for group in comparison.groups)
    both = "both" if len(comparison.runs) == 2 else f"all {len(comparison.runs)}"
    price, together = comparison.price, ""
    if price is not None:
        together = (
            f"; price of {both} together: {show_epsilon(price.epsilon)}{price.doubt} at delta = {number(price.delta)}"
        )
    return {
        "title": f"{escape(names)}: {title}",
        "epsilon_title": f"{OWN_EPSILON}, {deltas_in_words}{together}",
        "scores": compared_in_words([run.front for run in comparison.runs], [objective or comparison.utility.name]),
        "exploratory": comparison.exploratory,
    }
