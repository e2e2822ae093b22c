"""What a run of a sweep leaves: the result, its last state, and what could not be written."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sweeper.backend.endings import RunResult
from sweeper.driver.reporting.progress import SweepProgress
from sweeper.errors import SweeperError
from sweeper.results.exporters import exporter
from sweeper.results.front import Front
from sweeper.results.sweep import Sweep
from sweeper.store.jsonl import replace_file
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.outbox import Undelivered


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedSweep:
    """A sweep that was run, and how that ended."""

    sweep: Sweep
    front: Front
    outcome: RunResult
    progress: SweepProgress
    left: Undelivered  # rows that the tracking store has not taken
    look: str
    troubles: tuple[str, ...]  # what could not be written, and what else there is to say, one sentence each
    failures: Mapping[str, str]  # the whole errors of trials that failed, for the owner of the data alone


def write_results(folder: SweepFolder, front: Front, *, page: bool) -> Iterator[str]:
    """Write the front, as rows and as a page too, and yield what could not be written, one sentence each."""
    yield from troubles_of(lambda: front.write(folder.front))
    yield from troubles_of(lambda: replace_file(folder.path / "front.csv", front.to_csv()))
    if page:
        yield from troubles_of(lambda: exporter("front")(folder.path, folder.path / "front.html"))


def troubles_of(write: Callable[[], object]) -> Iterator[str]:
    """Write something, and yield why it failed."""
    try:
        write()
    except SweeperError as error:
        yield str(error)
