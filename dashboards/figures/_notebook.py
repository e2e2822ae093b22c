"""A figure that shows itself below the cell of a notebook, and whose pictures have room for its legend.

Plotly's own figures show themselves through nbformat, which a kernel has only where Jupyter's server is installed
beside it, and as JSON, which pages without Plotly's extension leave blank.
"""

from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from dashboards.figures._comparable import even_lines
from dashboards.figures._png import with_resolution

_WIDTH = 700  # pixels of the output of a cell, at least; a figure is as wide unless it has a width of its own
_SIDES = 150  # pixels beside the axes: labels on the left, and a colour bar on the right
_ROW, _MARK, _CHARACTER = 19, 42, 5  # pixels of a legend: the height of a row, what stands before a name, a letter
_ONE_ROW = 64  # pixels above a figure for its title and one row of its legend
_TITLE_LETTER, _TITLE_LINE = 9.0, 23  # pixels of a title: a letter, and a further line
_PIXELS = frozenset({"png", "jpg", "jpeg", "webp"})  # pictures of dots, of which a paper has more than a screen


class NotebookFigure(go.Figure):  # type: ignore[misc]  # Plotly has no types
    """A figure that any notebook shows, without a network; all rows of its legend have room below its title."""

    _ipython_display_ = None  # else IPython asks it before the content below
    _scale: float | None = None  # of a picture that is laid out for a paper, whose legend is below
    _dots = 1.0  # that one of its pixels has
    _caption = ""
    _drawn: tuple[str, Callable[[], "NotebookFigure"]] | None = None  # it as it was drawn, and what draws its pictures

    def with_pictures(self, draw: Callable[[], "NotebookFigure"]) -> "NotebookFigure":
        """Return it; its pictures are those of ``draw`` as long as nobody changes it or asks for another size."""
        self._drawn = self.to_json(), draw
        return self

    def lay_out(self, width: float, height: float, scale: float, dots: float, caption: str = "") -> "NotebookFigure":
        """Give it the size of a paper, and return it: pictures of it are scaled, and have so many dots for a pixel."""
        self.update_layout(width=width, height=height)
        self._scale, self._dots, self._caption = scale, dots, caption
        return self

    @property
    def caption(self) -> str:
        """What it leaves to the caption of a paper, as text; empty unless it was drawn with ``caption=True``."""
        return self._caption

    def to_image(self, format: str | None = None, **options: Any) -> bytes:
        """Return a picture, as Plotly does, with room for the legend at the width that it has."""
        shown, options, dots = self._picture(format or "png", options)
        drawn = bytes(shown.to_image(format, **options))
        return with_resolution(drawn, dots) if dots else drawn

    def write_image(self, file: Any, format: str | None = None, **options: Any) -> None:
        """Write such a picture to a file."""
        suffix = Path(file).suffix[1:].lower() if isinstance(file, str | Path) else ""
        shown, drawn_with, dots = self._picture(format or suffix or "png", options)
        if not dots:
            shown.write_image(file, format, **drawn_with)
        elif isinstance(file, str | Path):
            Path(file).write_bytes(self.to_image("png", **options))
        else:
            file.write(self.to_image("png", **options))

    def _picture(self, kind: str, options: dict[str, Any]) -> tuple[go.Figure, dict[str, Any], float]:
        """Return what Plotly is to draw, and its options with the scale of the paper, if there is one.

        The last is how many dots a pixel of that has in a PNG; 0 where there is no paper, and for other pictures.
        """
        if self._drawn is not None and not options.keys() & {"width", "height"} and self.to_json() == self._drawn[0]:
            return self._drawn[1]()._picture(kind, options)
        if self._scale is None:
            return self._with_room(options.get("width")), options, 0.0
        scale = options.get("scale") or self._scale * (self._dots if kind in _PIXELS else 1.0)
        return go.Figure(self), {**options, "scale": scale}, scale / self._scale if kind == "png" else 0.0

    def _repr_mimebundle_(self, *_: object, **__: object) -> dict[str, Any]:
        """Return the figure as the renderer of the session has it, as HTML that holds plotly.js, and its title."""
        shown = go.Figure(self) if self._scale is not None else self._with_room()
        chosen: dict[str, Any] = shown._repr_mimebundle_()
        html = shown.to_html(full_html=False, include_plotlyjs=True)
        return {"text/plain": str(self.layout.title.text or "a figure"), "text/html": html} | chosen

    def _with_room(self, width: float | None = None) -> go.Figure:
        """Return it with so much room above the axes that its title and the rows of its legend do not meet."""
        width = width or self.layout.width or _WIDTH
        shown = go.Figure(self)
        title = even_lines(self.layout.title.text or "", int(width / _TITLE_LETTER))
        room = _ONE_ROW + (self._legend_rows(width) - 1) * _ROW + max(len(title) - 1, 0) * _TITLE_LINE
        more = room - (self.layout.margin.t or _ONE_ROW)
        if len(title) > 1:
            shown.update_layout(title={"text": "<br>".join(title), "y": 1.0, "pad": {"t": 8}})
        if more > 0:
            height = None if self.layout.height is None else self.layout.height + more
            shown.update_layout(margin={"t": room}, height=height)
        return shown

    def _legend_rows(self, width: float) -> int:
        """Return about how many rows the legend takes: in several, all names have the room of the longest."""
        traces = self.to_dict()["data"]
        names = [str(one["name"]) for one in traces if one.get("name") and one.get("showlegend") is not False]
        lines = [name.split("<br>") for name in names]
        widths = [_MARK + _CHARACTER * max(map(len, name)) for name in lines]
        room = width - _SIDES
        if self.layout.showlegend is False or not names:
            return 1
        broken = max(map(len, lines)) - 1
        rows = 1 if 1.1 * sum(widths) <= room else ceil(len(names) / max(1, room // max(widths)))
        return int(rows + broken)
