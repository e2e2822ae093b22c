"""Sweeps at one moment each, shared by all browsers: read when their files changed, and not too often.

A running sweep is read row by row as it grows, and its front is computed over all rows, because ``front.json`` is only
written now and then. Results made of a snapshot are kept with it. The next snapshot is taken after a pause that grows
with the time the last ones took, so that a large sweep with many viewers takes a small share of the machine. Costs of
the first one alone, such as imports, do not lengthen the pause.
"""

import contextlib
import re
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar, cast

from dashboards.data import SweepData, known_actions, read, with_drawn, with_rehearsals
from dashboards.summary import best_of, has_begun, times_resumed, total_price, trials_done
from dashboards.text import score_lines
from sweeper.errors import RecordError, SweeperError, public_sentence
from sweeper.records import Interval, SweepStatus
from sweeper.results.estimates import show_points
from sweeper.results.front import Front, apply_gate, read_front, still_admitted, up_to_date
from sweeper.results.front_record import FrontTrial
from sweeper.service.cache import SharedCache
from sweeper.service.catalog import Catalog
from sweeper.service.problems import Redactor
from sweeper.store.actions import owner_of
from sweeper.store.manifest import Manifest
from sweeper.store.rehearsal_records import join_trainings, read_rehearsals
from sweeper.store.sweep_folder import SweepFolder
from sweeper.store.tail import SweepTail

T = TypeVar("T")
PAUSE_SECONDS = 1.0  # between two looks at one sweep, at least;
PAUSES = 10.0  # and so many times the processor seconds that making took for two snapshots in a row,
LONGEST_PAUSE_SECONDS = 30.0  # but no longer than this
KEPT_SWEEPS = 16
_STARTS = "This sweep has started and has no front yet: workers are starting."
_STARTED = re.compile(r"-(\d{8}-\d{6})(?:-\d{1,3})?$")  # how the names of sweep folders end


@dataclass(frozen=True, slots=True)
class ListedSweep:
    """One row of the list of sweeps; numbers are None where there is no front yet."""

    name: str
    status: str
    started: str = ""
    trials: int | None = None  # that have ended; all that there are where ``planned`` is None
    begun: bool = True  # whether a trial has
    planned: int | None = None  # trials, None where their number is not told
    share: float | None = None  # of them that is done, while they run
    resumed: int = 0  # times
    hypervolume: float | None = None
    hypervolume_interval: Interval | None = None  # where scores are noisy
    exploratory: bool = False
    utility: str = ""  # name of the objective that ``best`` is a value of
    best: float | None = None  # of the point of the front that is best on validation rows: on test rows once scored
    scores: tuple[str, str] = ("", "")  # of that point in words: what ``best`` is, then its validation score beside it
    by: str = ""  # whose it is
    rehearsed: tuple[int, int] | None = None  # configurations, and of how many, while they are rehearsed
    price: float | None = None  # epsilon of what everything costs that is released
    doubt: str = ""  # what stands behind it, where it is not proven


