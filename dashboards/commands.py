"""What other packages call by entry point, so that they need not import this one.

``sweeper.exporters: front`` writes the front of a sweep folder, or one of its figures, to a file, in the format its
suffix names; ``comparison`` does so for several sweeps; ``diagnostics`` writes the page of a recorded diagnosis;
``figures`` names the figures of a sweep and what it lacks for them, and ``figure`` draws one of them.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from dashboards.data import SweepData, read
from dashboards.export.files import check_fits, export_comparison, export_front, whole_caption
from dashboards.export.paper import fit, is_narrow
from dashboards.figures import (
    Figure,
    FigureKind,
    NotebookFigure,
    choose,
    comparison_figures,
    is_empty,
    needs,
    refuse,
    sweep_figures,
)
from sweeper.papers.files import check_no_record
from sweeper.results.comparison import Comparison
from sweeper.results.exporters import Paper
from sweeper.results.front import Front
from sweeper.store.jsonl import replace_file

D = TypeVar("D")

_WHOLE = ("json", "csv", "html")  # formats in which a sweep keeps its front


def export(
    folder: Path,
    path: Path,
    figure: str | None = None,
    paper: Paper | None = None,
    *,
    called: str = "",
    lost: bool | None = None,
) -> Path:
    """Write the front of the sweep in ``folder``, or one of its figures, to ``path`` and return it.

    Commands in it name the folder, or what it is ``called`` where readers may not know where it lies. ``lost`` is
    whether the sweep has lost its driver, from who knows.

    Raises:
        RecordError: the folder holds no readable front, or a file that a sweep or a model is read from.
        EmptyFigureError: the sweep has nothing for the figure.
        ExportError: an unknown suffix or figure, no browser for an image, or a file that cannot be written.
    """
    _check_place(folder, path, figure)
    data = read(folder, lost=lost)
    return export_front(replace(data, directory=called or data.directory), path, figure=figure, paper=paper)


def _check_place(folder: Path, path: Path, figure: str | None) -> None:
    """Refuse to write over records of any sweep or model, and a figure over the front of its own."""
    is_front = path.resolve().parent == folder.resolve() and path.name in (f"front.{one}" for one in _WHOLE)
    if not is_front or figure is not None:
        check_no_record(path)


def export_compared(
    comparison: Comparison, path: str | Path, figure: str | None = None, paper: Paper | None = None
) -> Path:
    """Write a comparison, or one of its figures, to ``path`` and return it; errors as `export_comparison`.

    Raises:
        RecordError: a file that a sweep or a model is read from.
    """
    check_no_record(Path(path))
    return export_comparison(comparison, path, figure, paper)


def export_diagnostics(record: Path, path: Path) -> Path:
    """Write the page of the diagnosis in ``record`` to ``path`` and return it.

    Raises:
        RecordError: no readable diagnosis, a file that a sweep or a model is read from, or a page that cannot be
            written.
    """
    from dashboards.pages.diagnostics import build_page  # needs what trains, which takes seconds to import
    from sweeper.results.models.diagnosis import read_diagnosis

    check_no_record(path)
    replace_file(path, build_page(read_diagnosis(record)))
    return path


def figure_names(of: Path | Comparison | None = None, *, compared: bool = False) -> dict[str, str]:
    """Return the names of the figures of a sweep, or of several that are compared, in the order of the page.

    With a sweep folder or a comparison each has what it needs and these lack, "" where it has something to show.
    """
    if of is None:
        return dict.fromkeys(comparison_figures() if compared else sweep_figures(), "")
    return needs(comparison_figures(), of) if isinstance(of, Comparison) else needs(sweep_figures(), read(of))


def draw(source: Path | Front | Comparison, figure: str = "front", paper: Paper | None = None) -> NotebookFigure:
    """Return one figure of a sweep folder, of a front alone or of a comparison, as a picture if there is a paper.

    Without one its pictures are those of the command, unless it is changed before.

    Raises:
        EmptyFigureError: the sweep has nothing for the figure.
        ExportError: the figure fits no paper.
        RecordError: the folder holds no readable front.
        UnknownFigureError: there is no such figure.
    """
    if isinstance(source, Comparison):
        return _drawn(comparison_figures(), source, figure, paper)
    return _drawn(
        sweep_figures(), SweepData(result=source) if isinstance(source, Front) else read(source), figure, paper
    )


def _drawn(kinds: Mapping[str, FigureKind[D, Any]], data: D, figure: str, paper: Paper | None) -> NotebookFigure:
    kind = choose(kinds, figure, data)
    check_fits(kinds, kind, data, paper)

    def shown(on: Paper | None) -> Figure:
        drawn = kind.draw(data, narrow=on is not None and is_narrow(on), still=on is not None)
        return refuse(kinds, kind, data) if is_empty(drawn) else drawn

    def picture(on: Paper) -> NotebookFigure:
        drawn = shown(on)
        size = fit(drawn, on)
        return NotebookFigure(drawn).lay_out(
            size.width, size.height, size.scale, size.dots, whole_caption(size, kind, data)
        )

    return NotebookFigure(shown(None)).with_pictures(lambda: picture(Paper())) if paper is None else picture(paper)
