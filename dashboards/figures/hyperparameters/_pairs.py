"""What slices, contours and ranks share: the searched hyperparameters, the most important for the utility first."""

from collections.abc import Mapping, Sequence
from html import escape
from itertools import combinations
from math import comb
from typing import Any

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._common import new_figure
from dashboards.figures._comparable import legend_above, mark, name_stars, room_above, write_below
from dashboards.figures._theme import Theme
from dashboards.figures._ticks import break_name, thin
from dashboards.figures.hyperparameters._axes import Axis
from dashboards.figures.hyperparameters._compared import order
from dashboards.figures.hyperparameters._content import ConfigurationsInfo, in_order
from dashboards.text import MISSING, setting, show

LEAST_TRIALS = 4
PANEL_HEIGHT = 380
_BELOW = 52  # pixels between panels and the note below their axes
_LINE = 16  # pixels of a further line of names at these
PAD = 0.06  # share of an axis beyond its ends
_LETTERS, _NARROW_LETTERS = 80, 40


def find_axes(info: ConfigurationsInfo) -> tuple[Axis, ...]:
    """Return the axes of hyperparameters, the most important first; none with too few trials."""
    return tuple(in_order(info)) if len(info.trials) >= LEAST_TRIALS else ()


def order_in_words(data: SweepData) -> str:
    """Return what a caption says of the order of hyperparameters, empty where they have none."""
    return ' The most important hyperparameter comes first, as under "What mattered".' if order(data) else ""


def pairs(axes: Sequence[Axis]) -> list[tuple[Axis, Axis]]:
    """Return pairs of the first axes; of a number and a choice the choice is across, where its names have room."""
    found = list(combinations(axes[:3], 2))
    return [(y, x) if _has_names(y) and not _has_names(x) else (x, y) for x, y in found]


def _has_names(axis: Axis) -> bool:
    return any(isinstance(value, str) for value in axis.values)


def pairs_in_words(axes: Sequence[Axis], shown: int) -> str:
    """Return how many of how many pairs are drawn, for a title; empty where these are all."""
    total = comb(len(axes), 2)
    return f", {shown}\N{NO-BREAK SPACE}of\N{NO-BREAK SPACE}{total} pairs" if shown < total else ""


def both(first: Axis, second: Axis) -> list[int]:
    """Return which trials have a value on both axes."""
    values = zip(first.values, second.values, strict=True)
    return [i for i, (a, b) in enumerate(values) if a is not None and b is not None]


def stars_last(info: ConfigurationsInfo, chosen: Sequence[int]) -> list[int]:
    """Return trials in the order in which their marks are drawn: no other mark covers a star."""
    return sorted(chosen, key=lambda i: bool(info.trained and info.trained[i]))


def panels(
    info: ConfigurationsInfo, theme: Theme, count: int, *, columns: int, has_key: bool = False, **layout: Any
) -> go.Figure:
    """Return a figure of so many panels, side by side or in so many columns; a sentence where there is none.

    With ``has_key`` it has a legend even where no mark is a star, and its note stands above that.
    """
    legend = legend_above(info) if has_key or any(info.trained) else 0.0
    margin = room_above(info.note, legend=legend, narrow=info.narrow)
    figure = new_figure(info, theme, empty=not count, height=PANEL_HEIGHT, showlegend=False, margin=margin)
    if count:
        across = min(columns, count)
        down = -(-count // across)
        gaps = {
            "horizontal_spacing": (0.28 if across < 3 or "shared_yaxes" in layout else 0.4) / max(across, 2),
            "vertical_spacing": (0.4 if info.narrow else 0.3) / down,
        }
        figure.set_subplots(down, across, **gaps, **layout)
        mark(figure, info.note, theme, up=6 + legend, narrow=info.narrow)
        write_below(figure, info.terms, theme, down=_BELOW, narrow=info.narrow)
        if any(info.trained):
            name_stars(figure, theme, x=1, xanchor="right")
    else:
        words = f"fewer than {LEAST_TRIALS} trials with different hyperparameters"
        figure.update_annotations(selector={"text": "no points yet"}, text=words)
    return figure


def letters(info: ConfigurationsInfo, columns: int) -> int:
    """Return how many letters have room below one of so many panels side by side."""
    return (_NARROW_LETTERS if info.narrow else _LETTERS) // columns


def places(count: int, columns: int) -> list[dict[str, int]]:
    """Return row and column of each panel."""
    across = min(columns, count)
    return [{"row": i // across + 1, "col": i % across + 1} for i in range(count)]


def frame(
    figure: go.Figure, place: Mapping[str, int], x: Axis, y: Axis | None = None, *, letters: int, pad: float = PAD
) -> None:
    """Give a panel the ticks and the ends of its axes, so much longer; so many letters have room below it."""
    ticks = _ticks(x, pad, letters)
    figure.update_xaxes(**ticks, **place)
    if any("<br>" in text for text in ticks["ticktext"]):
        _lower_note(figure)
    if y is not None:
        figure.update_yaxes(**_ticks(y, pad), **place)


def _lower_note(figure: go.Figure) -> None:
    """Move the note below panels down by a line, once: names of two lines move the title of their axis onto it."""
    for note in figure.select_annotations({"name": "terms", "yshift": -_BELOW}):
        note.yshift -= _LINE
        figure.layout.margin.b += _LINE


def _ticks(axis: Axis, pad: float, letters: int | None = None) -> dict[str, Any]:
    low, high = axis.ends
    pad *= (high - low) or 1.0
    places: Sequence[int] = range(len(axis.tick_texts))
    names = [escape(text) if letters is None else break_name(text) for text in axis.tick_texts]
    if letters is not None:
        places = thin(axis.tick_positions, names, (low - pad, high + pad), letters)
    return {
        "title": {"text": escape(axis.title)},
        "tickvals": [axis.tick_positions[i] for i in places],
        "ticktext": [names[i] for i in places],
        "tickangle": 0,
        "range": [low - pad, high + pad],
        "type": "linear",
    }


def texts(info: ConfigurationsInfo, axes: Sequence[Axis], chosen: Sequence[int]) -> list[str]:
    """Return what stands beside the mark of each trial."""
    found = []
    for i in chosen:
        lines = [
            f"<b>{escape(info.trials[i])}</b>{_trained(info, i)}",
            f"{escape(info.color_name)}: {show(info.color_name, info.colors[i])}",
        ]
        lines += [f"{escape(axis.label)}: {_in_words(axis.values[i])}" for axis in axes]
        found.append("<br>".join(lines))
    return found


def _trained(info: ConfigurationsInfo, i: int) -> str:
    return f", trained as {escape(info.trained[i])}" if info.trained and info.trained[i] else ""


def _in_words(value: Any) -> str:
    return MISSING if value is None else escape(setting(value))
