"""The front by what an attacker finds: utility against the share of rows caught at 1 % false alarms.

The same points as on the front, and a number in place of epsilon and delta that needs no explanation. It is an upper
bound, for one training that was fixed in advance, as the epsilon of a point is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log10
from typing import Any

import plotly.graph_objects as go

from clipless.privacy.exposure import Basis
from dashboards.data import CAUGHT, SweepData, evenly, finite
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic, omitted
from dashboards.figures._common import (
    LAST_IN_LEGEND,
    PRICE_OF_SWEEP,
    header,
    hover_texts,
    label,
    marks,
    new_figure,
    point_rows,
    title_below,
    value_axis,
    with_room,
    zoom,
)
from dashboards.figures._front_marks import FrontMarks, dominated_look
from dashboards.figures._references import Reference, draw_references, references
from dashboards.figures._scores import certified_in_words, ends_of, intervals_in_words, open_marks
from dashboards.figures._staircases import Step, staircase, step_lines
from dashboards.figures._tested import (
    Tested,
    crosses,
    crosses_in_words,
    ends_on_test,
    models_of_line,
    scores_on_test,
    tested,
)
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures._ticks import log_ticks, minor_ticks
from dashboards.figures.sweep.front import DRAWN_DOMINATED
from dashboards.text import in_sentence, number, percent, whole
from sweeper.records import Point
from sweeper.results.highlights import finals_first

_NEAR = 3.0  # times the largest share of a point: up to there the price shares their axis
_GUESSING = 0.01  # what is caught at 1 % false alarms without looking
_LEAST = 1e-3  # percentage points above it at which whatever is caught is nearer stands
_TICKS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)  # percent, whose distances to 1 % grow evenly
_FEWEST_TICKS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtInfo(FigureInfo):
    """Numbers of the figure."""

    utility: str  # name of the objective on the vertical axis
    front: tuple[Point, ...]  # points of the front that have a risk
    front_hover: tuple[str, ...]  # one text for each
    dominated: tuple[Point, ...]  # the other points, thinned evenly to at most `DRAWN_DOMINATED`
    steps: tuple[Step, ...]  # the staircase, its ``epsilon`` being the place on the axis
    tested: tuple[Tested, ...]  # what the models on the line reach on test rows
    certificate: str | None  # name of the certified accuracy that colours the points, if any
    lines: tuple[Reference, ...]  # what to compare with
    certified_scores: str  # of which rows that is, and how sure where it is noisy
    finals_first: bool  # whether finals are told apart from explorers, which have open marks
    at_price: float | None  # what is caught at the price of the sweep, None where that is not known
    is_loose: bool  # whether that is by Renyi divergences, as before a sweep has completed
    doubt: str  # behind that price, where it is not proven


def info(data: SweepData, *, utility: str | None = None) -> CaughtInfo:
    """Compute the figure, with ``utility`` on the vertical axis; the sweep's own by default."""
    utility = utility or data.utility
    usable = [point for point in data.points if point.risk is not None and finite(point, utility)]
    front = tuple(point for point in usable if point.key in data.result.on_front)
    dominated = [point for point in usable if point.key not in data.result.on_front]
    price = data.result.price
    risk = None if price is None or price.exposure is None else price.exposure.risk
    texts = zip(hover_texts(data, front), front, strict=True)
    steps = staircase((*front, *dominated), utility, data.direction(utility), at=_place_of)
    return CaughtInfo(
        **header(data, f"{label(utility)} against what an attacker finds"),
        utility=utility,
        front=front,
        front_hover=tuple(f"{text}<br>{CAUGHT}: {percent(_caught(point))}" for text, point in texts),
        dominated=evenly(dominated, DRAWN_DOMINATED),
        certificate=data.certificate,
        lines=references(data, utility),
        certified_scores=certified_in_words(data),
        finals_first=finals_first(usable),
        at_price=None if risk is None else risk.caught[1],
        is_loose=risk is not None and risk.basis is Basis.RENYI,
        doubt="" if price is None else price.doubt,
        steps=steps,
        tested=tested(data.result, steps, utility, is_sure=False),
        test_scores=scores_on_test(data.result, steps, utility),
    )


