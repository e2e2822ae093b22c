"""What draws, and writes pages and pictures: functions that others install as entry points of ``sweeper.exporters``.

So this package draws without importing what draws.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from clipless.spelling import did_you_mean
from sweeper.errors import ExportError, SweeperError

GROUP = "sweeper.exporters"


class Format(enum.Enum):
    """What a front can be written as; the value is the file's suffix."""

    HTML = "html"
    PNG = "png"
    SVG = "svg"
    PDF = "pdf"
    CSV = "csv"
    TEX = "tex"
    JSON = "json"

    @classmethod
    def of(cls, path: Path) -> "Format":
        """Return the format that a path's suffix names.

        Raises:
            ExportError: no format has this suffix.
        """
        suffix = path.suffix.removeprefix(".").lower()
        if suffix not in {format_.value for format_ in cls}:
            known = ", ".join(format_.value for format_ in cls)
            remedy = did_you_mean(suffix, (one.value for one in cls)) or "name one of them"
            raise ExportError(f"Expected a format out of {known}, got {suffix!r} ({path}); {remedy}")
        return cls(suffix)

    @property
    def media_type(self) -> str:
        """What HTTP calls it."""
        known = {
            Format.HTML: "text/html",
            Format.PNG: "image/png",
            Format.SVG: "image/svg+xml",
            Format.CSV: "text/csv",
            Format.TEX: "application/x-tex",
        }
        return known.get(self, f"application/{self.value}")


PICTURES = (Format.PNG, Format.SVG, Format.PDF)
PRESETS = {"column": (85.0, 8.0), "page": (178.0, 9.0)}  # millimetres and points
_NOTHING = "Nothing to show here:"
_WIDTHS, _FONTS = (30.0, 1000.0), (4.0, 40.0)
_LEAST_MM_OF_POINT = 8.0  # a figure of less width has no room for its text


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """The size of a picture.

    Attributes:
        width: millimetres, None for a screen's.
        font: points of its text, None for a screen's.
        title: whether it has a title.
        caption: whether title and small print are left to a caption.
    """

    width: float | None = None
    font: float | None = None
    title: bool = True
    caption: bool = False

    @classmethod
    def of(
        cls, preset: str | None, width: float | None, font: float | None, *, title: bool, caption: bool = False
    ) -> "Paper | None":
        """Return the size that options ask for, None if they ask for none; width and font replace a preset's.

        Raises:
            ExportError: an unknown preset, a width or font that no picture has, or a width without room for the text.
        """
        if preset is not None and preset not in PRESETS:
            known = ", ".join(PRESETS)
            remedy = did_you_mean(preset, PRESETS) or "name one of them"
            raise ExportError(f"Expected a preset out of {known}, got {preset!r}; {remedy}")
        _refuse_outside("font", font, _FONTS, "points")
        own_width, own_font = PRESETS.get(preset or "", (None, None))
        width = width or own_width
        font = font or own_font or (None if width is None else PRESETS["column"][1])
        if font is not None:
            ends = max(_LEAST_MM_OF_POINT * font, _WIDTHS[0]), _WIDTHS[1]
            _refuse_outside("width", width, ends, f"millimetres for text of {font:g} points")
        asks = width is not None or font is not None or caption or not title
        return cls(width=width, font=font, title=title, caption=caption) if asks else None


def caption_beside(picture: Path) -> Path:
    """Return where the caption of a picture is written, as text."""
    return picture.with_suffix(".caption.txt")


def _refuse_outside(size: str, value: float | None, ends: tuple[float, float], unit: str) -> None:
    if value is not None and not ends[0] <= value <= ends[1]:
        raise ExportError(f"Expected a {size} from {ends[0]:g} to {ends[1]:g} {unit}, got {value:g}: change it")


def exporter(name: str) -> Callable[..., Any]:
    """Return the installed exporter of that name.

    Raises:
        SweeperError: none is installed.
    """
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise SweeperError(f"Expected an exporter of {name}, found none; install the package's dashboards again")
    loaded: Callable[..., Any] = next(iter(found)).load()
    return loaded


def figure_names(*, compared: bool = False) -> tuple[str, ...]:
    """Return the names of the figures of a sweep, or of several that are compared.

    Raises:
        SweeperError: nothing that draws is installed.
    """
    return tuple(exporter("figures")(compared=compared))


def list_figures(of: object) -> tuple[str, str]:
    """Return the figures that show something of a sweep or a comparison, and what it lacks for the others, in lines.

    Args:
        of: the folder of the sweep, or a `sweeper.results.comparison.Comparison`.

    Raises:
        SweeperError: nothing that draws is installed.
        RecordError: the folder holds no readable front.
    """
    needs: Mapping[str, str] = exporter("figures")(of)
    names = [name for name, need in needs.items() if not need]
    others = [f"  {name}: needs {need}" for name, need in needs.items() if need]
    return "\n".join(names), "\n".join([_NOTHING, *others] if others else [])


def draw(source: object, figure: str, paper: Paper | None = None) -> Any:
    """Return a figure of the size of a paper: a Plotly figure.

    Args:
        source: the folder of a sweep, a front alone, or a `sweeper.results.comparison.Comparison`.
        figure: its name.
        paper: the size; that of a screen by default.

    Raises:
        SweeperError: nothing that draws is installed.
        ExportError: the figure fits no paper.
        RecordError: the folder holds no readable front.
        UnknownFigureError: there is no such figure.
    """
    return exporter("figure")(source, figure, paper)
