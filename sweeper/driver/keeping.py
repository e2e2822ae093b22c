"""Commands that keep house, as functions: list sweeps, note and tag trials, verify a picked model."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweeper.calls import called_by_users
from sweeper.errors import RecordError
from sweeper.privacy.held_out import shown_score
from sweeper.results.highlights import best
from sweeper.results.notes import add_note, add_tag
from sweeper.results.sweep import Sweep, folder_of
from sweeper.store.sweep_folder import SweepFolder, hidden_sweeps, list_sweeps

if TYPE_CHECKING:
    import pandas as pd

_BEST_ENDS, _ENDS = ("best_low", "best_high"), ("hypervolume_low", "hypervolume_high")


@called_by_users()
def list(out: str | Path = "sweeps-out") -> "pd.DataFrame":
    """List the sweeps in a folder, oldest first.

    A private selection that was killed there is finished first as far as it can be, which a warning says.

    Returns:
        One row per sweep: ``sweep`` (its folder, for `load`), ``status``, how many ``trials``, the ``best`` value of
        the first ``objective`` beside epsilon with the ends of its interval and which ``rows`` it is of (test rows
        where they are scored, else the validation rows that chose it), its ``price`` (an epsilon), whether that is
        ``proven``, and ``hypervolume``, with the ends of its interval where scores are noisy; without a front, or one
        that can be read, the numbers are missing.
    """
    import pandas as pd

    if hidden_sweeps(out):
        from sweeper.driver.selection.private_run import recover_all

        for line in recover_all(Path(out)):
            warnings.warn(line, stacklevel=3)
    names = ["sweep", "status", "trials", "objective", "best", *_BEST_ENDS, "rows", "price", "proven", "hypervolume"]
    return pd.DataFrame.from_records([_row(folder) for folder in list_sweeps(out)], columns=[*names, *_ENDS])


@called_by_users()
def note(sweep: Sweep | str | Path, trial: str, text: str) -> None:
    """Add a note to a trial, while the sweep runs or afterwards; a warning says why MLflow does not have it.

    Raises:
        RecordError: no such trial, no text, or not written.
    """
    _warn(add_note(folder_of(sweep), trial, text))


@called_by_users()
def tag(sweep: Sweep | str | Path, trial: str, key: str, value: str) -> None:
    """Set a tag of a trial, while the sweep runs or afterwards; a warning says why MLflow does not have it.

    Raises:
        RecordError: no such trial, no such key, or not written.
    """
    _warn(add_tag(folder_of(sweep), trial, key, value))


@called_by_users()
def verify(folder: str | Path, key: str | None = None) -> "pd.DataFrame":
    """Check a picked model by its papers alone: schema, hashes, signature, and every claim against the ledger.

    Args:
        folder: what `Picked.write` or ``sweeper pick`` wrote, or the ``card.json`` in it.
        key: the public key that must have signed the card.

    Returns:
        One row per check: whether it ``holds``, and what was ``found``. It is verified if every check holds.

    Raises:
        RecordError: ``key`` is no public key.

    Guarantees:
        As `sweeper.papers.verification.verify_papers`.
    """
    import pandas as pd

    from sweeper.papers.signature import read_public
    from sweeper.papers.verification import verify_papers

    checks = verify_papers(Path(folder), None if key is None else read_public(key))
    return pd.DataFrame.from_records(
        [{"holds": not check.failure, "found": check.failure or check.holds} for check in checks]
    )


def _row(folder: SweepFolder) -> dict[str, Any]:
    row: dict[str, Any] = {"sweep": str(folder.path)}
    try:
        row["status"] = Sweep(folder.path).status.value
        front = Sweep(folder.path).front() if folder.front.is_file() else None
    except RecordError as error:
        return row | {"status": f"unreadable: {error}"}
    if front is None:
        return row
    judged = next((one for one in front.objectives if one.name != "epsilon"), None)
    found = None if judged is None else best(front.front_points, judged)
    if judged is not None and found is not None:
        shown = shown_score(found, judged.name, front.claim)
        row |= {"objective": judged.name, "best": shown.value, "rows": shown.split}
        row |= dict(zip(_BEST_ENDS, shown.interval or (), strict=False))
    row |= {} if front.price is None else {"price": front.price.epsilon, "proven": front.is_proven}
    ends = zip(_ENDS, front.hypervolume_interval or (), strict=False)
    return row | {"trials": front.trials_begun, "hypervolume": front.hypervolume, **dict(ends)}


def _warn(trouble: str | None) -> None:
    if trouble is not None:
        warnings.warn(f"Kept in the sweep's folder; {trouble}", stacklevel=4)
