"""What models reach on test rows, as crosses beside the validation scores that chose them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from math import isfinite, nan
from statistics import fmean
from typing import Any

import plotly.graph_objects as go

from dashboards.figures._common import interval_bars, label, marks, point_name
from dashboards.figures._scores import interval_of, repeats_of, test_in_words
from dashboards.figures._staircases import Step
from dashboards.figures._theme import Theme
from dashboards.text import is_fraction, show_test
from sweeper.pareto.dominance import Box, hypervolume
from sweeper.privacy.held_out import interval_on_test
from sweeper.records import Interval, Objective, Point
from sweeper.results.front import Front

_ASIDE = 1.03  # by which crosses stand to the right of points whose bars, or of lines whose marks, they would cover
_SIZE, _NARROW_SIZE = 8.5, 6.0  # pixels
_STRIP = (0.12, 0.18)  # share of an axis, and of one in a column
_RIM = 0.8  # pixels around a cross, so that it is seen on other marks
ON_TEST = "on test rows"
AT_ENDS = "bar: range, all scores at an end of their 95 % CI"
BEST_ON_TEST = "best by validation, scored on test rows"


@dataclass(frozen=True, slots=True)
class Tested:
    """A score on test rows: of which step and which point, its interval where that is known, and its text."""

    step: Step
    point: str  # by which a page knows it
    value: float
    interval: Interval | None
    text: str

    @property
    def epsilon(self) -> float:
        """Where its point lies."""
        return self.step.epsilon

    @property
    def as_step(self) -> Step:
        """The step with what it reaches on test rows."""
        return replace(self.step, value=self.value, interval=self.interval)


def tested(front: Front, steps: Sequence[Step], name: str, *, is_sure: bool) -> tuple[Tested, ...]:
    """Return what the models of the steps reach on test rows, of those that are scored there.

    Of points that are alike in epsilon and this value one is a step, and another may be the one on the front. Scores
    of public rows have an interval with ``is_sure``, those of private rows always.
    """
    points = {point.key: point for point in front.front_points}
    alike = {(point.values.get("epsilon"), point.values.get(name)): point for point in front.front_points}
    found = []
    for step in steps:
        point = points.get((step.trial, step.epoch, step.made_from), alike.get((step.epsilon, step.value)))
        value = nan if point is None else (point.test or {}).get(name, nan)
        is_bare = point is not None and point.noisy is not None and point.test_interval(name) is None
        if point is not None and isfinite(value) and not is_bare:  # nothing noisy stands without its interval
            text = f"<b>{escape(point.trial)}</b>, epoch {escape(point.moment)}<br>{label(name)}, test: "
            interval = interval_on_test(point, name, front.claim) if is_sure else point.test_interval(name)
            found.append(Tested(step, point_name(point), value, interval, text + show_test(point, name)))
    return tuple(found)


def best_tested(front: Front, steps: Sequence[Step], name: str) -> tuple[Tested, ...]:
    """Return the last step that is scored there, with its interval; none where private rows were scored for no step."""
    return tested(front, steps, name, is_sure=True)[-1:]


def scores_on_test(front: Front, steps: Sequence[Step], name: str) -> str:
    """Return on how many test rows the steps are scored, with half the widest 95 % interval; empty if on none."""
    found = tested(front, steps, name, is_sure=True)
    half = max(((one.interval[1] - one.interval[0]) / 2.0 for one in found if one.interval), default=None)
    words = test_in_words(front.claim, half) if found else ""
    return words.replace("rows", "rows (first training)", 1) if repeats_of(front) > 1 else words


def volume_on_test(front: Front, objectives: Sequence[Objective], box: Box) -> float | None:
    """Return the hypervolume that the models of the front have by their scores on test rows.

    None where one of them has no score there for an objective. Nor have noisy scores one: it would be that of the
    luckiest.
    """
    found = []
    for point in front.front_points:
        scores = {**(point.test or {}), "epsilon": point.values.get("epsilon", nan)}
        if point.noisy is not None or not all(isfinite(scores.get(one.name, nan)) for one in objectives):
            return None
        found.append(replace(point, values=scores))
    return hypervolume(found, objectives, box) if found else None


def volume_at_ends(front: Front, objectives: Sequence[Objective], box: Box) -> Interval | None:
    """Return the hypervolumes of the front with all scores of public rows at the lower and at the upper end of theirs.

    Scores of one model on the same rows move together; where they did so exactly this were a 95 % interval, and it is
    wider where they do not. None where an interval is not known; noisy scores have `Front.hypervolume_interval`.
    """
    ends: list[list[Point]] = [[], []]
    for point in front.front_points:
        known = {one.name: interval_of(front, one.name, point.values.get(one.name, nan)) for one in objectives}
        scores = {name: interval for name, interval in known.items() if name != "epsilon"}
        if point.noisy is not None or not all(scores.values()):
            return None
        for i, end in enumerate(ends):
            end.append(replace(point, values={**point.values, **{name: own[i] for name, own in scores.items() if own}}))
    low, high = (hypervolume(points, objectives, box) for points in ends)
    return (low, high) if front.front_points else None


def heights(steps: Sequence[Step], found: Sequence[Tested]) -> list[float]:
    """Return what an axis has to show of steps and of them: all values and the ends of their bars."""
    return [end for step in steps for end in step.interval or (step.value,)] + ends_on_test(found)


def ends_on_test(found: Sequence[Tested]) -> list[float]:
    """Return what an axis has to show of them."""
    return [end for one in found for end in one.interval or (one.value,)]


def cross_in_words(*volumes: float | None) -> str:
    """Return what a caption says of crosses of hypervolumes, empty where there are none."""
    if all(volume is None for volume in volumes):
        return ""
    return f" Crosses: what the models of the front have {ON_TEST}, which did not choose them."


def on_test_rows(rows: str) -> str:
    """Return what a legend calls crosses of hypervolumes."""
    return f"the models of the front on {rows}"


def models_of_line(found: Sequence[Tested], steps: Sequence[Step], scores: str, *, narrow: bool) -> str:
    """Return what a legend calls crosses of a line: how many of its models they are, and how sure where that is known.

    Columns say how sure they are below the axis. It has two lines, for all names of a legend have the room of the
    longest.

    >>> models_of_line([], [], "360 test rows, 95 % CI ≤ ±6.1 points", narrow=False)
    'models of the line on 360 test rows,<br>95 % CI ≤ ±6.1 points'
    >>> models_of_line([], [], "360 test rows, 95 % CI ≤ ±6.1 points", narrow=True)
    'test rows'
    """
    some = f" ({len(found)} of {len(steps)})" if len(found) < len(steps) else ""
    return f"test rows{some}" if narrow else f"models of the line{some} on {scores.replace(', 95', ',<br>95', 1)}"


def crosses(
    found: Sequence[Tested],
    color: str,
    theme: Theme,
    *,
    narrow: bool,
    name: str,
) -> go.Scatter:
    """Draw them as crosses, with bars where intervals are known; those stand to the right."""
    bars = interval_bars([one.value for one in found], [one.interval for one in found], color)
    aside = 1.0 if bars is None else _ASIDE
    look = cross_look(color, theme, _NARROW_SIZE if narrow else _SIZE)
    x = [aside * one.epsilon for one in found]
    y, texts = [one.value for one in found], [one.text for one in found]
    name = f"{name} (moved right)".replace(") (", ", ") if bars is not None else name
    return marks(x, y, texts, look, name=name, error_y=bars)


def cross_look(color: str, theme: Theme, size: float = _SIZE) -> dict[str, Any]:
    """Return how the mark of a cross looks."""
    return {"symbol": "x", "size": size, "color": color, "line": {"width": _RIM, "color": theme.paper}}


def crosses_of_lines(
    figure: go.Figure,
    lines: Sequence[tuple[Sequence[Tested], str]],
    theme: Theme,
    *,
    narrow: bool,
    names: tuple[str, str] = (BEST_ON_TEST, "best by validation, on test rows"),
) -> list[go.Scatter]:
    """Return crosses of models of several lines, each in the colour of its line, with one key for all.

    They stand in a strip to the right of the lines, which the epsilon axis of the figure is made longer by: their
    bars would hide each other where all lines have their best model at one epsilon. The key has the first of
    ``names``, in a column the second.
    """
    best = [(found, color) for found, color in lines if found]
    if not best:
        return []
    axis = figure.layout.xaxis
    low, high = axis.range
    step = _STRIP[narrow] * (high - low) / (len(best) + 1)
    end = high + step * (len(best) + 1)
    figure.update_xaxes(
        range=[low, end],
        tickvals=[*axis.tickvals, 10.0 ** ((high + end) / 2.0)],
        ticktext=[*axis.ticktext, "test"],
    )
    figure.add_vline(x=10.0**high, line={"color": theme.line, "width": 1}, layer="below")
    has_bars = any(one.interval for found, _ in best for one in found)
    drawn = [
        crosses(found, color, theme, narrow=narrow, name="").update(x=[10.0 ** (high + i * step)], showlegend=False)
        for i, (found, color) in enumerate(best, 1)
    ]
    name = names[narrow] + (", 95 % CI" if has_bars else "") + " (at the right)"
    look = cross_look(theme.muted, theme, _NARROW_SIZE if narrow else _SIZE)
    return [*drawn, go.Scatter(x=[None], y=[None], mode="markers", marker=look, name=name)]


def gap_in_words(front: Front, name: str) -> str:
    """Return how far the models of the front lie lower or higher on test rows, on average.

    Empty where none is scored there, or scores are noisy: then the gap would be mostly of the noise.
    """
    gaps = [
        point.values[name] - point.test[name]
        for point in front.front_points
        if point.test and point.noisy is None and isfinite(point.values.get(name, nan) - point.test.get(name, nan))
    ]
    if not gaps or not is_fraction(name):
        return ""
    gap = 100.0 * fmean(gaps)
    return f"{abs(gap):.1f} points {'lower' if gap > 0 else 'higher'}"


def crosses_in_words(front: Front, name: str) -> str:
    """Return what a caption says of crosses, and how far those of public rows lie below; empty where there are none."""
    known = [point for point in front.front_points if name in (point.test or {})]
    if not known:
        return ""
    said = f" Crosses: the same models {ON_TEST}, which did not choose them"
    if any(point.noisy is not None for point in known):
        return f"{said}, with their 95 % intervals."
    gap = gap_in_words(front, name)
    return f"{said}; over the front {gap} on average." if gap else f"{said}."
