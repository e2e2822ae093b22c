"""Parallel coordinates: one line per trial, or rehearsed configuration, through its settings to what it reached.

Only values that differ between them have an axis. A number that spans a factor of ten or more is drawn
on a logarithmic axis; a value that a trial does not have (a choice's own parameter) sits below the axis
at a dash.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, log10
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dashboards.data import SweepData, evenly, varying
from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import header, label, new_figure, short_names
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.hyperparameters._compared import compare, mark, omitted_of
from dashboards.figures.sweep.front import color_bar
from dashboards.text import MISSING, is_fraction, number, setting

DRAWN_TRIALS = 300
_LOG_SPAN = 10.0
_TOUCHING = 0.04  # share of an axis


@dataclass(frozen=True, slots=True)
class Axis:
    """One vertical axis: a position for every trial, and where the ticks are."""

    name: str
    label: str
    positions: tuple[float, ...]
    tick_positions: tuple[float, ...]
    tick_texts: tuple[str, ...]
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationsInfo(FigureInfo):
    """Numbers of the parallel coordinates."""

    subject: str = "trial"  # what a line is, as a table calls it
    note: str = ""  # what the lines are, where they are no trials
    # ids of the trials that have a last point with every objective, or of rehearsed configurations; evenly spread ones
    # of more than `DRAWN_TRIALS`
    trials: tuple[str, ...]
    axes: tuple[Axis, ...]  # configuration first, objectives last
    color_name: str  # the objective that colours the lines
    colors: tuple[float, ...]  # its value for each trial


def info(data: SweepData) -> ConfigurationsInfo:
    """Compute the parallel coordinates; empty with fewer than two trials to compare."""
    shown = compare(data)
    ids = evenly(list(shown.reached), DRAWN_TRIALS)
    axes: list[Axis] = []
    if len(ids) > 1:
        flats = [shown.settings[id_] for id_ in ids]
        chosen = varying({id_: shown.settings[id_] for id_ in ids})
        labels = short_names(chosen, shown.objectives)
        axes = [_axis(name, labels[name], [flat.get(name) for flat in flats]) for name in chosen]
        axes += [_axis(name, name, [shown.reached[id_][name] for id_ in ids]) for name in shown.objectives]
    return ConfigurationsInfo(
        **header(data, "configurations and what they reached"),
        trials=ids if axes else (),
        axes=tuple(axes),
        color_name=data.utility,
        colors=tuple(shown.reached[id_][data.utility] for id_ in ids) if axes else (),
        subject=shown.subject,
        note=shown.note,
    )


def rows(info: ConfigurationsInfo) -> Table:
    """The numbers of the figure: one row per line."""
    return [
        {info.subject: id_, **{axis.name: axis.values[i] for axis in info.axes}} for i, id_ in enumerate(info.trials)
    ]


def plot(info: ConfigurationsInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the parallel coordinates; drag along an axis to select trials."""
    figure = new_figure(info, theme, empty=not info.axes, height=460, margin={"l": 64, "r": 36, "t": 96, "b": 28})
    if not info.axes:
        return figure
    figure.add_trace(
        go.Parcoords(
            line={
                "color": info.colors,
                "colorscale": theme.colorscale(),
                "showscale": True,
                "colorbar": color_bar(label(info.color_name)),
            },
            dimensions=[
                {
                    "label": axis.label,
                    "values": axis.positions,
                    "tickvals": axis.tick_positions,
                    "ticktext": axis.tick_texts,
                }
                for axis in info.axes
            ],
            labelangle=-18,
            labelfont={"size": 12, "color": theme.ink},
            tickfont={"size": 11, "color": theme.muted},
            rangefont={"size": 1, "color": theme.paper},
        )
    )
    mark(figure, info.note, theme, up=70)
    return figure


def _axis(name: str, label: str, values: Sequence[Any]) -> Axis:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if not numbers or any(not isfinite(v) for v in numbers) or len(numbers) < sum(v is not None for v in values):
        return _categories(name, label, values)
    low, high = min(numbers), max(numbers)
    logarithmic = low > 0 and (high / low >= _LOG_SPAN or name == "epsilon")
    scale: Callable[[float], float] = log10 if logarithmic else float
    bottom, top = scale(low), scale(high)
    absent = bottom - 0.15 * ((top - bottom) or 1.0)
    distinct = sorted(set(numbers))
    spaced = np.geomspace if logarithmic else np.linspace
    ticks = _apart(distinct, scale) if len(distinct) <= 6 else spaced(low, high, 5).tolist()
    missing = any(v is None for v in values)
    return Axis(
        name,
        label,
        tuple(absent if v is None else scale(v) for v in values),
        (*([absent] if missing else []), *map(scale, ticks)),
        (*([MISSING] if missing else []), *(_tick(name, tick) for tick in ticks)),
        tuple(values),
    )


def _apart(values: Sequence[float], scale: Callable[[float], float]) -> list[float]:
    """The values without those whose ticks would touch the one before; the last one stays."""
    kept: list[float] = []
    room = _TOUCHING * (scale(values[-1]) - scale(values[0]))
    for value in reversed(values):
        if not kept or scale(kept[-1]) - scale(value) > room:
            kept.append(value)
    return kept[::-1]


def _tick(name: str, value: float) -> str:
    return f"{100 * value:.0f} %" if is_fraction(name) else number(value, 2)


def _categories(name: str, label: str, values: Sequence[Any]) -> Axis:
    texts = [MISSING if value is None else setting(value) for value in values]
    names = sorted(set(texts))
    return Axis(
        name,
        label,
        tuple(float(names.index(text)) for text in texts),
        tuple(map(float, range(len(names)))),
        tuple(names),
        tuple(values),
    )


FIGURE: FigureKind[SweepData, ConfigurationsInfo] = FigureKind(
    name="configurations",
    heading="Configurations",
    summary="one line per trial, through its configuration to what it reached",
    caption=(
        "One line per trial, or per rehearsed configuration where these are more, through its settings to what it "
        "reached at its last epoch. Drag along an axis to keep only the lines that pass there; drag a name to move an "
        "axis."
    ),
    position=100,
    info=info,
    plot=plot,
    rows=rows,
    awaits="One line for each trial through its settings,<br>as soon as two trials have points",
    omitted=lambda data: omitted_of(data, DRAWN_TRIALS),
    wide=True,
)
