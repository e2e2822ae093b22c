"""What users hold in Python: names, tables and figures of notebooks, progress."""

import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from types import ModuleType, SimpleNamespace

import pytest

import sweeper
from sweeper.driver import api
from sweeper.driver.options import Options
from sweeper.driver.reporting.progress import SweepProgress
from sweeper.errors import UnknownFigureError
from sweeper.results.exporters import figure_names
from sweeper.results.front import build_front
from sweeper.specification.spec import Spec


def test_the_version_and_the_names_help():
    assert sweeper.__version__ == metadata.version("sweeper")
    assert {"run", "load", "Spec", "Options", "Front", "__version__"} <= set(dir(sweeper))
    assert not any(name.startswith("_") and not name.startswith("__") for name in dir(sweeper))
    for name in sweeper.__all__:
        assert getattr(sweeper, name).__doc__


def test_to_look_at_the_package_imports_nothing_that_trains():
    program = (
        "import sys, sweeper; dir(sweeper); sweeper.__version__; print('torch' in sys.modules, 'ray' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


@pytest.mark.slow
def test_a_sweep_its_front_and_a_card_are_shown_in_notebooks(ran):
    sweep = sweeper.load(ran.folder)
    front = sweep.front()
    for html in (sweep._repr_html_(), front._repr_html_()):
        assert f"tiny: {len(front.on_front)} of {len(front.points)} points, hypervolume" in html
        assert html.count("what pick takes</td>") == 1
        assert front.ledger["everything"].statement in html
    assert f"completed, in {ran.folder}" in sweep._repr_html_()
    picked = sweep.pick()
    assert picked._repr_html_() == picked.card._repr_html_()
    assert picked.card._repr_html_().startswith("<h1>Privacy card: tiny")
    assert "<table>" in picked.card._repr_html_()


@pytest.mark.slow
def test_figures_are_plotly_figures_by_name(ran):
    sweep = sweeper.load(ran.folder)
    for figure in (sweep.plot(), sweep.plot("price"), sweep.front().plot(), sweep.front().plot("price")):
        assert type(figure).__module__.startswith("plotly.graph_objs")
        assert figure.data
    assert "front" in figure_names()
    with pytest.raises(UnknownFigureError, match=r"Expected a figure out of front, .*, got 'nope'"):
        sweep.plot("nope")


def test_names_of_users_are_escaped_and_an_exploratory_front_says_so(objectives, claim, trial, make_point):
    front = build_front(
        sweep="<script>",
        objectives=objectives,
        trials=[trial],
        points=[make_point("t0001", n, float(n), n / 100, 1 / n) for n in range(1, 40)],
        ledger={},
        claim=replace(claim, exploratory=True),
    )
    html = front._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;: 39 of 39 points" in html
    assert "Exploratory: no guarantee." in html
    assert "of 39 are shown; to_dataframe() has all of them." in html


def test_a_sweep_without_a_front_yet_says_so(tmp_path):
    from sweeper.records import SweepStatus
    from sweeper.store.manifest import Manifest
    from sweeper.store.sweep_folder import SweepFolder

    SweepFolder(tmp_path).write_manifest(Manifest(name="x", status=SweepStatus.RUNNING, spec={}, source="x.yaml"))
    html = sweeper.load(tmp_path)._repr_html_()
    assert "running, in" in html
    assert "front.json" in html


@pytest.fixture
def driven(monkeypatch):
    """Stands for the runner; remembers the spec and the options, and shows a state."""
    seen = []

    def run(spec, options):
        seen.append((spec, options))
        options.tell("digits: it will cost epsilon 3.")
        options.show(SweepProgress(name="digits", total=4, done=1))
        return "the sweep"

    monkeypatch.setattr(api.runner, "run", run)
    return seen


def test_a_spec_may_be_the_file_that_says_it(driven, content, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(Spec.from_mapping(content).to_yaml(), encoding="utf-8")
    assert sweeper.run(path) == sweeper.run(str(path)) == sweeper.run(Spec.from_mapping(content)) == "the sweep"
    assert len({spec.digest() for spec, _ in driven}) == 1


@pytest.mark.usefixtures("driven")
def test_progress_is_shown_where_it_is_asked_for_and_not_in_a_pipe(content, capsys):
    spec = Spec.from_mapping(content)
    sweeper.run(spec)
    assert capsys.readouterr().out == ""
    sweeper.run(spec, progress=True)
    said = capsys.readouterr().out
    assert "digits: it will cost epsilon 3." in said
    assert "digits: 1 of 4 trials done" in said


def test_options_that_say_where_progress_goes_are_left_alone(driven, content, capsys):
    shown = []
    sweeper.run(Spec.from_mapping(content), Options(show=shown.append), progress=True)
    assert len(shown) == 1
    assert capsys.readouterr().out == ""
    assert driven[-1][1].show == shown.append


@pytest.fixture
def notebook(monkeypatch):
    """Stands for IPython in the kernel of a notebook; remembers what its one display showed."""
    shown = []

    class ZMQInteractiveShell:
        pass

    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = ZMQInteractiveShell
    display.HTML = str
    display.display = lambda _html, **_: SimpleNamespace(update=shown.append)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def test_a_notebook_shows_progress_in_one_place(driven, content, notebook, capsys):
    assert api.in_notebook()
    sweeper.run(Spec.from_mapping(content))
    assert len(driven) == 1
    assert notebook[0].startswith("<pre>digits: it will cost epsilon 3.")
    assert "1 of 4 trials done" in notebook[-1]
    assert "it will cost epsilon 3." in notebook[-1]
    assert capsys.readouterr().out == ""
