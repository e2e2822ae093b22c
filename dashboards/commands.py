"""What the sweeper calls through its entry points."""

from pathlib import Path

from dashboards.data import read
from dashboards.export import export_front


def export(folder: Path, path: Path) -> None:
    """Write the front of the sweep in ``folder`` to ``path``, in the format of its suffix.

    Raises:
        RecordError: the folder holds no readable front.
        ExportError: an unknown suffix, no browser for an image, or a file that cannot be written.
    """
    export_front(read(folder), path)
