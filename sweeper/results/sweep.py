"""A sweep on disk, as users hold it: its front, its points, and the models of the front."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clipless.errors import CliplessError
from sweeper.calls import called_by_users
from sweeper.errors import RecordError, SweeperError
from sweeper.markup import WIDTH
from sweeper.privacy.card.make import Card, charged_to, make_card
from sweeper.privacy.pricing import Price
from sweeper.records import Point, SweepStatus, Trial
from sweeper.results.display import (
    lines_in_html,
    picked_in_words,
    point_in_words,
    sweep_in_html,
    sweep_in_words,
    trial_frame,
)
from sweeper.results.exporters import Paper, draw
from sweeper.results.front import Front, later_points, read_front
from sweeper.results.pick import CONDITIONS, pick
from sweeper.results.rehearsal_ranking import Rehearsed, ranked_rehearsals
from sweeper.store.evidence import findings_about, read_evidence
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder, check_may_be_seen
from sweeper.store.trial_standings import sweep_status

if TYPE_CHECKING:
    import pandas as pd

    from clipless import Network
    from clipless.datasets import InputFormat
    from clipless.federated.primitives import Identity
    from sweeper.papers.files import Sources


@dataclass(frozen=True, repr=False)
class Picked:
    """One point with what travels with it."""

    point: Point
    trial: Trial
    card: Card
    model_path: Path
    sweep: "Sweep"
    sources: "Sources"

    def __repr__(self) -> str:
        """Return what a terminal shows: the point, what releasing it costs, and its configuration."""
        lines = (textwrap.fill(line, WIDTH) for line in self._lines())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return what a notebook shows, likewise; ``card`` shows itself."""
        return lines_in_html(self._lines())

    def _lines(self) -> list[str]:
        front = _front_or_why(self.sweep)
        if isinstance(front, RecordError):  # its folder has gone since
            return point_in_words(self.point, self.trial.config, None)
        return picked_in_words(self.point, self.trial.config, front)

    @called_by_users()
    def model(self) -> "Network":
        """Load the model.

        Raises:
            clipless.errors.ModelFileError: the file cannot be read.
        """
        import clipless

        return clipless.load(self.model_path)

    @called_by_users()
    def write(self, folder: str | Path, data_dir: Path | None = None, identity: "Identity | None" = None) -> str | None:
        """Write the model into ``folder``, and beside it its papers, of which `sweeper.papers.files` has the names.

        Those of an earlier model go first and the card comes last: whatever fails, no card lies beside another model.

        Args:
            folder: a new one, or that of an earlier model.
            data_dir: local copies of data sets, for ``data.json``, which says how new rows are encoded.
            identity: whose signature goes with the card.

        Returns:
            Why ``data.json`` could not be written, ``None`` if it was.

        Raises:
            RecordError: not written, the sweep may not be seen, or the folder has records of something else.
        """
        folder = Path(folder)
        check_may_be_seen(self.sweep.directory)
        if not self.model_path.is_file():
            raise RecordError(
                f"Expected the model of the point in {self.model_path}, found none; if the point has left the front "
                "since, pick again, else restore the file"
            )
        from sweeper.papers.files import copy_model, write_config, write_sources
        from sweeper.papers.signature import write_card
        from sweeper.store.input_format import input_content_of_sweep, write_input_content

        trouble, content = None, None
        try:
            content = input_content_of_sweep(self.sweep.directory, self.sweep.manifest(), data_dir)
        except (SweeperError, CliplessError) as error:
            trouble = str(error)
        try:
            copy_model(self.model_path, folder)
        except OSError as error:
            raise RecordError(
                f"Cannot write {folder}: {error.strerror or error}; choose another with --output"
            ) from error
        write_config(folder, self.trial.config)
        if content is not None:
            write_input_content(folder, content)
        write_sources(folder, self.sources)
        write_card(folder, self.card, identity)
        return trouble


