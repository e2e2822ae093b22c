"""A figure is one module: what is put into the folder appears in the report, in exports and on the live page."""

import json
import re

import pytest

import dashboards.figures.sweep
from dashboards.export.files import export_front
from dashboards.figures import _base, comparison_figures, diagnosis_figures, sweep_figures
from dashboards.live._layout import FRONT_3D, PARTS_OF, figures_of, layout
from dashboards.live._view import Tab
from dashboards.pages.report import build_report

MODULE = '''
"""Epsilon by epoch."""

from dataclasses import dataclass

import plotly.graph_objects as go

from dashboards.data import SweepData
from dashboards.figures._base import FigureInfo, FigureKind, Table, Topic
from dashboards.figures._common import header, new_figure
from dashboards.figures._theme import Theme


@dataclass(frozen=True, slots=True, kw_only=True)
class SpentInfo(FigureInfo):
    """Epsilon of each point by its epoch."""

    epochs: tuple[int, ...]
    epsilons: tuple[float, ...]


def info(data: SweepData) -> SpentInfo:
    """Collect the points."""
    return SpentInfo(
        **header(data, "epsilon by epoch"),
        epochs=tuple(point.epoch for point in data.points),
        epsilons=tuple(point.values["epsilon"] for point in data.points),
    )


def rows(info: SpentInfo) -> Table:
    """One row per point."""
    return [{"epoch": epoch, "epsilon": spent} for epoch, spent in zip(info.epochs, info.epsilons)]


def plot(info: SpentInfo, theme: Theme) -> go.Figure:
    """Draw one mark per point."""
    figure = new_figure(info, theme, empty=not info.epochs)
    return figure.add_trace(go.Scatter(x=info.epochs, y=info.epsilons, mode="markers"))


FIGURE: FigureKind[SweepData, SpentInfo] = FigureKind(
    name="spent",
    heading="What epochs cost",
    caption="One mark per point.",
    position=15,
    info=info,
    plot=plot,
    rows=rows,
    topic=Topic.TRIALS,
)
'''


@pytest.fixture
def spent(tmp_path, monkeypatch):
    """A figure that exists while the test runs, by one new file."""
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "spent.py").write_text(MODULE)
    folder = dashboards.figures.sweep
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path / "figures")])
    _base.figures_in.cache_clear()
    yield "spent"
    _base.figures_in.cache_clear()


def test_a_new_figure_is_one_file_and_appears_in_the_report(sweep, spent):
    assert list(sweep_figures())[:3] == ["front", spent, "architectures"]
    page = build_report(sweep)
    assert f'id="plot-{spent}"' in page
    assert "What epochs cost" in page


def test_a_new_figure_is_exported_as_numbers_and_as_a_page(sweep, spent, tmp_path):
    content = json.loads(export_front(sweep, tmp_path / "spent.json", figure=spent).read_text())
    assert content["figure"] == spent
    assert len(content["rows"]) == len(sweep.points)
    assert "plot-spent" in export_front(sweep, tmp_path / "spent.html", figure=spent).read_text()


def test_a_new_figure_has_a_place_on_the_live_page(spent):
    assert figures_of(Tab.TRIALS) == (spent, "trajectories")
    assert f"figure-{spent}" in str(layout())


def test_the_order_of_pages_is_that_of_positions():
    assert list(sweep_figures()) == [
        "front", "architectures", "repeats", "robustness", "temperature", "front-3d", "trajectories", "hypervolume",
        "importances", "configurations",
    ]  # fmt: skip
    assert list(comparison_figures()) == ["fronts", "attainment", "hypervolumes"]
    assert list(diagnosis_figures()) == [
        "tightness", "gradients", "noise", "clipping", "clipping-parameters", "inputs",
    ]  # fmt: skip


@pytest.mark.parametrize("figures", [sweep_figures, comparison_figures, diagnosis_figures])
def test_every_figure_says_what_it_is_and_has_a_name_of_its_own(figures):
    kinds = figures()
    modules = [kind.info.__module__ for kind in kinds.values()]
    assert len(set(modules)) == len(modules)
    assert len({kind.position for kind in kinds.values()}) == len(kinds)
    for name, kind in kinds.items():
        assert re.fullmatch(r"[a-z0-9-]{1,40}", name)
        assert kind.heading
        assert kind.caption.endswith(".")


def test_every_figure_of_a_sweep_belongs_to_one_tab():
    placed = [name for tab in PARTS_OF for name in figures_of(tab)]
    assert sorted([*placed, FRONT_3D]) == sorted(sweep_figures())
