"""How a sweep and its trials stand: what records call running may be lost, wait for its turn, or never have begun."""

from collections.abc import Collection, Mapping
from pathlib import Path

from sweeper.errors import RecordError
from sweeper.records import SweepStatus, TrialStatus
from sweeper.store.jsonl import JsonlFile
from sweeper.store.lock import is_driven
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder

LOST_REASON = "its driver was killed, or runs on another machine"
WAITING, NEVER_BEGUN, LOST = "waiting", "never begun", "lost"
OPEN = (TrialStatus.RUNNING.value, TrialStatus.INTERRUPTED.value)  # statuses of rows that another may follow


def sweep_status(folder: Path, recorded: SweepStatus) -> SweepStatus:
    """Return how a sweep stands whose ``sweep.json`` has the status ``recorded``: one without a driver does not run.

    Nothing is written: a driver on another machine may be there all the same.
    """
    return SweepStatus.LOST if recorded is SweepStatus.RUNNING and not is_driven(folder) else recorded


def how_stands(status: str, *, drawn: bool | None, runs: bool) -> str:
    """Return how a trial stands or ended, in a word.

    A trial has begun when it has drawn noise: before, it waits, and once its sweep has ended it never began.

    Args:
        status: of its last row.
        drawn: whether it has drawn noise; ``None`` where that is not known, or there is none to draw.
        runs: whether its sweep does.
    """
    if status not in OPEN:
        return status
    is_over = not runs or status == TrialStatus.INTERRUPTED.value
    if drawn is False:
        return NEVER_BEGUN if is_over else WAITING
    return LOST if status == TrialStatus.RUNNING.value and is_over else status


def find_drawn(folder: SweepFolder, manifest: Manifest | None, silent: Collection[str]) -> frozenset[str] | None:
    """Return the trials that have drawn noise, or are about to, as the ledger of a sweep says.

    ``None`` where all are known to have begun, for ``silent``, the open ones without a point, is empty; where a sweep
    without privacy draws no noise; of a private selection, of which nobody is told; and where the ledger is broken.
    """
    if not silent or manifest is None or manifest.selects_privately or manifest.spec.get("privacy") is None:
        return None
    try:
        return _drawn_in(folder.ledger)
    except RecordError:
        return None


def standings(folder: SweepFolder, manifest: Manifest, statuses: Mapping[str, str], *, runs: bool) -> dict[str, str]:
    """Return how each trial of a sweep stands or ended, in a word; ``statuses`` are those of their last rows.

    Raises:
        RecordError: the points of the sweep cannot be read.
    """
    open_ = {id_ for id_, status in statuses.items() if status in OPEN}
    begun = {trial for trial, _, _ in folder.points()} if open_ else set()
    drawn = find_drawn(folder, manifest, open_ - begun)

    def has_drawn(id_: str) -> bool | None:
        return None if drawn is None else id_ in drawn or id_ in begun

    return {id_: how_stands(status, drawn=has_drawn(id_), runs=runs) for id_, status in statuses.items()}


def _drawn_in(ledger: Path) -> frozenset[str]:
    rows = [(row.get("record"), row) for row in JsonlFile(ledger).read()]
    return frozenset(
        str(row.get("trial")) for kind, row in rows if kind == "draw" or (kind == "open" and row.get("drawn", True))
    )
