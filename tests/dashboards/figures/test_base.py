"""A figure is one module, as the guide has it: it appears in the report, in exports, the guide and the live page."""

import json
import re
import sys
from pathlib import Path

import pytest

import dashboards.figures.sweep
from dashboards.export.files import export_front
from dashboards.figures import _base, comparison_figures, diagnosis_figures, is_empty, sweep_figures
from dashboards.figures._common import WATERMARK
from dashboards.figures.hyperparameters.importances import ImportancesInfo
from dashboards.live.skeleton import FRONT_3D, PARTS_OF, document, figures_of
from dashboards.live.view import Tab
from dashboards.pages.report import build_report
from sweeper.results.importance import Importance

ROOT = Path(__file__).parents[3]
GUIDE = (
    (ROOT / "docs" / "extending.md").read_text(encoding="utf-8").partition("\n## A figure\n")[2].partition("\n## ")[0]
)
MODULE = re.search(r"```py(?:thon)?\n(.*?)```", GUIDE, re.DOTALL).group(1)


UNSAID = {"repeats", "stages", "certified-curve", "roc", "calibration"}  # their captions are not folded


@pytest.fixture
def add_module(tmp_path, monkeypatch):
    """Adds modules to the figures of a sweep while the test runs: name, content."""
    added = tmp_path / "figures"
    added.mkdir()
    folder = dashboards.figures.sweep
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(added)])
    names = []

    def add(name, content):
        (added / f"{name}.py").write_text(content)
        names.append(f"{folder.__name__}.{name}")
        _base.figures_in.cache_clear()

    yield add
    _base.figures_in.cache_clear()
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def spent(add_module):
    """A figure that exists while the test runs, by one new file."""
    add_module("spent", MODULE)
    return "spent"


def test_two_figures_of_one_name_are_refused(add_module):
    add_module("spent", MODULE)
    add_module("spent_again", MODULE)
    with pytest.raises(ValueError, match=r"name of its own in dashboards\.figures\.sweep\.spent_again, got spent$"):
        sweep_figures()


@pytest.mark.parametrize(("content", "got"), [("", "NoneType"), ("FIGURE = 3", "int")])
def test_a_module_without_a_figure_is_refused(add_module, content, got):
    add_module("helper", content)
    said = rf"Expected a FigureKind named FIGURE in dashboards\.figures\.sweep\.helper, got {got}$"
    with pytest.raises(TypeError, match=said):
        sweep_figures()


@pytest.mark.long
def test_a_new_figure_is_one_file_and_appears_in_the_report(sweep, spent):
    names = list(sweep_figures())
    assert names.index("front") < names.index(spent) < names.index("architectures")
    page = build_report(sweep)
    assert f'id="plot-{spent}"' in page
    assert "What epochs cost" in page


def test_a_new_figure_is_exported_as_numbers_and_as_a_page(sweep, spent, tmp_path):
    content = json.loads(export_front(sweep, tmp_path / "spent.json", figure=spent).read_text())
    assert content["figure"] == spent
    assert len(content["rows"]) == len(sweep.points)
    assert "plot-spent" in export_front(sweep, tmp_path / "spent.html", figure=spent).read_text()


def test_a_new_figure_draws_nothing_where_there_is_nothing_and_carries_the_watermark(spent, small, exploratory_sweep):
    kind = sweep_figures()[spent]
    assert is_empty(kind.draw(small([])))
    assert kind.numbers(small([])) == []
    assert WATERMARK in [note.text for note in kind.draw(exploratory_sweep).layout.annotations]


def test_a_new_figure_has_a_place_on_the_live_page(spent):
    assert spent in figures_of(Tab.TRIALS)
    assert f'id="figure-{spent}"' in document("1")


@pytest.mark.parametrize(
    ("figures", "first"), [(sweep_figures, "front"), (comparison_figures, "fronts"), (diagnosis_figures, "tightness")]
)
def test_the_order_of_pages_is_that_of_positions(figures, first):
    positions = [kind.position for kind in figures().values()]
    assert positions == sorted(positions)
    assert next(iter(figures())) == first


@pytest.mark.parametrize("figures", [sweep_figures, comparison_figures, diagnosis_figures])
def test_every_figure_says_what_it_is_and_has_a_name_of_its_own(figures):
    kinds = figures()
    modules = [kind.info.__module__ for kind in kinds.values()]
    assert len(set(modules)) == len(modules)
    assert len({kind.position for kind in kinds.values()}) == len(kinds)
    for name, kind in kinds.items():
        assert re.fullmatch(r"[a-z0-9-]{1,40}", name)
        assert kind.heading
        assert kind.summary
        assert kind.caption.endswith(".")


def test_every_figure_of_a_sweep_says_what_it_shows_with_its_numbers_as_text(sweep):
    for name in sorted({*sweep_figures()} - UNSAID):
        kind = sweep_figures()[name]
        found = kind.found(kind.info(sweep))
        assert re.search(r"\d", found), name
        assert found.endswith("."), name
        assert not re.search(r"<|&\w+;|  ", found), name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("price", "The price, epsilon 13.61, buys at best accuracy 95.1\xa0%, or certified accuracy"),
        ("slices", " scores best of the 24 that are drawn: accuracy 95.1\xa0%, with privacy.epsilon 4.21, "),
    ],
)
def test_what_a_figure_shows_is_that_of_its_sweep(sweep, name, said):
    kind = sweep_figures()[name]
    assert said in kind.found(kind.info(sweep))


def test_only_what_matters_beyond_chance_is_said_to():
    kind, names = sweep_figures()["importances"], ("rate", "width", "clip")
    importances = tuple(
        Importance(target, 0.5, dict(zip(names, losses, strict=True)), dict.fromkeys(names, 0.05))
        for target, losses in (("accuracy", (0.09, 0.2, 0.3)), ("epsilon", (0.0, 0.01, 0.09)))
    )
    words = {"title": "", "epsilon_title": "", "exploratory": False}
    info = ImportancesInfo(**words, parameters=names, importances=importances, enough=True, seen="12 trials")
    assert kind.found(info) == (
        "Beyond chance, from 12 trials, matter for accuracy (R² 0.50): clip (0.30), width (0.20); "
        "for own epsilon (R² 0.50): none."
    )


def test_what_an_attacker_finds_is_no_guarantee_where_the_sweep_gives_none(sweep, exploratory_sweep):
    kind = sweep_figures()["caught"]
    assert kind.found(kind.info(exploratory_sweep)).startswith("Exploratory, no guarantee. ")
    assert "guarantee" not in kind.found(kind.info(sweep))


def test_every_figure_of_a_sweep_belongs_to_one_tab():
    placed = [name for tab in PARTS_OF for name in figures_of(tab)]
    assert sorted([*placed, FRONT_3D]) == sorted(sweep_figures())
