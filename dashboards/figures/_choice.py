"""Which figure somebody asks for, and what is said of a name that none has and of one with nothing to say.

Whether a figure has something to say is one question: `is_empty` answers it of what was drawn, and `has_content` before
anything is drawn, in the same way. Pages leave such a figure out, exports and notebooks refuse it, and refusals name
only the others.
"""

import difflib
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

import plotly.graph_objects as go

from dashboards.figures._base import FigureKind
from sweeper.errors import EmptyFigureError, UnknownFigureError

D = TypeVar("D")  # what is drawn: a sweep or a comparison
_NEAR = 0.8  # how alike two names are that one takes for a slip of the other
_NAMED_ELSEWHERE = {"parallel": "configurations"}  # parallel coordinates, by how other tools' names begin


def is_empty(figure: go.Figure) -> bool:
    """Whether the figure has nothing to say."""
    return len(figure.data) == 0


def has_content(kind: FigureKind[D, Any], data: D) -> bool:
    """Return whether a figure has something to say of ``data``; quicker than to draw it where it has a table."""
    return not is_empty(kind.draw(data)) if kind.rows is None else bool(kind.numbers(data))


def names_with_content(kinds: Mapping[str, FigureKind[D, Any]], data: D) -> tuple[str, ...]:
    """Return the names of the figures that have something to say of ``data``, in the order of pages."""
    return tuple(name for name, kind in kinds.items() if has_content(kind, data))


def needs(kinds: Mapping[str, FigureKind[D, Any]], data: D) -> dict[str, str]:
    """Return of every figure what it needs and ``data`` lacks, "" where it has something to say of it."""
    found = names_with_content(kinds, data)
    return {name: "" if name in found else _needed(kind, data) for name, kind in kinds.items()}


def _needed(kind: FigureKind[D, Any], data: D) -> str:
    there = kind.lacks(data)
    return f"{kind.needs}, found {there}" if there else kind.needs


def choose(kinds: Mapping[str, FigureKind[D, Any]], name: str, data: D) -> FigureKind[D, Any]:
    """Return the figure of a name.

    Raises:
        UnknownFigureError: there is none; names the one that was meant, or all that have something to say of ``data``.
    """
    if name in kinds:
        return kinds[name]
    elsewhere = [meant for begin, meant in _NAMED_ELSEWHERE.items() if name.startswith(begin) and meant in kinds]
    near = difflib.get_close_matches(name, kinds, n=1, cutoff=_NEAR) or elsewhere
    remedy = f"did you mean {near[0]!r}?" if near else _remedy(kinds, data)
    raise UnknownFigureError(f"Expected the name of a figure, got {name!r}; {remedy}")


def refuse(kinds: Mapping[str, FigureKind[D, Any]], kind: FigureKind[D, Any], data: D) -> NoReturn:
    """Refuse a figure with nothing to say.

    Raises:
        EmptyFigureError: always; names what the figure needs, and those that have something to say of ``data``.
    """
    what = f"{kind.needs} for the figure {kind.name}"
    raise EmptyFigureError(f"Expected {what}, found {kind.lacks(data) or 'none'}; {_remedy(kinds, data)}")


def _remedy(kinds: Mapping[str, FigureKind[D, Any]], data: D) -> str:
    found = names_with_content(kinds, data)
    return f"choose one of {', '.join(found)}" if found else "no figure has anything to show yet"
