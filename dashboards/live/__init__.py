"""The live page: sweeps as they run, in a browser.

`mount` adds it to a web application, at ``/``; what it needs beside the page lies under ``/live/``. Nothing is loaded
from elsewhere, no script is inline, and nothing is written: every request reads sweeps through the catalog it is
given. Who may read is the application's to decide, in front of these routes.

Figures and tables are those of the static report. Each is made once for each state of a sweep, kept as bytes, and
fetched by every browser under an address that changes only when its content may have.
"""

from dashboards.live.server import mount
from dashboards.live.view import PREFIX

__all__ = ["PREFIX", "mount"]
