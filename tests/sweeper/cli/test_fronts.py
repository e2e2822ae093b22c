"""The commands that draw: figures of a sweep, and sweeps side by side."""

import csv
import json
import re
import shutil

import pytest

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


def test_one_figure_of_a_sweep_is_a_file_of_its_own(ran, answer, tmp_path):
    path = tmp_path / "steps.csv"
    assert answer("front", ran.folder, "--figure", "front", "-o", path) == f"{path}\n"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    points = json.loads((ran.folder / "front.json").read_text(encoding="utf-8"))["points"]
    assert {row["trial"] for row in rows} == {point["trial"] for point in points}


def test_an_unknown_figure_is_one_sentence(ran, refusal, tmp_path):
    said = refusal("front", ran.folder, "--figure", "pie", "-o", tmp_path / "pie.html")
    assert "Expected the name of a figure, got 'pie'; choose one of front, " in said
    assert "stages" not in said  # one that has nothing to say is not offered
    said = refusal("front", ran.folder, "--figure", "robustnes", "-o", tmp_path / "pie.html")
    assert "Expected the name of a figure, got 'robustnes'; did you mean 'robustness'?" in said
    assert "did you mean 'configurations'?" in refusal("front", ran.folder, "--figure", "parallel")
    assert not (tmp_path / "pie.html").exists()


def test_the_names_of_figures_are_printed_and_the_help_says_how(ran, answer, call):
    _, names, others = call("front", ran.folder, "--figure", "list")
    others = others.partition("Nothing to show here:\n")[2]
    needs = dict(line.strip().split(": needs ") for line in others.splitlines())
    assert {*names.split(), *needs} == set(exporters.figure_names())
    assert "front" in names.split()
    assert needs["stages"] == "a budget of two stages with 4 trials"
    assert "`list`" in answer("front", "--help")


def test_names_of_compared_figures_are_printed_and_a_figure_without_a_file_is_refused(ran, other, call, refusal):
    for more in ((), ("-o", "both.png")):
        code, names, lacking = call("compare", ran.folder, other, "--figure", "list", *more)
        assert (code, names) == (0, "fronts\ncertified-fronts\nhypervolumes\n"), "a pipe reads names alone"
        assert "Nothing to show here:\n  attainment: needs " in lacking
    sentence = "Expected --output for a figure of several sweeps, got none: name the file to write"
    assert sentence in refusal("compare", ran.folder, other, "--figure", "fronts")


def test_a_folder_without_a_sweep_is_named(refusal, tmp_path):
    said = refusal("show", tmp_path)
    assert f"Expected the folder of a sweep, but there is no {tmp_path / 'sweep.json'}; sweeper list shows" in said


def test_a_figure_with_nothing_to_show_and_a_size_of_no_picture_are_one_sentence_each(ran, other, refusal, tmp_path):
    sentence = "Expected a budget of two stages with 4 trials for the figure stages, found none; choose one of front, "
    assert sentence in refusal("front", ran.folder, "--figure", "stages", "-o", tmp_path / "stages.csv")
    sentence = "Expected one of png, svg, pdf for a picture of a size, got html: change --output"
    assert sentence in refusal("front", ran.folder, "--preset", "column", "-o", tmp_path / "front.html")
    assert sentence in refusal("front", ran.folder, "--caption", "-o", tmp_path / "front.html")
    sentence = "Expected a preset out of column, page, got 'poster'; name one of them"
    assert sentence in refusal("front", ran.folder, "--preset", "poster", "-o", tmp_path / "front.png")
    sentence = "Expected --output for a picture of a size, got none: name a png, svg or pdf"
    assert sentence in refusal("compare", ran.folder, other, "--no-title")
    assert not list(tmp_path.glob("front.*"))


@pytest.mark.long
def test_a_picture_of_a_size_is_one_without_a_name_too(ran, answer):
    assert answer("front", ran.folder, "--figure", "price", "--preset", "column").strip().endswith("price.png")


def test_a_comparison_that_cannot_be_drawn_prints_no_table_before_it_says_so(ran, other, refusal):
    said = refusal("compare", ran.folder, other, "--figure", "attainment", "-o", "both.png")
    assert "Expected two sweeps of one name for the figure attainment" in said


def test_sweeps_are_compared_and_written(ran, other, answer, refusal, tmp_path):
    page = tmp_path / "both.html"
    shown = answer("compare", ran.folder, other, "-o", page)
    assert re.search(r"hypervolume of tiny \(price: epsilon [\d.]+\) minus worse \(price: epsilon [\d.]+\): \+", shown)
    assert "no confidence can be given" in shown
    assert shown.splitlines()[-1] == str(page)
    assert "Comparison of sweeps" in page.read_text(encoding="utf-8")
    wide, narrow = (
        float(answer("compare", ran.folder, other, *more).split("): +")[1].split()[0])
        for more in ((), ("--reference", "epsilon=4", "--linear-epsilon"))
    )
    assert wide != narrow
    sentence = "Expected OBJECTIVE=NUMBER such as epsilon=10, got 'epsilon=many' (--reference)"
    assert sentence in refusal("compare", ran.folder, other, "--reference", "epsilon=many")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Expected at least two different sweeps, got 1"),
        (("nowhere",), "Expected the folder of a sweep, but there is no nowhere"),
    ],
)
def test_what_cannot_be_compared_is_one_sentence(ran, refusal, arguments, sentence):
    assert sentence in refusal("compare", ran.folder, *arguments)


def test_other_data_is_refused_unless_asked_for(ran, other, answer, refusal):
    content = json.loads((other / "front.json").read_text(encoding="utf-8"))
    content["claim"]["data"] = "mnist"
    (other / "front.json").write_text(json.dumps(content), encoding="utf-8")
    assert "Expected sweeps of the same data, got digits with" in refusal("compare", ran.folder, other)
    assert "not comparable: Expected sweeps of the same data" in answer("compare", ran.folder, other, "--anyway")


def test_without_an_exporter_there_is_a_sentence(monkeypatch):
    monkeypatch.setattr(exporters, "entry_points", lambda **_: ())
    with pytest.raises(SweeperError, match="Expected an exporter of front, found none; install"):
        exporter("front")


@pytest.mark.long
def test_a_figure_takes_the_place_of_no_file_that_the_sweep_keeps(ran, answer, refusal, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(ran.folder, folder)
    kept = {name: (folder / name).read_bytes() for name in ("front.json", "front.csv", "front.html", "sweep.json")}
    for format_ in ("json", "csv", "html"):
        said = answer("front", folder, "--figure", "front", "--format", format_)
        assert said.strip() == str(folder / "figures" / f"front.{format_}")
    for name in kept:
        assert "which the sweep in its folder keeps" in refusal(
            "front", folder, "--figure", "front", "-o", folder / name
        )
    assert {name: (folder / name).read_bytes() for name in kept} == kept
