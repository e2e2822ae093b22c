"""One front per architecture: which kind of network to take at which epsilon.

Where every trial has the same architecture, per method, else per loss. Every curve picks its own models.
"""

from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import header, last_epsilon, value_axis, with_room, zoom
from dashboards.figures._scores import VALIDATION
from dashboards.figures._staircases import Staircase, Step, best_in_words, curve_look, draw, staircase, step_row
from dashboards.figures._tested import BEST_ON_TEST, Tested, best_tested, crosses_of_lines, heights
from dashboards.figures._theme import LIGHT, Theme
from dashboards.text import setting
from sweeper.records import Point
from sweeper.rounding import number_of

KINDS = {"model.architecture": "architecture", "training.method": "method", "training.loss.name": "loss"}
MOST_CURVES = 6  # as many as there are colours; the others go together
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class ArchitectureKind:
    """The staircase of the trials that share one setting."""

    name: str
    trials: int
    steps: tuple[Step, ...]
    tested: tuple[Tested, ...]  # its best model that is scored on test rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitecturesInfo(FigureInfo):
    """Numbers of the architectures figure."""

    utility: str  # name of the objective on the vertical axis
    setting: str  # dotted name of the setting that tells the curves apart
    kinds: tuple[
        ArchitectureKind, ...
    ]  # those with most trials first; none where no such setting differs between trials
    right_end: float  # largest epsilon of any point


def info(data: SweepData, *, by: str | None = None) -> ArchitecturesInfo:
    """Compute one front per architecture, or per value of the setting ``by``, over all points."""
    by = by or next((name for name in KINDS if name in data.varying), "model.architecture")
    groups: dict[str, set[str]] = {}
    for id_, settings in data.settings.items():
        if settings.get(by) is not None:
            groups.setdefault(setting(settings[by]), set()).add(id_)
    usable = [point for point in data.points if finite(point, "epsilon", data.utility)]
    kinds = [_kind(data, name, ids, usable) for name, ids in _merge(groups).items()]
    kinds = [kind for kind in kinds if kind.steps]
    return ArchitecturesInfo(
        **header(data, f"one front per {KINDS.get(by, escape(by))}"),
        utility=data.utility,
        setting=by,
        kinds=tuple(kinds) if len(kinds) > 1 else (),
        right_end=last_epsilon(usable),
    )


def rows(info: ArchitecturesInfo) -> Table:
    """The numbers of the figure: one row per step of each curve."""
    return [
        {info.setting: kind.name, "trials": kind.trials, "rows": where} | step_row(step, info.utility)
        for kind in info.kinds
        for where, steps in ((VALIDATION, kind.steps), ("test", [one.as_step for one in kind.tested]))
        for step in steps
    ]


def plot(info: ArchitecturesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the architectures figure."""
    curves = [
        Staircase(
            f"{escape(kind.name)} ({number_of(kind.trials, 'trial')})",
            info.utility,
            kind.steps,
            f"{escape(kind.name)}: ",
        )
        for kind in info.kinds
    ]
    shown = [end for kind in info.kinds for end in heights(kind.steps, kind.tested)]
    yaxis = value_axis(info, info.utility) | {"range": zoom(shown)}
    figure = draw(info, theme, curves, info.right_end, height=440, yaxis=yaxis)
    on_test = [(kind.tested, curve_look(theme, i)[0]) for i, kind in enumerate(info.kinds)]
    figure.add_traces(crosses_of_lines(figure, on_test, theme, narrow=info.narrow))
    return with_room(figure, info)


def _merge(groups: dict[str, set[str]]) -> dict[str, set[str]]:
    """Largest first; what is beyond the colours goes together."""
    ordered = dict(sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])))
    if len(ordered) <= MOST_CURVES:
        return ordered
    kept = dict(list(ordered.items())[: MOST_CURVES - 1])
    return {**kept, OTHERS: set().union(*list(ordered.values())[MOST_CURVES - 1 :])}


def _kind(data: SweepData, name: str, ids: set[str], points: list[Point]) -> ArchitectureKind:
    chosen = [point for point in points if point.trial in ids]
    steps = staircase(chosen, data.utility, data.direction(data.utility))
    return ArchitectureKind(name, len(ids), steps, best_tested(data.result, steps, data.utility))


def _found(info: ArchitecturesInfo) -> str:
    best = [
        f"{kind.name} ({number_of(kind.trials, 'trial')}): {best_in_words(info.utility, kind.steps)}"
        for kind in info.kinds
    ]
    return f"The best of each: {'; '.join(best)}."


FIGURE: FigureKind[SweepData, ArchitecturesInfo] = FigureKind(
    name="architectures",
    heading="Which kind of network",
    summary="one front per architecture; where all trials have the same, per method, else per loss",
    caption="Every line picks its own models among the trials of its kind. A kind with more trials had more chances.",
    position=20,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    remarks=lambda data: (
        f" Crosses: {BEST_ON_TEST}, which did not choose it, with 95 % intervals where these are known."
        if any(kind.tested for kind in info(data).kinds)
        else ""
    ),
    awaits="One line for each kind of network,<br>as soon as two kinds have points",
    epsilon_axis=True,
    needs="trials of two architectures, methods or losses with points",
)
