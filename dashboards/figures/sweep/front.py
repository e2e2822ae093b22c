"""The front: utility against own epsilon, coloured by certified accuracy.

The step line is what is achievable at epsilon <= x. With three objectives most points of the front lie below
it: they trade utility for a better certificate, which their colour shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import inf, log10

import plotly.graph_objects as go

from dashboards.data import SweepData, evenly, finite
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic, omitted
from dashboards.figures._common import (
    LAST_IN_LEGEND,
    header,
    hover_texts,
    label,
    over_epsilon,
    point_rows,
    with_room,
    zoom,
)
from dashboards.figures._front_marks import FrontMarks, dominated_look, scale_of
from dashboards.figures._inset import add_inset, crowded, find_place
from dashboards.figures._references import Reference, draw_references, references
from dashboards.figures._scores import (
    bars_in_words,
    certified_in_words,
    ends_of,
    half_width,
    open_marks,
    within,
)
from dashboards.figures._staircases import Step, best_in_words, own_epsilon, staircase, step_lines
from dashboards.figures._tested import (
    ON_TEST,
    Tested,
    crosses,
    crosses_in_words,
    ends_on_test,
    gap_in_words,
    models_of_line,
    scores_on_test,
    tested,
)
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures._ticks import log_ticks
from dashboards.text import in_sentence, show_epsilon
from sweeper.privacy.pricing import OWN
from sweeper.records import Point
from sweeper.results.highlights import finals_first
from sweeper.rounding import number_of

DRAWN_DOMINATED = 1000
_BURYING = 60  # marks of the front from which on they bury its line
_KNEE = (
    " The ring marks the knee, where the front bends most: past it, each gain in one objective costs more of another."
)
_FINALS = (
    " The solid line passes through finals, the trainings with most of the budget, among which the best model is "
    "looked for. The dotted one is of explorers: a better score of one may be luck, and counts only if its whole "
    "interval is better than that of every final."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontInfo(FigureInfo):
    """Numbers of the front figure."""

    utility: str  # name of the objective on the vertical axis
    certificate: str | None  # name of the certified accuracy that colours the points, if any
    front: tuple[Point, ...]  # points of the front with a finite epsilon, by epsilon
    front_hover: tuple[str, ...]  # one text for each
    dominated: tuple[Point, ...]  # the other points, thinned evenly to at most `DRAWN_DOMINATED`
    dominated_hover: tuple[str, ...]  # one text for each
    dominated_total: int  # how many there are before thinning
    steps: tuple[Step, ...]  # the staircase
    shown: tuple[
        Point, ...
    ]  # points of the front that the axes begin and end with: they may beat the majority-class baseline
    lines: tuple[Reference, ...]  # what to compare with
    knee: tuple[Point, str] | None  # the knee of the front over all its objectives, and its text, if it has one
    tested: tuple[Tested, ...]  # what the models on the line reach on test rows
    certified_scores: str  # of which rows certified accuracy is, and how sure where it is noisy
    finals_first: bool  # whether finals are told apart from explorers, which have open marks


def info(data: SweepData, *, utility: str | None = None) -> FrontInfo:
    """Compute the front figure, with ``utility`` on the vertical axis; the sweep's own by default."""
    utility = utility or data.utility
    usable = [point for point in data.points if finite(point, "epsilon", utility)]
    front = tuple(point for point in data.front_points if finite(point, "epsilon", utility))
    dominated = [point for point in usable if point.key not in data.result.on_front]
    drawn = evenly(dominated, DRAWN_DOMINATED)
    knees = [p for p in (data.result.knee,) if p is not None and finite(p, "epsilon", utility)]
    steps = staircase((*front, *dominated), utility, data.direction(utility))
    return FrontInfo(
        **header(data, f"{label(utility)} against {OWN}", utility),
        utility=utility,
        certificate=data.certificate,
        front=front,
        front_hover=hover_texts(data, front),
        dominated=drawn,
        dominated_hover=hover_texts(data, drawn, configured=False),
        dominated_total=len(dominated),
        steps=steps,
        tested=tested(data.result, steps, utility, is_sure=False),
        certified_scores=certified_in_words(data),
        test_scores=scores_on_test(data.result, steps, utility),
        shown=tuple(p for p in front if data.may_beat_constant(p, utility)) or front,
        lines=references(data, utility),
        knee=next(zip(knees, hover_texts(data, knees), strict=True), None),
        finals_first=finals_first(usable),
    )


def rows(info: FrontInfo) -> Table:
    """The numbers of the figure: one row per drawn point."""
    marked = None if info.knee is None else info.knee[0].key
    names = [info.utility, *([info.certificate] if info.certificate else [])]
    front = [
        row | {"knee": (row["trial"], row["epoch"], row["made_from"]) == marked}
        for row in point_rows(info.front, *names, on_front=True)
    ]
    return front + point_rows(info.dominated, *names, on_front=False, knee=False)


