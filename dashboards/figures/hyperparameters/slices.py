"""Slices: the utility over each hyperparameter alone, one panel each, those that go along with it most first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table, omitted
from dashboards.figures._common import SYMBOLS, label, marks, percent_axis
from dashboards.figures._comparable import stage_epsilon, stage_names, swarm, symbols
from dashboards.figures._scores import VALIDATION
from dashboards.figures._shades import differ, shaded_marker
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures.hyperparameters import _content
from dashboards.figures.hyperparameters._axes import Axis
from dashboards.figures.hyperparameters._compared import gestures_of, remarks_of, trained_in_words
from dashboards.figures.hyperparameters._content import (
    DRAWN_TRIALS,
    ConfigurationsInfo,
    best_in_words,
    content_of,
    identify,
    is_trained,
)
from dashboards.figures.hyperparameters._pairs import (
    PAD,
    find_axes,
    frame,
    letters,
    order_in_words,
    panels,
    places,
    stars_last,
    texts,
)

MOST_PANELS = 4
_SIZE = 8  # pixels of a mark
_BESIDE = (0.035, 0.05)  # of an axis, between marks of one value that would hide each other; in a column
_FEW = 6  # values, beside the outermost of which marks have more room
_NEAR = 0.04  # share of all values within which they would


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicesInfo(ConfigurationsInfo):
    """Numbers of the slices."""

    slices: tuple[Axis, ...]  # of the hyperparameters that are shown
    stages: tuple[str, ...] = ()  # of each trial, in words; empty where all trials are of one noise


def info(data: SweepData) -> SlicesInfo:
    """Compute the slices; none with too few trials."""
    content = content_of(data, f"best {label(data.utility)} by hyperparameter")
    base = ConfigurationsInfo(**content)
    axes = find_axes(base)
    if len(axes) > MOST_PANELS:
        content["title"] += f", {MOST_PANELS}\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}{len(axes)}"
    return SlicesInfo(**content, slices=axes[:MOST_PANELS], stages=_stages(data, base.trials))


def _stages(data: SweepData, trials: Sequence[str]) -> tuple[str, ...]:
    if data.compares_rehearsals or len(data.comparable) == len(data.trials):
        return ()
    stages = [data.result.stage_of(trial) for trial in trials]
    words: dict[int | None, str] = {
        stage: f"{stage_names(data)[stage]}, {stage_epsilon(data, stage)}" for stage in set(stages) if stage is not None
    }
    return tuple(words.get(stage, "no stage") for stage in stages)


def rows(info: SlicesInfo) -> Table:
    """The numbers of the figure: one row per trial."""
    return [
        identify(info, i)
        | ({"stage": info.stages[i]} if info.stages else {})
        | {info.color_name: info.colors[i], **{axis.name: axis.values[i] for axis in info.slices}}
        for i in range(len(info.trials))
        if info.slices
    ]


def plot(info: SlicesInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the slices on one scale."""
    columns, own = 2 if info.narrow else MOST_PANELS, _own_epsilons(info)
    figure = panels(info, theme, len(info.slices), columns=columns, shared_yaxes=True)
    groups = sorted(set(info.stages)) or [""]
    for place, axis in zip(places(len(info.slices), columns), info.slices, strict=True):
        for i, group in enumerate(groups):
            trace = _marks(info, axis, group, {"color": theme.hue(i), "symbol": SYMBOLS[i % len(SYMBOLS)]}, theme)
            if own:
                marker = shaded_marker([own[j] for j in stars_last(info, range(len(own)))], theme, "its best point")
                trace.update(marker={**marker, "showscale": axis is info.slices[0], "opacity": 1.0})
            figure.add_trace(trace.update(showlegend=bool(group) and axis is info.slices[0]), **place)
        frame(figure, place, axis, letters=letters(info, columns), pad=PAD * (1 + (axis.distinct <= _FEW)))
    if info.stages and info.slices:
        figure.update_layout(showlegend=True)
    if info.slices:
        figure.update_yaxes(**percent_axis(info.color_name))
        figure.update_yaxes(title=_title(info), col=1)
    return figure


def _own_epsilons(info: SlicesInfo) -> list[float]:
    """The own epsilon of each trial's best point, which colours its marks; none where they hardly differ."""
    found = [value for axis in info.axes if axis.name == "epsilon" for value in axis.values]
    own = [float(value) for value in found if isinstance(value, int | float)]
    return own if not info.stages and len(own) == len(info.trials) and differ(own) else []


def _marks(info: SlicesInfo, axis: Axis, group: str, look: Mapping[str, str], theme: Theme) -> go.Scatter:
    """The trials of one stage over one hyperparameter, or all trials where there are no stages to tell apart."""
    found = [i for i in range(len(info.trials)) if not info.stages or info.stages[i] == group]
    chosen = stars_last(info, found)
    x, y = [axis.positions[i] for i in chosen], [info.colors[i] for i in chosen]
    low, high = axis.ends
    at = swarm(x, y, _BESIDE[info.narrow] * ((high - low) or 1.0), _NEAR * (max(info.colors) - min(info.colors)))
    marker = {"size": _SIZE, "opacity": 0.7, "line": {"width": 0.8, "color": theme.paper}, **look}
    if info.trained:
        marker |= symbols(is_trained(info, chosen), _SIZE)
    return marks(at, y, texts(info, [axis], chosen), marker, name=group, legendgroup=group, cliponaxis=False)


def _title(info: SlicesInfo) -> dict[str, str]:
    """What is on the vertical axis: scores of validation rows, or of those that configurations were rehearsed on."""
    rows = "rehearsed" if info.note else VALIDATION
    return {"text": f"{label(info.color_name)} ({rows})"}


def _panels(data: SweepData) -> str:
    """How many hyperparameters have a panel, where not all of them have one."""
    return omitted(MOST_PANELS, len(find_axes(_content.info(data))), "hyperparameters")


def _staged(data: SweepData) -> str:
    """That marks of different stages do not compare, where there are some."""
    if not _stages(data, list(data.trials)):
        return ""
    return " Compare marks of one stage alone: a later stage trains with less noise, whatever its hyperparameters are."


FIGURE: FigureKind[SweepData, SlicesInfo] = FigureKind(
    name="slices",
    heading="One hyperparameter at a time",
    summary="what trials reached over each hyperparameter alone",
    caption=(
        "One mark per trial or rehearsed configuration at the best that it reached, over one hyperparameter in each "
        "panel. Marks that would hide each other stand side by side. Other hyperparameters differ between the marks; "
        "where their own epsilons do, colours tell them."
    ),
    position=101,
    found=lambda info: best_in_words(info, info.slices),
    info=info,
    plot=plot,
    rows=rows,
    gestures_here=gestures_of,
    remarks=lambda data: (
        _staged(data) + trained_in_words(data) + order_in_words(data) + _panels(data) + remarks_of(data, DRAWN_TRIALS)
    ),
    wide=True,
    needs="four trials with points and a hyperparameter that differs",
)
