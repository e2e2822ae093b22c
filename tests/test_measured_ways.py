"""Ways to spend a budget: every number of the table has its mark, and a dearer way does not look like one."""

import importlib
import sys
from pathlib import Path

import pytest

from dashboards.figures import DARK, LIGHT, is_empty

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))
ways = importlib.import_module("_measured_ways")
Mean, Spending = ways.Mean, ways.Spending


def spending(task, epsilon, way, accuracy, error=0.01):
    mean = Mean(accuracy, error)
    return Spending(task=task, epsilon=epsilon, way=way, accuracy=mean, certified=Mean(accuracy / 2, error))


@pytest.fixture
def spendings():
    return [
        spending(task, epsilon, way, 0.1 * place + 0.02 * epsilon)
        for task in ("digits", "<b>adult</b>")
        for epsilon in (8.0, 1.0, 3.0)
        for place, way in enumerate(ways._LABELS, start=1)
    ]


def test_every_number_has_a_mark_in_the_panel_of_its_task_and_objective(spendings):
    info = ways.info(spendings)
    figure = ways.plot(info)
    assert len(figure.data) == 2 * 2 * len(ways._LABELS)
    for trace in figure.data:
        column = {"x": 0, "x3": 0, "x2": 1, "x4": 1}[trace.xaxis]
        line = info.line(list(info.tasks)[column], trace.legendgroup)
        assert [one.epsilon for one in line] == [1.0, 3.0, 8.0]
        assert list(trace.y) == [one.means[trace.xaxis in ("x3", "x4")].value for one in line]
        assert list(trace.error_y.array) == [0.01] * 3
        assert list(trace.x) == pytest.approx([1.0, 3.0, 8.0], rel=0.2)
    assert [trace.name for trace in figure.data if trace.showlegend] == list(ways._LABELS.values())


def test_a_way_that_costs_more_is_told_apart_from_all_others(spendings):
    figure = ways.plot(ways.info(spendings))
    looks = {t.legendgroup: (t.line.dash, t.line.color, t.marker.symbol) for t in figure.data}
    assert looks.pop("each P") == ("dot", LIGHT.ink, "circle-open")
    assert all(dash != "dot" and color != LIGHT.ink for dash, color, _ in looks.values())
    assert all(len({look[i] for look in looks.values()}) == len(looks) for i in range(3))
    assert "costs several times as much" in ways._LABELS["each P"]


def test_every_panel_has_the_budgets_of_all_tasks_and_nothing_measured_is_nothing_drawn():
    info = ways.info(
        [spending("cifar", 3.0, "random", 0.5), *(spending("digits", e, "random", 0.5) for e in (1.0, 8.0))]
    )
    figure = ways.plot(info)
    assert {tuple(axis.tickvals) for axis in figure.select_xaxes()} == {(1.0, 3.0, 8.0)}
    assert len({tuple(axis.range) for axis in figure.select_xaxes()}) == 1
    assert [len(trace.x) for trace in figure.data] == [1, 1, 2, 2]
    assert is_empty(ways.plot(ways.info([])))


def test_rows_are_the_numbers_and_a_single_seed_has_no_bar():
    info = ways.info([spending("digits", epsilon, "random", 0.5, None) for epsilon in (1.0, 3.0)])
    assert ways.rows(info) == [
        {
            "task": "digits",
            "epsilon": epsilon,
            "way": "random",
            "accuracy": 0.5,
            "accuracy_error": None,
            "certified": 0.25,
            "certified_error": None,
        }
        for epsilon in (1.0, 3.0)
    ]
    assert {bar for trace in ways.plot(info).data for bar in trace.error_y.array} == {0.0}


def test_names_of_tasks_are_no_markup_and_both_themes_are_drawn(spendings):
    for theme in (LIGHT, DARK):
        figure = ways.FIGURE.draw(spendings, theme)
        assert "&lt;b&gt;adult&lt;/b&gt;" in [note.text for note in figure.layout.annotations]
        assert figure.layout.template.layout.paper_bgcolor == theme.paper
