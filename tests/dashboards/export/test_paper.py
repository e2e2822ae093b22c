"""Figures at the size of a paper: how wide they are, and what changes where they are narrow."""

import math
import re
from dataclasses import replace

import plotly.graph_objects as go
import pytest

from dashboards.data import SweepData
from dashboards.export.files import export_front
from dashboards.export.paper import Layout, fit, is_narrow
from dashboards.figures import Figure, sweep_figures
from dashboards.figures._theme import LIGHT, template
from sweeper.errors import ExportError
from sweeper.records import TrialStatus
from sweeper.results.exporters import PRESETS, Paper
from sweeper.results.importance import Importance

FIGURES = sweep_figures()


def draw(sweep: SweepData, name: str, paper: Paper) -> Figure:
    return FIGURES[name].draw(sweep, narrow=is_narrow(paper))


def of(
    preset: str | None = None, width: float | None = None, font: float | None = None, *, title: bool = True
) -> Paper:
    paper = Paper.of(preset, width, font, title=title)
    assert paper is not None
    return paper


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "preset"), [*((name, "column") for name in FIGURES), ("front", "page")])
def test_every_figure_is_as_wide_as_its_paper_and_its_text_as_large(sweep, name, preset):
    paper, (millimetres, points) = of(preset), PRESETS[preset]
    layout = fit(draw(sweep, name, paper), paper)
    assert layout.width * layout.scale == pytest.approx(millimetres / 25.4 * 96)
    assert layout.scale * 13 == pytest.approx(points * 96 / 72)
    assert 0.5 < layout.height / layout.width < 2.0
    assert layout.width * layout.scale * layout.dots >= 2000


def test_a_picture_has_its_legend_below_and_no_room_for_one_above(sweep):
    for paper in (Paper(), of("page")):
        figure = FIGURES["price"].draw(sweep, still=True)
        fit(figure, paper)
        assert figure.layout.margin.t == figure.layout.template.layout.margin.t - 22
        assert figure.layout.legend.y < 0


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FIGURES)
def test_titles_of_axes_fit_a_column(sweep, name):
    paper = of("column")
    figure = draw(sweep, name, paper)
    fit(figure, paper)
    lines = [line for axis in figure.select_xaxes() for line in (axis.title.text or "").split("<br>")]
    small = [re.sub("<.*?>", "", line) for line in lines if "font-size" in line]
    large = [line for line in lines if "font-size" not in line]
    assert max(map(len, large), default=0) <= 46  # of 7 pixels, by an axis
    assert max(map(len, small), default=0) <= 72  # of 4.6


def test_a_long_name_below_a_column_is_broken(with_configs):
    layers = ["spectral_ball", "orthogonal"] * 3
    sweep = with_configs(*({"model": {"constraint": name, "depth": i % 3}} for i, name in enumerate(layers)))
    axes = draw(sweep, "slices", of("column")).select_xaxes()
    assert "spectral_<br>ball" in {text for axis in axes for text in axis.ticktext}


def test_every_bar_of_a_column_has_its_name(with_configs):
    data = with_configs(*({f"parameter_{j}": float((i * j) % 7) for j in range(1, 10)} for i in range(12)))
    names = [f"parameter_{j}" for j in range(1, 10)]
    losses = dict.fromkeys(names, 0.2)
    data.__dict__["importances"] = tuple(
        Importance(name, 0.4, losses) for name in ("accuracy", "epsilon", "hypervolume")
    )
    paper = of("column")
    figure = draw(data, "importances", paper)
    layout = fit(figure, paper)
    panels = layout.height - figure.layout.margin.t - figure.layout.margin.b
    for axis in figure.select_yaxes():
        low, high = axis.domain
        assert axis.dtick == 1
        assert panels * (high - low) / len(names) >= 14.0


