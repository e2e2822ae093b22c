"""The command line: what it prints, writes and refuses. Signals and runs of other kinds are in test_runner.py."""

import csv
import json
import resource
import shutil
from importlib import metadata

import pytest
import typer
import yaml

import clipless
from sweeper.backend.endings import RunResult
from sweeper.cli import main as main_module
from sweeper.cli.commands import running
from sweeper.cli.main import main
from sweeper.driver.finished import FinishedSweep
from sweeper.driver.options import Options
from sweeper.driver.reporting.alerts import Alerts
from sweeper.driver.reporting.progress import SweepProgress
from sweeper.errors import SpecError
from sweeper.program import program
from sweeper.results.front import read_front
from sweeper.results.sweep import load
from sweeper.rounding import round_up
from sweeper.specification.spec import Spec
from sweeper.store.sweep_folder import HIDDEN
from sweeper.tracking.outbox import Undelivered
from tests.factories import small_content

pytestmark = pytest.mark.slow

SPEC = small_content(training={"learning_rate": {"log": [0.01, 0.1]}}, search={"trials": 2})


@pytest.fixture
def spec_file(tmp_path):
    """Write a spec whose sections are changed, and return its path."""

    def write(**changes):
        content = {**SPEC, **{k: {**SPEC.get(k, {}), **v} if isinstance(v, dict) else v for k, v in changes.items()}}
        for section, keys in changes.items():
            if isinstance(keys, dict):
                content[section] = {k: v for k, v in content[section].items() if v is not ...}
        path = tmp_path / "small.yaml"
        path.write_text(yaml.safe_dump(content), encoding="utf-8")
        return path

    return write


def test_a_run_ends_well_and_says_where_to_look(ran):
    assert ran.code == 0
    assert "tiny: 3 of 3 trials done" in ran.said
    assert "Price: epsilon " in ran.said
    assert f"Report: {ran.folder / 'front.html'}" in ran.said
    assert f"Runs: {program('mlflow')} ui --backend-store-uri sqlite:///{ran.folder.parent / 'mlflow.db'}" in ran.said
    assert f"A model: {program()} pick {ran.folder}" in ran.said
    assert "xploratory" not in ran.said
    assert "Tracking:" not in ran.said
    assert "Warning" not in ran.said


def test_the_summary_names_a_command_that_picks_a_model(ran, call, tmp_path):
    (line,) = (line for line in ran.said.splitlines() if line.startswith("A model: "))
    code, out, _ = call(*line.removeprefix(f"A model: {program()} ").split(), "--output", tmp_path / "taken")
    assert code == 0
    assert out.startswith("tiny: t000")
    assert f'clipless.load("{tmp_path / "taken" / "model.safetensors"}")' in out
    assert sorted(p.name for p in (tmp_path / "taken").iterdir()) == [
        "SHA256SUMS",
        "card.json",
        "card.md",
        "config.json",
        "data.json",
        "ledger.jsonl",
        "model.safetensors",
        "spec.yaml",
    ]
    assert clipless.load(tmp_path / "taken" / "model.safetensors").input_shape == (1, 8, 8)


def test_list_shows_every_sweep_of_a_folder(ran, call):
    code, out, _ = call("list", ran.folder.parent)
    assert (code, out) == (0, call("list", "--out", ran.folder.parent)[1])
    assert f"{ran.folder}  completed" in out
    front = read_front(ran.folder / "front.json")
    price = round_up(front.price.epsilon)
    assert out.split()[-1] == price


def test_list_says_how_to_start_where_there_is_no_sweep(call, tmp_path):
    code, out, _ = call("list", "--out", tmp_path)
    assert code == 0
    assert out == f"No sweep in {tmp_path}; start one with: {program()} run SPEC --out {tmp_path}\n"


def test_a_sweep_that_could_not_be_written_ends_as_a_failure(ran, capsys):
    sweep = load(ran.folder)
    ended = FinishedSweep(
        sweep=sweep,
        front=sweep.front(),
        outcome=RunResult(),
        progress=SweepProgress(name="tiny", total=3, done=3),
        left=Undelivered(),
        look="",
        troubles=("Cannot write front.csv: No space left on device",),
        unwritten=("Cannot write front.csv: No space left on device",),
        failures={},
    )
    with pytest.raises(typer.Exit) as failed:
        running._drive(Options(), lambda _: ended, Alerts(None, "tiny"), "tiny", None)
    assert failed.value.exit_code == running.EXIT_UNWRITTEN
    said = f"Not all of {ran.folder} could be written: Cannot write front.csv: No space left on device\n"
    assert capsys.readouterr().err == said