class Sweep:
    """A finished, running or interrupted sweep, read from its folder."""

    def __init__(self, directory: str | Path) -> None:
        self.folder = SweepFolder(directory)

    @property
    def directory(self) -> Path:
        """The folder."""
        return self.folder.path

    def manifest(self) -> Manifest:
        """Return ``sweep.json``: the resolved spec, versions and status.

        Raises:
            RecordError: not the folder of a sweep, or one of another format.
        """
        return self.folder.read_manifest()

    @property
    @called_by_users()
    def status(self) -> SweepStatus:
        """How it stands; lost where ``sweep.json`` says that it runs, but no process of this machine drives it.

        Raises:
            RecordError: not the folder of a sweep, or one of another format.
        """
        return sweep_status(self.directory, self.manifest().status)

    def input_format(self, data_dir: Path | None = None) -> "InputFormat":
        """Return how new rows become the input of this sweep's models.

        Raises:
            SweeperError: the sweep does not say, and the data of its spec cannot be found.
        """
        from sweeper.store.input_format import input_of_sweep

        return input_of_sweep(self.directory, self.manifest(), data_dir)

    @called_by_users()
    def plot(
        self,
        figure: str = "front",
        *,
        preset: str | None = None,
        width: float | None = None,
        font: float | None = None,
        title: bool = True,
        caption: bool = False,
    ) -> Any:
        """Return a figure of the sweep, by its name in `sweeper.results.exporters.figure_names`.

        Args:
            figure: its name.
            preset: ``column`` or ``page``, the size of a picture for a paper.
            width: of such a picture, in millimetres.
            font: of its text, in points.
            title: whether it has a title.
            caption: whether title and small print are left to the ``caption`` of what is returned.

        Returns:
            A ``plotly.graph_objects.Figure``.

        Raises:
            RecordError: there is no front yet, or it cannot be read.
            UnknownFigureError: there is no such figure.
            ExportError: an unknown preset, a size that no picture has, or a figure that fits no paper.
            SweeperError: nothing that draws is installed.
        """
        return draw(self.directory, figure, Paper.of(preset, width, font, title=title, caption=caption))

    def __repr__(self) -> str:
        """Return what a terminal shows."""
        try:
            return sweep_in_words(*_shown(self))
        except RecordError as error:
            return str(error)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return sweep_in_html(*_shown(self))

    @called_by_users()
    def front(self) -> Front:
        """Return the front.

        Raises:
            RecordError: there is none yet, or it cannot be read.
        """
        return read_front(self.folder.front)

    @property
    @called_by_users()
    def price(self) -> Price | None:
        """What any of its models costs, as its front says; ``None`` where that is not known.

        Raises:
            RecordError: there is no front yet, or it cannot be read.
        """
        return self.front().price

    @property
    @called_by_users()
    def trials(self) -> "pd.DataFrame":
        """The trials as a table, one row for each: its end, its best point, and its configuration.

        ``epoch`` and ``made_from`` name the point that the row shows: the trial's best in the first objective beside
        epsilon. Where ``on_front`` is false it is not on the front, where others of the trial may be. ``epsilon``,
        ``accuracy`` and so on are its values. `sweeper.results.display.trial_rows` explains every column. Of the
        configuration it has what varies; ``front().to_dataframe(constants=True)`` has what all trials share too.

        Raises:
            RecordError: there is no front yet, or it cannot be read.
        """
        return trial_frame(self.front())

    @property
    @called_by_users()
    def points(self) -> "pd.DataFrame":
        """Every point as a table; see `sweeper.Front.to_dataframe`.

        Raises:
            RecordError: there is no front yet, or it cannot be read.
        """
        return self.front().to_dataframe()

    @called_by_users()
    def rehearsals(self) -> Rehearsed:
        """Return the configurations that were rehearsed before the first trial, best first; none of most sweeps.

        They are no results of the sweep: none has an epsilon, a model or a place on the front.

        Raises:
            RecordError: they cannot be read.
        """
        return ranked_rehearsals(self.folder)

    @called_by_users(CONDITIONS)
    def pick(
        self,
        max_epsilon: float | None = None,
        minimum: Mapping[str, float] | None = None,
        *,
        max_price: float | None = None,
    ) -> Picked:
        """Return the point of best utility within the conditions, with its card and model.

        Args:
            max_epsilon: largest own epsilon, fixed in advance.
            minimum: smallest values by objective, ``{"certified@36/255": 0.3}``.
            max_price: largest price of the sweep, an epsilon.

        Raises:
            PickError: no point meets the conditions.
            RecordError: the sweep cannot be read.
        """
        while True:  # until the ledger has not grown meanwhile, so that the card is of these rows
            ledger = self._read_ledger()
            picked = self._pick(ledger, max_epsilon, minimum, max_price)
            if ledger == self._read_ledger():
                return picked

    def _pick(
        self,
        ledger: bytes,
        max_epsilon: float | None,
        minimum: Mapping[str, float] | None,
        max_price: float | None,
    ) -> Picked:
        front = self.front()
        point = pick(front, max_epsilon, minimum, max_price=max_price)
        trial = self.folder.trials().get(point.trial)
        if trial is None:
            raise RecordError(f"Expected trial {point.trial} in {self.directory / 'trials.jsonl'}; restore the file")
        if point.model is None:
            raise RecordError(f"Expected a saved model of trial {point.label}; none was kept")
        card = make_card(
            sweep=front.sweep,
            trial=trial,
            point=point,
            claim=front.claim,
            ledger=front.ledger,
            attempts=charged_to(trial.id, self.folder.ledger),
            last_epoch=max(other.epoch for other in front.points if other.trial == trial.id),
            audits=findings_about(trial.id, read_evidence(self.directory)),
        )
        from sweeper.papers.files import Sources  # imports what trains

        sources = Sources(ledger=ledger, spec=self.manifest().spec)
        return Picked(point, trial, card, self.directory / point.model, self, sources)

    def _read_ledger(self) -> bytes:
        try:
            return self.folder.ledger.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise RecordError(f"Cannot read {self.folder.ledger}: {error.strerror or error}") from error


def _shown(sweep: Sweep) -> tuple[str, SweepStatus, str, Front | RecordError, Sequence[Point]]:
    """Return what a sweep shows of itself: its folder, how it stands and why, its front, and what that lacks."""
    status, front = sweep.status, _front_or_why(sweep)
    later = later_points(sweep.folder, front) if isinstance(front, Front) and status is SweepStatus.LOST else ()
    return str(sweep.directory), status, sweep.manifest().reason, front, later


def _front_or_why(sweep: Sweep) -> Front | RecordError:
    try:
        return sweep.front()
    except RecordError as error:
        return error


def folder_of(sweep: Sweep | str | Path) -> Path:
    """Return the folder of a sweep that is given as such or by its folder."""
    return sweep.directory if isinstance(sweep, Sweep) else Path(sweep)


@called_by_users()
def load(directory: str | Path) -> Sweep:
    """Open the sweep in ``directory``.

    Raises:
        RecordError: not the folder of a sweep.
    """
    sweep = Sweep(directory)
    sweep.manifest()
    return sweep
