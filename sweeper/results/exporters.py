"""What writes pages and pictures: functions that other packages install as entry points of ``sweeper.exporters``.

So this package draws without importing what draws.
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

from sweeper.errors import SweeperError

GROUP = "sweeper.exporters"


def exporter(name: str) -> Callable[..., Path]:
    """Return the installed exporter of that name.

    Raises:
        SweeperError: none is installed.
    """
    found = entry_points(group=GROUP, name=name)
    if not found:
        raise SweeperError(f"Expected an exporter of {name}, found none; install the package's dashboards again")
    loaded: Callable[..., Path] = next(iter(found)).load()
    return loaded
