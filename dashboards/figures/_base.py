"""What a figure is, and how pages, exports and the live page find the figures there are.

A figure is one module in ``sweep/``, ``held_out/``, ``hyperparameters/``, ``comparison/`` or ``diagnosis/`` with a
function ``info`` that computes its numbers, ``plot`` that draws them, ``rows`` that returns them as a table, and a
`FigureKind` named ``FIGURE`` that says what the figure is called and how to read it. Nothing else lists figures:
`figures_in` imports the modules of a folder.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

import plotly.graph_objects as go

from dashboards.figures._theme import LIGHT, Theme

D = TypeVar("D")  # what is drawn: a sweep, a comparison or a diagnosis
I = TypeVar("I", bound="FigureInfo")  # noqa: E741 - the numbers of one kind of figure

Table = list[dict[str, Any]]  # the numbers of a figure as a table
NOTHING_YET = "no points yet"  # written across an empty figure


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureInfo:
    """What every figure knows before it is drawn."""

    title: str  # above the figure; escaped already
    epsilon_title: str  # what the epsilon of the figure promises
    scores: str = "validation"  # of which rows its values are scores, and how sure they are
    test_scores: str = ""  # the same of test rows, where it shows some
    exploratory: bool  # whether the figure carries the watermark
    narrow: bool = False  # whether it is drawn for a column of a paper: panels below each other, fewer of them
    still: bool = False  # whether it is drawn for a picture, which nobody can drag


class Topic(enum.Enum):
    """What a figure of a sweep is about: the tab of the live page that shows it."""

    FRONT = "front"
    ROBUSTNESS = "robustness"
    TRIALS = "trials"
    SEARCH = "search"


@dataclass(frozen=True, kw_only=True)
class FigureKind(Generic[D, I]):
    """One kind of figure: all that a page, an export or the live page needs to show it.

    Attributes:
        name: by which commands and addresses name it: lower-case letters, digits and hyphens.
        heading: above it on a page.
        summary: what it shows, for the table of the guide; Markdown without a full stop.
        caption: how to read it; the report folds it where ``found`` says something.
        terms: what privacy depends on of how to read it, a sentence or two that no page folds.
        found: what it shows of this data with its numbers, in a sentence or two of text; empty where that is not said.
        position: pages show figures in ascending order of this number.
        info: computes the numbers.
        plot: draws them.
        rows: returns them as a table; None where there is no such table.
        info_at: computes the numbers for another certificate, which the radius slider of the live page names.
        gestures: what a pointer does with it, for pages alone; each sentence begins with a space.
        gestures_here: what it does with this data alone, likewise.
        remarks: what the caption says of this data alone: how to read what not every sweep has, and what of very much
            data the figure omits. Each sentence begins with a space.
        topic: which tab of the live page shows it.
        wide: whether it scrolls sideways on a phone instead of shrinking.
        epsilon_axis: whether its epsilon axis can be made linear.
        for_paper: whether it is drawn at the width of a paper too; what has to be turned, dragged or pointed at is not.
        awaits: what will appear in it, in lines that fit a phone: the live page shows these words while a sweep has
            nothing for it yet. Without them it is hidden until then.
        needs: what a sweep without which it is empty lacks; the refusal to export it says so.
        lacks: what there is in place of that, of data for which it is empty; "" where there is nothing.
    """

    name: str
    heading: str
    summary: str
    caption: str
    position: int
    info: Callable[[D], I]
    plot: Callable[[I, Theme], go.Figure]
    rows: Callable[[I], Table] | None = None
    info_at: Callable[[D, str], I] | None = None
    gestures: str = ""
    gestures_here: Callable[[D], str] = lambda _: ""
    remarks: Callable[[D], str] = lambda _: ""
    topic: Topic = Topic.SEARCH
    wide: bool = False
    epsilon_axis: bool = False
    for_paper: bool = True
    terms: str = ""
    found: Callable[[I], str] = lambda _: ""
    awaits: str = ""
    needs: str = "points with finite values"
    lacks: Callable[[D], str] = lambda _: ""

    def draw(
        self, data: D, theme: Theme = LIGHT, certificate: str = "", *, narrow: bool = False, still: bool = False
    ) -> go.Figure:
        """Return the figure of ``data``, for another certificate if one is named and the figure depends on it."""
        info = self.info_at(data, certificate) if certificate and self.info_at else self.info(data)
        figure = self.plot(replace(info, narrow=narrow, still=still), theme)
        if self.awaits:
            figure.update_annotations(selector={"text": NOTHING_YET}, text=self.awaits)
        return figure

    def reading(self, data: D) -> str:
        """Return how to read the figure of ``data``."""
        return self.caption + self.remarks(data)

    def numbers(self, data: D) -> Table:
        """Return the numbers of the figure as a table."""
        return [] if self.rows is None else self.rows(self.info(data))


@cache
def figures_in(*packages: str) -> Mapping[str, FigureKind[Any, Any]]:
    """Return the figures of folders by name, in the order of pages; modules that begin with ``_`` are none.

    Raises:
        TypeError: a module without a `FigureKind` named ``FIGURE``.
        ValueError: two figures of one name.
    """
    kinds: dict[str, FigureKind[Any, Any]] = {}
    for package in packages:
        for module in iter_modules(import_module(package).__path__):
            if module.name[0] != "_":
                kind = _figure_of(f"{package}.{module.name}")
                if kind.name in kinds:
                    raise ValueError(f"Expected a figure's name of its own in {package}.{module.name}, got {kind.name}")
                kinds[kind.name] = kind
    return {kind.name: kind for kind in sorted(kinds.values(), key=lambda kind: (kind.position, kind.name))}


def _figure_of(name: str) -> FigureKind[Any, Any]:
    figure = getattr(import_module(name), "FIGURE", None)
    if not isinstance(figure, FigureKind):
        raise TypeError(f"Expected a FigureKind named FIGURE in {name}, got {type(figure).__name__}")
    return figure


def omitted(limit: int, total: int, what: str) -> str:
    """Return a sentence that says how many of how many are drawn, empty if all are."""
    return f" Drawn: {limit} of {total} {what}." if total > limit else ""