def plot(info: FrontInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the front figure."""
    epsilons = [point.values["epsilon"] for point in (*info.front, *info.dominated)]
    figure = over_epsilon(
        info,
        theme,
        epsilons,
        info.utility,
        height=520,
        shown=[point.values["epsilon"] for point in info.shown],
        values=_span(info),
    )
    width = 1.5 if info.narrow else 2
    if epsilons:
        figure.add_traces([_trace_dominated(info, theme)] if info.dominated else [])
        if info.knee is not None:
            figure.add_trace(_knee(info, *info.knee, theme))  # below the points, of which it may surround several
        best = f"best {label(info.utility)}"
        figure.add_traces(step_lines(info.steps, max(epsilons), theme.ink, name=best, width=width))
        figure.add_traces(_marks(info).traces(theme))
        figure.add_traces(_crosses(info, theme))
        figure.add_traces(_marks(info).keys(theme, partial(_counted, info)))
        figure.add_traces(_above(info, theme, max(epsilons), width))
        if info.still:
            _enlarge(figure, info, theme)
    if epsilons:
        draw_references(figure, info, info.lines, info.utility, theme)
    return with_room(figure, info)


def _above(info: FrontInfo, theme: Theme, right_end: float, width: float) -> list[go.Scatter]:
    """The line and the ring once more, above marks that would bury them; neither can be pointed at."""
    drawn = (
        [] if len(info.front) < _BURYING else step_lines(info.steps, right_end, theme.ink, name="", width=0.7 * width)
    )
    if info.knee is not None:
        drawn.append(_knee(info, *info.knee, theme))
    return [
        trace.update(hoverinfo="skip", hovertemplate=None, showlegend=False, customdata=None, name="")
        for trace in drawn
    ]


def _marks(info: FrontInfo) -> FrontMarks:
    return FrontMarks(
        points=info.front,
        texts=info.front_hover,
        at=own_epsilon,
        utility=info.utility,
        certificate=info.certificate,
        certified_scores=info.certified_scores,
        finals_first=info.finals_first,
        narrow=info.narrow,
    )


def _crosses(info: FrontInfo, theme: Theme) -> list[go.Scatter]:
    """The models on the line on test rows; the legend counts them where others are not scored there."""
    name = models_of_line(info.tested, info.steps, info.test_scores, narrow=info.narrow)
    drawn = [crosses(info.tested, theme.orange, theme, narrow=info.narrow, name=name)] if info.tested else []
    return [trace.update(customdata=[one.point for one in info.tested]) for trace in drawn]  # a click picks the model


def _enlarge(figure: go.Figure, info: FrontInfo, theme: Theme) -> None:
    """Add an inset where many points of the front lie close together, if there is room for it."""
    region = crowded([(p.values["epsilon"], p.values[info.utility]) for p in _within(info, info.front)])
    if region is not None:
        region = region.around((one.epsilon, one.value) for one in info.tested)
    drawn = [(p.values["epsilon"], p.values[info.utility]) for p in (*info.front, *info.dominated)]
    drawn += [(one.epsilon, one.value) for one in info.tested]
    drawn += [(after.epsilon, before.value) for before, after in pairwise(info.steps)]  # where the line runs level to
    place = find_place(figure, drawn, [line.value for line in info.lines])
    if region is not None and place is not None:
        enlarged = [trace for trace in figure.data if trace.x and trace.x[0] is not None]
        add_inset(figure, enlarged, region, info.utility, theme, place)


def _span(info: FrontInfo) -> list[float] | None:
    """The range of the vertical axis: values that are shown, ends of error bars among them."""
    shown = {point.values["epsilon"] for point in info.shown}
    heights = [end for point in info.shown for end in ends_of(point, info.utility)]
    heights += ends_on_test([one for one in info.tested if one.epsilon in shown])
    return zoom(heights, [line.value for line in info.lines])


def _within(info: FrontInfo, points: Sequence[Point]) -> list[Point]:
    """The points that lie within the axes as the figure opens."""
    first, last = log_ticks(point.values["epsilon"] for point in info.shown).get("range", (-inf, inf))
    low, high = _span(info) or (-inf, inf)
    inside = (p for p in points if low <= p.values[info.utility] <= high and p.values["epsilon"] > 0)
    return [point for point in inside if first <= log10(point.values["epsilon"]) <= last]


def _trace_dominated(info: FrontInfo, theme: Theme) -> go.Scatter:
    inside, count = _within(info, info.dominated), len(info.dominated)
    is_cut = info.still and len(inside) < count == info.dominated_total  # thinned ones are no count
    return go.Scatter(
        x=[point.values["epsilon"] for point in info.dominated],
        y=[point.values[info.utility] for point in info.dominated],
        mode="markers",
        marker=dominated_look(count, theme, narrow=info.narrow),
        text=info.dominated_hover,
        hovertemplate="%{text}<extra>dominated</extra>",
        name=_words(info, "dominated points", "dominated") + (f" ({len(inside)} of {count})" if is_cut else ""),
        showlegend=bool(inside),
        legendrank=LAST_IN_LEGEND,
        cliponaxis=False,
    )


def _words(info: FrontInfo, wide: str, narrow: str) -> str:
    """A name in the legend, shorter in a column."""
    return narrow if info.narrow else wide


def _counted(info: FrontInfo, name: str, points: Sequence[Point]) -> str:
    """What the legend calls points of the front, and how many of them are seen: a picture cannot be zoomed."""
    inside = len(_within(info, points))
    return f"{name} ({inside} of {len(points)} points)" if info.still and inside < len(points) else name


def _knee(info: FrontInfo, point: Point, text: str, theme: Theme) -> go.Scatter:
    line = {"width": 1.5 if info.narrow else 2}
    return go.Scatter(
        x=[point.values["epsilon"]],
        y=[point.values[info.utility]],
        mode="markers",
        marker={
            "symbol": "circle-open",
            "size": 22 * scale_of(0, narrow=info.narrow),
            "color": theme.ink,
            "line": line,
        },
        cliponaxis=False,
        customdata=[text],
        hovertemplate="%{customdata}<extra>knee</extra>",
        name="knee",
        legendrank=LAST_IN_LEGEND,
    )


def _remarks(data: SweepData) -> str:
    """How to read what this front has: points below its line, bars or how sure scores are, a knee."""
    said = ""
    if len(data.result.objectives) > 2:
        said += (
            " Points of the front that lie below the line give up some utility for a better value in another objective."
        )
    half = half_width(data.result, (data.utility,))
    if any(point.interval(data.utility) for point in data.front_points):
        said += bars_in_words(data) + (_FINALS if finals_first(data.points) else "") + open_marks(data)
    elif any(point.deviation(data.utility) for point in data.front_points):
        said += " Bars are one standard deviation over repeats to either side."
    if half is not None and not finals_first(data.points):
        said += (
            f" A score tells what new rows would score ({within(half)}), unless it is the best of many: luck chose it."
        )
    said += crosses_in_words(data.result, data.utility)
    if data.certificate and (gap := gap_in_words(data.result, data.certificate)):
        said += f" Colours are of validation rows too; {ON_TEST} {label(data.certificate)} is {gap} on average."
    return said + (_KNEE if data.result.knee else "") + _outside(data)


def _outside(data: SweepData) -> str:
    """How many points of the front lie beyond the axes as the figure opens, empty where all are within."""
    shown = info(data)
    count, total = len(shown.front) - len(_within(shown, shown.front)), len(shown.front)
    if not count:
        return ""
    better = "no better than the majority-class baseline"
    if any(point.interval(data.utility) for point in shown.front):
        better += " even at the upper ends of their intervals"
    return f" Outside the axes: {count} of {total} points of the front, {better}."


def _found(info: FrontInfo) -> str:
    if not info.steps:
        return ""
    best = best_in_words(info.utility, info.steps)
    said = f"{number_of(len(info.front), 'point')} on the front; the best of these: {best}."
    if info.knee is None:
        return said
    knee = info.knee[0]
    value = in_sentence(info.utility, knee.values[info.utility], knee.interval(info.utility))
    return f"{said} The knee, where the front bends most, has {value} at {OWN} {show_epsilon(knee.values['epsilon'])}."


FIGURE: FigureKind[SweepData, FrontInfo] = FigureKind(
    name="front",
    heading="The front",
    summary=(
        "utility against own epsilon: the line is what is achievable at one of at most x, points below it trade "
        "utility for a certificate; the ring is the knee"
    ),
    caption="The line is what is achievable at an own epsilon ≤ x. The axes show the front.",
    gestures=(
        " Hover over a point for its trial, epoch and configuration. A double click shows all points, the next one the "
        "front again."
    ),
    position=10,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    info_at=lambda data, certificate: info(data, utility=certificate),
    remarks=lambda data: (
        _remarks(data) + omitted(DRAWN_DOMINATED, len(data.points) - len(data.front_points), "dominated points")
    ),
    topic=Topic.FRONT,
    epsilon_axis=True,
    awaits=("One mark for each point of the front,<br>as soon as a trial has finished its first epoch"),
)