def test_a_note_below_panels_makes_room_for_names_of_two_lines_once(with_configs):
    places = {}
    for name in ("ball", "a_long_name_of_a_layer"):
        configs = [{"model": {"constraint": [name, "orthogonal"][i % 2], "depth": i % 3}} for i in range(8)]
        figure = draw(with_configs(*configs), "slices", of("column"))
        (note,) = figure.select_annotations({"name": "terms"})
        places[name] = (note.yshift, figure.layout.margin.b)
    (high, narrow), (low, wide) = places.values()
    assert high - low == wide - narrow > 0


def test_without_a_size_a_figure_has_the_size_of_a_screen(sweep):
    layout = fit(draw(sweep, "front", Paper()), Paper())
    assert (layout.width, layout.height, layout.scale * layout.dots) == (1000, 560, 2)
    larger = fit(draw(sweep, "front", of(font=19.5)), of(font=19.5))
    assert larger.width * larger.scale == pytest.approx(1000)
    assert larger.scale == pytest.approx(2.0)


@pytest.mark.long
def test_a_figure_without_a_title_has_no_room_for_one(sweep):
    paper = of("column", title=False)
    with_title, without = draw(sweep, "front", of("column")), draw(sweep, "front", paper)
    assert fit(without, paper).height < fit(with_title, of("column")).height
    assert without.layout.title.text is None
    assert with_title.layout.title.text == "digits: accuracy against own epsilon"


def test_without_a_title_texts_that_stand_on_panels_have_room(sweep):
    paper, figure = of("column", title=False), draw(sweep, "front", of("column", title=False))
    place = {"xref": "x domain", "yref": "y domain", "x": 0, "y": 1, "yanchor": "bottom", "yshift": 3}
    figure.update_layout(margin={"t": 70}).add_annotation(text="one<br>two<br>three", showarrow=False, **place)
    fit(figure, paper)
    assert figure.layout.margin.t == 3 * 19 + 3


@pytest.mark.sampled(3)
@pytest.mark.parametrize("title", [True, False])
@pytest.mark.parametrize("preset", ["column", "page"])
@pytest.mark.parametrize("name", [name for name, kind in FIGURES.items() if kind.for_paper])
def test_no_text_of_a_figure_lies_above_its_top_or_on_its_title(sweep, name, preset, title):
    paper = of(preset, title=title)
    figure = draw(sweep, name, paper)
    layout = fit(figure, paper)
    below = 10 + 17 * (1 + figure.layout.title.text.count("<br>")) if title else 0
    tops = {note.text: top_of(note, figure, layout) for note in figure.layout.annotations}
    assert {text: top for text, top in tops.items() if top < below} == {}


@pytest.mark.parametrize("title", [True, False])
@pytest.mark.parametrize("preset", ["column", "page"])
@pytest.mark.parametrize("name", ["importances", "temperature"])
def test_a_note_above_panels_has_room_for_all_its_lines(sweep, name, preset, title):
    paper = of(preset, title=title)
    figure = draw(sweep, name, paper)
    (note,) = figure.select_annotations({"name": "rehearsed"})
    assert note.text.startswith("Only trials of stage 1")
    note.text += "<br>a further line" * 2
    assert top_of(note, figure, fit(figure, paper)) >= (10 + 17 if title else 0)


def top_of(note, figure: Figure, layout: Layout) -> float:
    """Return how many pixels below the top of the figure a text on its panels begins, inf for one among its marks."""
    axis, _, domain = str(note.yref).partition(" ")
    if axis != "paper" and domain != "domain":
        return math.inf
    low, high = (domain and figure.layout[axis.replace("y", "yaxis")].domain) or (0.0, 1.0)
    panels = layout.height - figure.layout.margin.t - figure.layout.margin.b
    height = 1.3 * (note.font.size or 13) * (1 + note.text.count("<br>"))
    anchor = note.yanchor or ("top" if note.y > 2 / 3 else "middle" if note.y > 1 / 3 else "bottom")
    above = (note.yshift or 0) + {"top": 0.0, "middle": 0.5, "bottom": 1.0}[anchor] * height
    return figure.layout.margin.t + panels * (1 - low - note.y * (high - low)) - above


