"""Pages, pictures and numbers of a sweep, by the installed exporter, one at a time: a picture takes a browser."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

from sweeper.errors import RefusalError, UnknownSweepError
from sweeper.results.exporters import Format, Paper, exporter
from sweeper.service.responses.rendered import RenderedResponse
from sweeper.service.responses.views import NO_FRONT
from sweeper.store.sweep_folder import SweepFolder

T = TypeVar("T")

MOST_DRAWN = 16  # at a time: one is drawn, the others wait
RETRY_SECONDS = 10
DRAWN = [one.media_type for one in Format if one is not Format.JSON]
# What is drawn brings its scripts and styles with it, may load nothing, and runs apart from the service's own pages.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; worker-src blob:; frame-ancestors 'none'; sandbox allow-scripts allow-downloads allow-popups"
)


class SerialExecutor:
    """One thread for slow work; requests that wait for it hold none of the threads that the others share.

    For one event loop.
    """

    def __init__(self, work: str) -> None:
        self._work = work
        self._one = CapacityLimiter(1)
        self._asked = 0

    async def run(self, make: Callable[..., T], *arguments: Any) -> T:
        """Return what ``make`` returns, when its turn has come.

        Raises:
            RefusalError: too many wait already.
        """
        if self._asked >= MOST_DRAWN:
            wait = {"Retry-After": str(RETRY_SECONDS)}
            raise RefusalError(f"Expected fewer {self._work} at a time; try again later", 503, wait)
        self._asked += 1
        try:
            return await to_thread.run_sync(make, *arguments, limiter=self._one)
        finally:
            self._asked -= 1


def draw(
    folder: SweepFolder, format_: str, figure: str | None = None, preset: str | None = None, *, lost: bool = False
) -> RenderedResponse:
    """Return the report of a sweep, a picture of its front, or one of its figures: a page, a picture or its numbers.

    A preset is the size of a picture, one of `PRESETS`; such a picture has no title. ``lost`` is whether the sweep has
    lost its driver.

    Raises:
        UnknownSweepError: there is no front yet.
        UnknownFigureError: no figure of that name.
        EmptyFigureError: the sweep has nothing for the figure.
        ExportError: no browser for a picture, or one that does not do its work.
        RecordError: the front cannot be read.
    """
    if not folder.front.is_file():
        raise UnknownSweepError(NO_FRONT)
    paper = None if preset is None else Paper.of(preset, None, None, title=False)
    with tempfile.TemporaryDirectory(prefix="sweeper-") as place:
        written = Path(place) / f"front.{format_}"
        path = exporter("front")(folder.path, written, figure, paper, called=folder.path.name, lost=lost)
        content = path.read_bytes()
    return RenderedResponse.of(content, Format(format_).media_type, pack=format_ not in ("png", "pdf"))
