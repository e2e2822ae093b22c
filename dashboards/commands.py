"""What other packages call by entry point, so that they need not import this one.

``sweeper.exporters: front`` writes the front of a sweep folder to a file, in the format its suffix names.
"""

from pathlib import Path

from dashboards.data import read
from dashboards.export import export_front


def export(folder: Path, path: Path) -> Path:
    """Write the front of the sweep in ``folder`` to ``path`` and return it.

    Raises:
        RecordError: the folder holds no readable front.
        ExportError: an unknown suffix, no browser for an image, or a file that cannot be written.
    """
    return export_front(read(folder), path)
