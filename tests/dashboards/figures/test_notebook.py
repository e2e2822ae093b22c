"""A figure in Python: pictures of it have room for their legend, or the size of a paper."""

import io
from pathlib import Path

import plotly.graph_objects as go
import pytest
from PIL import Image

from dashboards.figures import NotebookFigure

NAMES = [f"what the line of number {i} is" for i in range(6)]
TITLE = "a front of which the title is longer than a small picture is wide"


@pytest.fixture
def figure():
    lines = [go.Scatter(y=[1, 2], name=name) for name in NAMES]
    return NotebookFigure(data=lines, layout={"title": {"text": TITLE}, "height": 400})


@pytest.fixture
def png():
    """A picture as Plotly draws it."""
    Image.new("1", (1, 1)).save(file := io.BytesIO(), "png")
    return file.getvalue()


@pytest.fixture
def pictures(monkeypatch, tmp_path, png):
    """What Plotly is asked to draw: the figure, and its options."""
    asked = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(go.Figure, "to_image", lambda shown, *_, **options: asked.append((shown, options)) or png)
    monkeypatch.setattr(go.Figure, "write_image", lambda shown, *_, **options: asked.append((shown, options)))
    return asked


def test_a_picture_has_room_for_the_rows_of_its_legend_at_its_width(figure, pictures):
    figure.to_image(width=2000)
    figure.write_image("small.png", width=400)
    figure.update_layout(width=500).write_image("medium.png")
    wide, small, medium = (shown.layout for shown, _ in pictures)
    assert wide.margin.t is None
    assert (small.margin.t, small.height) == (64 + 5 * 19 + 23, 400 + 5 * 19 + 23)
    assert small.title.text.count("<br>") == 1
    assert medium.margin.t == 64 + 5 * 19 + 23
    assert figure.layout.margin.t is None, "the figure itself stays as it is"


def test_a_legend_with_lines_of_two_rows_has_room_for_both(pictures):
    lines = [go.Scatter(y=[1, 2], name=name) for name in ("short", "two<br>rows")]
    NotebookFigure(data=lines).to_image(width=900)
    assert pictures[0][0].layout.margin.t == 64 + 19


def test_a_picture_for_a_paper_is_scaled_to_it(figure, pictures):
    laid = figure.lay_out(391.0, 300.0, 0.82, 6.25)
    laid.to_image()
    laid.to_image("svg")
    laid.write_image("one.pdf")
    laid.write_image("one.png", scale=2)
    assert [options["scale"] for _, options in pictures] == [0.82 * 6.25, 0.82, 0.82, 2]
    assert all(shown.layout.width == 391.0 and shown.layout.margin.t is None for shown, _ in pictures)


@pytest.mark.usefixtures("pictures")
def test_a_png_for_a_paper_says_how_many_dots_an_inch_of_it_has(figure, png):
    assert resolution(figure.to_image()) is None, "it has no size on paper"
    laid = figure.lay_out(391.0, 300.0, 0.82, 6.25)
    laid.write_image("one.png")
    laid.write_image(Path("small"), "png", scale=1.64)
    laid.write_image(file := io.BytesIO(), "png")
    found = [laid.to_image(), Path("one.png").read_bytes(), file.getvalue(), Path("small").read_bytes()]
    assert [resolution(one) for one in found] == [pytest.approx((dots, dots), abs=0.1) for dots in (600, 600, 600, 192)]
    assert laid.to_image("svg") == png, "other formats are as Plotly draws them"


def resolution(png):
    with Image.open(io.BytesIO(png)) as picture:
        picture.load()
        return picture.info.get("dpi")


def test_pictures_of_a_figure_as_it_was_drawn_are_those_of_the_command_and_others_what_is_seen(figure, pictures):
    drawn = NotebookFigure(data=figure.data).lay_out(1000.0, 560.0, 1.0, 2.0)
    figure.with_pictures(lambda: drawn)
    figure.to_image()
    figure.write_image("one.svg")
    figure.to_image(width=500)
    figure.update_layout(title="Mine").write_image("one.png")
    assert [shown.layout.width for shown, _ in pictures] == [1000.0, 1000.0, None, None]
    assert [options.get("scale") for _, options in pictures] == [2.0, 1.0, None, None]
    assert pictures[-1][0].layout.title.text == "Mine"
