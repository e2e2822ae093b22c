"""The fronts of several sweeps in one plane: one line per run, one colour and mark per spec, or run of one spec."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import (
    SYMBOLS,
    compared,
    label,
    last_epsilon,
    over_epsilon,
    reached,
    with_room,
    zoom,
)
from dashboards.figures._references import Reference, constant_reference, draw_references
from dashboards.figures._scores import VALIDATION
from dashboards.figures._staircases import Step, curve_lines, explorers_key, staircase, step_row
from dashboards.figures._tested import Tested, best_tested, crosses_of_lines, heights
from dashboards.figures._theme import LIGHT, Theme
from dashboards.text import show_epsilon
from sweeper.privacy.pricing import OWN, Price
from sweeper.records import Objective
from sweeper.results.comparison import Comparison, prices_in_words
from sweeper.rounding import number_of

_FEW_LINES = 4  # each has an entry in the legend then
_TINTS = (1.0, 0.75, 0.55)  # opacity of the first, the second and the third sweep of one name


@dataclass(frozen=True, slots=True)
class RunLine:
    """The staircase of one run."""

    spec: str
    run: str
    steps: tuple[Step, ...]
    price: Price | None  # of the sweep, None where it is not known
    trials: int  # that the sweep trained
    tested: tuple[Tested, ...]  # its best model that is scored on test rows
    place: int = 0  # of its spec among all that are compared, which gives colour and mark


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayInfo(FigureInfo):
    """Numbers of the overlay: the lines by spec, in the order given; runs without a point are left out."""

    objective: str  # on the vertical axis
    lines: tuple[RunLine, ...]
    references: tuple[Reference, ...]  # that all runs share
    right_end: float


def info(comparison: Comparison) -> OverlayInfo:
    """Compute the overlay of the fronts."""
    return overlay(comparison, comparison.utility)


def overlay(comparison: Comparison, objective: Objective) -> OverlayInfo:
    """Compute the overlay of the fronts with an objective on the vertical axis."""
    name = objective.name
    lines = []
    for place, group in enumerate(comparison.groups):
        for run in group.runs:
            steps = staircase((*run.front.front_points, *run.front.points), name, objective.direction)
            on_test = best_tested(run.front, steps, name)
            lines.append(RunLine(group.name, run.label, steps, run.front.price, run.front.trials_begun, on_test, place))
    return OverlayInfo(
        **compared(comparison, f"{label(name)} against {OWN}", objective=name),
        objective=name,
        lines=tuple(line for line in lines if line.steps),
        references=_shared(comparison, name),
        right_end=last_epsilon(point for run in comparison.runs for point in run.front.points),
    )


def _shared(comparison: Comparison, name: str) -> tuple[Reference, ...]:
    """What the majority-class baseline reaches, where it is the same for all runs."""
    found = {constant_reference(run.front.claim.baselines, name) for run in comparison.runs}
    return found.pop() if len(found) == 1 else ()


def rows(info: OverlayInfo) -> Table:
    """The numbers of the figure: one row per step of each line, and of its best model on test rows."""
    return [
        {"name": line.spec, "sweep": line.run, "price": None if line.price is None else line.price.epsilon}
        | {"rows": where}
        | step_row(step, info.objective)
        for line in info.lines
        for where, steps in ((VALIDATION, line.steps), ("test", [one.as_step for one in line.tested]))
        for step in steps
    ]


def plot(info: OverlayInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the overlay; the lines of one spec share a legend entry, unless they are few and of one spec."""
    epsilons = [step.epsilon for line in info.lines for step in line.steps]
    shown = [end for line in info.lines for end in heights(line.steps, line.tested)]
    values = zoom(shown, near=[one.value for one in info.references])
    epsilons += [info.right_end] if epsilons else []
    figure = over_epsilon(info, theme, epsilons, info.objective, height=480, values=values)
    apart = len({line.spec for line in info.lines}) == 1 and len(info.lines) <= len(SYMBOLS)
    entries = [line.run.rpartition("/")[2] if apart else line.spec for line in info.lines]
    terms = {
        entry: _terms([line for line, one in zip(info.lines, entries, strict=True) if one == entry])
        for entry in entries
    }
    own = range(len(entries)) if apart else [line.place for line in info.lines]
    places = dict(zip(entries, own, strict=True))
    on_test: list[tuple[tuple[Tested, ...], str]] = []
    are_few = len(info.lines) <= _FEW_LINES
    tints = [_TINTS[entries[:i].count(entry) % len(_TINTS)] for i, entry in enumerate(entries)]
    has_explorers = any(step.is_explorer for line in info.lines for step in line.steps)  # which have open marks
    is_open = [are_few and tint == _TINTS[1] and not has_explorers for tint in tints]
    for i, (line, entry) in enumerate(zip(info.lines, entries, strict=True)):
        mark = SYMBOLS[places[entry] % len(SYMBOLS)] + "-open" * is_open[i]
        look = theme.hue(places[entry]), mark
        name = f"{escape(entry)} ({terms[entry]})"
        if are_few and entries.count(entry) > 1:
            name = f"{escape(entry)}, run {entries[: i + 1].count(entry)} ({_terms([line])})"
        first, *others = (one.update(opacity=tints[i]) for one in _lines(info, line, name, look))
        figure.add_traces([first.update(showlegend=are_few or entries.index(entry) == i), *others])
        on_test.append((line.tested, look[0]))
    figure.add_traces(explorers_key([line.steps for line in info.lines], theme))
    *drawn, key = crosses_of_lines(figure, on_test, theme, narrow=info.narrow) or [None]
    tested = [tint for tint, (found, _) in zip(tints, on_test, strict=True) if found]
    figure.add_traces([one.update(opacity=tint) for one, tint in zip(drawn, tested, strict=True)])
    figure.add_traces([] if key is None else [key])
    if epsilons:
        draw_references(figure, info, info.references, info.objective, theme)
    return with_room(figure, info)


