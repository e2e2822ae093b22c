"""How every sweep stands, for pages: those that wait, run, have ended, and those whose driver is gone."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from sweeper.errors import RecordError, SweeperError, UnknownSweepError, public_sentence
from sweeper.records import SweepStatus
from sweeper.service.cache import SharedCache
from sweeper.service.catalog import Catalog
from sweeper.service.supervision.states import Facts, Standing, state_of
from sweeper.service.supervision.submissions import Submission
from sweeper.specification.yaml_file import read_mapping
from sweeper.store.lock import is_driven
from sweeper.store.manifest import told_spec
from sweeper.store.sweep_folder import SweepFolder
from sweeper.store.trial_standings import LOST_REASON

KEPT_SECONDS = 1.0  # for which what was seen is not looked up again
_DRIVEN = (SweepStatus.STARTING, SweepStatus.RUNNING, SweepStatus.STOPPING)


class Standings(Protocol):
    """Says how sweeps stand; safe to use from several threads."""

    def all(self) -> tuple[Standing, ...]:
        """Return how every sweep stands, newest first."""

    def one(self, name: str) -> Standing:
        """Return how one sweep stands.

        Raises:
            UnknownSweepError: no such sweep.
        """


class RecordedStandings:
    """What the records of sweeps say, and whether a driver holds their locks."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalog = catalog
        self._kept: SharedCache[tuple[Standing, ...]] = SharedCache(clock=clock)

    def all(self) -> tuple[Standing, ...]:
        """As `Standings.all`."""
        return self._kept.get("all", self._all, max_age_seconds=KEPT_SECONDS)

    def one(self, name: str) -> Standing:
        """As `Standings.one`."""
        path = self._catalog.folder(name).path
        status, reason = recorded(path)
        facts = Facts(driven=is_driven(path), alive=False, status=status, mark=0)
        return standing(name, state_of(None, facts), reason)

    def _all(self) -> tuple[Standing, ...]:
        return tuple(found for name in self._catalog.names() if (found := if_known(self, name)))


def standing(
    name: str,
    state: SweepStatus,
    reason: str,
    place: int | None = None,
    *,
    started: bool = True,
    submission: Submission | None = None,
) -> Standing:
    """Return how a sweep stands, with a reason where its own says nothing of the state."""
    if state is SweepStatus.LOST:
        reason = LOST_REASON
    if state in _DRIVEN:
        reason = ""  # that of its last end
    return Standing(name=name, state=state, reason=reason, place=place, started=started, submission=submission)


def submitted_spec(out: Path, name: str) -> Mapping[str, object] | None:
    """Return the spec of a sweep that was submitted and has not started, as `told_spec`; None if it cannot be read."""
    try:
        return told_spec(read_mapping(SweepFolder(out / name).spec))
    except (SweeperError, OSError, ValueError):
        return None


def if_known(standings: Standings, name: str, redact: Callable[[str], str] = str) -> Standing | None:
    """Return how a sweep stands, None if there is none of that name any more; one that cannot be read has failed."""
    try:
        return standings.one(name)
    except UnknownSweepError:  # deleted meanwhile
        return None
    except RecordError as error:
        return standing(name, SweepStatus.FAILED, redact(public_sentence(error)))


def recorded(folder: Path) -> tuple[SweepStatus | None, str]:
    """Return the status that the records of a sweep say, and the reason; no status where they cannot be read."""
    try:
        manifest = SweepFolder(folder).read_manifest()
    except RecordError:
        return None, ""
    return manifest.status, manifest.reason
