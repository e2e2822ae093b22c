"""What figures of released curves share: the points that have some, what is said of them, panels, and their rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias, TypeVar

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureInfo, Table, omitted
from dashboards.figures._common import header, new_figure
from dashboards.figures._comparable import in_lines, write_below
from dashboards.figures._references import Reference, constant_reference
from dashboards.figures._theme import Theme
from dashboards.text import show_epsilon
from sweeper.privacy.pricing import OWN
from sweeper.records import Point, ReleasedCurves

T = TypeVar("T")
Part: TypeAlias = Callable[[ReleasedCurves], T | None]

MOST_LINES = 4
_FILL = 0.14  # opacity of a band
_EDGE, _RELEASED = 0.8, 2.4  # widths of the lines at its ends, and of the released one
_LETTERS, _COLUMN_LETTERS = 106, 46  # of a line below a figure, and of one in a column
_PAGE_LETTERS = 80  # below panels as wide as a page
_IN_COLUMN = 2  # panels side by side
_LINE = 18  # pixels of a line of text
_HEIGHT = 400
_TITLE, _COLUMN_TITLE = 62, 50  # pixels above the first line above panels
_CLASS_LETTERS = (24, 9)  # of the name of a class beside a panel, and beside one in a column
_BETWEEN_ROWS = 0.46  # share of a row of panels that is free above its headings

Outline = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class HeldOutCurve:
    """One curve of one point."""

    point: Point
    comes_to: tuple[str, ...]  # in words, a part for each line above a panel
    x: tuple[float, ...]
    y: tuple[float, ...]
    below: Outline  # the lower end of the band, as x and y
    above: Outline  # the upper end

    @property
    def epsilon(self) -> str:
        """The own epsilon of the point in words."""
        return f"{OWN} {show_epsilon(self.point.values['epsilon'])}"

    @property
    def name(self) -> str:
        """The curve in one line."""
        return f"{self.epsilon}: {' '.join(self.comes_to)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesInfo(FigureInfo):
    """The curves of points of the front, the best first."""

    lines: tuple[HeldOutCurve, ...]
    confidence: float
    test_rows: int  # their public number
    radius_unit: str  # of what is drawn over radii
    positive: str  # the class whose share and rates are drawn, of two
    constant: tuple[Reference, ...]  # what the majority class reaches, at every radius


def collected(data: SweepData, title: str, of: Part[T], line: Callable[[Point, T], HeldOutCurve]) -> LinesInfo:
    """Collect the lines of a few points of the front, spread over it with both ends; ``of`` takes a part of curves.

    The best come first, by the score that chose them.
    """
    found = _with(data, of)
    last, shown = len(found) - 1, found
    if len(found) > MOST_LINES:
        shown = [found[round(i * last / (MOST_LINES - 1))] for i in range(MOST_LINES)]
    shown = sorted(shown, key=lambda pair: -pair[0].values.get(data.utility, 0.0))
    curves = [point.curves for point, _ in found if point.curves is not None]
    return LinesInfo(
        **header(data, title),
        lines=tuple(line(point, part) for point, part in shown),
        confidence=curves[0].confidence if curves else 0.0,
        test_rows=curves[0].rows if curves else 0,
        radius_unit=data.result.claim.radius_unit,
        constant=constant_reference(data.result.claim.baselines, "accuracy"),
        positive=(data.result.claim.baselines.classes or ("0", "1"))[1],
    )


def class_of(info: LinesInfo) -> str:
    """Return the name of the class whose share or rates are drawn for Plotly, as much as has room beside a panel."""
    most = _CLASS_LETTERS[info.narrow]
    return escape(info.positive if len(info.positive) <= most else f"{info.positive[: most - 1]}…")


def left_out(data: SweepData, of: Part[T]) -> str:
    """Say how many points are drawn."""
    return omitted(MOST_LINES, len(_with(data, of)), "points of the front with curves")


def _with(data: SweepData, of: Part[T]) -> list[tuple[Point, T]]:
    """The points of the front that have such a part of curves, smallest epsilon first."""
    parts = [(point, None if point.curves is None else of(point.curves)) for point in data.front_points]
    return [(point, part) for point, part in parts if part is not None]


def rows(info: LinesInfo, x: str, y: str, *, corners: bool = False) -> Table:
    """One row per mark of each line, with the ends of the band: its ``corners`` where it is wide in ``x`` too."""
    return [
        {
            "trial": line.point.trial,
            "epoch": line.point.epoch,
            "epsilon": line.point.values["epsilon"],
            x: line.x[i],
            y: line.y[i],
            **{f"{x}_of_{side}": ends[0][i] for side, ends in _ends(line) if corners},
            **{f"{y}_{side}": ends[1][i] for side, ends in _ends(line)},
        }
        for line in info.lines
        for i in range(len(line.x))
    ]


def _write_below(figure: go.Figure, info: LinesInfo, theme: Theme, axis: str, note: str) -> None:
    """Write the title of the horizontal axes below all panels, and what the epsilons promise and how sure bands are."""
    certain = f"{info.epsilon_title}; noisy, of {info.test_rows} test rows; simultaneous {100 * info.confidence:g} % CI"
    title = in_lines(axis, _COLUMN_LETTERS if info.narrow else _LETTERS)
    place = {"xref": "paper", "yref": "paper", "x": 0.5, "y": 0, "yanchor": "top", "yshift": -28}
    text = "<br>".join(map(escape, title))
    figure.add_annotation(text=text, showarrow=False, font={"color": theme.muted}, **place)
    note = "; ".join(filter(None, (certain, note)))
    write_below(figure, note, theme, down=32 + _LINE * len(title), narrow=info.narrow)


def panels(
    info: LinesInfo, theme: Theme, xaxis: dict[str, Any], yaxis: dict[str, Any], *, title: str, note: str = ""
) -> go.Figure:
    """A panel for each line with its name above, side by side or two in a row of a column.

    Below all of them stand the title of their horizontal axes and a note, in lines that fit.
    """
    figure = new_figure(info, theme, empty=not info.lines, showlegend=False)
    if not info.lines:
        return figure
    down = place(info, len(info.lines) - 1)["row"]
    gaps = {"horizontal_spacing": 0.13 if info.narrow else 0.055, "vertical_spacing": _BETWEEN_ROWS / down}
    filled = iter(info.lines)
    specs: list[list[dict[str, Any] | None]] = [
        [{} if next(filled, None) else None for _ in range(_across(info))] for _ in range(down)
    ]
    figure.set_subplots(down, _across(info), shared_yaxes=True, specs=specs, **gaps)
    figure.update_xaxes(**xaxis)
    figure.update_yaxes(**{**yaxis, "title": None})
    figure.update_yaxes(title=yaxis["title"], col=1)
    above = ["<br>".join([line.epsilon, *line.comes_to]) for line in info.lines]
    room = _COLUMN_TITLE if info.narrow else _TITLE
    figure.update_layout(height=_HEIGHT, margin={"t": room + _LINE * above[0].count("<br>")})
    for heading, y in zip(above, figure.select_yaxes(), strict=True):
        panel = {"xref": f"{y.anchor} domain", "yref": f"{y.anchor.replace('x', 'y')} domain", "x": 0, "y": 1}
        font, look = {"size": 12}, {"align": "left", "xanchor": "left", "yanchor": "bottom", "yshift": 3}
        figure.add_annotation(text=heading, showarrow=False, font=font, **panel, **look)
    _write_below(figure, info, theme, title, note)
    return figure


def make_square(figure: go.Figure) -> None:
    """Give both axes of each panel one scale, where they have one range."""
    figure.update_xaxes(constrain="domain")
    for y in figure.select_yaxes():
        y.update(scaleanchor=y.anchor, constrain="domain", constraintoward="bottom")


def place(info: LinesInfo, index: int) -> dict[str, int]:
    """Row and column of the panel of a line."""
    return {"row": index // _across(info) + 1, "col": index % _across(info) + 1}


def letters(info: LinesInfo) -> int:
    """How many letters have room below a panel."""
    room = _COLUMN_LETTERS if info.narrow else _LETTERS if info.still else _PAGE_LETTERS
    return room // _across(info)


def _across(info: LinesInfo) -> int:
    return min(_IN_COLUMN if info.narrow else MOST_LINES, len(info.lines))


def band(line: HeldOutCurve, color: str) -> tuple[go.Scatter, go.Scatter, go.Scatter]:
    """A curve in its band, which is filled lightly, with both its ends as lines that are thinner than the curve."""
    (x_low, y_low), (x_high, y_high) = line.below, line.above
    common = {"mode": "lines", "hoverinfo": "skip"}
    inside = {"fill": "toself", "fillcolor": color, "opacity": _FILL, "line": {"width": 0}}
    edge, released = ({"color": color, "width": width} for width in (_EDGE, _RELEASED))
    return (
        go.Scatter(x=[*x_high, *reversed(x_low)], y=[*y_high, *reversed(y_low)], **inside, **common),
        go.Scatter(x=[*x_low, None, *x_high], y=[*y_low, None, *y_high], line=edge, **common),
        go.Scatter(
            x=line.x,
            y=line.y,
            mode="lines",
            line=released,
            name=line.name,
            hovertemplate="%{x:.3g}, %{y:.1%}<extra></extra>",
        ),
    )


def reference(x: Sequence[float], y: Sequence[float], theme: Theme) -> go.Scatter:
    """The dotted line that a curve is compared with, to be drawn on top."""
    return go.Scatter(x=x, y=y, mode="lines", line={"color": theme.ink, "width": 1.2, "dash": "dot"}, hoverinfo="skip")


def _ends(line: HeldOutCurve) -> tuple[tuple[str, Outline], tuple[str, Outline]]:
    return ("low", line.below), ("high", line.above)
