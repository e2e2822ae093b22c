"""What other packages call by entry point, so that they need not import this one.

``sweeper.exporters: front`` writes the front of a sweep folder, or one of its figures, to a file, in the format its
suffix names; ``comparison`` does so for several sweeps; ``diagnostics`` writes the page of a recorded diagnosis;
``figures`` names the figures of a sweep and what it lacks for them, and ``figure`` draws one of them.
"""

from pathlib import Path

from dashboards.data import SweepData, read
from dashboards.export.files import export_comparison, export_front
from dashboards.figures import NotebookFigure, choose, comparison_figures, is_empty, needs, refuse, sweep_figures
from sweeper.errors import ExportError
from sweeper.results.comparison import Comparison
from sweeper.results.exporters import Paper
from sweeper.results.front import Front
from sweeper.store.jsonl import replace_file
from sweeper.store.manifest import MANIFEST_NAME

export_compared = export_comparison
_WHOLE = ("json", "csv", "html")  # formats in which a sweep keeps its front


def export(folder: Path, path: Path, figure: str | None = None, paper: Paper | None = None) -> Path:
    """Write the front of the sweep in ``folder``, or one of its figures, to ``path`` and return it.

    Raises:
        RecordError: the folder holds no readable front.
        EmptyFigureError: the sweep has nothing for the figure.
        ExportError: an unknown suffix or figure, no browser for an image, a file that the sweep itself keeps, or one
            that cannot be written.
    """
    _check_place(folder, path, figure)
    return export_front(read(folder), path, figure=figure, paper=paper)


def _check_place(folder: Path, path: Path, figure: str | None) -> None:
    """Refuse to write over records of a sweep, and a figure over its front."""
    kept = {MANIFEST_NAME} if figure is None else {MANIFEST_NAME, *(f"front.{one}" for one in _WHOLE)}
    if path.name in kept and path.resolve().parent == folder.resolve():
        raise ExportError(f"Expected another file than {path}, which the sweep itself keeps (--output); name another")


def export_diagnostics(record: Path, path: Path) -> Path:
    """Write the page of the diagnosis in ``record`` to ``path`` and return it.

    Raises:
        RecordError: no readable diagnosis, or a page that cannot be written.
    """
    from dashboards.pages.diagnostics import build_page  # needs what trains, which takes seconds to import
    from sweeper.results.models.diagnosis import read_diagnosis

    replace_file(path, build_page(read_diagnosis(record)))
    return path


def figure_names(of: Path | Comparison | None = None, *, compared: bool = False) -> dict[str, str]:
    """Return the names of the figures of a sweep, or of several that are compared, in the order of the page.

    With a sweep folder or a comparison each has what it needs and these lack, "" where it has something to show.
    """
    if of is None:
        return dict.fromkeys(comparison_figures() if compared else sweep_figures(), "")
    return needs(comparison_figures(), of) if isinstance(of, Comparison) else needs(sweep_figures(), read(of))


def draw(source: Path | Front, figure: str = "front") -> NotebookFigure:
    """Return one figure of a sweep folder, or of a front alone.

    Raises:
        EmptyFigureError: the sweep has nothing for the figure.
        RecordError: the folder holds no readable front.
        UnknownFigureError: there is no such figure.
    """
    kinds = sweep_figures()
    data = SweepData(result=source) if isinstance(source, Front) else read(source)
    kind = choose(kinds, figure, data)
    drawn = kind.draw(data)
    return refuse(kinds, kind, data) if is_empty(drawn) else NotebookFigure(drawn)
