"""Parallel coordinates: one line per trial, or rehearsed configuration, through its settings to what it reached.

Only values that differ between them have an axis; `dashboards.figures.hyperparameters._axes` says how it is scaled.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from math import ceil, floor
from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from dashboards.data import SweepData, evenly, finite, varying
from dashboards.figures._base import FigureInfo, FigureKind, Table
from dashboards.figures._common import DASHES, bar_key, color_bar, header, label, new_figure, short_names
from dashboards.figures._comparable import mark, more_height, name_stars, stage_names, symbols, write_below
from dashboards.figures._scores import interval_of
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures._ticks import break_name
from dashboards.figures.hyperparameters._axes import Axis, declared_ranges, differs, make_axis
from dashboards.figures.hyperparameters._compared import (
    Compared,
    compare,
    order,
    remarks_of,
    terms_of,
    trained_in_words,
)
from dashboards.text import in_parentheses, short_title, show
from sweeper.specification.fields.ranges import Range
from sweeper.specification.objectives import is_share_of_rows

DRAWN_TRIALS = 300
_ANGLE = -18  # of names
_LEVEL_NAMES, _LETTERS, _LINE = 12, 108, 16  # so many names stand level in a picture: letters of a line, its pixels
_TRAINED = (
    ' Configurations that were trained afterwards are at "yes" on the axis "trained"; in a picture their lines are '
    "thicker and end in stars."
)
_WIDE, _THIN = 2.6, 1.2  # pixels of the lines that stand out, and of the others
_PALE, _CLEAR = 0.45, 0.85  # opacity of the others, from the worst to the best: it is the best that are followed
_PLACES = ("highest", "second", "third", "fourth", "fifth")  # as many as there are dashes
_WITHIN = ", inside that interval"  # of a place behind the first
_LEAST_HALVES = 4.0  # of the interval of a score, in an axis of scores
_LEAST_RATIO = 2.0  # of the ends of an axis of epsilons
_BEST_SHARE = 0.1  # of the trials whose lines stand out, where none is a rehearsed configuration that was trained
_INTERVAL_AT = 0.06  # from the axis to the bar of an interval, as a share of the way between axes
_BESIDE = 0.09  # from the last axis to the star at the end of a line, as a share of the way between axes
STAGE = "stage"  # the axis of stages of the budget
_RIM = ((-1.5, -1), (-1.5, 1), (1.5, -1), (1.5, 1), (-3, 0), (3, 0), (0, -2.5), (0, 2.5))  # pixels
_BELOW, _ROW = 24, 20  # pixels between axes and the note below them, and for each row of a legend between
_ROW_LETTERS, _SYMBOL_LETTERS = 130, 9  # that fit a row of it, and those that a symbol takes
_FEW_VALUES, _NEXT, _BUNDLE = 8, 0.006, 0.06  # of an axis; shares of it between two lines at one, and of all of one
_BEYOND = 9  # pixels from the end of an axis to the text of its tick
_RISE = 2.0  # pixels above an axis for each letter of its name


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationsInfo(FigureInfo):
    """Numbers of the parallel coordinates."""

    subject: str = "trial"  # what a line is, as a table calls it
    note: str = ""  # what is compared, where that are not all trials, and how sure scores are; in one line each
    trained: tuple[str, ...] = ()  # of each rehearsed configuration the trials that train it, empty where none does
    attained: Mapping[str, str] = field(default_factory=dict)  # best scores of these trials by `trained`, in words
    half_width: float | None = None  # of the 95 % interval of a score, None where that is not known
    # ids of the trials that have a point with every objective, or of rehearsed configurations; evenly spread ones
    # of more than `DRAWN_TRIALS`
    trials: tuple[str, ...]
    axes: tuple[Axis, ...]  # configuration first, objectives last
    objectives: tuple[str, ...]
    color_name: str  # the objective that colours the lines
    colors: tuple[float, ...]  # its value for each trial
    terms: str = ""  # what the marks are the best points of, how sure they are and what they cost; parts by "; "
    order: tuple[str, ...] = ()  # hyperparameters, the most important first; those beyond it have no order


def info(data: SweepData, *, one_noise: bool = False) -> ConfigurationsInfo:
    """Compute the parallel coordinates, of one stage with ``one_noise``; empty with fewer than two trials."""
    shown = compare(data, one_noise=one_noise)
    ids = evenly(list(shown.reached), DRAWN_TRIALS)
    axes: list[Axis] = []
    if len(ids) > 1:
        flats = [shown.settings[id_] for id_ in ids]
        chosen = varying({id_: shown.settings[id_] for id_ in ids})
        labels = short_names(chosen, shown.objectives)
        ranges = declared_ranges({} if data.manifest is None else data.manifest.spec)
        axes = [make_axis(n, labels[n], [flat.get(n) for flat in flats], ranges.get(n)) for n in chosen]
        axes += _stage_axis(data, ids) if shown.trained is None and not one_noise else []
        axes += [_result_axis(shown, name, ids) for name in shown.objectives]
    return ConfigurationsInfo(
        **header(data, "configurations and their best points"),
        objectives=shown.objectives,
        trials=ids if axes else (),
        axes=tuple(axes),
        color_name=data.utility,
        colors=tuple(shown.reached[id_][data.utility] for id_ in ids) if axes else (),
        subject=shown.subject,
        note="\n".join(filter(None, (shown.note, shown.certainty))),
        trained=tuple(shown.trained[id_] for id_ in ids) if axes and shown.trained is not None else (),
        attained=_attained(data, shown),
        half_width=shown.half_width,
        order=order(data) if axes else (),
        terms=terms_of(data, shown),
    )


def _result_axis(shown: Compared, name: str, ids: Sequence[str]) -> Axis:
    """The axis of an objective: what differs by less than the interval of a score does not look as if it were much."""
    values = [shown.reached[id_][name] for id_ in ids]
    low, high = min(values), max(values)
    ends = None
    if is_share_of_rows(name) and shown.half_width is not None:
        high = min(max(high, 1.0), ceil(100 * (high + shown.half_width)) / 100)
        low = min(low, max(0.0, high - _LEAST_HALVES * shown.half_width))
        ends = Range(low=floor(100 * low) / 100, high=high)
    elif name == "epsilon" and low > high / _LEAST_RATIO > 0.0:
        ends = Range(low=float(f"{high / _LEAST_RATIO:.1g}"), high=high, log=True)
    rehearsed = "rehearsed " if shown.trained is not None else ""
    return make_axis(name, rehearsed + short_title(name), values, ends)


def _stage_axis(data: SweepData, ids: Sequence[str]) -> list[Axis]:
    """The axis that tells stages of the budget apart, where some trials are of another one."""
    names = stage_names(data)
    stages = [data.result.stage_of(id_) or 0 for id_ in ids]
    values = [names[stage].removeprefix("stage ") for stage in stages] if len(set(stages)) > 1 else []
    return [make_axis(STAGE, STAGE, values)] if values else []


def _attained(data: SweepData, shown: Compared) -> dict[str, str]:
    """Return what trials of rehearsed configurations reached, by their names: the best utility, and how sure it is."""
    utility, found = data.utility, {}
    for trials in filter(None, (shown.trained or {}).values()):
        points = [point for point in data.points if point.trial in trials.split(", ") and finite(point, utility)]
        if points:
            best = max(points, key=lambda point: data.direction(utility).sign * point.values[utility])
            value = best.values[utility]
            interval = best.interval(utility) or interval_of(data.result, utility, value)
            found[trials] = f"{label(utility)} {show(utility, value)}{in_parentheses(utility, interval)}"
    return found


def content_of(data: SweepData, title: str, *, one_noise: bool = False) -> dict[str, Any]:
    """Return the fields of `ConfigurationsInfo`, for a figure of the same numbers with a title of its own."""
    base = replace(info(data, one_noise=one_noise), **header(data, title))
    return {name: getattr(base, name) for name in base.__dataclass_fields__}


def in_order(info: ConfigurationsInfo) -> list[Axis]:
    """Return the axes of hyperparameters, the most important first; those without an order: ranges before others."""
    places = {name: place for place, name in enumerate(info.order)}
    settings = [axis for axis in info.axes if axis.name not in (*info.objectives, STAGE)]
    return sorted(settings, key=lambda axis: (places.get(axis.name, len(places)), not axis.is_range))


def identify(info: ConfigurationsInfo, i: int) -> dict[str, Any]:
    """Return the first columns of a row: the trial, or the rehearsed configuration and the trials that train it."""
    return {info.subject: info.trials[i]} | ({"trained_as": info.trained[i]} if info.trained else {})


def is_trained(info: ConfigurationsInfo, chosen: Iterable[int]) -> list[bool]:
    """Return which of them are rehearsed configurations that trials train."""
    return [bool(info.trained and info.trained[i]) for i in chosen]


def rows(info: ConfigurationsInfo) -> Table:
    """The numbers of the figure: one row per line."""
    return [identify(info, i) | {axis.name: axis.values[i] for axis in info.axes} for i in range(len(info.trials))]


def plot(info: ConfigurationsInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the parallel coordinates; drag along an axis to select trials."""
    axes = [axis for axis in info.axes if differs(axis.values)]
    names = [_level_name(axis.title, max(_LETTERS // max(len(axes), 1), 9)) for axis in axes]
    turned = not info.still or len(axes) > _LEVEL_NAMES
    rise = round(_RISE * max((len(axis.title) for axis in axes), default=0))
    rise = rise if turned else _LINE * max((name.count("<br>") for name in names), default=0)
    margin = {
        "l": 64,
        "r": 36,
        "t": 64 + _BEYOND + rise + (20 + more_height(info.note) if info.note else 0),
    }
    figure = new_figure(info, theme, empty=not axes, height=460, margin=margin)
    if not axes:
        return figure
    look = {
        "colorscale": theme.colorscale(),
        "showscale": True,
        "colorbar": color_bar(label(info.color_name), info.colors),
    }
    if info.still:
        _draw_lines(figure, info, axes, theme, look)
        if not turned:
            figure.update_xaxes(ticktext=names, tickangle=0)
    else:
        figure.add_trace(
            go.Parcoords(
                line={"color": info.colors, **look},
                dimensions=[_dimension(axis) for axis in (*axes, *_trained_axis(info))],
                labelangle=_ANGLE,
                labelfont={"size": 12, "color": theme.ink},
                tickfont={"size": 11, "color": theme.ink},
                rangefont={"size": 1, "color": theme.paper},
            )
        )
    mark(figure, info.note, theme, up=30 + rise)
    spread = "; lines of one value lie side by side" if info.still and _are_spread(info, axes) else ""
    write_below(figure, info.terms + spread, theme, down=_BELOW + _ROW * _legend_rows(figure), narrow=False)
    return figure


def _legend_rows(figure: go.Figure) -> int:
    """How many rows the legend takes, in several of which all names have the room of the longest."""
    names = [trace.name for trace in figure.data if trace.name and trace.showlegend is not False]
    letters = [len(name) + _SYMBOL_LETTERS for name in names]
    if sum(letters) <= _ROW_LETTERS:
        return bool(letters)
    return ceil(len(letters) / max(_ROW_LETTERS // max(letters), 1))


def _level_name(title: str, letters: int) -> str:
    """A name in lines: a long one is broken behind dots too, and in front of what its scale is.

    >>> _level_name("privacy.epsilon (log)", 9), _level_name("width", 9)
    ('privacy.<br>epsilon<br>(log)', 'width')
    """
    if len(title) <= letters:
        return escape(title)
    dots = "." if "@" in title else ".<br>"  # a radius stays whole
    return break_name(title, letters).replace(" ", "<br>").replace(".", dots)


def _draw_lines(
    figure: go.Figure, info: ConfigurationsInfo, axes: Sequence[Axis], theme: Theme, look: Mapping[str, Any]
) -> None:
    """Draw what `plotly.graph_objects.Parcoords` would, with lines that a picture shows: its own are hairs there."""
    low, high = min(info.colors), max(info.colors)
    heights = [_crossings(info, axis) for axis in axes]
    trained = is_trained(info, range(len(info.trials)))
    shares = [(value - low) / ((high - low) or 1.0) for value in info.colors]
    by_share = sorted(range(len(shares)), key=lambda i: (trained[i], shares[i]))
    wide = set(by_share[-(sum(trained) or ceil(_BEST_SHARE * len(shares))) :])
    order = by_share[: -len(wide) - 1 : -1]  # the best first: its line is solid, and others can be followed
    for i in by_share:
        color = sample_colorscale(theme.colorscale(), [shares[i]])[0]
        opacity = 1.0 if i in wide else _PALE + (_CLEAR - _PALE) * shares[i]
        trial = {"x": list(range(len(axes))), "y": [column[i] for column in heights], "showlegend": False}
        line = {"color": color, "width": _WIDE if i in wide else _THIN}
        line |= {"dash": DASHES[order.index(i) % len(DASHES)]} if i in order else {}
        figure.add_trace(go.Scatter(**trial, mode="lines", line=line, opacity=opacity))
        if trained[i]:  # beside the axis, for texts of ticks are on its other side
            marker = {"color": color, "line": {"width": 1, "color": theme.paper}, **symbols([True], 5), "opacity": 1}
            end = {"x": [len(axes) - 1 + _BESIDE], "y": [heights[-1][i]], "showlegend": False}
            figure.add_trace(go.Scatter(**end, mode="markers", marker=marker, cliponaxis=False))
    _draw_interval(figure, info, axes, theme)
    ends = {"color": [low, high], "cmin": low, "cmax": high, "opacity": 0, **look}
    figure.add_trace(go.Scatter(x=[0, 0], y=[0, 0], mode="markers", marker=ends, showlegend=False))
    for x in range(len(axes)):
        figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, line={"color": theme.muted, "width": 1.2})
    figure.update_layout(annotations=[*figure.layout.annotations, *_tick_texts(axes, theme)])  # one by one is slow
    names = {"tickvals": list(range(len(axes))), "ticktext": [escape(axis.title) for axis in axes], "ticks": ""}
    bare = {"showgrid": False, "showline": False, "ticklabelstandoff": _BEYOND, "tickfont": {"weight": "bold"}}
    figure.update_layout(
        showlegend=False,
        xaxis={**names, **bare, "side": "top", "tickangle": _ANGLE, "range": [-0.45, len(axes) - 1 + 1.5 * _BESIDE]},
        yaxis={**bare, "range": [-0.02, 1.02], "showticklabels": False, "ticks": ""},
    )
    if any(trained):
        name_stars(figure, theme)
        attained = (info.attained.get(info.trained[i], "") for i in order)
        entries = [
            f"trained as {info.trained[i]}{': ' * bool(one)}{one}" for i, one in zip(order, attained, strict=True)
        ]
    else:
        what = label(info.color_name)
        near = [i != order[0] and _is_near(info, order[0], i) for i in order]
        entries = [
            f"{place}{f' {what}' * (i == order[0])}: {info.trials[i]}{_WITHIN * is_near}"
            for place, i, is_near in zip(_PLACES, order, near, strict=False)
        ]
        entries = entries if len(order) <= len(_PLACES) else [f"highest {what}: {len(order)} of {len(shares)}"]
    for name, dash in zip(entries[: len(DASHES)], DASHES, strict=False):
        line = {"color": theme.ink, "width": _WIDE, "dash": dash}
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="lines", line=line, name=name, showlegend=True))
    figure.update_layout(showlegend=True, legend={"y": -0.05, "yanchor": "top"})


def _is_near(info: ConfigurationsInfo, best: int, i: int) -> bool:
    """Whether a score lies in the interval of the best one."""
    return info.half_width is not None and abs(info.colors[best] - info.colors[i]) <= info.half_width


def _draw_interval(figure: go.Figure, info: ConfigurationsInfo, axes: Sequence[Axis], theme: Theme) -> None:
    """Draw the interval of the best score beside the axis of its objective."""
    places = [x for x, axis in enumerate(axes) if axis.name == info.color_name]
    if info.half_width is None or not places:
        return
    (x,), value = places, max(info.colors)
    axis = axes[x]
    height, top = _heights(axis, [value, value + info.half_width])
    bar = {"array": [top - height], "color": theme.ink, "thickness": 1.5, "width": 4}
    look = {"mode": "markers", "marker": {"opacity": 0}, "showlegend": False, "cliponaxis": False}
    figure.add_trace(go.Scatter(x=[x + _INTERVAL_AT], y=[height], error_y=bar, **look))
    figure.add_trace(bar_key(f"95 % CI of the highest {label(info.color_name)}", theme.ink))


def _crossings(info: ConfigurationsInfo, axis: Axis) -> list[float]:
    """Return where the lines cross an axis."""
    return _side_by_side(_heights(axis, axis.positions), info.colors)


def _are_spread(info: ConfigurationsInfo, axes: Sequence[Axis]) -> bool:
    return any(_crossings(info, axis) != _heights(axis, axis.positions) for axis in axes)


def _side_by_side(heights: Sequence[float], colors: Sequence[float]) -> list[float]:
    """Return where lines cross an axis of few values: those through one value lie side by side, the best at the top.

    None lies beyond the axis.

    >>> _side_by_side([0.0, 0.0, 0.5, 1.0, 0.5], [0.9, 0.8, 0.7, 0.6, 0.8])
    [0.006, 0.0, 0.497, 1.0, 0.503]
    """
    groups: dict[float, list[int]] = {}
    for i, height in enumerate(heights):
        groups.setdefault(height, []).append(i)
    if len(groups) > _FEW_VALUES:
        return list(heights)
    found = list(heights)
    for height, group in ((height, group) for height, group in groups.items() if len(group) > 1):
        step = min(_NEXT, _BUNDLE / len(group))
        half = step * (len(group) - 1) / 2
        lowest = min(max(height - half, 0.0), 1.0 - 2 * half)
        for place, i in enumerate(sorted(group, key=lambda i: colors[i])):
            found[i] = round(lowest + step * place, 6)
    return found


def _tick_texts(axes: Sequence[Axis], theme: Theme) -> list[dict[str, Any]]:
    """The texts of ticks left of their axes, with a rim of paper, so that lines pass behind letters alone.

    Those of ends are above and below the axis: the best and the worst line run along its ends.
    """
    notes = []
    for x, axis in enumerate(axes):
        for y, text in zip(_heights(axis, axis.tick_positions), axis.tick_texts, strict=True):
            beyond = _BEYOND * ((y == 1.0) - (y == 0.0))
            beside = 0 if beyond else -3
            anchor = {"showarrow": False, "xanchor": "center" if beyond else "right"}
            for right, up, color in (*((*rim, theme.paper) for rim in _RIM), (0, 0, theme.ink)):
                place = {"x": x, "y": y, "xshift": right + beside, "yshift": up + beyond}
                notes.append({"text": escape(text), "font": {"size": 11, "color": color}, **place, **anchor})
    return notes


def _heights(axis: Axis, positions: Sequence[float]) -> list[float]:
    """Return positions as shares of the axis."""
    low, high = _dimension(axis)["range"]
    return [(position - low) / (high - low) for position in positions]


def _trained_axis(info: ConfigurationsInfo) -> list[Axis]:
    """The axis that tells which rehearsed configurations were trained, where some were: lines have no other mark."""
    trained = is_trained(info, range(len(info.trials)))
    return [make_axis("trained", "trained", ["yes" if one else "no" for one in trained])] if any(trained) else []


def _dimension(axis: Axis) -> dict[str, Any]:
    low, high = axis.ends
    return {
        "label": axis.title,
        "values": axis.positions,
        "tickvals": axis.tick_positions,
        "ticktext": axis.tick_texts,
        "range": [low, high] if high > low else [low - 0.5, high + 0.5],
    }


FIGURE: FigureKind[SweepData, ConfigurationsInfo] = FigureKind(
    name="configurations",
    heading="Configurations",
    summary="one line per trial, through its configuration to what it reached",
    caption=(
        "One line per trial or rehearsed configuration, through its settings to what it reached in its best "
        "point, the one of best utility. Drag along an axis to keep only the lines that pass "
        "there; drag a name to move an axis. Axes have the scale and the ends that the spec declares."
    ),
    position=100,
    info=info,
    plot=plot,
    rows=rows,
    awaits="One line for each trial through its settings,<br>as soon as two trials have points",
    remarks=lambda data: trained_in_words(data, _TRAINED) + remarks_of(data, DRAWN_TRIALS),
    wide=True,
    for_paper=False,
    needs="two trials with points",
)
