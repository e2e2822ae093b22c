"""The commands that draw: figures of a sweep, and sweeps side by side."""

import csv
import json

import pytest

from sweeper.cli.main import main
from sweeper.errors import SweeperError
from sweeper.results import exporters
from sweeper.results.exporters import exporter


@pytest.fixture
def other(ran, tmp_path):
    """A second sweep: the same one under another name and with less accuracy."""
    folder = tmp_path / "other"
    folder.mkdir()
    for name in ("sweep.json", "front.json"):
        (folder / name).write_bytes((ran.folder / name).read_bytes())
    content = json.loads((folder / "front.json").read_text(encoding="utf-8"))
    content["sweep"] = "worse"
    for point in content["points"]:
        point["values"]["accuracy"] /= 2
    (folder / "front.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.fixture
def end(capsys):
    """Run a command; return its exit code, standard output and standard error."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return run


@pytest.fixture
def call(end):
    """Run a command that must end well; return what it says."""

    def run(*arguments):
        code, out, err = end(*arguments)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def refusal(end):
    """Run a command that must be refused; return the one sentence it says."""

    def run(*arguments):
        code, out, err = end(*arguments)
        assert (code, out) == (2, "")
        (sentence,) = err.splitlines()
        return sentence

    return run


def test_one_figure_of_a_sweep_is_a_file_of_its_own(ran, call, tmp_path):
    path = tmp_path / "steps.csv"
    assert call("front", ran.folder, "--figure", "hypervolume", "-o", path) == f"{path}\n"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert [row["trials"] for row in rows] == ["1", "2", "3"]


def test_an_unknown_figure_is_one_sentence(ran, refusal, tmp_path):
    assert "Expected a figure out of front, " in refusal(
        "front", ran.folder, "--figure", "pie", "-o", tmp_path / "pie.html"
    )
    assert not (tmp_path / "pie.html").exists()


def test_sweeps_are_compared_and_written(ran, other, call, tmp_path):
    page = tmp_path / "both.html"
    shown = call("compare", ran.folder, other, "-o", page)
    assert "hypervolume of tiny minus worse: +" in shown
    assert "no confidence can be given" in shown
    assert shown.splitlines()[-1] == str(page)
    assert "Comparison of sweeps" in page.read_text(encoding="utf-8")
    wide, narrow = (
        float(call("compare", ran.folder, other, *more).split("minus worse: +")[1].split()[0])
        for more in ((), ("--reference", "epsilon=4", "--linear-epsilon"))
    )
    assert wide != narrow


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Expected at least two different sweeps, got 1"),
        (("nowhere",), "Cannot read nowhere/sweep.json"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(ran, refusal, arguments, sentence):
    assert sentence in refusal("compare", ran.folder, *arguments)


@pytest.mark.parametrize(
    ("reference", "sentence"),
    [
        ("auroc=1", "Expected a reference for one of epsilon, accuracy, certified@0.25, got 'auroc'"),
        ("epsilon=many", "Expected OBJECTIVE=NUMBER such as epsilon=10, got 'epsilon=many' (--reference)"),
    ],
)
def test_a_reference_that_is_none_is_one_sentence(ran, other, refusal, reference, sentence):
    assert sentence in refusal("compare", ran.folder, other, "--reference", reference)


def test_other_data_is_refused_unless_asked_for(ran, other, call, refusal):
    content = json.loads((other / "front.json").read_text(encoding="utf-8"))
    content["claim"]["data"] = "mnist"
    (other / "front.json").write_text(json.dumps(content), encoding="utf-8")
    assert "Expected sweeps of the same data, got digits with" in refusal("compare", ran.folder, other)
    assert "not comparable: Expected sweeps of the same data" in call("compare", ran.folder, other, "--anyway")


def test_without_an_exporter_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr(exporters, "entry_points", lambda **_: ())
    with pytest.raises(SweeperError, match="Expected an exporter of front, found none; install"):
        exporter("front")
