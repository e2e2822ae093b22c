"""Parallel coordinates: one line per trial, or rehearsed configuration, through its settings to what it reached.

Only values that differ between them have an axis; `dashboards.figures.hyperparameters._axes` says how it is scaled.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, inf
from typing import Any

import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from dashboards.data import SweepData
from dashboards.figures._base import FigureKind, Table
from dashboards.figures._common import DASHES, bar_key, color_bar, new_figure
from dashboards.figures._comparable import mark, more_height, name_stars, symbols, write_below
from dashboards.figures._theme import LIGHT, Theme
from dashboards.figures._ticks import break_name
from dashboards.figures.hyperparameters._axes import Axis, differs, make_axis
from dashboards.figures.hyperparameters._compared import remarks_of, trained_in_words
from dashboards.figures.hyperparameters._content import (
    DRAWN_TRIALS,
    ConfigurationsInfo,
    best_in_words,
    identify,
    in_order,
    info,
    is_setting,
    is_trained,
)
from dashboards.figures.hyperparameters._judged import RHO, Judged, correlations, correlations_in_words, judge
from dashboards.text import MISSING, in_parentheses, is_fraction, number, show, show_epsilon
from sweeper.privacy.pricing import OWN

_SETTINGS_SAID = 4  # of the best trial, the most important first
_ANGLE = -18  # of names
_LEVEL_NAMES, _LETTERS, _LINE = 12, 108, 16  # so many names stand level in a picture: letters of a line, its pixels
_TRAINED = (
    ' Configurations that were trained afterwards are at "yes" on the axis "trained"; in a picture their lines are '
    "thicker and end in stars."
)
_WIDE, _THIN = 2.6, 1.2  # pixels of the lines that stand out, and of the others
_PALE, _CLEAR = 0.25, 0.85  # opacity of the others: it is the best of them that are followed
_FOLLOWED = 12  # lines
_PLACES = ("best score", "second", "third")
_INTERVAL_AT = 0.06  # from the axis to the bar of an interval, as a share of the way between axes
_BEHIND = 0.14  # the last axis, where the axes end, as a share of the way between axes
_STAR = 15  # pixels, on a wide line
_BELOW, _ROW = 24, 20  # pixels between axes and the note below them, and for each row of a legend between
_ROW_LETTERS, _SYMBOL_LETTERS = 150, 9  # that fit a row of it, and those that a symbol takes
_NEXT = 0.01  # between two lines at one value, as a share of the axis
_FEW_VALUES, _BUNDLE = 8, (0.02, 0.08)  # of an axis; between all lines at one, on axes of more values and of few
_BEYOND = 9  # pixels from the end of an axis to the text of its tick
_AT_TEXT, _NEAR = 0.1, 0.03  # where texts are, as a share of the way to the axis before; a share of the axis
_RISE = 2.0  # pixels above an axis for each letter of its name


def rows(info: ConfigurationsInfo) -> Table:
    """The numbers of the figure: one row per line."""
    return [identify(info, i) | {axis.name: axis.values[i] for axis in info.axes} for i in range(len(info.trials))]


def plot(info: ConfigurationsInfo, theme: Theme = LIGHT) -> go.Figure:
    """Draw the parallel coordinates; drag along an axis to select trials."""
    judged = judge(info) if info.colors else None
    axes = _telling(info.axes)
    found = {} if judged is None else correlations(judged, [axis for axis in axes if is_setting(info, axis)])
    axes.sort(key=lambda axis: abs((found or {}).get(axis.name, 0.0)) if is_setting(info, axis) else inf)
    letters = max(_LETTERS // max(len(axes), 1), 9)
    names = [_level_name(axis.title, letters) + _with_scores(axis, found or {}) for axis in axes]
    turned = not info.still or len(axes) > _LEVEL_NAMES
    rise = round(_RISE * max((len(axis.title) for axis in axes), default=0))
    rise = rise if turned else _LINE * max((name.count("<br>") for name in names), default=0)
    margin = {
        "l": 64,
        "r": 36,
        "t": 64 + _BEYOND + rise + (20 + more_height(info.note) if info.note else 0),
    }
    figure = new_figure(info, theme, empty=not axes, height=460, margin=margin)
    if not axes or judged is None:
        return figure
    look = {
        "colorscale": theme.colorscale(),
        "showscale": True,
        "cmin": min(judged.ends),
        "cmax": max(judged.ends),
        "reversescale": judged.ends[0] > judged.ends[1],
        "colorbar": color_bar(judged.title, judged.ends),
    }
    if info.still:
        _draw_lines(figure, info, axes, judged, theme, look)
        if not turned:
            figure.update_xaxes(ticktext=names, tickangle=0)
    else:
        figure.add_trace(
            go.Parcoords(
                line={"color": [judged.scores.get(i, judged.ends[0]) for i in range(len(info.trials))], **look},
                dimensions=[_dimension(axis) for axis in (*axes, *_trained_axis(info))],
                labelangle=_ANGLE,
                labelfont={"size": 12, "color": theme.ink},
                tickfont={"size": 11, "color": theme.ink},
                rangefont={"size": 1, "color": theme.paper},
            )
        )
    mark(figure, info.note, theme, up=30 + rise)
    terms = f"{info.terms}; {correlations_in_words(judged, found, listed=turned)}"
    terms += f"; {_clear_in_words(info, judged)}" if info.still and len(info.trials) > _FOLLOWED else ""
    terms += "; lines of one value lie side by side" if info.still and _are_spread(info, axes) else ""
    write_below(figure, terms, theme, down=_BELOW + _ROW * _legend_rows(figure), narrow=False)
    return figure


def _telling(axes: Sequence[Axis]) -> list[Axis]:
    """The axes on which trials differ, without parameters of a choice that tell apart what the choice does already."""
    kept = [axis for axis in axes if differs(axis.values)]
    whole = {_groups(axis) for axis in kept if MISSING not in axis.tick_texts}
    return [axis for axis in kept if MISSING not in axis.tick_texts or _groups(axis) not in whole]


def _groups(axis: Axis) -> tuple[int, ...]:
    """Which trials have the same value: for each the first one that has it."""
    return tuple(map(axis.positions.index, axis.positions))


def _with_scores(axis: Axis, found: Mapping[str, float]) -> str:
    """How a setting goes with the scores, in a line below its name; empty where it does not."""
    value = found.get(axis.name)
    if value is None:
        return ""
    if any(isinstance(one, str | bool) for one in axis.values):
        return f"<br><i>{escape(axis.tick_texts[value > 0.0])} better</i>"
    return f"<br><i>{RHO} {value:+.2f}</i>".replace("-", "\N{MINUS SIGN}")


def _clear_in_words(info: ConfigurationsInfo, judged: Judged) -> str:
    """Which lines are clear: by how far they are behind, or above which score, and how many these are."""
    clear = _clear(info, judged)
    if not info.behind:
        return f"clear: the {len(clear)} lines from {show(info.color_name, min(info.colors[i] for i in clear))} on"
    gap = max(judged.scores[i] for i in clear)
    shown = f"{number(100.0 * gap, up=True)} points" if is_fraction(info.color_name) else number(gap, up=True)
    return f"clear: the {len(clear)} lines at most {shown} behind"


def _clear(info: ConfigurationsInfo, judged: Judged) -> list[int]:
    """The lines that are followed: those that are best by what colours are for, and any that equal the last of them."""
    scores = {i: -judged.scores[i] if info.behind else info.colors[i] for i in judged.scores}
    least = sorted(scores.values(), reverse=True)[:_FOLLOWED]
    return [i for i, score in scores.items() if score >= least[-1]]


def _legend_rows(figure: go.Figure) -> int:
    """How many rows the legend takes, in several of which all names have the room of the longest."""
    names = [trace.name for trace in figure.data if trace.name and trace.showlegend is not False]
    letters = [len(name) + _SYMBOL_LETTERS for name in names]
    if sum(letters) <= _ROW_LETTERS:
        return bool(letters)
    return ceil(len(letters) / max(_ROW_LETTERS // max(letters), 1))


def _level_name(title: str, letters: int) -> str:
    """A name in lines: a long one is broken behind dots too, but for those of numbers, and before radius and scale.

    >>> _level_name("privacy.epsilon (log)", 9), _level_name("width", 9), _level_name("certified@0.25", 9)
    ('privacy.<br>epsilon<br>(log)', 'width', 'certified<br>@0.25')
    """
    if len(title) <= letters:
        return escape(title)
    parts = [re.sub(r"\.(?!\d)", ".<br>", break_name(part, letters)) for part in title.split(" ")]
    return "<br>".join(parts).replace("@", "<br>@")


def _draw_lines(
    figure: go.Figure,
    info: ConfigurationsInfo,
    axes: Sequence[Axis],
    judged: Judged,
    theme: Theme,
    look: Mapping[str, Any],
) -> None:
    """Draw what `plotly.graph_objects.Parcoords` would, with lines that a picture shows: its own are hairs there."""
    heights = [_crossings(info, axis) for axis in axes]
    trained = is_trained(info, range(len(info.trials)))
    by_score = sorted(range(len(info.trials)), key=info.colors.__getitem__, reverse=True)
    # the best first: its line is solid, and others can be followed
    order = [i for i in by_score if trained[i]] or by_score[: min(len(_in_interval(info)), len(_PLACES))]
    clear = _clear(info, judged)
    at_score = next((x for x, axis in enumerate(axes) if axis.name == info.color_name), len(axes) - 1)
    colors = [
        sample_colorscale(theme.colorscale(), [judged.share(i)])[0] if i in judged.scores else theme.faint
        for i in range(len(info.trials))
    ]
    for i in sorted(by_score, key=lambda i: (i in order, i in clear, info.colors[i])):
        is_wide = i in order
        opacity = _CLEAR if i in clear else _PALE
        line = {"color": colors[i], "width": _WIDE if is_wide else _THIN}
        line |= {"dash": DASHES[order.index(i) % len(DASHES)]} if is_wide else {}
        trial = {"x": list(range(len(axes))), "y": [column[i] for column in heights], "showlegend": False}
        figure.add_trace(go.Scatter(**trial, mode="lines", line=line, opacity=1.0 if is_wide else opacity))
        if trained[i]:
            marker = {"color": line["color"], "line": {"width": 1, "color": theme.paper}, **symbols([True], 5)}
            end = {"x": [at_score], "y": [heights[at_score][i]], "showlegend": False}
            figure.add_trace(go.Scatter(**end, mode="markers", marker={**marker, "size": _STAR, "opacity": 1}))
    _draw_interval(figure, info, axes, theme)
    ends = {"color": [*judged.ends], "opacity": 0, **look}
    figure.add_trace(go.Scatter(x=[0, 0], y=[0, 0], mode="markers", marker=ends, showlegend=False))
    for x in range(len(axes)):
        figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, line={"color": theme.muted, "width": 1.2})
    figure.add_trace(_tick_marks(axes, theme))
    texts = _tick_texts(axes, theme, [[column[i] for column in heights] for i in order])
    figure.update_layout(annotations=[*figure.layout.annotations, *texts])  # one by one is slow
    names = {"tickvals": list(range(len(axes))), "ticktext": [escape(axis.title) for axis in axes], "ticks": ""}
    bare = {"showgrid": False, "showline": False, "ticklabelstandoff": _BEYOND, "tickfont": {"weight": "bold"}}
    figure.update_layout(
        showlegend=False,
        xaxis={**names, **bare, "side": "top", "tickangle": _ANGLE, "range": [-0.45, len(axes) - 1 + _BEHIND]},
        yaxis={**bare, "range": [-0.02, 1.02], "showticklabels": False, "ticks": ""},
    )
    if any(trained):
        name_stars(figure, theme)
    if early := len(info.trials) - len(judged.scores):
        line, name = {"color": theme.faint, "width": _THIN}, f"too early to compare: {early} of {len(info.trials)}"
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="lines", line=line, opacity=_PALE, name=name))
    for name, dash, i in zip(_entries(info, order)[: len(DASHES)], DASHES, order, strict=False):
        line = {"color": colors[i], "width": _WIDE, "dash": dash}
        figure.add_trace(go.Scatter(x=[None], y=[None], mode="lines", line=line, name=name, showlegend=True))
    figure.update_layout(showlegend=True, legend={"y": -0.05, "yanchor": "top"})


def _entries(info: ConfigurationsInfo, order: Sequence[int]) -> list[str]:
    """The names of the lines that stand out, with their scores where these have intervals."""
    if info.trained:
        own = [info.attained.get(info.trained[i], "") for i in order]
        scores = [show(info.color_name, info.colors[i]) for i in order]
        return [
            f"trained as {info.trained[i]}{': ' * bool(one)}{one}, rehearsed {score}"
            for i, one, score in zip(order, own, scores, strict=True)
        ]
    entries = [f"{place}: {info.trials[i]}" for place, i in zip(_PLACES, order, strict=False)]
    if info.sure is not None and entries:
        entries[0] += f", {show(info.color_name, max(info.colors))}{in_parentheses(info.color_name, info.sure)}"
    epsilons: Sequence[float] = next((axis.values for axis in info.axes if axis.name == "epsilon"), ())
    if not info.behind or not epsilons:
        return entries
    return [f"{entry}, {OWN} {show_epsilon(epsilons[i])}" for entry, i in zip(entries, order, strict=False)]


def _in_interval(info: ConfigurationsInfo) -> list[int]:
    """The lines whose score lies in the interval of the best one; that one alone where no interval is known."""
    best = max(info.colors)
    low, high = info.sure or (best, best)
    return [i for i, value in enumerate(info.colors) if low <= value <= high or value == best]


def _draw_interval(figure: go.Figure, info: ConfigurationsInfo, axes: Sequence[Axis], theme: Theme) -> None:
    """Draw the interval of the best score beside the axis of its objective."""
    places = [x for x, axis in enumerate(axes) if axis.name == info.color_name]
    if info.sure is None or not places:
        return
    (x,), inside = places, len(_in_interval(info))
    low, height, high = _heights(axes[x], [info.sure[0], max(info.colors), info.sure[1]])
    ends = {"type": "data", "symmetric": False, "array": [high - height], "arrayminus": [height - low]}
    bar = {**ends, "color": theme.ink, "thickness": 1.5, "width": 4}
    look = {"mode": "markers", "marker": {"opacity": 0}, "showlegend": False, "cliponaxis": False}
    figure.add_trace(go.Scatter(x=[x + _INTERVAL_AT], y=[height], error_y=bar, **look))
    count = f"the scores of {inside} of {len(info.trials)} lie in it" if inside > 1 else "no other score lies in it"
    figure.add_trace(bar_key(f"{info.sure_as}; {count}", theme.ink))


def _crossings(info: ConfigurationsInfo, axis: Axis) -> list[float]:
    """Return where the lines cross an axis."""
    return _side_by_side(_heights(axis, axis.positions), info.colors)


def _are_spread(info: ConfigurationsInfo, axes: Sequence[Axis]) -> bool:
    return any(_crossings(info, axis) != _heights(axis, axis.positions) for axis in axes)


def _side_by_side(heights: Sequence[float], colors: Sequence[float]) -> list[float]:
    """Return where lines cross an axis: those through one value lie side by side, the best at the top.

    None lies beyond the axis.

    >>> _side_by_side([0.0, 0.0, 0.5, 1.0, 0.5], [0.9, 0.8, 0.7, 0.6, 0.8])
    [0.01, 0.0, 0.495, 1.0, 0.505]
    """
    groups: dict[float, list[int]] = {}
    for i, height in enumerate(heights):
        groups.setdefault(height, []).append(i)
    bundle, found = _BUNDLE[len(groups) <= _FEW_VALUES], list(heights)
    for height, group in ((height, group) for height, group in groups.items() if len(group) > 1):
        step = min(_NEXT, bundle / len(group))
        half = step * (len(group) - 1) / 2
        lowest = min(max(height - half, 0.0), 1.0 - 2 * half)
        for place, i in enumerate(sorted(group, key=lambda i: colors[i])):
            found[i] = round(lowest + step * place, 6)
    return found


def _tick_marks(axes: Sequence[Axis], theme: Theme) -> go.Scatter:
    places = [(x, y) for x, axis in enumerate(axes) for y in _heights(axis, axis.tick_positions)]
    marker = {"symbol": "line-ew", "size": 4, "line": {"width": 1.2, "color": theme.muted}}
    look = {"mode": "markers", "marker": marker, "hoverinfo": "skip", "showlegend": False}
    return go.Scatter(x=[x for x, _ in places], y=[y for _, y in places], **look)


def _tick_texts(axes: Sequence[Axis], theme: Theme, wide: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """The texts of ticks left of their axes, on paper, so that lines pass behind them.

    Those of ends are above and below the axis, for the best and the worst line run along its ends, and those where a
    wide line arrives are above or below it; ``wide`` are its heights at all axes.
    """
    notes = []
    for x, axis in enumerate(axes):
        for y, text in zip(_heights(axis, axis.tick_positions), axis.tick_texts, strict=True):
            beyond = _BEYOND * ((y == 1.0) - (y == 0.0))
            beside = 0 if beyond else -4
            anchor = {"showarrow": False, "xanchor": "center" if beyond else "right"}
            arriving = [line[x] + _AT_TEXT * (line[x - 1] - line[x]) for line in wide if x]
            if not beyond and (near := [height for height in arriving if abs(height - y) < _NEAR]):
                beyond = _BEYOND if near[0] <= y else -_BEYOND
            look = {"font": {"size": 11, "color": theme.ink}, "bgcolor": theme.paper, "borderpad": 0}
            notes.append({"text": escape(text), "x": x, "y": y, "xshift": beside, "yshift": beyond, **look, **anchor})
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
        "One line per trial or rehearsed configuration, through its settings to what it reached in its best point, "
        "the one of best utility. Axes have the scale and the ends that the spec declares. Colours are for the score; "
        "where own epsilons "
        "are far apart, which changes scores, for how far it is behind the best one of all trials at an own epsilon "
        "that is no larger: the distance from the front. Where less than a quarter of the trials got there, a line has "
        "the colour of the worst on a page, and is grey in a picture. "
        "Settings that go with what is better beyond chance stand next to the results, with their rank correlation "
        "(Spearman), or with the better one of two names."
    ),
    gestures=" Drag along an axis to keep only the lines that pass there; drag a name to move an axis.",
    position=100,
    found=lambda info: best_in_words(info, in_order(info)[:_SETTINGS_SAID]),
    info=info,
    plot=plot,
    rows=rows,
    awaits="One line for each trial through its settings,<br>as soon as two trials have points",
    remarks=lambda data: trained_in_words(data, _TRAINED) + remarks_of(data, DRAWN_TRIALS),
    wide=True,
    for_paper=False,
    needs="two trials with points",
)
