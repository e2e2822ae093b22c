"""One front per radius: clean and certified accuracy against own epsilon, as figure 4 of Bethune et al.

Every curve picks its own models: the best certified accuracy at one radius and at another are reached by
different points of the sweep. Certified accuracy falls with the radius, so the curves never cross unless a
certificate is wrong. Smoothed accuracy is of another kind and has lines of its own, behind the others.

References:
    Bethune et al. (2024), DP-SGD without clipping, https://arxiv.org/abs/2305.16202
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic
from dashboards.figures._common import SYMBOLS, header, label, last_epsilon, with_room, zoom
from dashboards.figures._references import Reference, draw_references, references
from dashboards.figures._scores import VALIDATION, intervals_in_words, open_marks
from dashboards.figures._staircases import Staircase, Step, best_in_words, draw, rows_axis, staircase, step_row
from dashboards.figures._tested import (
    BEST_ON_TEST,
    Tested,
    best_tested,
    crosses_of_lines,
    gap_in_words,
    heights,
)
from dashboards.figures._theme import LIGHT, Theme
from dashboards.text import radius_of
from sweeper.records import Direction
from sweeper.specification.objectives import auroc_radius_text, radius, smoothed_radius

_STRONGEST, _FAINTEST = 6, 2  # colours of the scale for the smallest and the largest radius


@dataclass(frozen=True, slots=True)
class RadiusCurve:
    """The staircase of one radius; radius 0 is clean accuracy."""

    name: str
    radius: float
    steps: tuple[Step, ...]
    tested: tuple[Tested, ...]  # its best model that is scored on test rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustnessInfo(FigureInfo):
    """Numbers of the robustness figure: clean first, then every radius in ascending order."""

    curves: tuple[RadiusCurve, ...]
    right_end: float
    lines: tuple[Reference, ...]  # what a constant prediction reaches at every radius


def info(data: SweepData) -> RobustnessInfo:
    """Compute one front per radius over all points, not only over the points of the joint front."""
    certified = (*data.certificates, *data.smoothed)
    names = (data.utility, *certified) if certified else ()
    curves = [_curve(data, name) for name in names]
    return RobustnessInfo(
        **header(data, "one front per certified radius", *names),
        curves=tuple(curve for curve in curves if curve.steps),
        right_end=last_epsilon(data.points),
        lines=references(data, data.utility),
    )


def _curve(data: SweepData, name: str) -> RadiusCurve:
    steps = staircase((*data.front_points, *data.points), name, Direction.MAXIMIZE)
    return RadiusCurve(name, _radius_of(name), steps, best_tested(data.result, steps, name))


def rows(info: RobustnessInfo) -> Table:
    """The numbers of the figure: one row per step of each curve, and of its best model on test rows."""
    return [
        {"name": curve.name, "radius": curve.radius, "rows": where} | step_row(step, "value")
        for curve in info.curves
        for where, steps in ((VALIDATION, curve.steps), ("test", [one.as_step for one in curve.tested]))
        for step in steps
    ]


def plot(info: RobustnessInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the robustness figure."""
    yaxis = rows_axis(info, *(curve.name for curve in info.curves)) | {"range": _span(info)}
    colored = looks([curve.name for curve in info.curves], theme)
    curves = [
        Staircase(legend_name(c.name), c.name, c.steps, look=look) for c, look in zip(info.curves, colored, strict=True)
    ]
    figure = draw(info, theme, curves, info.right_end, height=460, yaxis=yaxis)
    on_test = [(curve.tested, color) for curve, (color, _) in zip(info.curves, colored, strict=True)]
    figure.add_traces(crosses_of_lines(figure, on_test, theme, narrow=info.narrow))
    if info.curves:
        draw_references(figure, info, info.lines, info.curves[0].name, theme)
    return with_room(figure, info)


def _span(info: RobustnessInfo) -> list[float] | None:
    """The range of the vertical axis."""
    steps = [step for curve in info.curves for step in curve.steps]
    found = [one for curve in info.curves for one in curve.tested]
    return zoom(heights(steps, found), [line.value for line in info.lines])


def looks(names: Sequence[str], theme: Theme) -> list[tuple[str, str]]:
    """Return colour and mark of each score: less ink for a larger radius, open marks for smoothed ones."""
    radii = sorted({_radius_of(name) for name in names if radius_of(name) is not None})
    found = []
    for name in names:
        at = _radius_of(name)
        place = radii.index(at) if at in radii else 0
        mark = SYMBOLS[(1 + place) % len(SYMBOLS)]
        ink = theme.scale[round(_STRONGEST - place * (_STRONGEST - _FAINTEST) / max(len(radii) - 1, 1))]
        is_smoothed = smoothed_radius(name) is not None
        found.append((theme.ink, SYMBOLS[0]) if radius_of(name) is None else (ink, mark + "-open" * is_smoothed))
    return found


def _radius_of(name: str) -> float:
    return float(radius(name) or smoothed_radius(name) or 0)


def legend_name(name: str) -> str:
    """Return what a score is called where each radius has a line."""
    text = radius_of(name)
    kind = (
        "certified AUROC" if auroc_radius_text(name) else "certified" if smoothed_radius(name) is None else "smoothed"
    )
    return label(name) if text is None else f"{kind}, L2 radius {escape(text)}"


_SMOOTHED = (
    " Smoothed lines are of the smoothed classifier, and each of their certificates holds but for a small probability."
)


def _remarks(data: SweepData) -> str:
    said = (_SMOOTHED if data.smoothed else "") + intervals_in_words(data) + open_marks(data)
    if any(curve.tested for curve in info(data).curves):
        said += f" Crosses: {BEST_ON_TEST}, which did not choose it, with 95 % intervals where these are known."
    gaps = {name: gap_in_words(data.result, name) for name in (data.utility, *data.certificates)}
    found = ", ".join(f"{label(name)}: {words}" for name, words in gaps.items() if words)
    return said + (f" On test rows, on average over the front: {found}." if found else "")


def _found(info: RobustnessInfo) -> str:
    return f"The best: {'; '.join(best_in_words(curve.name, curve.steps) for curve in info.curves)}."


FIGURE: FigureKind[SweepData, RobustnessInfo] = FigureKind(
    name="robustness",
    heading="Robustness at each radius",
    summary="one front per certified radius, radius 0 first",
    caption=(
        "Every line picks its own models: the best certified score at that radius, within each epsilon. A certified "
        "example keeps its prediction under every perturbation of at most that Euclidean norm."
    ),
    remarks=_remarks,
    position=40,
    found=_found,
    info=info,
    plot=plot,
    rows=rows,
    awaits="One line for each certified radius,<br>as soon as a trial has finished its first epoch",
    topic=Topic.ROBUSTNESS,
    epsilon_axis=True,
    needs="points with a certificate",
)
