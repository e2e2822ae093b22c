"""What other packages call by entry point, so that they need not import this one.

``sweeper.exporters: front`` writes the front of a sweep folder to a file, in the format its suffix names;
``diagnostics`` writes the page of a recorded diagnosis.
"""

from pathlib import Path

from dashboards.data import read
from dashboards.diagnostics import build_page
from dashboards.export import export_front
from sweeper.diagnosis import read_diagnosis
from sweeper.rows import replace_file


def export(folder: Path, path: Path) -> Path:
    """Write the front of the sweep in ``folder`` to ``path`` and return it.

    Raises:
        RecordError: the folder holds no readable front.
        ExportError: an unknown suffix, no browser for an image, or a file that cannot be written.
    """
    return export_front(read(folder), path)


def export_diagnostics(record: Path, path: Path) -> Path:
    """Write the page of the diagnosis in ``record`` to ``path`` and return it.

    Raises:
        RecordError: no readable diagnosis, or a page that cannot be written.
    """
    replace_file(path, build_page(read_diagnosis(record)))
    return path
