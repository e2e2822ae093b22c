"""What users hold in Python: names, tables and figures of notebooks, progress."""

import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from types import ModuleType, SimpleNamespace

import plotly.graph_objects as go
import pytest

import sweeper
from clipless.errors import DataError, DeclarationError, FederationError, ModelFileError, PlanError
from sweeper.calls import called_by_users
from sweeper.driver import api
from sweeper.driver.options import Options
from sweeper.driver.reporting.progress import SweepProgress
from sweeper.errors import EmptyFigureError, ExportError, RecordError, UnknownFigureError, public_line
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.claims import COPIED
from sweeper.privacy.held_out import interval_on_test
from sweeper.records import NoisyScores
from sweeper.results.display import trial_rows
from sweeper.results.exporters import figure_names
from sweeper.results.front import build_front
from sweeper.rounding import round_up
from sweeper.specification.spec import Spec


def test_the_version_and_the_names_help():
    assert sweeper.__version__ == metadata.version("sweeper")
    assert {"run", "load", "Spec", "Options", "Front", "__version__"} <= set(dir(sweeper))
    assert not any(name.startswith("_") and not name.startswith("__") for name in dir(sweeper))
    errors = {name for name in dir(sweeper) if name.endswith("Error")}
    assert {"SweeperError", "SpecError", "RecordError", "PickError", "TrialError", "AccountError"} <= errors
    assert {"UnknownFigureError", "EmptyFigureError"} <= errors
    assert all(issubclass(getattr(sweeper, name), sweeper.errors.SweeperError) for name in errors)
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
    assert picked._repr_html_().startswith(f"<p><b>{picked.point.label}: ")
    assert picked.card._repr_html_().startswith("<h1>Privacy card: tiny")
    assert "<table>" in picked.card._repr_html_()


@pytest.mark.slow
def test_a_sweep_its_front_and_a_point_are_texts_that_fit_a_screen(ran):
    sweep = sweeper.load(ran.folder)
    front, picked = sweep.front(), sweep.pick()
    for shown in (sweep, front, picked):
        assert len(repr(shown).splitlines()) <= 24
        assert max(map(len, repr(shown).splitlines()[1:])) <= 100
    assert repr(sweep).startswith(f"completed, in {ran.folder}\n{front!r}\nhypervolume: ")
    assert "hypervolume: share" not in repr(front) + front._repr_html_()  # definitions once, below the sweep
    assert sweep._repr_html_().count("hypervolume: share") == 1
    assert repr(front).startswith(f"tiny: {len(front.on_front)} of {len(front.points)} points, hypervolume")
    assert repr(front).count("what pick takes") == 1
    assert f"price {round_up(front.price.epsilon)} at delta 0.0001" in " ".join(repr(picked).split())
    with pytest.raises(RecordError) as refused:
        sweeper.load("nowhere")
    assert repr(sweeper.Sweep("nowhere")) == str(refused.value)


@pytest.mark.slow
def test_what_is_shown_leads_with_test_scores_their_interval_and_the_baseline(ran):
    sweep = sweeper.load(ran.folder)
    front, picked = sweep.front(), sweep.pick()
    low, high = interval_on_test(picked.point, "accuracy", front.claim)
    lead = f"accuracy {picked.point.test['accuracy']:.3f} on test rows (95 % interval {low:.3f} to {high:.3f}), "
    reached = front.claim.baselines.constant("accuracy", "test")
    for shown in (sweep, front, picked):
        for text in (shown._repr_html_(), " ".join(repr(shown).split())):
            assert lead in text
            assert f"the majority-class baseline reaches {reached:.3f} on test rows" in text
    assert "<th>test accuracy [95 % interval]</th>" in front._repr_html_()
    assert "  test accuracy  " in repr(front)
    short = repr(picked.point)
    assert short.startswith(f"Point({picked.point.label}: test accuracy {picked.point.test['accuracy']:.3f}, ")
    assert len(short) < 250