def test_show_tells_front_trials_and_cost(ran, call):
    code, out, _ = call("show", ran.folder)
    assert code == 0
    assert "tiny: completed" in out
    assert "trials: 3 completed" in out
    assert out.count("Price: epsilon") == 1
    for point in read_front(ran.folder / "front.json").front_points:
        assert f"{point.values['accuracy']:.3f}" in out


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", ["html", "csv", "tex", "json"])
def test_front_writes_a_file_of_each_format(ran, call, tmp_path, suffix):
    path = tmp_path / f"mine.{suffix}"
    code, out, _ = call("front", ran.folder, "--format", suffix, "--output", path)
    assert (code, out) == (0, f"{path}\n")
    text = path.read_text(encoding="utf-8")
    if suffix == "json":
        assert json.loads(text) == json.loads((ran.folder / "front.json").read_text(encoding="utf-8"))
    elif suffix == "csv":
        rows = list(csv.DictReader(text.splitlines()))
        assert sum(not row["made_from"] for row in rows) == 6
        assert {row["trial"] for row in rows} == {"t0001", "t0002", "t0003"}
    elif suffix == "tex":
        price = read_front(ran.folder / "front.json").ledger["everything"]
        assert f"Price: epsilon {round_up(price.epsilon)} at delta" in text.split("\\label{tab:tiny}")[0]
        assert text.count(" & own epsilon & ") == 1
        assert "what pick takes" in text
    else:
        assert "<html" in text
        assert "tiny" in text


def test_pick_takes_conditions_on_every_objective(ran, call, tmp_path):
    code, out, _ = call(
        "pick", ran.folder, "--max-epsilon", 3, "--min", "certified@1/4=0.01", "--min", "accuracy=0.05", "-o", tmp_path
    )
    assert code == 0
    assert "## The price" in (tmp_path / "card.md").read_text(encoding="utf-8")
    assert len(out.splitlines()) <= 10  # the card stays in its file
    assert f"Privacy card: {tmp_path / 'card.md'}" in out
    assert "the majority-class baseline reaches" in out


@pytest.mark.long
def test_schema_is_json_with_every_section(call):
    code, out, _ = call("schema")
    assert code == 0
    assert {"data", "model", "training", "privacy", "search", "resources"} <= set(json.loads(out)["properties"])


def test_check_plans_and_trains_nothing(call, spec_file, tmp_path, monkeypatch):
    fit = clipless.fit

    def on_zeros(model, loss, data, plan, **options):
        assert not data.x.any(), "trained"
        return fit(model, loss, data, plan, **options)

    monkeypatch.setattr(clipless, "fit", on_zeros)
    path = spec_file(training={"epochs": 10}, search={"trials": 4})
    code, out, _ = call("check", path, "--configurations", 2)
    assert code == 0
    assert out.startswith("small: valid.\nPrice: about epsilon ")
    assert "Data: digits, N = 1276 training rows, evaluation public, unit row.\nSearch: 4 trials; " in out
    assert out.count("layers.2.weight") == out.count("layers.4.weight") == 2
    assert out.count("sensitivity") >= 2
    assert out.count("noise / gradient") == 2
    assert "on the way: epoch 1: " in out
    assert "Estimated on rows of zeros on this machine: " in out
    monkeypatch.setattr(clipless, "fit", lambda *_, **__: pytest.fail("measured"))
    assert "more: " not in out
    brief, whole = (call("check", path, "--no-estimate", *more)[1] for more in ((), ("--details",)))
    assert "Estimated" not in brief
    assert brief.endswith(f"more: {program()} check {path} --details\n")
    assert "noise / gradient" not in brief
    assert whole.count("noise / gradient") == 1
    assert whole.startswith(brief.partition("\nthen: ")[0])
    assert [p.name for p in tmp_path.iterdir()] == ["small.yaml"]


