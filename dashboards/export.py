"""A front as a file: HTML, CSV and JSON anywhere; PNG, SVG and PDF where a Chromium or Chrome is installed.

Files appear whole or not at all: they are written beside their place and then moved there. This module is the
only door to Kaleido, which drives the browser; it gets plotly.js from this machine and MathJax from nowhere.
"""

import contextlib
import enum
from pathlib import Path

import kaleido
from choreographer.browsers.chromium import Chromium
from kaleido.errors import ChromeNotFoundError, JavascriptError, KaleidoError

from dashboards.data import SweepData
from dashboards.figures import FIGURES, LIGHT, Figure, Theme, as_json
from dashboards.report import build_report
from sweeper.errors import ExportError
from sweeper.rows import to_text

_REMEDY = (
    "install Chromium (`apt-get install chromium`), or set BROWSER_PATH to the program of one; "
    "html, csv and json need no browser"
)
_TIMEOUT_SECONDS = 60


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


def export_front(
    data: SweepData,
    path: str | Path,
    format_: Format | None = None,
    *,
    figure: str = "front",
    theme: Theme = LIGHT,
) -> Path:
    """Write the front of a sweep to ``path`` and return it.

    Args:
        data: the sweep.
        path: the file; its folder is made if need be.
        format_: by default, what the path's suffix names.
        figure: which figure an image shows, one of `dashboards.figures.FIGURES`.
        theme: the look of an image.

    Raises:
        ExportError: an unknown suffix or figure, no browser for an image, or a file that cannot be written.
    """
    path = Path(path)
    match format_ or Format.of(path):
        case Format.HTML:
            content = build_report(data).encode()
        case Format.CSV:
            content = data.result.to_csv().encode()
        case Format.JSON:
            content = to_text(data.result.to_json(), indent=1).encode() + b"\n"
        case Format.PNG | Format.SVG | Format.PDF as image:
            if figure not in FIGURES:
                raise ExportError(f"Expected a figure out of {', '.join(FIGURES)}, got {figure!r}: name one of them")
            content = render(FIGURES[figure](data, theme), image)
    return _write(path, content)


def find_browser() -> Path | None:
    """The Chromium or Chrome that images are made with, if there is one."""
    found = Chromium.find_browser(skip_local=False)
    return Path(found) if found and Path(found).is_file() else None


def render(figure: Figure, image: Format, *, width: int = 1000, height: int = 560, scale: float = 2.0) -> bytes:
    """Draw a figure with the browser.

    Raises:
        ExportError: no browser, or one that does not do its work.
    """
    options = {"format": image.value, "width": width, "height": height, "scale": scale}
    browser = {"mathjax": False, "timeout": _TIMEOUT_SECONDS}
    try:
        return bytes(kaleido.calc_fig_sync(as_json(figure), opts=options, kopts=browser))
    except ChromeNotFoundError:
        raise ExportError(f"Expected a Chromium or Chrome for {image.value}, found none: {_REMEDY}") from None
    except (RuntimeError, OSError, KaleidoError, JavascriptError) as error:
        reason = str(error.args[0] if error.args else type(error).__name__).rstrip(".")
        raise ExportError(
            f"Expected {find_browser()} to draw the {image.value}, but it failed ({reason}): {_REMEDY}"
        ) from error


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