def test_a_best_point_that_is_no_better_than_a_constant_prediction_says_so(make_front, make_point, claim):
    guess = replace(claim, baselines=Baselines(classes=("a", "b"), majority={"validation": 0.6, "test": 0.55}))
    point = make_point("t0001", 2, 1.0, 0.7, 0.4)
    tested = replace(point, test={"accuracy": 0.5})
    doubted = "On test rows this model is no better in accuracy than always predicting the most frequent class"
    for one, said in ((tested, doubted), (point, "the majority-class baseline reaches 0.600 on validation rows")):
        front = replace(make_front([one]), claim=guess)
        assert said in " ".join(repr(front).split())
        assert said in front._repr_html_()


@pytest.mark.slow
def test_trials_are_a_table_with_the_best_point_of_each(ran):
    sweep = sweeper.load(ran.folder)
    front, frame = sweep.front(), sweep.trials.set_index("trial")
    assert list(frame.index) == list(front.trials)
    for id_, row in frame.iterrows():
        points = [point for point in front.points if point.trial == id_]
        (shown,) = (point for point in points if (point.epoch, point.made_from) == (row["epoch"], row["made_from"]))
        assert row["accuracy"] == shown.values["accuracy"]
        assert row["config.training.learning_rate"] == front.trials[id_].config["training"]["learning_rate"]
        assert row["on_front"] == (shown.key in front.on_front)
        assert row["accuracy"] == max(point.values["accuracy"] for point in points)
    assert set(frame["status"]) == {"completed"}
    assert set(frame["epochs"]) == {2}


def test_titles_that_have_no_room_stand_on_a_line_of_their_own(make_front, make_point):
    text = repr(make_front([make_point("t0001", 2, 1.0, 0.7, 0.4, made_from="slow-midpoint" * 3)]))
    assert max(map(len, text.splitlines())) <= 100
    assert "\n    best epsilon, best accuracy" in text


def test_a_row_of_a_trial_shows_its_best_point_on_the_front_or_not(make_front, make_point, trial):
    points = [
        make_point("t0001", 1, 1.0, 0.9),
        make_point("t0002", 1, 0.5, 0.6),
        make_point("t0002", 2, 2.0, 0.9),
        make_point("t0003", 1, 3.0, 0.7),
        make_point("t0003", 2, 4.0, 0.8),
    ]
    front = make_front(points, trials=[replace(trial, id=one) for one in ("t0001", "t0002", "t0003")])
    rows = [(row["trial"], row["epoch"], row["on_front"], row["accuracy"]) for row in trial_rows(front)]
    assert rows == [("t0001", 1, True, 0.9), ("t0002", 2, False, 0.9), ("t0003", 2, False, 0.8)]


def test_trials_with_noisy_scores_have_their_intervals(make_front, make_point):
    noisy = NoisyScores(
        intervals={"accuracy": (0.6, 0.8)},
        released={"accuracy": 0.71},
        test_intervals={"accuracy": (0.5, 0.78)},
        test_released={"accuracy": 0.64},
        is_final=True,
    )
    point = make_point("t0001", 2, 1.0, 0.7, noisy=noisy)
    front = make_front([replace(point, test={"accuracy": 0.65})], stages=(1,))
    (row,) = trial_rows(front)
    assert (row["low.accuracy"], row["accuracy"], row["high.accuracy"]) == (0.6, 0.7, 0.8)
    assert (row["low.test.accuracy"], row["test.accuracy"], row["high.test.accuracy"]) == (0.5, 0.65, 0.78)
    assert row["stage"] == 1
    names = list(row)
    assert names[:2] == ["trial", "status"]
    assert names.index("accuracy") < names.index("epoch") < names.index("epochs"), "what is looked at first"
    assert all(name.startswith("config.") for name in names[names.index("reason") + 1 :])
    assert "0.700 [0.600, 0.800]" in repr(front)


