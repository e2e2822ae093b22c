"""The end of a run of a sweep: its front is audited and written, and what could not be written is said."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sweeper.backend.endings import RunResult
from sweeper.driver.recording.recorder import Recorder
from sweeper.driver.reporting.progress import SweepProgress
from sweeper.errors import SweeperError
from sweeper.records import Point
from sweeper.results.exporters import exporter
from sweeper.results.front import Front
from sweeper.results.sweep import Sweep
from sweeper.specification.settings import AuditEffort
from sweeper.store.evidence import append_evidence, in_words, read_evidence, read_refusals, refusals_of
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
    unwritten: tuple[str, ...]  # those of them that say what of the sweep's folder could not be written
    failures: Mapping[str, str]  # the whole errors of trials that failed, for the owner of the data alone


def write_results(folder: SweepFolder, front: Front) -> Iterator[str]:
    """Write the front, as rows too, and yield what could not be written, one sentence each."""
    yield from troubles_of(lambda: front.write(folder.front))
    yield from troubles_of(lambda: replace_file(folder.path / "front.csv", front.to_csv()))


def write_page(folder: SweepFolder) -> Iterator[str]:
    """Write the report of a sweep whose end is on disk, since it says so, and yield what could not be written."""
    yield from troubles_of(lambda: exporter("front")(folder.path, folder.path / "front.html"))


def troubles_of(write: Callable[[], object]) -> Iterator[str]:
    """Write something, and yield why it failed."""
    try:
        write()
    except SweeperError as error:
        yield str(error)


_MOST_ROUNDS = 100  # of trials that come up because those that dominated them were refused


def audit_trials_of_front(
    effort: AuditEffort, folder: SweepFolder, recorder: Recorder, is_over: Callable[[], bool]
) -> list[str]:
    """Audit every trial of the front that no earlier run has, and return what there is to say of it, in sentences.

    Trials that come up on the front because others were refused are audited too. ``is_over`` is asked before each
    trial; true ends it.

    Guarantees:
        When it has returned, no point of a trial that an audit has contradicted is on the front of the recorder.
    """
    recorder.refuse(read_refusals(folder.path))
    if effort is AuditEffort.NONE:
        return []
    statements: list[str] = []
    seen = {row.trial for row in read_evidence(folder.path)}
    for _ in range(_MOST_ROUNDS):
        points = [point for point in recorder.records.archive.points if point.trial not in seen]
        if not points or is_over():
            break
        seen |= {point.trial for point in points}
        statements += _audit_points(folder, recorder, points, effort, is_over)
    return statements


def _audit_points(
    folder: SweepFolder,
    recorder: Recorder,
    points: list[Point],
    effort: AuditEffort,
    is_over: Callable[[], bool],
) -> list[str]:
    from clipless.audits.audited_training import Effort  # what audits import takes a second
    from sweeper.audits.sweep_audit import audit_front, contradictions

    statements: list[str] = []
    given = folder, recorder.records.trials, points, Effort(effort.value)
    rows = audit_front(*given, is_over=is_over, tell=statements.append)
    before = read_evidence(folder.path)
    statements += troubles_of(lambda: append_evidence(folder.path, rows))
    recorder.refuse(refusals_of([*before, *rows]))  # whether or not the disk has taken it
    return [*statements, *(f"Refused from the front: {in_words(finding)}" for finding in contradictions(rows))]
