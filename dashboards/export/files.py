"""A front as a file: HTML, CSV, LaTeX and JSON anywhere; PNG, SVG and PDF where a Chromium or Chrome is installed.

Files appear whole or not at all: they are written beside their place and then moved there. The browser
is only looked for where an image is asked for.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from dashboards.data import SweepData
from dashboards.export.paper import Layout, fit, is_narrow
from dashboards.figures import (
    LIGHT,
    Figure,
    FigureKind,
    Table,
    Theme,
    choose,
    comparison_figures,
    is_empty,
    names_with_content,
    refuse,
    sweep_figures,
)
from dashboards.pages.comparison import build_comparison
from dashboards.pages.report import build_figure_page, build_report
from sweeper.errors import ExportError
from sweeper.papers.files import check_replaces
from sweeper.results.comparison import Comparison
from sweeper.results.exporters import PICTURES, Format, Paper, caption_beside
from sweeper.results.front_record import csv_text
from sweeper.store.jsonl import to_text

D = TypeVar("D")


def export_front(
    data: SweepData,
    path: str | Path,
    format_: Format | None = None,
    *,
    figure: str | None = None,
    theme: Theme = LIGHT,
    paper: Paper | None = None,
) -> Path:
    """Write a sweep, or one of its figures, to ``path`` and return it.

    Without a figure, html is the report, csv and json are every point, tex is the front as a table, and an image is the
    front. With one, html is a page of it, csv and json are its numbers, and there is no tex.

    Args:
        data: the sweep.
        path: the file; its folder is made if need be.
        format_: by default, what the path's suffix names.
        figure: one of `dashboards.figures.sweep_figures`; an image shows the front by default.
        theme: the look of an image.
        paper: the size of an image, and whether it has a title, or a caption beside it; 2000 x 1120 pixels by default.

    Raises:
        EmptyFigureError: the sweep has nothing for the figure.
        ExportError: an unknown suffix or figure, no browser for an image, the size of one for another format, or a
            file that cannot be written.
        RecordError: a table or an object of something else in its place.
    """
    draft = _Draft(data, sweep_figures(), "front", figure, theme, paper)
    contents: dict[Format, Callable[[], str]] = {
        Format.HTML: partial(build_report, data),
        Format.CSV: data.result.to_csv,
        Format.TEX: data.result.to_latex,
        Format.JSON: lambda: to_text(data.result.to_json(), indent=1) + "\n",
    }
    return _export(draft, Path(path), format_, contents)


def export_comparison(
    comparison: Comparison, path: str | Path, figure: str | None = None, paper: Paper | None = None
) -> Path:
    """Write a comparison, or one of its figures, to ``path``, in the format its suffix names, and return it.

    Raises:
        EmptyFigureError: the sweeps have nothing for the figure.
        ExportError: an unknown suffix or figure, no browser for an image, the size of one for another format, or a
            file that cannot be written.
        RecordError: a table or an object of something else in its place.
    """
    draft = _Draft(comparison, comparison_figures(), "fronts", figure, paper=paper)
    contents: dict[Format, Callable[[], str]] = {
        Format.HTML: partial(build_comparison, comparison),
        Format.CSV: lambda: csv_text(comparison.rows()),
        Format.TEX: comparison.to_latex,
        Format.JSON: lambda: to_text(comparison.to_json(), indent=1) + "\n",
    }
    return _export(draft, Path(path), None, contents)


@dataclass(frozen=True, slots=True)
class _Draft(Generic[D]):
    """What is exported: one figure, or all of ``data`` if none is named."""

    data: D
    kinds: Mapping[str, FigureKind[D, Any]]
    default: str  # the figure that an image shows
    figure: str | None
    theme: Theme = LIGHT
    paper: Paper | None = None

    def choose(self) -> FigureKind[D, Any]:
        """Return the figure that is named, or the one that an image shows."""
        return choose(self.kinds, self.figure or self.default, self.data)

    def content(self, kind: FigureKind[D, Any], format_: Format) -> tuple[bytes, str]:
        """Return one figure in one format: a page, a picture, or its numbers; and the caption of a picture."""
        match format_:
            case Format.CSV:
                return csv_text(self._numbers(kind)).encode(), ""
            case Format.JSON:
                return to_text({"figure": kind.name, "rows": self._numbers(kind)}, indent=1).encode() + b"\n", ""
            case Format.TEX:
                raise ExportError(f"Expected no figure for tex, got {kind.name}: leave out --figure, or choose csv")
            case Format.HTML:
                return build_figure_page(kind, self._draw(kind)).encode(), ""
            case Format.PNG | Format.SVG | Format.PDF as image:
                from dashboards.export.pictures import render

                paper = self.paper or Paper()
                figure = self._draw(kind, narrow=is_narrow(paper), still=True)
                layout = fit(figure, paper)
                return render(figure, image.value, layout), whole_caption(layout, kind, self.data)

    def _numbers(self, kind: FigureKind[D, Any]) -> Table:
        return kind.numbers(self.data) or refuse(self.kinds, kind, self.data)

    def _draw(self, kind: FigureKind[D, Any], *, narrow: bool = False, still: bool = False) -> Figure:
        figure = kind.draw(self.data, self.theme, narrow=narrow, still=still)
        return refuse(self.kinds, kind, self.data) if is_empty(figure) else figure


def _export(
    draft: _Draft[Any], path: Path, format_: Format | None, contents: Mapping[Format, Callable[[], str]]
) -> Path:
    format_ = format_ or Format.of(path)
    kind = draft.choose()
    if draft.paper is not None and format_ not in PICTURES:
        wanted = ", ".join(one.value for one in PICTURES)
        raise ExportError(f"Expected one of {wanted} for a picture of a size, got {format_.value}: change --output")
    check_fits(draft.kinds, kind, draft.data, draft.paper)
    whole = contents.get(format_) if draft.figure is None else None
    if whole is not None:
        return _write(path, whole().encode())
    content, caption = draft.content(kind, format_)
    written = _write(path, content)
    if caption:
        _write(caption_beside(path), f"{caption}\n".encode())
    return written


def whole_caption(layout: Layout, kind: FigureKind[D, Any], data: D) -> str:
    """Return what a laid out figure leaves to a caption and how to read it; empty where it leaves nothing."""
    return layout.caption and f"{layout.caption} {kind.reading(data)}"


def check_fits(kinds: Mapping[str, FigureKind[D, Any]], kind: FigureKind[D, Any], data: D, paper: Paper | None) -> None:
    """Refuse a figure at the width of a paper that is to be dragged, turned or pointed at.

    Raises:
        ExportError: it is.
    """
    if paper is not None and paper.width is not None and not kind.for_paper:
        fitting = ", ".join(name for name in names_with_content(kinds, data) if kinds[name].for_paper)
        remedy = f"leave out its preset and width, or choose one of {fitting}"
        raise ExportError(f"Expected a figure that fits a paper, got {kind.name}, which is for pages; {remedy}")


def _write(path: Path, content: bytes) -> Path:
    check_replaces(path, content)
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        return partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise ExportError(
            f"Expected to write {path}, got: {error.strerror}; choose another place or make room"
        ) from error
