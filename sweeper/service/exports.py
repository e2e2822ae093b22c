"""Pages, pictures and numbers of a sweep, by the installed exporter, one at a time: a picture takes a browser."""

import tempfile
import threading
from pathlib import Path

from sweeper.errors import UnknownSweepError
from sweeper.exporters import exporter
from sweeper.service.answers import Answer
from sweeper.service.views import NO_FRONT
from sweeper.store import SweepFolder

MEDIA_TYPES = {
    "json": "application/json",
    "csv": "text/csv",
    "html": "text/html",
    "png": "image/png",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
}
# What is drawn brings its scripts and styles with it, may load nothing, and runs apart from the service's own pages.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; worker-src blob:; frame-ancestors 'none'; sandbox allow-scripts allow-downloads allow-popups"
)

_one_at_a_time = threading.Lock()


def draw(folder: SweepFolder, format_: str, figure: str | None = None) -> Answer:
    """Return the report of a sweep, a picture of its front, or one of its figures: a page, a picture or its numbers.

    Raises:
        UnknownSweepError: there is no front yet.
        UnknownFigureError: no figure of that name.
        ExportError: no browser for a picture, or one that does not do its work.
        RecordError: the front cannot be read.
    """
    if not folder.front.is_file():
        raise UnknownSweepError(NO_FRONT)
    with _one_at_a_time, tempfile.TemporaryDirectory(prefix="sweeper-") as place:
        path = exporter("front")(folder.path, Path(place) / f"front.{format_}", figure)
        content = path.read_bytes()
    return Answer.of(content, MEDIA_TYPES[format_], pack=format_ not in ("png", "pdf"))
