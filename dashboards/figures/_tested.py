"""What models reach on test rows, as crosses beside the validation scores that chose them."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import isfinite, nan
from statistics import fmean

import plotly.graph_objects as go

from dashboards.figures._common import interval_bars, label, marks
from dashboards.figures._staircases import Step
from dashboards.text import is_fraction, number, show_test
from sweeper.records import Interval
from sweeper.results.front import Front

_ASIDE = 1.02  # by which crosses with bars stand to the right of their points, whose bars they would cover
_SIZE, _NARROW_SIZE = 7.0, 4.5  # pixels
ON_TEST = "on test rows"


@dataclass(frozen=True, slots=True)
class Tested:
    """A score on test rows: where its point lies, the interval of a noisy one, and its text."""

    epsilon: float
    value: float
    interval: Interval | None
    text: str


def tested(front: Front, steps: Sequence[Step], name: str) -> tuple[Tested, ...]:
    """Return what the models of the steps reach on test rows, of those that are scored there.

    Of points that are alike in epsilon and this value one is a step, and another may be the one on the front.
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
            found.append(Tested(step.epsilon, value, point.test_interval(name), text + show_test(point, name)))
    return tuple(found)


def ends_on_test(found: Sequence[Tested]) -> list[float]:
    """Return what an axis has to show of them."""
    return [end for one in found for end in one.interval or (one.value,)]


def crosses(found: Sequence[Tested], color: str, *, narrow: bool, name: str = f"same models {ON_TEST}") -> go.Scatter:
    """Draw them as crosses, with bars where they are noisy."""
    bars = interval_bars([one.value for one in found], [one.interval for one in found], color)
    aside = 1.0 if bars is None else _ASIDE
    size, line = (_NARROW_SIZE, 1.2) if narrow else (_SIZE, 1.6)
    look = {"symbol": "x-thin-open", "size": size, "color": color, "line": {"width": line}}
    x, y, texts = [aside * one.epsilon for one in found], [one.value for one in found], [one.text for one in found]
    return marks(x, y, texts, look, name=f"{name} (moved right)" if bars else name, error_y=bars)


def crosses_in_words(front: Front, steps: Sequence[Step], name: str) -> str:
    """Return what a caption says of crosses, and how far those of public rows lie below; empty where there are none."""
    known = [point for point in front.front_points if name in (point.test or {})]
    if not known:
        return ""
    said = f" Crosses: the same models {ON_TEST}, which did not choose them"
    if any(point.noisy is not None for point in known):
        return f"{said}, with their 95 % intervals."
    reached = {step.epsilon: step.value for step in steps}
    gaps = [reached[one.epsilon] - one.value for one in tested(front, steps, name)]
    if not gaps or not is_fraction(name):
        return f"{said}."
    gap = 100.0 * fmean(gaps)
    return f"{said}, {number(abs(gap), 2)} points {'lower' if gap > 0 else 'higher'} on average."
