"""Measured lines side by side."""

import importlib
import sys
from pathlib import Path

from dashboards.figures import is_empty

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
panels = importlib.import_module("_measured_panels")
FIGURE, Measured, Panel = panels.FIGURE, panels.Measured, panels.Panel

LINES = (Measured("ours", (1.0, 10.0), (0.5, 0.1)), Measured("<peer>", (1.0, 10.0), (0.9, 0.4)))
TWO = [
    Panel("left", LINES, "epsilon", "error"),
    Panel("right", LINES[1:], "rows", "error", log_x=False, log_y=False),
]


def test_each_panel_has_its_axes_and_lines_and_each_name_one_entry_in_the_legend():
    figure = FIGURE.draw(TWO)
    assert [(trace.name, trace.xaxis, trace.showlegend) for trace in figure.data] == [
        ("ours", "x", True),
        ("&lt;peer&gt;", "x", True),
        ("&lt;peer&gt;", "x2", False),
    ]
    assert figure.data[1].line.color == figure.data[2].line.color != figure.data[0].line.color
    assert (figure.layout.xaxis.type, figure.layout.xaxis2.type) == ("log", None)
    assert figure.layout.xaxis.domain[1] < figure.layout.xaxis2.domain[0]
    assert figure.layout.xaxis2.title.text == "rows"


def test_the_numbers_are_a_table():
    assert panels.rows(panels.info(TWO))[-1] == {"panel": "right", "name": "<peer>", "x": 10.0, "y": 0.4}
    assert is_empty(FIGURE.draw([]))
