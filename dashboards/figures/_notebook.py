"""A figure that shows itself below the cell of a notebook.

Plotly's own figures show themselves through nbformat, which a kernel has only where Jupyter's server is installed
beside it, and as JSON, which pages without Plotly's extension leave blank.
"""

from typing import Any

import plotly.graph_objects as go


class NotebookFigure(go.Figure):  # type: ignore[misc]  # Plotly has no types
    """A figure that any notebook shows, without a network."""

    _ipython_display_ = None  # else IPython asks it before the content below

    def _repr_mimebundle_(self, *_: object, **__: object) -> dict[str, Any]:
        """Return the figure as the renderer of the session has it, as HTML that holds plotly.js, and its title."""
        chosen: dict[str, Any] = super()._repr_mimebundle_()
        html = self.to_html(full_html=False, include_plotlyjs=True)
        return {"text/plain": str(self.layout.title.text or "a figure"), "text/html": html} | chosen
