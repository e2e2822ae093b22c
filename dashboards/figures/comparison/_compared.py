"""What the figures of a comparison share: its header."""

from html import escape
from typing import Any

from dashboards.text import number
from sweeper.results.comparison import Comparison


def compared(comparison: Comparison, title: str) -> dict[str, Any]:
    """The fields of `FigureInfo`."""
    deltas = {t.delta for run in comparison.runs for t in run.front.trials.values() if t.delta is not None}
    said = f"delta = {number(deltas.pop())}" if len(deltas) == 1 else "of different deltas"
    names = " and ".join(group.name for group in comparison.groups)
    return {
        "title": f"{escape(names)}: {title}",
        "epsilon_title": f"epsilon (fixed in advance), {said}",
        "exploratory": comparison.exploratory,
    }
