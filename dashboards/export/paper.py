"""Figures at the size of a paper: as wide as a column or a page, with text of the size of a caption.

A figure is laid out as wide as its text allows and scaled as a whole, so that text, lines and marks keep their
proportions. Every legend stands below; what is as narrow as a column has panels below each other, and fewer ticks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import log10
from typing import Any

from dashboards.export.captions import take_caption
from dashboards.figures import Figure
from dashboards.figures._common import SMALL_LINE
from dashboards.figures._comparable import even_lines
from dashboards.figures._ticks import thin
from sweeper.results.exporters import Paper

SCREEN = (1000.0, 560.0)  # pixels of a figure that is for no paper
_TEXT_PIXELS = 13.0  # of the text of a figure before it is scaled
_PIXELS_OF_MM, _PIXELS_OF_POINT = 96.0 / 25.4, 96.0 / 72.0
_RASTER = 600.0 / 96.0  # a picture of a paper has 600 dots per inch, and says so
_NARROW = 600.0  # pixels
_SQUARE, _SQUARE_OF_SEVERAL = 0.85, 0.66  # heights of square panels, of their share of the width; between is room
_INSET = 0.6  # of a panel that one with an inset is higher
_PANEL, _BESIDE, _BETWEEN = 0.46, 0.34, 0.2  # heights of panels, one or several, and between, in widths
_ROW = 46.0  # pixels that a row of a panel with few named rows takes at most
_LEAST_ROW, _LEAST_ROW_OF_PAGE = 17.0, 21.0  # pixels that it takes at least, in a column and wider
_TITLE, _LINE = 40.0, 19.0  # pixels of margin that a title takes, and a further line
_LETTER, _SYMBOL, _LEGEND_TEXT = 7.0, 47.0, 11.5  # pixels
_SLIM, _WIDE = frozenset(" fijlrtI.,:;'|()[]/"), frozenset("mwMW%@≤±")  # letters of Helvetica,
_SLIM_EM, _EM, _WIDE_EM = 0.29, 0.55, 0.8  # and about how wide they and others are, in sizes of the text
_PERCENT_LETTERS, _TICK_LETTERS = 5.5, 8.0  # of a tick and the room beside it
_TICK_PIXELS = 22.0  # that a vertical axis has for one
_SPARE = 12.0  # pixels behind the longest name of a column of a legend
_LEFT = 6.0  # pixels left of a legend below
_RANK = 1000  # Plotly's, of a trace without one of its own
_BESIDE_LEGEND = 6.0  # pixels above and below a legend
_CLEAR = "rgba(0,0,0,0)"  # or a legend would cover the end of the one before
_LEGEND_ABOVE = 22.0  # pixels of margin that a legend below the title takes
_OF_PANELS = ("paper", "domain")  # ends of what heights are shares of
_AT_EDGES, _BESIDE_AXIS, _BAR = 80.0, 60.0, 70.0  # pixels beside panels, left of them, and of a bar of colours
_BEFORE_AXIS = 16.0  # pixels around names of rows


@dataclass(frozen=True, slots=True)
class Layout:
    """How a figure is drawn.

    Attributes:
        width: pixels before they are scaled.
        height: likewise.
        scale: of all of it.
        dots: how many of them a scaled pixel has.
        caption: what it leaves to the caption of a paper; empty unless that is wanted.
    """

    width: float
    height: float
    scale: float
    dots: float
    caption: str = ""


def is_narrow(paper: Paper) -> bool:
    """Return whether a figure on this paper is as narrow as a column."""
    return paper.width is not None and _width(paper) < _NARROW


def fit(figure: Figure, paper: Paper) -> Layout:
    """Lay a figure out as a paper wants it, and return its size and what is left to a caption."""
    caption = take_caption(figure) if paper.caption else ""
    if figure.layout.margin.t is None:
        figure.update_layout(margin={"t": _margin(figure, "t") - _LEGEND_ABOVE})
    taken = _above_panels(figure)
    if caption or not paper.title:
        figure.update_layout(title=None, margin={"t": max(_margin(figure, "t") - _TITLE, taken, 12)})
    elif taken:
        figure.update_layout(margin={"t": max(_margin(figure, "t"), _TITLE + taken)})
    scale, width = _scale(paper), _width(paper)
    columns = _columns(_in_legend(figure), width - _LEFT)
    lines = max((sum(1 + trace.name.count("<br>") for trace in column) for column in columns), default=0)
    legend = _LINE * lines + 2.0 * _BESIDE_LEGEND if columns else 0.0
    if is_narrow(paper):
        panels = _make_narrow(figure, width)
    elif _is_square(figure):
        panels = width * _SQUARE / _count_panels(figure.select_xaxes())[0]
    else:
        height = SCREEN[1] / scale - legend if paper.width is None else width * SCREEN[1] / SCREEN[0]
        panels = _at_most_rows(figure, height - _margin(figure, "t") - _margin(figure, "b"))
        panels = max(panels, _LEAST_ROW_OF_PAGE * len(_row_names(figure)))
    if columns:
        _move_legend(figure, columns, width, panels, legend)
    else:
        figure.update_layout(margin={"b": _below_panels(figure)})
    dots = 2.0 if paper.width is None else _RASTER
    return Layout(width, panels + _margin(figure, "t") + _margin(figure, "b"), scale, dots, caption)


def _above_panels(figure: Figure) -> float:
    """Return the height of the texts that stand on panels, such as their headings and a note on all of them."""
    stand = [one for one in figure.layout.annotations if one.yanchor == "bottom" and str(one.yref).endswith(_OF_PANELS)]
    return max((_LINE * (1 + one.text.count("<br>")) + (one.yshift or 0) for one in stand if one.y == 1), default=0.0)


def _scale(paper: Paper) -> float:
    return 1.0 if paper.font is None else paper.font * _PIXELS_OF_POINT / _TEXT_PIXELS


def _width(paper: Paper) -> float:
    return (SCREEN[0] if paper.width is None else paper.width * _PIXELS_OF_MM) / _scale(paper)


def _margin(figure: Figure, side: str) -> float:
    own = figure.layout.margin[side]
    return float(figure.layout.template.layout.margin[side] if own is None else own)


def _make_narrow(figure: Figure, width: float) -> float:
    """Lay a figure out for a column, and return the height of its panels."""
    title = even_lines(figure.layout.title.text or "", int(width / 8.0))
    more = _LINE * max(len(title) - 1, 0)
    place = {"y": 1.0, "yref": "container", "yanchor": "top", "pad": {"t": 10.0 + more}}
    figure.update_layout(
        title={"text": "<br>".join(title), "font": {"size": 15}, **place} if title else None,
        margin={"t": _margin(figure, "t") + more},
    )
    (columns, _), (rows, insets) = _count_panels(figure.select_xaxes()), _count_panels(figure.select_yaxes())
    _thin_ticks(figure, width)
    for trace in figure.select_traces(lambda trace: trace.type == "scatter"):
        bar = trace.marker.colorbar.title
        bar.text = bar.text and bar.text.replace(" at L2", "<br>at L2")  # a bar is as high as a panel
    square = (_SQUARE if columns == 1 else _SQUARE_OF_SEVERAL) / columns
    one = square if _is_square(figure) else _BESIDE if max(columns, rows) > 1 else _PANEL
    _add_ticks(figure, width * one)
    height = width * (one * rows + _BETWEEN * (rows - 1) + (_INSET * _PANEL if insets else 0.0))
    least = _LEAST_ROW * len(_row_names(figure)) * rows  # or some rows would have no name
    return max(_at_most_rows(figure, height), least * (1.0 + _BETWEEN * (rows - 1)))


def _at_most_rows(figure: Figure, height: float) -> float:
    """Return the height of the one panel of a figure with few named rows, which need no more than this one."""
    names = _row_names(figure)
    several = _count_panels(figure.select_yaxes())[0] > 1
    return min(height, _ROW * max(len(names), 2)) if names and not several else height


def _row_names(figure: Figure) -> set[str]:
    """Return the names at the vertical axes of a figure, none where they have numbers; texts of ticks have lines."""
    ends = [trace.y for trace in figure.data if trace.type in ("bar", "scatter") and trace.y is not None]
    texts = [text for axis in figure.select_yaxes() for text in axis.ticktext or () if "<br>" in text]
    return {*texts, *(name for values in ends for name in values if isinstance(name, str))}


def _left_of_axis(figure: Figure) -> float:
    """Return about how wide what stands left of the panels is."""
    names = [line for name in _row_names(figure) for line in name.split("<br>")]
    titles = [axis.title.text for axis in figure.select_yaxes() if axis.title.text]
    more = _LINE * max((title.count("<br>") for title in titles), default=0)
    return max([_BESIDE_AXIS + more, *(_text_width(name) + _BEFORE_AXIS for name in names)])


def _is_square(figure: Figure) -> bool:
    return any(axis.scaleanchor for axis in figure.select_yaxes())


def _count_panels(axes: Iterable[Any]) -> tuple[int, int]:
    """Return how many panels stand along a direction, and how many insets lie within some."""
    domains = {tuple(axis.domain or (0.0, 1.0)) for axis in axes}
    insets = {one for one in domains if any(low < one[0] and one[1] < high for low, high in domains)}
    return max(len(domains - insets), 1), len(insets)


def _move_legend(figure: Figure, columns: list[list[Any]], width: float, panels: float, height: float) -> None:
    """Put the columns of a legend below panels of so many pixels, and make room for its own height."""
    below = _below_panels(figure)
    font = {"size": _LEGEND_TEXT, "color": figure.layout.template.layout.legend.font.color}
    left = _left_of_axis(figure)
    axes = width - left - _margin(figure, "r") - (_BAR if _has_bar(figure) else 0.0)
    at = _LEFT - left
    for number, column in enumerate(columns):
        name = f"legend{number + 1 if number else ''}"
        place = {"x": at / axes, "xanchor": "left", "y": -(below + _BESIDE_LEGEND) / panels, "yanchor": "top"}
        letters = {"font": font, "entrywidth": _column_width(column) - _SYMBOL + _SPARE}  # else Plotly may cut the last
        look = {"orientation": "v", "itemwidth": 30, "tracegroupgap": 0, "bgcolor": _CLEAR, **letters}
        figure.update_layout({name: {**look, **place}})
        for trace in column:
            trace.legend = name
        at += _column_width(column) + _SPARE
    figure.update_layout(margin={"b": below + height})


def _below_panels(figure: Figure) -> float:
    """Return the margin below the panels, with room for the lines of their titles unless the figure says its own."""
    titles = () if figure.layout.margin.b is not None else [axis.title.text or "" for axis in figure.select_xaxes()]
    return _margin(figure, "b") + max(map(_pixels_below, titles), default=0.0)


def _pixels_below(title: str) -> float:
    """Return the height of the lines of a title below its first."""
    return sum(SMALL_LINE if "font-size" in line else _LINE for line in title.split("<br>")[1:])


def _columns(traces: list[Any], room: float) -> list[list[Any]]:
    """Return what a legend names in as many columns as fit, each read from top to bottom; none without a name."""
    for lines in range(1, len(traces)):
        columns = [traces[first : first + lines] for first in range(0, len(traces), lines)]
        if sum(_column_width(column) + _SPARE for column in columns) <= room:  # else Plotly would narrow the panels
            return columns
    return [traces] if traces else []


def _column_width(traces: list[Any]) -> float:
    return _SYMBOL + max(_text_width(line) for trace in traces for line in trace.name.split("<br>"))


def _text_width(text: str) -> float:
    """Return about how wide a name in a legend is."""
    return _LEGEND_TEXT * sum(_SLIM_EM if one in _SLIM else _WIDE_EM if one in _WIDE else _EM for one in text)


def _in_legend(figure: Figure) -> list[Any]:
    """Return the traces that a legend below the figure names, in its order; none where there is none, or elsewhere."""
    is_asked = figure.layout.showlegend or any("showlegend" in trace and trace.showlegend for trace in figure.data)
    is_elsewhere = figure.layout.legend.y is not None
    if figure.layout.showlegend is False or is_elsewhere or (len(figure.data) < 2 and not is_asked):
        return []
    named = [trace for trace in figure.data if trace.name and trace.showlegend is not False]
    return sorted(named, key=lambda trace: trace.legendrank or _RANK)


def _thin_ticks(figure: Figure, width: float) -> None:
    bar = _BAR if _has_bar(figure) else 0.0
    for axis in figure.select_xaxes():
        low, high = axis.domain or (0.0, 1.0)
        letters = (high - low) * (width - _AT_EDGES - bar) / _LETTER
        if axis.tickangle:
            continue  # names that stand aslant need no room beside each other
        if axis.tickvals is not None and axis.ticktext is not None and axis.range is not None:
            at = [log10(tick) if axis.type == "log" else tick for tick in axis.tickvals]
            kept = thin(at, axis.ticktext, tuple(axis.range), letters)
            axis.update(tickvals=[axis.tickvals[i] for i in kept], ticktext=[axis.ticktext[i] for i in kept])
        elif axis.nticks is None:
            letters_of_one = _PERCENT_LETTERS if (axis.tickformat or "").endswith("%") else _TICK_LETTERS
            axis.update(nticks=max(int(letters / letters_of_one), 3))


def _add_ticks(figure: Figure, height: float) -> None:
    """Let vertical axes of numbers have as many ticks as panels of so many pixels have room for: Plotly has fewer."""
    if not _row_names(figure):
        figure.update_yaxes(nticks=max(int(height / _TICK_PIXELS), 3), selector=lambda axis: axis.tickvals is None)


def _has_bar(figure: Figure) -> bool:
    """Return whether a bar of colours stands beside the panels."""
    return any(trace.type == "scatter" and trace.marker.colorbar.title.text for trace in figure.data)
