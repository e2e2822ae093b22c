"""A front as a file: HTML, CSV and JSON anywhere; PNG, SVG and PDF where a Chromium or Chrome is installed.

Files appear whole or not at all: they are written beside their place and then moved there. The browser
is only looked for where an image is asked for.
"""

import contextlib
import enum
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from dashboards.data import SweepData
from dashboards.figures import (
    COMPARISON_FIGURES,
    COMPARISON_NUMBERS,
    FIGURES,
    LIGHT,
    NUMBERS,
    Figure,
    Rows,
    Theme,
)
from dashboards.pages.comparison import build_comparison
from dashboards.pages.report import build_page, build_report
from sweeper.errors import ExportError, UnknownFigureError
from sweeper.results.comparison import Comparison
from sweeper.results.front import csv_text
from sweeper.store.jsonl import to_text

D = TypeVar("D")


class Format(enum.Enum):
    """What a front can be written as; the value is the file's suffix."""

    HTML = "html"
    PNG = "png"
    SVG = "svg"
    PDF = "pdf"
    CSV = "csv"
    JSON = "json"

    @classmethod
    def of(cls, path: Path) -> "Format":
        """The format that a path's suffix names.

        Raises:
            ExportError: no format has this suffix.
        """
        suffix = path.suffix.removeprefix(".").lower()
        if suffix not in {format_.value for format_ in cls}:
            known = ", ".join(format_.value for format_ in cls)
            raise ExportError(f"Expected a format out of {known}, got {suffix!r} ({path}): name one of them")
        return cls(suffix)


_IMAGES = (Format.PNG, Format.SVG, Format.PDF)


def export_front(
    data: SweepData,
    path: str | Path,
    format_: Format | None = None,
    *,
    figure: str | None = None,
    theme: Theme = LIGHT,
) -> Path:
    """Write a sweep, or one of its figures, to ``path`` and return it.

    Without a figure, html is the report, csv and json are every point, and an image is the front. With one, html is a
    page of it, and csv and json are its numbers.

    Args:
        data: the sweep.
        path: the file; its folder is made if need be.
        format_: by default, what the path's suffix names.
        figure: one of `dashboards.figures.FIGURES`.
        theme: the look of an image.

    Raises:
        ExportError: an unknown suffix or figure, no browser for an image, or a file that cannot be written.
    """
    path = Path(path)
    format_ = format_ or Format.of(path)
    _check_figure(figure, FIGURES)
    if figure is not None or format_ in _IMAGES:
        name = figure or "front"
        return _write(path, _drawn(format_, name, lambda look: FIGURES[name](data, look), NUMBERS[name], data, theme))
    match format_:
        case Format.HTML:
            content = build_report(data)
        case Format.CSV:
            content = data.result.to_csv()
        case _:
            content = to_text(data.result.to_json(), indent=1) + "\n"
    return _write(path, content.encode())


def export_comparison(
    comparison: Comparison, path: str | Path, *, figure: str | None = None, theme: Theme = LIGHT
) -> Path:
    """Write a comparison, or one of its figures, to ``path``, in the format its suffix names, and return it.

    Args:
        comparison: of several sweeps.
        path: the file; its folder is made if need be.
        figure: one of `dashboards.figures.COMPARISON_FIGURES`; an image shows the fronts by default.
        theme: the look of an image.

    Raises:
        ExportError: an unknown suffix or figure, no browser for an image, or a file that cannot be written.
    """
    path = Path(path)
    format_ = Format.of(path)
    _check_figure(figure, COMPARISON_FIGURES)
    if figure is not None or format_ in _IMAGES:
        name = figure or "fronts"
        draw, count = COMPARISON_FIGURES[name], COMPARISON_NUMBERS[name]
        return _write(path, _drawn(format_, name, lambda look: draw(comparison, look), count, comparison, theme))
    match format_:
        case Format.HTML:
            content = build_comparison(comparison)
        case Format.CSV:
            content = csv_text(comparison.rows())
        case _:
            content = to_text(comparison.to_json(), indent=1) + "\n"
    return _write(path, content.encode())


def _check_figure(figure: str | None, known: Iterable[str]) -> None:
    if figure is not None and figure not in known:
        raise UnknownFigureError(f"Expected a figure out of {', '.join(known)}, got {figure!r}: name one of them")


def _drawn(
    format_: Format,
    name: str,
    draw: Callable[[Theme], Figure],
    count: Callable[[D], Rows],
    data: D,
    theme: Theme,
) -> bytes:
    """One figure in one format: a page, a picture, or its numbers."""
    match format_:
        case Format.CSV:
            return csv_text(count(data)).encode()
        case Format.JSON:
            return to_text({"figure": name, "rows": count(data)}, indent=1).encode() + b"\n"
        case Format.HTML:
            return build_page(name, draw(LIGHT)).encode()
        case Format.PNG | Format.SVG | Format.PDF as image:
            from dashboards.export.pictures import render

            return render(draw(theme), image.value)


def _write(path: Path, content: bytes) -> Path:
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