@pytest.mark.slow
def test_figures_are_plotly_figures_by_name(ran):
    sweep = sweeper.load(ran.folder)
    for figure in (sweep.plot(), sweep.plot("price"), sweep.front().plot(), sweep.front().plot("price")):
        assert isinstance(figure, go.Figure)
        assert figure.data
    assert "front" in figure_names()
    with pytest.raises(UnknownFigureError, match=r"Expected the name of a figure, got 'nope'; choose one of front, "):
        sweep.plot("nope")
    with pytest.raises(EmptyFigureError, match="released curves of two classes for the figure roc, found none"):
        sweep.plot("roc")


@pytest.mark.slow
def test_a_figure_has_the_size_of_a_paper_as_the_command_draws_it(ran):
    front = sweeper.load(ran.folder).front()
    column, plain = front.plot(preset="column", title=False), front.plot(width=120, font=9)
    scale = 8 / 13 * 96 / 72
    assert column.layout.width * scale == pytest.approx(85 / 25.4 * 96)
    assert column.layout.title.text is None
    assert plain.layout.title.text
    assert plain.layout.width > column.layout.width
    assert front.plot(title=False).layout.title.text is None
    with pytest.raises(ExportError, match="Expected a preset out of column, page, got 'colunm'; did you mean 'column'"):
        front.plot(preset="colunm")
    with pytest.raises(ExportError, match="got configurations, which is for pages; leave out its preset and width"):
        sweeper.load(ran.folder).plot("configurations", preset="page")


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
    copied = replace(front, claim=claim.of_copy())
    for shown in (repr(copied), copied._repr_html_(), copied.to_latex()):
        assert COPIED in " ".join(shown.split())
        assert "Exploratory" not in shown
    assert r"\caption{\textless{}script\textgreater{}: " in copied.to_latex()


def test_a_sweep_without_a_front_yet_says_so(tmp_path):
    from sweeper.records import SweepStatus
    from sweeper.store.manifest import Manifest
    from sweeper.store.sweep_folder import SweepFolder

    SweepFolder(tmp_path).write_manifest(Manifest(name="x", status=SweepStatus.RUNNING, spec={}, source="x.yaml"))
    html = sweeper.load(tmp_path)._repr_html_()
    assert "lost, in" in html
    assert "front.json" in html


def test_what_clipless_refuses_is_an_error_of_the_sweeper_with_every_mistake(content):
    misspelled = content | {"data": {"name": "mnits"}}
    with pytest.raises(sweeper.SpecError, match=r"Unknown data set 'mnits': did you mean 'mnist'\?") as refused:
        sweeper.check(misspelled, measure=False)
    assert len(refused.value.mistakes) == 1
    with pytest.raises(sweeper.SpecError) as refused:
        sweeper.check(misspelled | {"model": {"architecture": "mlpp"}})
    assert [any(name in one for one in refused.value.mistakes) for name in ("mlpp", "mnits")] == [True, True]
    lacking = {key: section for key, section in misspelled.items() if key != "privacy"}
    with pytest.raises(sweeper.SpecError) as refused:  # as sweeper check and a service read it
        Spec.from_mapping(lacking)
    assert [any(name in one for one in refused.value.mistakes) for name in ("privacy", "mnits")] == [True, True]
    with pytest.raises(sweeper.InputError, match=r"No such file: nowhere\.csv"):
        sweeper.check(content | {"data": {"path": "nowhere.csv", "ranges": "r.yaml"}}, measure=False)


