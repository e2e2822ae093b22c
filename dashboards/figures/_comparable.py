"""Notes of figures: what they say that compare trials of one noise, or rehearsals, and what stands below panels."""

import re
from collections.abc import Sequence
from html import escape
from textwrap import wrap
from typing import Any, Literal

import plotly.graph_objects as go

from dashboards.data import SweepData, finite
from dashboards.figures._base import FigureInfo
from dashboards.figures._theme import Theme
from dashboards.text import show_epsilon
from sweeper.privacy.pricing import OWN
from sweeper.results.highlights import finals_first

UNEXPLAINED = 0.1  # R squared below which a forest has learnt nothing worth showing
EXPLORERS_OF = "explorers of "  # the stages before it there
FINALS = "finals"  # what the last stage is called where scores are noisy
_LINE = 16  # pixels of a line of a note
_TITLE_AND_NOTE = 64  # pixels above panels for a title and a note of one line
_LEGEND = 24  # pixels of a legend above panels, on a page
_NARROW_TEXT, _NARROW_LETTERS = 10.5, 66  # pixels of the letters of notes in a column, and letters of a line
_BELOW_TEXT, _BELOW_LETTERS, _BELOW_LINE = 11.5, 125, 15  # likewise, below panels on a page; pixels of a line
STAR = "trained afterwards; shown is its rehearsal"  # what a star is, in a legend
_INTERVAL = re.compile(r"95 % CI ≤ ±[\d.]+ points")
_JOINED = "\N{UNIT SEPARATOR}"  # of words of one line
_LARGER = 6  # pixels by which a star is larger than the marks beside it


def noise_note(data: SweepData) -> str:
    """Return what a figure says that compares the trials of one stage; empty where there are no stages to tell."""
    chosen = set(data.comparable)
    stage = data.result.stage_of(data.comparable[0]) if chosen and len(chosen) < len(data.trials) else None
    if stage is None:
        return ""
    return f"Only trials of {stage_names(data)[stage]} ({stage_epsilon(data, stage)}); other stages have other noise"


def stage_names(data: SweepData) -> tuple[str, ...]:
    """Return what each stage of the budget is called: explorers and finals where scores are noisy, else by number."""
    numbers = [f"stage {stage + 1}" for stage in range(len(data.result.stages))]
    if not numbers or not finals_first(data.points):
        return tuple(numbers)
    *before, _ = numbers
    return (*(f"{EXPLORERS_OF}{name}" if len(before) > 1 else "explorers" for name in before), FINALS)


def stage_epsilon(data: SweepData, stage: int) -> str:
    """Return the largest own epsilon of the trials of a stage, in words."""
    own = [p.values["epsilon"] for p in data.points if data.result.stage_of(p.trial) == stage and finite(p, "epsilon")]
    return f"{OWN} ≤ {show_epsilon(max(own))}" if own else f"no {OWN}"


