"""Whether a sweep that selected privately can go on."""

from pathlib import Path

from sweeper.errors import RecordError
from sweeper.privacy.selection import WINNER_TRIAL
from sweeper.records import SweepStatus, TrialStatus
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder, is_secret

UNFINISHED = (SweepStatus.RUNNING, SweepStatus.INTERRUPTED)
_OPEN = (TrialStatus.RUNNING, TrialStatus.INTERRUPTED)  # of a final


def has_final_left(path: Path) -> bool:
    """Whether a sweep has a winner, and a final that can be begun or go on; one that has failed cannot.

    Raises:
        RecordError: its ledger or its trials cannot be read.
    """
    from sweeper.privacy.ledger import Ledger  # takes seconds, and few who ask have one

    folder = SweepFolder(path)
    if is_secret(path) or not folder.ledger.is_file():
        return False
    ledger, trials = Ledger(folder.ledger), folder.trials()
    held = ledger.budget is not None and ledger.held is not None
    finals = [trial.status for name, trial in trials.items() if name != WINNER_TRIAL]
    return held and WINNER_TRIAL in trials and all(status in _OPEN for status in finals)


def check_recorded_cluster(manifest: Manifest, folder: Path | str) -> None:
    """Refuse to go on with a private selection that an earlier version began on a cluster.

    Raises:
        RecordError: ``sweep.json`` names the cluster.
    """
    if manifest.selects_privately and manifest.cluster is not None:
        raise RecordError(
            f"Expected a private selection of this machine, got one that began on the cluster {manifest.cluster} in "
            f"{folder}; start another sweep, or see what one that waits has trained with sweeper resume --give-up"
        )