def test_in_a_column_legends_stand_below_ticks_do_not_touch_and_titles_break(sweep):
    paper = of("column")
    figure = draw(sweep, "front", paper)
    ticks = len(figure.layout.xaxis.tickvals)
    fit(figure, paper)
    assert figure.layout.legend.y < 0
    assert len(figure.layout.xaxis.tickvals) == len(figure.layout.xaxis.ticktext) < ticks
    figure = draw(sweep, "temperature", paper)
    fit(figure, paper)
    assert "<br>" in figure.layout.title.text


def test_a_legend_of_one_name_stands_below_and_none_leaves_no_room_above(sweep):
    paper = of("column")
    ended = TrialStatus.COMPLETED
    rows = [row if row.status is TrialStatus.RUNNING else replace(row, status=ended) for row in sweep.trial_rows]
    figure = draw(replace(sweep, trial_rows=tuple(rows)), "workers", paper)
    fit(figure, paper)
    assert len(figure.data) == 1
    assert figure.layout.legend.y < 0
    for name, one in (("front", paper), ("hypervolume", Paper())):
        figure = draw(sweep, name, one)
        room = figure.layout.template.layout.margin.t
        fit(figure, one)
        assert figure.layout.margin.t == room - 22


def test_a_legend_below_leaves_room_for_each_line_of_a_title(sweep):
    paper, room = of("column"), {}
    for name in ("caught", "front"):
        figure = draw(sweep, name, paper)
        layout = fit(figure, paper)
        panels = layout.height - figure.layout.margin.t - figure.layout.margin.b
        title = figure.layout.xaxis.title.text
        room[name] = -figure.layout.legend.y * panels, title.count("<br>"), title.count("font-size")
    (first, first_lines, first_small), (second, second_lines, second_small) = room.values()
    more, small = first_lines - second_lines, first_small - second_small
    assert (more, small) != (0, 0)
    assert first - second == pytest.approx(15.0 * small + 19.0 * (more - small))


def test_a_legend_has_as_many_columns_as_fit_in_the_order_of_its_ranks(sweep):
    paper = of("column")
    figure = draw(sweep, "front", paper)
    layout = fit(figure, paper)
    columns = {legend: [t.name for t in figure.data if t.legend == legend] for legend in ("legend", "legend2")}
    assert "front" in columns["legend"]
    assert "dominated" in columns["legend2"]
    assert abs(len(columns["legend"]) - len(columns["legend2"])) <= 1
    first, second = figure.layout.legend, figure.layout.legend2
    assert first.y == second.y < 0
    assert layout.width * (second.x - first.x) >= 47 + 5.25 * max(map(len, columns["legend"]))
    long = draw(sweep, "front", paper)
    for trace in long.data:
        trace.name = trace.name and trace.name * 8
    fit(long, paper)
    assert "legend2" not in {trace.legend for trace in long.data}


@pytest.mark.long
def test_in_a_column_panels_stand_below_each_other(sweep):
    paper = of("column")
    for name, rows in (("slices", 2), ("ranks", 2), ("importances", 2)):
        assert len({axis.domain for axis in draw(sweep, name, paper).select_yaxes()}) == rows
        assert len({axis.domain for axis in draw(sweep, name, Paper()).select_yaxes()}) == 1


def test_a_name_of_two_lines_in_a_legend_is_as_wide_as_its_longer_one():
    rows = {}
    for between in (" ", "<br>"):
        lines = [go.Scatter(y=[1, 2], name=name) for name in ("a", "b", "c", "d", f"{'w' * 40}{between}{'w' * 40}")]
        figure = go.Figure(lines, layout={"template": template(LIGHT)})
        fit(figure, of("page"))
        rows[between] = max([t.legend for t in figure.data].count(name) for name in {t.legend for t in figure.data})
    assert rows[" "] == len(figure.data) > rows["<br>"]