def mark(figure: go.Figure, note: str, theme: Theme, *, up: float = 6, narrow: bool = False, beside: int = 0) -> None:
    """Write above a figure what it compares, so many pixels above its axes; nothing where these are trials.

    In a column its lines leave room for names of ``beside`` letters beside the axes.
    """
    if note:
        lines = "<br>".join(_note_lines(note, narrow=narrow, beside=beside))
        place = {"x": 0, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
        font = {"size": _NARROW_TEXT if narrow else 12, "color": theme.orange}
        figure.add_annotation(
            name="rehearsed", text=lines, showarrow=False, yshift=up, font=font, align="left", **place
        )


def room_above(note: str, *, legend: float, narrow: bool) -> dict[str, float]:
    """Return the margin of a figure with a title and a note above its panels, and so many pixels of a legend between.

    It is as any other without a note.
    """
    return {"t": _TITLE_AND_NOTE + legend + more_height(note, narrow=narrow)} if note else {}


def legend_above(info: FigureInfo) -> float:
    """Return the pixels that a row of a legend takes between panels and a note; pictures have it below."""
    return 0.0 if info.still or info.narrow else _LEGEND


def more_height(note: str, *, narrow: bool = False) -> int:
    """Return the pixels that the lines of a note take beyond the first."""
    return _LINE * (len(_note_lines(note, narrow=narrow)) - 1)


def _note_lines(note: str, *, narrow: bool, beside: int = 0) -> list[str]:
    parts = note.split("\n")
    return [line for part in parts for line in in_lines(part, _NARROW_LETTERS - beside)] if narrow else parts


def write_below(
    figure: go.Figure, text: str, theme: Theme, *, down: float, narrow: bool, side: Literal["left", "right"] = "left"
) -> None:
    """Write a note below panels, so many pixels below them, in lines that fit; make room for it.

    It begins below the left side of the panels, or ends below their right side.
    """
    lines = in_lines(text, _NARROW_LETTERS if narrow else _BELOW_LETTERS)
    place = {"x": float(side == "right"), "y": 0, "xref": "paper", "yref": "paper", "xanchor": side, "yanchor": "top"}
    size = _NARROW_TEXT if narrow else _BELOW_TEXT
    look = {"font": {"color": theme.muted, "size": size}, "align": "left", "showarrow": False}
    figure.add_annotation(name="terms", text="<br>".join(map(escape, lines)), yshift=-down, **look, **place)
    figure.update_layout(margin={"b": down + 12 + _BELOW_LINE * len(lines)})


def in_lines(text: str, letters: int) -> list[str]:
    """Return a text in lines of at most so many letters, broken behind semicolons where possible, else evenly.

    >>> in_lines("delta = 1e-5; price of the sweep: 3; 25 test rows", 40)
    ['delta = 1e-5; price of the sweep: 3;', '25 test rows']
    >>> in_lines("261 validation rows, ignoring selection", 38)
    ['261 validation rows,', 'ignoring selection']
    """
    lines: list[str] = []
    for part in text.split("; "):
        if lines and len(lines[-1]) + len(part) + 2 < letters:
            lines[-1] += f"; {part}"
        else:
            lines[-1:] = [f"{line};" for line in lines[-1:]]
            lines += even_lines(part, letters - 1)
    return lines


def even_lines(text: str, letters: int) -> list[str]:
    """Return a text in as few lines of so many letters as it needs, none longer than it must be.

    An interval stays whole.
    """
    joined = _INTERVAL.sub(lambda found: found[0].replace(" ", _JOINED), text)
    lines = wrap(joined, letters, break_on_hyphens=False)
    for fewer in range(letters - 1, 0, -1):
        narrower = wrap(joined, fewer, break_on_hyphens=False, break_long_words=False)
        if len(narrower) != len(lines) or len(lines) < 2:
            break
        lines = narrower
    return [line.replace(_JOINED, " ") for line in lines]


def swarm(places: Sequence[float], values: Sequence[float], step: float, near: float) -> list[float]:
    """Return where marks lie that would hide each other: beside their place by whole steps, no farther than needed.

    >>> swarm([1.0, 1.0, 1.0, 2.0], [0.5, 0.5, 0.6, 0.5], 0.25, 0.05)
    [1.0, 1.25, 1.0, 2.0]
    """
    found: list[float] = []
    for i, (place, value) in enumerate(zip(places, values, strict=True)):
        taken = {found[j] for j in range(i) if places[j] == place and abs(values[j] - value) <= near}
        sides = (place + step * side for k in range(i + 1) for side in dict.fromkeys((k, -k)))
        found.append(next(one for one in sides if one not in taken))
    return found


RIM = 1.8  # pixels of an orange one


def symbols(is_trained: Sequence[bool], size: int) -> dict[str, Any]:
    """Return the shapes of marks: stars of rehearsed configurations that were trained, circles of all others."""
    return {
        "symbol": ["star" if one else "circle" for one in is_trained],
        "size": [size + _LARGER if one else size for one in is_trained],
    }


def name_stars(figure: go.Figure, theme: Theme, **legend: Any) -> None:
    """Say in the legend of a figure what its stars are."""
    _add_key(figure, {"symbol": "star", "size": 12, "color": theme.ink}, STAR)
    figure.update_layout(legend=legend)


def name_rims(figure: go.Figure, theme: Theme, words: str) -> None:
    """Say in the legend of a figure of which marks the rims are orange."""
    rim = {"width": RIM, "color": theme.orange}
    _add_key(figure, {"symbol": "circle", "size": 9, "color": theme.paper, "line": rim}, words)


def _add_key(figure: go.Figure, marker: dict[str, Any], name: str) -> None:
    figure.add_trace(go.Scatter(x=[None], y=[None], mode="markers", marker=marker, name=name, showlegend=True))
    figure.update_layout(showlegend=True)
