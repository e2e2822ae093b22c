"""A figure that shows itself below the cell of a notebook.

Plotly's own figures show themselves through nbformat, which a kernel has only where Jupyter's server is installed
beside it, and as JSON, which pages without Plotly's extension leave blank.
"""

from math import ceil
from typing import Any

import plotly.graph_objects as go

_WIDTH = 700  # pixels of the output of a cell, at least; a figure is as wide unless it has a width of its own
_SIDES = 150  # pixels beside the axes: labels on the left, and a colour bar on the right
_ROW, _MARK, _CHARACTER = 19, 42, 5  # pixels of a legend: the height of a row, what stands before a name, a letter
_ONE_ROW = 64  # pixels above a figure for its title and one row of its legend


class NotebookFigure(go.Figure):  # type: ignore[misc]  # Plotly has no types
    """A figure that any notebook shows, without a network; all rows of its legend have room below its title."""

    _ipython_display_ = None  # else IPython asks it before the content below

    def _repr_mimebundle_(self, *_: object, **__: object) -> dict[str, Any]:
        """Return the figure as the renderer of the session has it, as HTML that holds plotly.js, and its title."""
        shown = go.Figure(self)
        more = (self._legend_rows() - 1) * _ROW
        if more > 0 and self.layout.margin.t is None:
            shown.update_layout(margin={"t": _ONE_ROW + more})
            shown.update_layout(height=None if self.layout.height is None else self.layout.height + more)
        chosen: dict[str, Any] = shown._repr_mimebundle_()
        html = shown.to_html(full_html=False, include_plotlyjs=True)
        return {"text/plain": str(self.layout.title.text or "a figure"), "text/html": html} | chosen

    def _legend_rows(self) -> int:
        """Return about how many rows the legend takes: in several, all names have the room of the longest."""
        traces = self.to_dict()["data"]
        names = [str(one["name"]) for one in traces if one.get("name") and one.get("showlegend") is not False]
        widths = [_MARK + _CHARACTER * len(name) for name in names]
        room = (self.layout.width or _WIDTH) - _SIDES
        if self.layout.showlegend is False or 1.1 * sum(widths) <= room:
            return 1
        return ceil(len(names) / max(1, room // max(widths)))