def test_errors_about_rows_stay_with_the_owner_when_they_become_errors_of_the_sweeper():
    def fail(error):
        raise error

    with pytest.raises(sweeper.InputError, match="cell 7") as refused:
        called_by_users()(fail)(DataError("cell 7"))
    assert isinstance(refused.value, sweeper.SweeperError)
    assert "cell 7" not in public_line(refused.value)
    with pytest.raises(sweeper.InputError) as refused:
        called_by_users()(fail)(DataError("cell 7", "cell 9"))
    assert refused.value.mistakes == ("cell 7", "cell 9")
    assert str(refused.value) == "2 mistakes:\n(1) cell 7\n(2) cell 9"
    for error in (ModelFileError("torn"), FederationError("cell 7")):
        with pytest.raises(sweeper.InputError):
            called_by_users()(fail)(error)
    for error in (DeclarationError("no name"), PlanError("no noise")):
        with pytest.raises(sweeper.SpecError):
            called_by_users()(fail)(error)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: sweeper.run(lambda _: 1),
            "got a function: Sweeper runs no training function of yours, see docs/own-tr",
        ),
        (lambda: sweeper.check(3), "Expected a spec: a mapping, the path of its YAML file or a sweeper.Spec; got int"),
        (lambda: sweeper.run({}, out="x"), r"run takes no out; give sweeper.Options\(out=...\)"),
        (lambda: sweeper.run({}, trials=4), 'give search.trials in the spec, {"search": {"trials": 4}}'),
        (lambda: sweeper.open({}, data_dir="x"), r"open takes no data_dir; give sweeper.Options\(data_dir=...\)"),
        (lambda: sweeper.extend("x"), "extend: missing a required argument: 'trials'; it takes sweep, trials, options"),
        (lambda: sweeper.Sweep("x").pick(min=0.4), 'pick takes no min; give minimum={"certified@0.25": 0.4}'),
        (lambda: sweeper.Sweep("x").pick(epsilon=3), "pick takes no epsilon; give max_epsilon=3"),
        (lambda: sweeper.predict("x", [], min=1), "predict takes no min; give minimum="),
        (lambda: sweeper.Sweep("x").front(max_epsilon=3), r"front takes no max_epsilon; it takes nothing$"),
        (lambda: sweeper.Sweep("x").pick(max_eps=3), r"pick takes no max_eps; did you mean 'max_epsilon'\?"),
    ],
)
def test_an_argument_that_no_function_takes_is_told_by_the_one_that_it_takes(call, said):
    with pytest.raises(sweeper.SweeperError, match=said):
        call()


def test_a_refusal_has_no_traceback_below_the_call_and_wrong_types_are_named(content):
    def fail(number: int | None = None) -> None:
        try:
            raise KeyError("inside")
        except KeyError as error:
            if number is not None:
                number + 1
            raise RecordError("a sentence") from error

    with pytest.raises(RecordError, match="a sentence") as refused:
        called_by_users()(fail)()
    assert [frame.name for frame in refused.traceback][1:] == ["call"]
    assert refused.value.__cause__ is None
    with pytest.raises(sweeper.ArgumentError, match="Expected an integer or None for number of fail, got str"):
        called_by_users()(fail)("three")
    with pytest.raises(sweeper.ArgumentError, match=r"Expected a sweeper\.Options or None for options of run, got str"):
        sweeper.run(content, "sweeps-out")


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
    assert sweeper.run(content) == "the sweep"
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
    display.display = lambda _content, **_: SimpleNamespace(update=lambda content, **_: shown.append(content))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def test_a_notebook_keeps_nothing_of_a_sweep_that_is_refused(content, notebook, monkeypatch):
    def refuse(_spec, _options):
        raise RecordError("not this one")

    monkeypatch.setattr(api.runner, "run", refuse)
    with pytest.raises(RecordError, match="not this one"):
        sweeper.run(content)
    assert notebook == [{"text/html": "", "text/plain": ""}]


def test_a_notebook_shows_progress_in_one_place(driven, content, notebook, capsys):
    assert api.in_notebook()
    sweeper.run(Spec.from_mapping(content))
    assert len(driven) == 1
    assert notebook[0]["text/html"].startswith("<pre>digits: it will cost epsilon 3.")
    for shown in notebook[-1].values():
        assert "1 of 4 trials done" in shown
        assert "it will cost epsilon 3." in shown
    assert capsys.readouterr().out == ""