def test_data_are_listed_described_and_verified(call):
    code, out, _ = call("data", "list")
    assert code == 0
    assert {"digits", "breast_cancer", "mnist", "adult"} <= {line.split()[0] for line in out.splitlines()}
    code, out, _ = call("data", "fetch", "digits")
    assert code == 0
    assert out.startswith("digits: train 1276, validation 261, test 260; shape (1, 8, 8), 10 classes\n")
    assert "evaluation rows: public; privacy unit: row" in out
    code, out, _ = call("data", "verify", "digits")
    assert (code, out.splitlines()[-1]) == (0, "verified")


def test_a_ranges_file_is_printed_or_written(call, table, tmp_path):
    path = table("age,label\n1,a\n2,b\n")
    code, printed, _ = call("data", "ranges", path, "--target", "label")
    assert code == 0
    assert "age" in printed
    assert "???" in printed
    code, out, _ = call("data", "ranges", path, "--target", "label", "-o", tmp_path / "r.yaml")
    assert code == 0
    assert out.splitlines()[0] == f"{tmp_path / 'r.yaml'}: replace every ???"
    assert (tmp_path / "r.yaml").read_text(encoding="utf-8") == printed
    assert "unpaid" in call("data", "ranges", path, "--target", "label", "--from-data")[1]


def test_beside_a_ranges_file_stands_a_complete_spec(call, table, tmp_path):
    path, ranges = table("age,label\n1,a\n2,b\n"), tmp_path / "declared" / "r.yaml"
    ranges.parent.mkdir()
    spec = ranges.parent / f"{path.name.split('.')[0]}.yaml"
    code, out, _ = call("data", "ranges", path, "--target", "label", "-o", ranges)
    assert (code, out.splitlines()[-1]) == (0, f"then: {program()} check {spec}")
    read = Spec.from_yaml(spec)
    assert read.left_out
    assert (read.data.target, read.data.ranges, read.privacy.sweep_epsilon) == ("label", "r.yaml", 3)
    assert read.data_options()["source"].resolve() == path.resolve()
    before = ranges.read_bytes()
    code, out, said = call("data", "ranges", path, "-o", ranges)
    assert (code, ranges.read_bytes()) == (2, before)
    assert f"Expected no file {ranges}, which may be filled in (--output); remove it, or name another" in said
    ranges.unlink()
    spec.write_text("mine", encoding="utf-8")
    printed = call("data", "ranges", path, "-o", ranges)[1]
    assert f"{ranges}: replace every ???, that of the labels' column too: no --target names it\n" in printed
    assert f"{spec}: kept as it is" in printed
    assert spec.read_text(encoding="utf-8") == "mine"


