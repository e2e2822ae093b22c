"""Captions of pictures: all that leaves a picture is in its caption, and it takes no room any more."""

import re

import pytest

from dashboards.commands import draw
from dashboards.data import SweepData
from dashboards.export import pictures
from dashboards.export.captions import take_caption
from dashboards.export.files import export_front
from dashboards.export.paper import fit, is_narrow
from dashboards.figures import Figure, sweep_figures
from sweeper.errors import ExportError
from sweeper.results.exporters import Paper

FIGURES = {name: kind for name, kind in sweep_figures().items() if kind.for_paper}


def laid_out(sweep: SweepData, name: str, preset: str | None, *, caption: bool) -> tuple[Figure, float, str]:
    """Return a figure on paper, its height and its caption."""
    paper = Paper.of(preset, None, None, title=True, caption=caption) or Paper()
    figure = FIGURES[name].draw(sweep, narrow=is_narrow(paper), still=True)
    layout = fit(figure, paper)
    return figure, layout.height, layout.caption


def words(text: str) -> set[str]:
    return {word.strip(".;,") for word in re.sub("<.*?>", " ", text).split()}


def texts_of(figure: Figure) -> str:
    titles = [axis.title.text or "" for axis in figure.select_xaxes()]
    return " ".join([figure.layout.title.text or "", *titles, *(note.text for note in figure.layout.annotations)])


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("name", "preset"), [(name, preset) for name in FIGURES for preset in (None, "column")])
def test_what_a_picture_leaves_out_is_in_its_caption_and_takes_no_room(sweep, name, preset):
    whole, high, none = laid_out(sweep, name, preset, caption=False)
    bare, low, caption = laid_out(sweep, name, preset, caption=True)
    assert not none
    gone = words(texts_of(whole)) - words(texts_of(bare))
    assert gone <= words(caption)
    assert caption.startswith("digits: ")
    assert bare.layout.title.text is None
    assert "font-size" not in texts_of(bare)
    assert low < high or preset is None


def test_a_caption_says_delta_and_the_price(sweep):
    _, _, caption = laid_out(sweep, "front", "column", caption=True)
    assert re.fullmatch(
        r"digits: accuracy against own epsilon\. delta = 1e-4; price of the sweep: [\d.]+\.",
        caption,
    )


def test_a_figure_that_says_nothing_small_has_its_title_as_caption(sweep):
    figure = FIGURES["front"].draw(sweep)
    figure.update_xaxes(title={"text": "own epsilon"})
    assert take_caption(figure) == "digits: accuracy against own epsilon."
    assert figure.layout.xaxis.title.text == "own epsilon"


def test_a_caption_is_text_without_markup(sweep):
    figure = FIGURES["front"].draw(sweep)
    figure.update_layout(title={"text": "a &lt;b&gt;: c"}, xaxis={"title": {"text": "name; <i>d</i>,<br>e &amp; f"}})
    assert take_caption(figure) == "a <b>: c. d, e & f."


def test_a_caption_is_written_beside_its_picture(sweep, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "render", lambda *_: b"a picture")
    paper = Paper.of("column", None, None, title=True, caption=True)
    written = export_front(sweep, tmp_path / "front.png", figure="front", paper=paper)
    beside = tmp_path / "front.caption.txt"
    assert sorted(tmp_path.iterdir()) == [beside, written]
    caption = beside.read_text()
    assert caption.startswith("digits: accuracy against own epsilon. delta = ")
    assert FIGURES["front"].caption in caption, "what colours, lines and marks are"
    assert FIGURES["front"].gestures
    assert FIGURES["front"].gestures not in caption, "a paper has no pointer"


@pytest.mark.parametrize("name", sweep_figures())
def test_no_caption_says_what_a_pointer_does(sweep, name):
    kind = sweep_figures()[name]
    assert not re.search(r"click|point at|drag|hover", kind.reading(sweep), re.IGNORECASE)


def test_a_page_has_no_caption_beside_it(sweep, tmp_path):
    paper = Paper.of(None, None, None, title=True, caption=True)
    with pytest.raises(ExportError, match="for a picture"):
        export_front(sweep, tmp_path / "front.html", figure="front", paper=paper)
    assert not list(tmp_path.iterdir())


def test_a_figure_in_python_has_its_caption(sweep):
    paper = Paper.of("column", None, None, title=True, caption=True)
    caption = draw(sweep.result, "front", paper).caption
    assert caption.startswith("digits: accuracy against own epsilon. delta = ")
    assert FIGURES["front"].caption in caption
    assert not draw(sweep.result, "front").caption


@pytest.mark.parametrize("name", sweep_figures())
def test_no_caption_speaks_of_a_pointer(name):
    assert not {"hover", "click", "drag"} & words(sweep_figures()[name].caption.lower())
