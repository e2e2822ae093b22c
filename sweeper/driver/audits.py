"""The gate at the end of a run: the trials of the front are audited, and what is contradicted leaves it."""

from collections.abc import Callable

from sweeper.driver.finished import troubles_of
from sweeper.driver.recording.recorder import Recorder
from sweeper.records import Point
from sweeper.specification.settings import AuditEffort
from sweeper.store.evidence import append_evidence, in_words, read_evidence, read_refusals, refusals_of
from sweeper.store.sweep_folder import SweepFolder

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
