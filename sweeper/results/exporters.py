"""What draws, and writes pages and pictures: functions that others install as entry points of ``sweeper.exporters``.

So this package draws without importing what draws.
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.errors import SweeperError

if TYPE_CHECKING:
    from sweeper.results.front_record import FrontRecord

GROUP = "sweeper.exporters"


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