def test_a_panel_of_one_named_row_is_low():
    heights = {}
    for names in (["a"], [f"name {i}" for i in range(9)]):
        figure = go.Figure(go.Bar(x=[1.0] * len(names), y=names), layout={"template": template(LIGHT)})
        layout = fit(figure, of("column"))
        heights[len(names)] = layout.height
    assert heights[9] - heights[1] == pytest.approx(0.46 * layout.width - 92)
    page = []
    for names in (["a", "b"], ["a", "b", "c"], [f"name {i}" for i in range(90)]):
        figure = go.Figure(go.Bar(x=[1.0] * len(names), y=names), layout={"template": template(LIGHT)})
        page.append(fit(figure, Paper()).height)
    assert page[1] - page[0] == 46, "on a page too"
    assert page[2] > 90 * 20, "each of many rows has room for its name"


def test_axes_of_numbers_in_a_column_have_as_many_ticks_as_fit(sweep):
    paper = of("column")
    slices = draw(sweep, "slices", paper)
    fit(slices, paper)
    assert {axis.nticks for axis in slices.select_yaxes()} == {6}
    flat = FIGURES["front-3d"].draw(sweep, narrow=True, still=True)
    fit(flat, paper)
    assert (flat.layout.xaxis.nticks, flat.layout.yaxis.nticks) == (6, 8)


def test_contours_in_a_column_are_one_panel_and_say_below_what_colours_are(sweep):
    wide, column = (FIGURES["contours"].draw(sweep, narrow=narrow, still=True) for narrow in (False, True))
    assert "1\N{NO-BREAK SPACE}of" in column.layout.title.text
    bar = next(trace.colorbar.title.text for trace in column.data if trace.type == "contour")
    assert "guessed" not in bar, "it has a panel's height alone"
    assert any("guessed between marks" in (one.text or "") for one in column.layout.annotations)
    assert any("guessed" in (trace.colorbar.title.text or "") for trace in wide.data if trace.type == "contour")


def test_what_is_to_be_dragged_is_refused_for_a_paper_and_what_fits_is_named(sweep, tmp_path):
    name = "configurations"
    said = f"got {name}, which is for pages; leave out its preset and width, or choose one of front, caught, price"
    with pytest.raises(ExportError, match=said) as caught:
        export_front(sweep, tmp_path / "one.png", figure=name, paper=of("column"))
    assert name not in str(caught.value).partition("choose")[2]
    assert not list(tmp_path.iterdir())


_WIDTH_OF_12_POINTS = "Expected a width from 96 to 1000 millimetres for text of 12 points, got 85: change it"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("poster", None, None), "Expected a preset out of column, page, got 'poster'; name one of them"),
        ((None, 5.0, None), "Expected a width from 64 to 1000 millimetres for text of 8 points, got 5: change it"),
        ((None, 60.0, None), "Expected a width from 64 to 1000 millimetres for text of 8 points, got 60: change it"),
        ((None, 29.0, 3.5), "Expected a font from 4 to 40 points, got 3.5: change it"),
        ((None, None, float("nan")), "Expected a font from 4 to 40 points, got nan: change it"),
        (("column", None, 12.0), _WIDTH_OF_12_POINTS),
    ],
)
def test_a_size_that_no_picture_has_is_refused(asked, said):
    with pytest.raises(ExportError) as caught:
        Paper.of(*asked, title=True)
    assert str(caught.value) == said


def test_width_and_font_replace_those_of_a_preset():
    assert of("column", width=88.9) == Paper(width=88.9, font=8.0)
    assert of("page", font=10.0) == Paper(width=178.0, font=10.0)
    assert of(width=120.0) == Paper(width=120.0, font=8.0)
    assert Paper.of(None, None, None, title=True) is None


def test_a_figure_without_a_legend_has_room_for_what_stands_below_its_axis_too(sweep):
    flat = FIGURES["front-3d"].draw(sweep, narrow=True, still=True)
    lines = flat.layout.xaxis.title.text.count("<br>")
    fit(flat, of("column"))
    assert lines > 1
    assert flat.layout.margin.b > flat.layout.template.layout.margin.b + 10 * lines, "or the panel would give it up"