def test_a_spec_goes_where_it_is_asked_for_and_never_over_its_ranges_file(call, table, tmp_path):
    path = table("age,label\n1,a\n2,b\n")
    stem, other = path.name.split(".")[0], tmp_path / "other.yaml"
    assert call("data", "ranges", path, "-o", tmp_path / "a.yaml", "--spec", other)[0] == 0
    assert Spec.from_yaml(other).data.target is None
    same = tmp_path / f"{stem}.yaml"
    assert f"{tmp_path / f'{stem}.sweep.yaml'}: a complete spec" in call("data", "ranges", path, "-o", same)[1]
    assert "Expected --output beside --spec" in call("data", "ranges", path, "--spec", other)[2]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"training": {"learnign_rate": 0.1}}, "Unknown key 'learnign_rate'"),
        ({"privacy": {"delta": 0.01}}, "write 1e-05, or leave it out"),
        ({"training": {"batch_size": 5000}}, "Expected batch_size <= N = 1276"),
        ({"model": {"architecture": "convnet", "depth": 6}}, "Expected (C, H, W) maps of at least 64"),
        ({"data": {"name": "mnist"}}, "--data-dir"),
    ],
)
def test_a_mistake_in_a_spec_is_one_sentence(refusal, spec_file, tmp_path, changes, sentence):
    path = spec_file(**changes)
    for command in (("check", path), ("run", path, "--out", tmp_path / "out")):
        assert sentence in refusal(*command, "--data-dir", tmp_path)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def table(tmp_path):
    """Write a table of one's own and return its path."""

    def write(text, name="mine.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


RANGES = """\
source: by hand
columns: {age: {low: 0, high: 100}}
"""
AGES = "".join(f"{n},{'yes' if n % 2 else 'no'}\n" for n in range(60))


@pytest.mark.parametrize(
    ("rows", "changes", "sentence"),
    [
        ("age,left\n1,\n2,no\n" + AGES, {}, "The label in row 1 is missing"),
        ("age,left\n1,maybe\n" + AGES, {}, "Unknown label: 'maybe'"),
        ("age,left\n" + AGES, {"path": "nowhere.csv"}, "No such file"),
        ("age,left\n" + AGES, {"path": "broken.parquet"}, "broken.parquet"),
        ("age,left\nold,no\n" + AGES, {}, "Expected a number, got 'old' in row 1"),
    ],
)
def test_a_mistake_in_a_table_of_ones_own_is_one_sentence(refusal, spec_file, table, rows, changes, sentence):
    table(rows)
    table(RANGES, "ranges.yaml")
    table("not a parquet file", "broken.parquet")
    own = {"name": ..., "path": "mine.csv", "ranges": "ranges.yaml", "target": "left", "evaluation": "exploratory"}
    data = own | {"classes": ["no", "yes"]} | changes
    path = spec_file(data=data, privacy={"delta": 1e-3}, training={"batch_size": 16})
    assert sentence in refusal("check", path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "nowhere.yaml"], "Cannot read nowhere.yaml: No such file or directory"),
        (["show", "."], "Expected the folder of a sweep, but there is no sweep.json"),
        (["pick", "nowhere"], "Expected the folder of a sweep, but there is no nowhere; "),
        (["data", "verify", "mnist", "--data-dir", "nowhere"], "Expected a folder, got nowhere"),
        (["data", "ranges", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(refusal, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    assert sentence in refusal(*arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["front", "--format", "bmp"], "Expected a format out of html, png, svg, pdf, csv, tex, json, got 'bmp'"),
        (["front", "-o", "/proc/nowhere/front.csv"], "/proc/nowhere/front.csv"),
        (["pick", "--max-epsilon", "0.001"], "No point of the front has own epsilon <= 0.001; the nearest is trial t"),
        (["pick", "--min", "accuracy"], "Expected OBJECTIVE=NUMBER such as certified@36/255=0.3, got 'accuracy'"),
        (["pick", "-o", "/proc/nowhere"], "choose another with --output"),
        (["replay"], "tracking-spool.jsonl"),
    ],
)
def test_what_a_sweep_cannot_answer_is_one_sentence(ran, refusal, arguments, sentence):
    command, *more = arguments
    assert sentence in refusal(command, ran.folder, *more)


@pytest.mark.parametrize("arguments", [["run"], ["run", "x.yaml", "--nope"], ["nope"], ["check", "x", "--trials", "1"]])
def test_a_mistake_in_usage_ends_with_the_same_code(call, arguments):
    code, _, err = call(*arguments)
    assert code == 2
    assert "Traceback" not in err


def test_the_version_is_printed(call):
    code, out, _ = call("--version")
    assert (code, out) == (0, f"sweeper {metadata.version('sweeper')}\n")


def test_commands_stand_under_headings_and_options_under_theirs(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    code, out, _ = call("--help")
    assert code == 0
    found = [out.index(panel) for panel in main_module._PANELS.values()]
    assert found == sorted(found)
    assert out.index("Run a sweep") < out.index(" extend ") < out.index("Before a run") < out.index(" check ")
    assert "Completion" in out or "--install-completion" in out
    run = call("run", "--help")[1]
    assert run.index("Alerts") < run.index("--webhook")
    assert "json|slack|teams" in run
    assert "html|png|svg|pdf|csv|tex|json" in call("front", "--help")[1]
    assert "read|write" in call("token", "--help")[1]


@pytest.fixture
def completions(monkeypatch, capfd):
    """What a shell is told that completes the last word."""

    def completions(words):
        monkeypatch.setenv("_SWEEPER_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        with pytest.raises(SystemExit):
            main([])
        return capfd.readouterr().out.split()

    return completions


def test_commands_choices_and_trials_are_completed(ran, completions):
    assert completions("sweeper re") == ["resume", "register", "replay"]
    assert completions("sweeper front x --format p") == ["png", "pdf"]
    assert "robustness" in completions("sweeper front x --figure r")
    assert completions(f"sweeper log {ran.folder} t000") == ["t0001", "t0002", "t0003"]


def test_candidates_of_a_private_selection_are_not_completed(ran, completions, tmp_path):
    """The last one is their number, which is secret until it has ended."""
    hidden = shutil.copytree(ran.folder, tmp_path / f"{HIDDEN}t")
    assert completions(f"sweeper log {hidden} t") == []
    assert completions(f"sweeper note {hidden} ") == []


def test_several_mistakes_are_a_line_each(call, spec_file):
    path = spec_file(training={"epochs": "many", "batch_size": -1}, search={"trails": 3})
    code, out, err = call("check", path)
    assert (code, out) == (2, "")
    first, *lines = err.splitlines()
    assert first == "sweeper: 3 mistakes:"
    assert len(lines) == 3
    assert lines[0].startswith("  Unknown key 'trails'")


def test_several_mistakes_of_a_ranges_file_are_a_line_each_too(call, spec_file, tmp_path):
    (tmp_path / "people.csv").write_text("age,ill\n1,no\n", encoding="utf-8")
    (tmp_path / "r.yaml").write_text("columns: {age: {low: 2, high: 1}}\nunit: true\n", encoding="utf-8")
    code, out, err = call("check", spec_file(data={"name": ..., "path": "people.csv", "ranges": "r.yaml"}))
    assert (code, out) == (2, "")
    first, *lines = err.splitlines()
    assert first == "sweeper: 3 mistakes:"
    assert [line.rpartition("(")[2] for line in lines] == [
        "source in r.yaml)",
        "columns.age in r.yaml)",
        "unit in r.yaml)",
    ]


def test_what_is_set_on_the_command_line_is_checked_like_the_spec(refusal, spec_file):
    path = spec_file()
    assert "did you mean 'epochs'?" in refusal("run", path, "--set", "training.epoch=3")
    for odd in ("training.epochs", " =5", '"training.epochs"=5', "training.epochs=5\ntraining.copies: 2"):
        assert "Expected NAME=VALUE" in refusal("run", path, "--set", odd)
    said = refusal("run", path, "--set", "training.batch_size=5000")
    assert "Expected batch_size <= N = 1276" in said
    assert said.count("(--set training.batch_size=5000)") == 1
    assert "No such file: nowhere.csv (--set data.path=nowhere.csv)" in refusal(
        "check", path, "--set", "data.name=null", "--set", "data.path=nowhere.csv", "--set", "data.target=y"
    )


def test_a_check_takes_the_values_of_a_run_and_names_them_for_it(call, spec_file):
    code, out, _ = call("check", spec_file(), "--no-estimate", "--set", "search.trials=7", "--set", "name=ab")
    assert code == 0
    assert out.startswith("ab: valid.")
    assert "Search: 7 trials" in out
    assert out.endswith("small.yaml --set search.trials=7 --set name=ab --details\n")
    assert out.count("small.yaml --set search.trials=7 --set name=ab\n") == 1


@pytest.mark.parametrize("before", [True, False])
def test_debug_shows_the_traceback_wherever_it_stands(before):
    command = ["check", "nowhere.yaml"]
    with pytest.raises(SpecError, match="nowhere"):
        main(["--debug", *command] if before else [*command, "--debug"])


def test_an_error_that_nobody_expected_is_one_sentence_too(refusal, spec_file, monkeypatch):
    def surprise(*_, **__):
        raise ZeroDivisionError("no\nway")

    monkeypatch.setattr(clipless.datasets, "load", surprise)
    said = refusal("check", spec_file())
    assert said == "unexpected ZeroDivisionError: no way; --debug shows where it came from"


def test_a_disk_that_takes_nothing_ends_a_run_before_it_begins(capsys, spec_file, tmp_path):
    path = spec_file()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(SystemExit) as ended:
            main(["run", str(path), "--out", str(tmp_path / "out")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert ended.value.code == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith(f"sweeper: Cannot write {tmp_path / 'out'}")
    assert sentence.endswith("driver.json: File too large; free space or check permissions")
    assert list((tmp_path / "out").iterdir()) == []
