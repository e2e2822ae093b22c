"""What other packages call by entry point, so that they need not import this one.

``sweeper.exporters: front`` writes the front of a sweep folder, or one of its figures, to a file, in the format its
suffix names; ``comparison`` does so for several sweeps; ``diagnostics`` writes the page of a recorded diagnosis.
"""

from pathlib import Path

from dashboards.data import read
from dashboards.export.files import export_comparison, export_front
from sweeper.store.jsonl import replace_file

export_compared = export_comparison


def export(folder: Path, path: Path, figure: str | None = None) -> Path:
    """Write the front of the sweep in ``folder``, or one of its figures, to ``path`` and return it.

    Raises:
        RecordError: the folder holds no readable front.
        ExportError: an unknown suffix or figure, no browser for an image, or a file that cannot be written.
    """
    return export_front(read(folder), path, figure=figure)


def export_diagnostics(record: Path, path: Path) -> Path:
    """Write the page of the diagnosis in ``record`` to ``path`` and return it.

    Raises:
        RecordError: no readable diagnosis, or a page that cannot be written.
    """
    from dashboards.pages.diagnostics import build_page  # needs what trains, which takes seconds to import
    from sweeper.results.diagnosis import read_diagnosis

    replace_file(path, build_page(read_diagnosis(record)))
    return path
