"""Figures as images. The only door to Kaleido, which drives a browser.

It gets plotly.js from this machine and MathJax from nowhere.
"""

import logging
from pathlib import Path

import kaleido
from choreographer.browsers.chromium import Chromium
from kaleido.errors import ChromeNotFoundError, JavascriptError, KaleidoError

from dashboards.export.paper import Layout
from dashboards.figures import Figure, as_json
from dashboards.figures._png import with_resolution
from sweeper.errors import ExportError

_REMEDY = (
    "install Chromium (`apt-get install chromium`), or set BROWSER_PATH to the program of one; "
    "html, csv, tex and json need no browser"
)
_TIMEOUT_SECONDS = 60
# "{bye}", which choreographer's wrapper of the browser writes when that has ended, may arrive with the browser's last
# answer: it is no JSON, which the reader logs with a traceback. An answer that is lost is a timeout, which is reported.
logging.getLogger("choreographer.channels.pipe").setLevel(logging.CRITICAL)


def find_browser() -> Path | None:
    """The Chromium or Chrome that images are made with, if there is one."""
    found = Chromium.find_browser(skip_local=False)
    return Path(found) if found and Path(found).is_file() else None


def render(figure: Figure, image: str, layout: Layout) -> bytes:
    """Return a figure as the browser draws it, as ``png``, ``svg`` or ``pdf``.

    Raises:
        ExportError: no browser, or one that does not do its work.
    """
    scale = layout.scale * (layout.dots if image == "png" else 1.0)
    options = {"format": image, "width": layout.width, "height": layout.height, "scale": scale}
    browser = {"mathjax": False, "timeout": _TIMEOUT_SECONDS}
    try:
        drawn = bytes(kaleido.calc_fig_sync(as_json(figure), opts=options, kopts=browser))
        return with_resolution(drawn, layout.dots) if image == "png" else drawn
    except ChromeNotFoundError:
        raise ExportError(f"Expected a Chromium or Chrome for {image}, found none: {_REMEDY}") from None
    except (RuntimeError, OSError, KaleidoError, JavascriptError) as error:
        reason = str(error.args[0] if error.args else type(error).__name__).rstrip(".")
        raise ExportError(
            f"Expected {find_browser()} to draw the {image}, but it failed ({reason}): {_REMEDY}"
        ) from error