def _terms(lines: Sequence[RunLine]) -> str:
    """What stands behind a name in the legend: how many runs it has, where several, and what went into one of them."""
    fewest, most = (end(line.trials for line in lines) for end in (min, max))
    trials = number_of(most, "trial") if fewest == most else f"{fewest} to {most} trials"
    price = prices_in_words([line.price for line in lines])
    return f"{trials}, {price}" if len(lines) == 1 else f"{len(lines)} runs of {trials}, {price} each"


def _lines(info: OverlayInfo, line: RunLine, name: str, look: tuple[str, str]) -> list[go.Scatter]:
    priced = "" if line.price is None else f"price: epsilon {show_epsilon(line.price.epsilon)}<br>"
    texts = [
        f"<b>{escape(line.run)}</b><br>{priced}{escape(step.trial)}, epoch {escape(step.moment)}<br>"
        f"{reached(step.epsilon, info.objective, step.value, step.interval)}"
        for step in line.steps
    ]
    return curve_lines(line.steps, info.right_end, *look, name=name, texts=texts)


FIGURE: FigureKind[Comparison, OverlayInfo] = FigureKind(
    name="fronts",
    heading="The fronts",
    summary="the fronts of all sweeps in one plane",
    caption=(
        "One line per sweep: what is achievable at an own epsilon ≤ x. Sweeps of one name share colour and mark, later "
        "ones paler, as their crosses are (the second of few open too), unless they alone are compared and few. A "
        "cross is the best model of a line on test rows, which did not choose it, with its 95 % interval. The "
        "majority-class baseline is there where all share it. A model of a sweep costs its price, which the legend "
        "has, wherever on its line it lies: compare it. Points of a front below its line, which give up some of this "
        "score for a better certificate, are not drawn."
    ),
    position=10,
    info=info,
    plot=plot,
    rows=rows,
    epsilon_axis=True,
)
