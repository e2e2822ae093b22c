"""Commands as an extension point, and what reading costs: no command imports more than it needs."""

import sys

import pytest
import typer
from typer.testing import CliRunner

from sweeper.cli import commands, main, usage

from .conftest import PRICES, TRAINS

COMMAND = '''
import typer

app = typer.Typer()


@app.command()
def hello(name: str) -> None:
    """Greet somebody."""
    typer.echo(f"hello {name}")
'''


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], "Usage"),
        (["run", "--help"], "--webhook"),
        (["schema"], '"training"'),
        (["data", "list"], "breast_cancer"),
    ],
)
def test_what_only_tells_something_imports_nothing_that_trains(imported, arguments, expected):
    said, modules = imported(*arguments)
    assert expected in said
    assert TRAINS & modules == set()


@pytest.mark.long
def test_submit_imports_nothing_that_trains(imported, tmp_path):
    spec = tmp_path / "small.yaml"
    spec.write_text("name: small\n", encoding="utf-8")
    _, modules = imported("submit", spec, "--url", "ftp://nowhere", code=2)
    assert "sweeper" in modules
    assert TRAINS & modules == set()
    _, modules = imported("submit", tmp_path / "none.yaml", code=2)
    assert TRAINS & modules == set()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("command", ["check", "run"])
@pytest.mark.parametrize(
    "text",
    [
        "name: x\ndata: {name: digits}\nprivcy: {sweep_epsilon: 3}\n",
        "name: x\ndata: {name: digts}\nprivacy: {sweep_epsilon: 3}\n",
        "name: x\ndata: {path: none.csv, ranges: none.yaml}\nprivacy: {sweep_epsilon: 3}\n",
        None,
    ],
)
def test_a_mistake_that_the_spec_shows_waits_for_nothing_that_trains(imported, tmp_path, command, text):
    spec = tmp_path / "small.yaml"
    if text is not None:
        spec.write_text(text, encoding="utf-8")
    _, modules = imported(command, spec, code=2)
    assert (TRAINS | PRICES | {"pyarrow", "pandas", "sqlalchemy", "plotly"}) & modules == set()


@pytest.mark.long
def test_reading_a_sweep_waits_for_nothing_that_trains(imported, ran, tmp_path):
    for arguments in (["list", ran.folder.parent], ["show", ran.folder], ["pick", tmp_path / "none"]):
        _, modules = imported(*arguments, code=2 * (arguments[0] == "pick"))
        assert (TRAINS | PRICES | {"pyarrow", "sqlalchemy", "plotly"}) & modules == set(), arguments
    _, modules = imported("front", ran.folder, "--format", "csv", "-o", tmp_path / "front.csv")
    assert (TRAINS | {"dp_accounting"}) & modules == set()
    _, modules = imported("pick", ran.folder, "-o", tmp_path / "picked")  # whose card has prices
    assert (TRAINS | {"pyarrow", "sqlalchemy", "plotly"}) & modules == set()


def test_help_waits_for_nothing_but_the_command_line(imported):
    _, modules = imported("--help")
    assert {"numpy", "pydantic", "yaml", "pandas"} & modules == set()


def test_a_new_module_is_a_new_command(tmp_path, monkeypatch):
    (tmp_path / "hello.py").write_text(COMMAND, encoding="utf-8")
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    app = typer.Typer()
    for group in main.groups():
        app.add_typer(group)
    monkeypatch.delitem(sys.modules, "sweeper.cli.commands.hello")
    assert "Greet somebody." in CliRunner().invoke(app, ["--help"]).output
    assert CliRunner().invoke(app, ["hello", "Ada"]).output == "hello Ada\n"


def test_every_module_holds_commands_and_none_has_two_of_one_name():
    groups = list(main.groups())
    assert all(isinstance(group, typer.Typer) for group in groups)
    top = [_name(command) for group in groups if not group.info.name for command in group.registered_commands]
    assert len(top) == len(set(top)) > 20


def test_the_order_of_the_help_text_names_modules_that_exist():
    assert {f"{commands.__name__}.{name}" for name in main._PANELS} <= set(sys.modules)


def _name(command):
    return command.name or command.callback.__name__


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["export"], "Unknown command 'export' of sweeper; use sweeper front SWEEP --format csv"),
        (["raport"], "Unknown command 'raport' of sweeper; use sweeper front SWEEP --format html"),
        (["picc", "x"], "Unknown command 'picc' of sweeper; did you mean 'pick'?"),
        (["data", "lst"], "Unknown command 'lst' of sweeper data; did you mean 'list'?"),
        (["check", "--data-dri", "x"], "Unknown option '--data-dri' of sweeper check; did you mean '--data-dir'?"),
        (["check"], "Expected a value for SPEC, got none (sweeper check); add it: the spec, a YAML file"),
        (
            ["run", "a.yaml", "--trials", "abc"],
            "Expected an integer, got 'abc' (--trials of sweeper run); write it in digits, such as --trials 2",
        ),
        (["check", "a.yaml", "--configurations", 0], "Expected --configurations >= 1, got '0' "),
        (["pick", "x", "--max-price", "abc"], "Expected a number, got 'abc' (--max-price of sweeper pick); "),
        (["list", "none.yaml"], "Expected a folder of sweeps, but none.yaml is none; give its path"),
        (["pick", "x", "--max-price", -1], "Expected --max-price >= 0, got '-1' "),
        (["check", "a", "b"], "unexpected extra argument"),
        (["run", "a.yaml", "--trials"], "Option '--trials' requires an argument; "),
    ],
)
def test_what_the_parser_refuses_is_one_sentence_like_any_other(refusal, arguments, sentence):
    assert sentence in refusal(*arguments)


def test_synonyms_name_commands_that_exist_and_are_none_themselves():
    names = {_name(command) for group in main.groups() if not group.info.name for command in group.registered_commands}
    groups = {group.info.name for group in main.groups() if group.info.name}
    assert {text.split()[0] for text in usage.SYNONYMS.values()} <= names | groups | {"--help"}
    assert not set(usage.SYNONYMS) & (names | groups)


def test_no_command_shows_the_help(call):
    code, out, err = call()
    assert (code, err) == (2, "")
    assert "Usage: sweeper" in out
