"""What draws, and writes pages and pictures: functions that others install as entry points of ``sweeper.exporters``.

So this package draws without importing what draws.
"""

import enum
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.errors import ExportError, SweeperError

if TYPE_CHECKING:
    from sweeper.results.front_record import FrontRecord

GROUP = "sweeper.exporters"


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
        """Return the format that a path's suffix names.

        Raises:
            ExportError: no format has this suffix.
        """
        suffix = path.suffix.removeprefix(".").lower()
        if suffix not in {format_.value for format_ in cls}:
            known = ", ".join(format_.value for format_ in cls)
            raise ExportError(f"Expected a format out of {known}, got {suffix!r} ({path}): name one of them")
        return cls(suffix)

    @property
    def media_type(self) -> str:
        """What HTTP calls it."""
        known = {Format.HTML: "text/html", Format.CSV: "text/csv", Format.SVG: "image/svg+xml", Format.PNG: "image/png"}
        return known.get(self, f"application/{self.value}")


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


def figure_names() -> tuple[str, ...]:
    """Return the names of the figures of a sweep.

    Raises:
        SweeperError: nothing that draws is installed.
    """
    names: tuple[str, ...] = exporter("figures")()
    return names


def draw(source: "Path | FrontRecord", figure: str) -> Any:
    """Return a figure of a sweep folder, or of a front alone: a ``plotly.graph_objects.Figure``.

    Raises:
        SweeperError: nothing that draws is installed.
        RecordError: the folder holds no readable front.
        UnknownFigureError: there is no such figure.
    """
    return exporter("figure")(source, figure)
