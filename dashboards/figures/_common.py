"""What several figures share: texts, axes, the staircase of a front, and the exploratory watermark."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, isfinite, log10, nan
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData, varying
from dashboards.figures._theme import Theme, template
from dashboards.text import delta_text, is_fraction, number, setting, show, title_of
from sweeper.config import flatten
from sweeper.records import Direction, Point

WATERMARK = "exploratory: no guarantee"
_HOVER_LINES = 8
_TICKS = (1, 2, 3, 5)


def epsilon_title(data: SweepData) -> str:
    """What the epsilon axis promises: each value holds for an epoch that was fixed in advance."""
    return f"epsilon (fixed in advance), {delta_text(data)}"


def epsilon_axis(title: str, epsilons: Iterable[float]) -> dict[str, Any]:
    """A logarithmic epsilon axis with ticks where people quote budgets: 1, 2, 3, 5, 8, 10."""
    return {"type": "log", "title": {"text": title}, **log_ticks(epsilons, extra=(8,))}


def log_ticks(values: Iterable[float], *, steps: Sequence[int] = _TICKS, extra: Sequence[float] = ()) -> dict[str, Any]:
    """Ticks and range of a logarithmic axis over the finite positive values.

    Args:
        values: what the axis shows.
        steps: ticks within each decade.
        extra: single ticks beside them, where the axis reaches so far.

    >>> log_ticks([0.9, 3.2])["ticktext"]
    ['1', '2', '3']
    """
    usable = [value for value in values if isfinite(value) and value > 0]
    if not usable:
        return {}
    low, high = min(usable), max(usable)
    pad = 0.03 * (log10(high / low) or 1.0)
    decades = range(floor(log10(low)), floor(log10(high)) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in (steps if len(decades) <= 4 else (1,))]
    ticks = [tick for tick in sorted({*ticks, *extra}) if low * 10**-pad <= tick <= high * 10**pad]
    return {
        "range": [log10(low) - pad, log10(high) + pad],
        "tickvals": ticks,
        "ticktext": [number(tick) for tick in ticks],
    }


def label(name: str) -> str:
    """A value's name in words, for Plotly, which understands some markup."""
    return escape(title_of(name))


def value_axis(name: str) -> dict[str, Any]:
    """An axis of one objective."""
    return {
        "title": {"text": f"{label(name)} (validation)"},
        **({"tickformat": ".0%"} if is_fraction(name) else {}),
    }


@dataclass(frozen=True, slots=True)
class Step:
    """From ``epsilon`` on, ``value`` is achievable; ``point`` achieves it."""

    epsilon: float
    value: float
    trial: str
    epoch: int


def staircase(points: Iterable[Point], name: str, direction: Direction = Direction.MAXIMIZE) -> tuple[Step, ...]:
    """What is achievable at epsilon <= x: each step is better than every one before it.

    Points without a finite epsilon or value are passed over. At equal epsilon the better point counts.
    """
    sign = 1.0 if direction is Direction.MAXIMIZE else -1.0
    steps = [
        Step(p.values["epsilon"], p.values[name], p.trial, p.epoch)
        for p in points
        if isfinite(p.values.get("epsilon", nan)) and isfinite(p.values.get(name, nan))
    ]
    kept: list[Step] = []
    for step in sorted(steps, key=lambda s: (s.epsilon, -sign * s.value, s.trial, s.epoch)):
        if not kept or sign * step.value > sign * kept[-1].value:
            kept.append(step)
    return tuple(kept)


def hover_texts(data: SweepData, points: Sequence[Point]) -> tuple[str, ...]:
    """Trial, epoch, every value, and the part of the configuration that varies, escaped."""
    names = varying(data.trials)
    configurations: dict[str, str] = {}
    for id_ in {point.trial for point in points}:
        flat = flatten(data.trials[id_].config)
        lines = [f"{escape(name)} = {escape(setting(flat[name]))}" for name in names if name in flat]
        more = [f"… and {len(lines) - _HOVER_LINES} more"] if len(lines) > _HOVER_LINES else []
        configurations[id_] = "<br>".join([*lines[:_HOVER_LINES], *more])
    return tuple(_hover(point, configurations[point.trial]) for point in points)


def _hover(point: Point, configuration: str) -> str:
    test: Mapping[str, float] = point.test or {}
    lines = [f"<b>{escape(point.trial)}</b>, epoch {point.epoch}"]
    for name, value in point.values.items():
        tested = f" (test {show(name, test[name])})" if name in test and name != "epsilon" else ""
        lines.append(f"{escape(name)}: {show(name, value)}{tested}")
    return "<br>".join([*lines, *([configuration] if configuration else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureInfo:
    """What every figure knows before it is drawn."""

    title: str
    epsilon_title: str
    exploratory: bool


def header(data: SweepData, title: str) -> dict[str, Any]:
    """The fields of `FigureInfo`."""
    return {
        "title": f"{escape(data.name)}: {title}",
        "epsilon_title": epsilon_title(data),
        "exploratory": data.result.claim.exploratory,
    }


def new_figure(info: FigureInfo, theme: Theme, *, empty: bool, **layout: Any) -> go.Figure:
    """A figure in the theme: a watermark if the sweep is exploratory, a word if there is nothing to show."""
    figure = go.Figure()
    figure.update_layout(template=template(theme), title={"text": info.title}, **layout)
    if empty:
        figure.add_annotation(
            text="no points yet",
            x=0.5,
            y=0.5,
            xref="paper",
            yref="paper",
            showarrow=False,
            font={"color": theme.muted},
        )
    if info.exploratory:
        watermark(figure, theme)
    return figure


def watermark(figure: go.Figure, theme: Theme) -> None:
    """Write across the figure that its numbers are no guarantee."""
    figure.add_annotation(
        name="watermark",
        text=WATERMARK,
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        showarrow=False,
        textangle=-18,
        font={"size": 38, "color": theme.watermark},
    )
