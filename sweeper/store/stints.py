"""Which worker trained which trial, in the order of the records.

Records have no times, and none may be added: how long a training takes depends on how many rows joined its batches,
which nobody has paid for. The order in which trials began and ended is that of ``trials.jsonl``, which holds it anyway.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sweeper.records import Trial, TrialStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """One stay of a trial with a worker.

    ``first`` and ``last`` count the beginnings and ends of all trials so far, from 0; ``last`` is None while it lasts.
    """

    trial: str
    first: int
    last: int | None = None
    node: str = ""  # that trains it, and its device; empty before the plan
    device: str = ""
    status: TrialStatus = TrialStatus.RUNNING


def find_stints(rows: Iterable[Trial]) -> tuple[Stint, ...]:
    """Return the stays of trials with workers, in the order in which they began.

    ``rows`` are those of ``trials.jsonl``, in their order: several of each trial.
    """
    open_: dict[str, int] = {}
    found: list[Stint] = []
    moment = 0
    for row in rows:
        is_running = row.status is TrialStatus.RUNNING
        if row.id not in open_:
            if not is_running:
                continue
            open_[row.id] = len(found)
            found.append(Stint(trial=row.id, first=moment))
            moment += 1
        at = open_[row.id]
        node, device = row.placed.get("node", ""), row.placed.get("device", "")
        found[at] = replace(found[at], node=node, device=device, status=row.status)
        if not is_running:
            found[at] = replace(found[at], last=moment)
            moment += 1
            del open_[row.id]
    return tuple(found)
