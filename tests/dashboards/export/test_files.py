import csv
import io
import json
import os
import re
import struct
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from choreographer.channels.pipe import Pipe
from PIL import Image

from dashboards import commands
from dashboards.export import pictures
from dashboards.export.files import export_front
from dashboards.export.pictures import find_browser
from dashboards.figures import DARK, sweep_figures
from sweeper.errors import EmptyFigureError, ExportError, RecordError
from sweeper.results.exporters import Paper
from sweeper.results.front import read_front


def test_csv_has_one_line_per_point_and_says_which_are_on_the_front(sweep, tmp_path):
    path = export_front(sweep, tmp_path / "deep" / "front.csv")
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    assert len(rows) == len(sweep.points)
    assert {
        (r["trial"], int(r["epoch"]), r["made_from"]) for r in rows if r["on_front"] == "True"
    } == sweep.result.on_front


def test_json_reads_back_as_the_same_result(sweep, tmp_path):
    path = export_front(sweep, tmp_path / "front.json")
    assert read_front(path) == sweep.result


@pytest.mark.long
def test_the_command_line_finds_the_exporter_and_the_exporter_its_format(make_front, load):
    folder = Path(load(make_front()).directory)
    (exporter,) = entry_points(group="sweeper.exporters", name="front")
    assert exporter.load() is commands.export
    assert commands.export(folder, folder / "front.html").read_text().startswith("<!DOCTYPE html>")
    assert commands.export(folder, folder / "front.csv").read_text().startswith("trial,epoch,")
    assert commands.export(folder, folder / "r.csv", "robustness").read_text().startswith("name,radius,")
    assert not list(folder.glob("*.partial"))


@pytest.mark.parametrize("name", ["front.docx", "front"])
def test_an_unknown_format_is_refused(sweep, tmp_path, name):
    with pytest.raises(ExportError, match="Expected a format out of html, png, svg, pdf, csv, tex, json"):
        export_front(sweep, tmp_path / name)


@pytest.mark.parametrize("name", ["rows.csv", "spec.json"])
def test_an_export_replaces_no_table_of_something_else(sweep, tmp_path, name):
    path = tmp_path / name
    path.write_text("id,age,label\n" if name == "rows.csv" else '{"data": {}, "privacy": {}}')
    before = path.read_bytes()
    with pytest.raises(RecordError, match=r"or an earlier version of what is written, got .* with .*name another"):
        export_front(sweep, path)
    assert path.read_bytes() == before
    path.unlink()
    for _ in range(2):
        export_front(sweep, path)


def test_an_unknown_figure_is_refused(sweep, tmp_path):
    for suffix in ("png", "html", "csv"):
        with pytest.raises(ExportError, match=r"got 'pie'; choose one of front, .*, workers, "):
            export_front(sweep, tmp_path / f"front.{suffix}", figure="pie")


def test_the_numbers_of_a_figure_are_a_table(sweep, tmp_path):
    text = export_front(sweep, tmp_path / "h.csv", figure="hypervolume").read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [int(row["trials"]) for row in rows] == list(range(1, 25))
    content = json.loads(export_front(sweep, tmp_path / "h.json", figure="hypervolume").read_text())
    assert content["figure"] == "hypervolume"
    assert [row["hypervolume"] for row in content["rows"]] == [float(row["hypervolume"]) for row in rows]


def test_a_table_for_latex_has_the_front_and_what_it_costs(sweep, tmp_path):
    text = export_front(sweep, tmp_path / "f.tex").read_text()
    rows = [line.strip() for line in text.splitlines() if line.strip().startswith("t0")]
    assert len(rows) >= 8
    cells = {row.count(" & ") for row in rows}
    assert cells == {text.split("{tabular}{")[1].split("}")[0].count("l") - 1}
    assert re.search(r"\\caption\{digits: \d+ of \d+ points on the front, of \d+\. .*Price: epsilon .*\}\n", text)
    with pytest.raises(ExportError, match="Expected no figure for tex, got slices: leave out --figure, or choose csv"):
        export_front(sweep, tmp_path / "s.tex", figure="slices")
    assert [one.name for one in tmp_path.iterdir()] == ["f.tex"]