@dataclass
class Snapshot:
    """A sweep at one moment."""

    name: str  # of its folder
    token: str  # tells this snapshot from others of the sweep
    data: SweepData | None = None  # the sweep; None before it has a front, or where it cannot be read
    trouble: str = ""  # why there are no data, in a sentence
    ledger: Path = field(default_factory=Path)  # what the sweep spent, the file
    seconds: float = 0.0
    _made: SharedCache[object] = field(default_factory=SharedCache)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def running(self) -> bool:
        """Whether more may come."""
        return self.status in (SweepStatus.RUNNING.value, "")

    @property
    def status(self) -> str:
        """How the sweep stands, as it says itself."""
        return "" if self.data is None or self.data.manifest is None else self.data.manifest.status.value

    def sweep(self) -> SweepData:
        """Return the data.

        Raises:
            RecordError: there are none.
        """
        if self.data is None:
            raise RecordError(self.trouble)
        return self.data

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result under this key, made the first time; an error is raised and not kept."""

        def timed() -> T:
            started = time.thread_time()
            made = make()
            with self._lock:
                self.seconds += time.thread_time() - started
            return made

        return cast("T", self._made.get(key, timed))

    def sentence(self, error: SweeperError) -> str:
        """As `Snapshots.sentence`."""
        return _sentence(error, self.ledger.parent.parent)


@dataclass(slots=True)
class _SweepState:
    """One sweep as it was last read: its snapshot, what the one before took, and what reads its rows."""

    snapshot: Snapshot = field(default_factory=lambda: Snapshot("", ""))
    seconds_before: float = 0.0
    follower: SweepTail | None = None
    front: tuple[tuple[int, int, int], Front] | None = None


@dataclass(frozen=True, slots=True)
class _SummaryEntry:
    """A row of the list as it was last made: of which state, what that took, and until when a running sweep keeps it.

    The rows of all sweeps are kept, whereas snapshots are kept of a few: a list of many running sweeps must not read
    each of them whole at every look.
    """

    token: str
    listed: ListedSweep
    seconds: float = 0.0
    until: float = 0.0


class Snapshots:
    """Snapshots of the sweeps of a catalog, newest state first; safe to use from several threads."""

    def __init__(self, catalog: Catalog, clock: Callable[[], float] = time.monotonic, limit: int = KEPT_SWEEPS) -> None:
        self._catalog, self._clock = catalog, clock
        self._sweeps: SharedCache[_SweepState] = SharedCache(limit, clock=clock)
        self._rows: dict[str, _SummaryEntry] = {}

    def sentence(self, error: SweeperError) -> str:
        """Return what anybody may be told of an error, without the folders of this machine."""
        return _sentence(error, self._catalog.out)

    def token(self) -> str:
        """Return a text that changes when the list of sweeps does."""
        return sha256(repr(self.summaries()).encode()).hexdigest()[:16]

    def summaries(self) -> tuple[ListedSweep, ...]:
        """Return one row per sweep, newest first; one that vanishes meanwhile is left out."""
        rows = []
        for name in self._catalog.names():
            with contextlib.suppress(SweeperError):
                rows.append(self._row(name))
        return tuple(rows)

    def _row(self, name: str) -> ListedSweep:
        token = _token(self._catalog.version(name))
        known = self._rows.get(name)
        if known is not None and known.token == token:
            return known.listed
        folder = self._catalog.folder(name)
        try:
            manifest = folder.read_manifest()
        except RecordError:
            return ListedSweep(name=name, status="unreadable")
        if manifest.status is not SweepStatus.RUNNING:
            row = _SummaryEntry(
                token, _summary(name, manifest, _written_front_alone(folder, manifest), owner_of(folder.path))
            )
        elif known is not None and known.until > self._clock():
            return known.listed
        else:
            row = self._live_row(name, manifest, 0.0 if known is None else known.seconds)
        self._rows[name] = row
        return row.listed

    def _live_row(self, name: str, manifest: Manifest, seconds_before: float) -> "_SummaryEntry":
        started = time.thread_time()
        snapshot = self.get(name)
        seconds = time.thread_time() - started
        listed = _summary(name, manifest, snapshot.data, owner_of(snapshot.ledger.parent))
        return _SummaryEntry(snapshot.token, listed, seconds, self._clock() + _pause(seconds, seconds_before))

    def get(self, name: str) -> Snapshot:
        """Return the sweep as it is, or as it was at the last look if that was just now.

        Raises:
            SweeperError: no such sweep.
        """
        folder = self._catalog.folder(name)
        before = self._sweeps.peek(name)
        pause = 0.0 if before is None else _pause(before.snapshot.seconds, before.seconds_before)
        return self._sweeps.get(name, lambda: self._look(name, folder), max_age_seconds=pause).snapshot

    def _look(self, name: str, folder: SweepFolder) -> _SweepState:
        """Return the state of a sweep, read again if its files have changed; of one sweep in one thread at a time."""
        state = self._sweeps.peek(name) or _SweepState()
        token, last = _token(self._catalog.version(name)), state.snapshot
        if last.token != token:
            state.seconds_before = last.seconds
            state.snapshot = _take(name, token, folder, state)
        return state


def _sentence(error: SweeperError, out: Path) -> str:
    return Redactor(out)(public_sentence(error))


def _pause(seconds: float, seconds_before: float) -> float:
    """Return the seconds until a sweep is read again."""
    return min(max(PAUSE_SECONDS, PAUSES * min(seconds, seconds_before)), LONGEST_PAUSE_SECONDS)


def _token(version: str) -> str:
    return sha256(version.encode()).hexdigest()[:16]


def _summary(name: str, manifest: Manifest, data: SweepData | None, by: str) -> ListedSweep:
    started = _STARTED.search(name)
    summary = ListedSweep(name, manifest.status.value, started.group(1) if started else "", by=by)
    if data is None:
        return summary
    best, price, utility = best_of(data, data.utility), total_price(data), data.utility
    ended, done = trials_done(data)
    planned = None if manifest.selects_privately else manifest.course.trials or None
    if planned is not None and manifest.status is SweepStatus.RUNNING and not data.rehearses:
        summary = replace(summary, share=min(done / planned, 1.0), resumed=times_resumed(data))
    return replace(
        summary,
        trials=len(data.trials) if planned is None else ended,
        begun=has_begun(data),
        planned=planned,
        hypervolume=None if best is None else data.result.hypervolume,
        hypervolume_interval=None if best is None else data.result.hypervolume_interval,
        exploratory=data.result.claim.exploratory,
        utility=utility,
        best=None if best is None else (best.test or best.values).get(utility, best.values[utility]),
        scores=("", "") if best is None else score_lines(best, utility, data.result.claim),
        rehearsed=(len(data.rehearsals), data.rehearsals_planned) if data.rehearses else None,
        price=None if price is None else price.epsilon,
        doubt="" if price is None else price.doubt,
    )


def _written_front_alone(folder: SweepFolder, manifest: Manifest) -> SweepData | None:
    """Return what the list shows of an ended sweep: its front, with newer prices and without what audits refuse."""
    try:
        data = with_drawn(SweepData(result=read_front(folder.front, whole=False), manifest=manifest), folder)
        return with_rehearsals(data, read_rehearsals(folder.rehearsals)) if data.rehearses else data
    except RecordError:
        return None


def _take(name: str, token: str, folder: SweepFolder, state: _SweepState) -> Snapshot:
    started = time.thread_time()
    snapshot = Snapshot(name, token, ledger=folder.ledger)
    try:
        snapshot.data = _read(folder, state)
    except RecordError as error:
        state.follower = None  # it may have lost rows; the next one reads all of them
        is_early = not folder.front.exists()
        snapshot.trouble = _STARTS if is_early else snapshot.sentence(error)
    snapshot.seconds = time.thread_time() - started
    return snapshot


def _read(folder: SweepFolder, state: _SweepState) -> SweepData:
    manifest = folder.read_manifest()
    if manifest.status is not SweepStatus.RUNNING:
        state.follower = state.front = None
        return replace(read(folder.path), directory=folder.path.name)
    follower = state.follower = state.follower or SweepTail(folder)
    follower.look()
    data = SweepData(
        result=_live_front(still_admitted(_current(folder, state), folder.path), follower),
        manifest=manifest,
        directory=folder.path.name,
        decisions=tuple(follower.decisions),
        actions=known_actions(folder.path),
        trial_rows=tuple(follower.trial_rows),
    )
    return with_drawn(with_rehearsals(data, join_trainings(follower.rehearsals)), folder)


def _current(folder: SweepFolder, state: _SweepState) -> Front:
    return up_to_date(_written_front(folder, state), folder.ledger)


def _written_front(folder: SweepFolder, state: _SweepState) -> Front:
    """Return ``front.json``, parsed only if it was replaced."""
    try:
        status = folder.front.stat()
    except OSError as error:
        raise RecordError(f"Cannot read {folder.front}: {error.strerror or error}") from error
    mark = (status.st_mtime_ns, status.st_size, status.st_ino)
    if state.front is None or state.front[0] != mark:
        state.front = (mark, read_front(folder.front))
    return state.front[1]


def _live_front(written: Front, follower: SweepTail) -> Front:
    """Return the front over every row; the claim is that of ``front.json``."""
    known = (point for point in follower.points.values() if point.trial in follower.trials)
    points = tuple(show_points(known, follower.trials, written.stages))
    trials = {id_: FrontTrial.of(trial) for id_, trial in follower.trials.items()}
    return apply_gate(replace(written, trials=trials, points=points))