def _caught(point: Point) -> float:
    return 1.0 if point.risk is None else point.risk.caught[1]


def place(share: float) -> float:
    """Return where a share of rows stands on the logarithmic axis: its percentage points above guessing.

    >>> round(place(0.03), 6), place(0.01)
    (2.0, 0.001)
    """
    return max(100.0 * (share - _GUESSING), _LEAST)


def _place_of(point: Point) -> float:
    return place(_caught(point))


def rows(info: CaughtInfo) -> Table:
    """The numbers of the figure: one row per drawn point."""
    return [
        row | ({} if point.risk is None else point.risk.to_values()) | {"caught_at_price": info.at_price}
        for points, on_front in ((info.front, True), (info.dominated, False))
        for row, point in zip(point_rows(points, info.utility, on_front=on_front), points, strict=True)
    ]


def plot(info: CaughtInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the figure."""
    found = [_place_of(point) for point in (*info.front, *info.dominated)]
    price = [place(info.at_price)] if info.at_price is not None and _is_near(info) else []
    ticks = _ticks([*found, *price])
    gap = "<br>" if info.narrow else " "
    _, _, terms = info.epsilon_title.partition(", ")
    what = f"rows caught at 1 % false alarms, at most{gap}(fixed in advance); log of what exceeds guessing, 1 %"
    title = title_below(f"{what}; {terms}", info)
    figure = new_figure(
        info,
        theme,
        empty=not found,
        height=520,
        xaxis={"type": "log", "title": {"text": title}, **ticks, **minor_ticks(ticks)},
        yaxis=value_axis(info, info.utility) | {"range": _span(info)},
    )
    if not found:
        return figure
    width = 1.5 if info.narrow else 2
    figure.add_traces([_dominated(info, theme)] if info.dominated else [])
    figure.add_traces(step_lines(info.steps, max(found), theme.ink, name=f"best {label(info.utility)}", width=width))
    figure.add_traces(_marks(info).traces(theme))
    figure.add_traces([_crosses(info, theme)] if info.tested else [])
    figure.add_traces(_marks(info).keys(theme, lambda name, _: name))
    if info.at_price is not None:
        name = f"{PRICE_OF_SWEEP}{info.doubt}"
        share = f"{percent(info.at_price)}{', a loose bound' if info.is_loose else ''}"
        if _is_near(info):
            line = {"color": theme.ink, "dash": "dash", "width": 1.5}
            figure.add_vline(x=price[0], line=line)
            key = f"caught at the {name}: {share}"
            figure.add_trace(go.Scatter(x=[None], y=[None], mode="lines", line=line, name=key))
        else:  # an arrow in the key, for there is no line
            arrow = {"symbol": "arrow-right", "size": 9, "color": theme.ink}
            where = f"at the {'price' if info.narrow else name}"
            far = f"{'' if info.narrow else 'caught '}{where}: {share}, beyond the axis"
            figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", marker=arrow, name=far))
            at = {"x": 1, "y": 0.03, "xref": "paper", "yref": "paper", "xanchor": "right", "showarrow": False}
            figure.add_annotation(name="far", text="\N{BLACK RIGHT-POINTING TRIANGLE}", font={"color": theme.ink}, **at)
    draw_references(figure, info, info.lines, info.utility, theme)
    return with_room(figure, info)


def _crosses(info: CaughtInfo, theme: Theme) -> go.Scatter:
    name = models_of_line(info.tested, info.steps, info.test_scores, narrow=info.narrow)
    return crosses(info.tested, theme.orange, theme, narrow=info.narrow, name=name)


def _ticks(places: Sequence[float]) -> dict[str, Any]:
    """The range of the axis and its ticks, whose texts are shares of rows."""
    axis = log_ticks(places)
    if not axis:
        return {}
    low, high = axis["range"]
    inside = [tick for tick in _TICKS if low <= log10(tick - 100.0 * _GUESSING) <= high]
    if len(inside) < _FEWEST_TICKS:
        inside = [tick + 100.0 * _GUESSING for tick in axis["tickvals"]]
    texts = [f"{number(tick)}%" for tick in inside]
    return axis | {"tickvals": [tick - 100.0 * _GUESSING for tick in inside], "ticktext": texts}


def _is_near(info: CaughtInfo) -> bool:
    """Whether the price is near enough to the points to share their axis."""
    return info.at_price is None or info.at_price <= _NEAR * max(
        map(_caught, (*info.front, *info.dominated)), default=1.0
    )


def _span(info: CaughtInfo) -> list[float] | None:
    """The range of the vertical axis: the front, with its bars and crosses, and a baseline that is near."""
    ends = [end for point in info.front for end in ends_of(point, info.utility)]
    return zoom([*ends_on_test(info.tested), *ends], [line.value for line in info.lines])


def _dominated(info: CaughtInfo, theme: Theme) -> go.Scatter:
    low, high = _span(info) or (-inf, inf)
    inside, count = sum(low <= point.values[info.utility] <= high for point in info.dominated), len(info.dominated)
    some = f" ({inside} of {count})" if info.still and inside < count < DRAWN_DOMINATED else ""
    return marks(
        [_place_of(point) for point in info.dominated],
        [point.values[info.utility] for point in info.dominated],
        [f"{CAUGHT}: {percent(_caught(point))}" for point in info.dominated],
        dominated_look(count, theme, narrow=info.narrow),
        name=("dominated" if info.narrow else "dominated points") + some,
        legendrank=LAST_IN_LEGEND,
        cliponaxis=False,
    )


def _marks(info: CaughtInfo) -> FrontMarks:
    return FrontMarks(
        points=info.front,
        texts=info.front_hover,
        at=_place_of,
        utility=info.utility,
        certificate=info.certificate,
        certified_scores=info.certified_scores,
        finals_first=info.finals_first,
        narrow=info.narrow,
    )


def _found(info: CaughtInfo) -> str:
    said = "Exploratory, no guarantee. " if info.exploratory else ""
    if info.at_price is not None:
        said += f"At the price of the sweep{info.doubt} an attacker finds at most {percent(info.at_price)} of the rows"
        said += ", by a bound that is loose until the sweep has completed. " if info.is_loose else ". "
    if info.steps:
        step = info.steps[-1]
        share = percent(_GUESSING + step.epsilon / 100.0)
        value = in_sentence(info.utility, step.value, step.interval)
        said += f"The best {value} stands at {share}, for its training alone."
    return whole(said.strip())


FIGURE: FigureKind[SweepData, CaughtInfo] = FigureKind(
    name="caught",
    heading="The front by what an attacker finds",
    summary=(
        "utility against the largest share of rows that an attacker finds at 1 % false alarms, coloured as the front, "
        "with that at the price of the sweep"
    ),
    caption=(
        "The points of the front, with epsilon and delta put in other words. Guessing finds 1 %, and the axis is the "
        "logarithm of what is above it."
    ),
    terms=(
        "Of the people whose rows were used, an attacker who knows all other rows and accuses 1 in 100 innocents finds "
        "at most this share. Like the own epsilon of a point, it holds for one training that was fixed in advance; the "
        "mark of the price is at what any model of the sweep costs."
    ),
    position=12,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: (
        intervals_in_words(data)
        + open_marks(data)
        + crosses_in_words(data.result, data.utility)
        + omitted(DRAWN_DOMINATED, len(data.points) - len(data.front_points), "dominated points")
    ),
    topic=Topic.FRONT,
)