def test_one_figure_is_a_page_of_its_own(sweep, tmp_path):
    page = export_front(sweep, tmp_path / "t.html", figure="trajectories").read_text()
    assert 'id="plot-trajectories"' in page
    assert 'id="plot-front"' not in page
    assert "<title>digits: trajectories of the trials</title>" in page


@pytest.mark.sampled(2)
@pytest.mark.parametrize("suffix", ["csv", "png"])
def test_a_figure_with_nothing_to_show_is_refused_with_what_it_needs(small, tmp_path, suffix):
    for name, kind in sweep_figures().items():
        with pytest.raises(EmptyFigureError) as caught:
            export_front(small([]), tmp_path / f"front.{suffix}", figure=name)
        said = f"Expected {kind.needs} for the figure {name}, found none; no figure has anything to show yet"
        assert str(caught.value) == said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["csv", "json", "html"])
def test_what_is_no_picture_has_no_size(sweep, tmp_path, suffix):
    said = f"^Expected one of png, svg, pdf for a picture of a size, got {suffix}: change --output$"
    with pytest.raises(ExportError, match=said):
        export_front(sweep, tmp_path / f"front.{suffix}", figure="front", paper=Paper(width=85.0, font=8.0))


def test_a_place_that_cannot_be_written_is_refused_and_nothing_is_left(sweep, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match=r"Expected to write .*choose another place"):
        export_front(sweep, tmp_path / "file" / "front.csv")
    (tmp_path / "front.csv").mkdir()
    with pytest.raises(ExportError, match="Expected to write"):
        export_front(sweep, tmp_path / "front.csv")
    assert not list(tmp_path.glob("*.partial"))


def test_without_a_browser_an_image_is_refused_with_a_remedy(sweep, tmp_path, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "nowhere"))
    assert find_browser() is None
    with pytest.raises(ExportError, match=r"found none: install Chromium .*BROWSER_PATH") as caught:
        export_front(sweep, tmp_path / "front.png")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_browser_that_fails_is_reported_in_one_line(sweep, tmp_path, monkeypatch):
    def fail(*_args, **_kwargs):
        raise RuntimeError("The browser closed.", "more")

    monkeypatch.setattr(pictures.kaleido, "calc_fig_sync", fail)
    with pytest.raises(ExportError, match=r"it failed \(The browser closed\): install Chromium"):
        export_front(sweep, tmp_path / "front.svg")


def test_the_end_of_a_browser_is_no_traceback(caplog):
    pipe = Pipe()
    pipe.open()
    os.write(pipe.from_external_to_choreo, b'{"id": 1}\0{bye}\n\0')
    answers, _ = pipe.read_jsons()
    assert answers == [{"id": 1}]
    assert not caplog.records
    pipe.close()


@pytest.mark.chromium
@pytest.mark.parametrize(
    ("suffix", "figure", "start"),
    [
        ("png", "front", b"\x89PNG"),
        pytest.param("svg", "front", b"<svg", marks=pytest.mark.long),
        pytest.param("pdf", "front", b"%PDF", marks=pytest.mark.long),
    ],
)
def test_images_are_drawn_by_the_browser(sweep, tmp_path, suffix, figure, start):
    content = export_front(sweep, tmp_path / f"front.{suffix}", figure=figure, theme=DARK).read_bytes()
    assert content.startswith(start)
    if suffix == "png":
        assert struct.unpack(">II", content[16:24]) == (2000, 1120)
        size = content.index(b"pHYs") + 4
        assert struct.unpack(">IIB", content[size : size + 9]) == (7559, 7559, 1)  # dots per metre: 192 per inch
        with Image.open(io.BytesIO(content)) as picture:
            picture.load()  # whole, with the check sums of its parts
    if suffix == "svg":
        assert b"own epsilon (fixed in advance, log), delta = 1e-4" in content


@pytest.mark.chromium
def test_the_file_that_a_figure_writes_is_that_of_the_command(make_front, load):
    folder = Path(load(make_front()).directory)
    paper = Paper.of("column", None, None, title=False)
    written = commands.export(folder, folder / "command.png", "price", paper=paper)
    commands.draw(folder, "price", paper).write_image(folder / "python.png")
    assert (folder / "python.png").read_bytes() == written.read_bytes()
