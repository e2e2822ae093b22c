"""Runs submitted sweeps: a few drivers at a time, in the order of submission, started again when they died.

What is to be done is on the disk before it is done, so that a service that was killed resumes where it was. It is the
only service of its folder: a lock says so.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sweeper.account.rules import Reservation
from sweeper.account.verify import release_reservation
from sweeper.driver.reporting import failure
from sweeper.driver.selection.hidden_folder import check_recorded_cluster, has_final_left
from sweeper.errors import AccountError, RecordError, RefusalError, SweeperError, UnknownSweepError
from sweeper.records import SweepStatus
from sweeper.results.housekeeping import delete_sweep, delete_unstarted
from sweeper.rounding import number_of
from sweeper.service.accounts import ServiceAccounts
from sweeper.service.catalog import NO_SWEEP, Catalog
from sweeper.service.security.declared_accounts import check_charged
from sweeper.service.security.spec_policy import AcceptedSpec
from sweeper.service.settings import ServiceSettings
from sweeper.service.supervision import submissions
from sweeper.service.supervision.drivers import Drivers, facts_of
from sweeper.service.supervision.launcher import Launcher
from sweeper.service.supervision.states import Facts, Standing, settle, state_of, trouble_of
from sweeper.service.supervision.submission_queue import SubmissionQueue
from sweeper.service.supervision.submissions import Cause, Intent, Submission
from sweeper.service.telemetry import LOGGER, Metrics, where
from sweeper.store.lock import ServiceLock
from sweeper.store.requests import ask_to_stop, note_request
from sweeper.store.sweep_folder import SweepFolder, is_waiting

TICK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SubmittedSweep:
    """A sweep that was submitted."""

    name: str  # of its folder
    is_new: bool  # False if the same request had been made before


class Supervisor:
    """Keeps submissions and their drivers; its methods may be called from any thread.

    It is long, of more than fifteen methods, because all that starts, stops or deletes a sweep takes turns by one lock.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        catalog: Catalog,
        launcher: Launcher,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
        accounts: ServiceAccounts | None = None,
    ) -> None:
        self._settings, self._catalog, self._launcher, self._metrics = settings, catalog, launcher, metrics
        self._clock, self._accounts = clock, accounts or ServiceAccounts(settings)
        self._queue = SubmissionQueue(catalog.out, clock)
        self._drivers = Drivers(settings, launcher, self._accounts, clock)
        self._service_lock = ServiceLock(catalog.out)
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def take_folder(self) -> None:
        """Keep other services from the folder.

        Raises:
            RecordError: another service has it, or it cannot be written to.
        """
        self._service_lock.take()

    def open(self) -> None:
        """Take the folder, find what was submitted earlier, and begin to watch.

        Raises:
            RecordError: another service has the folder, or it cannot be written to.
        """
        self.take_folder()
        self._queue.load()
        self._closing.clear()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; drivers keep running."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._service_lock.release()

    @property
    def is_well(self) -> bool:
        """Whether it watches."""
        return self._thread is not None and self._thread.is_alive()

    def find(self, key: str | None, digest: str) -> SubmittedSweep | None:
        """Return the sweep of a request that had come before, ``None`` for a new one.

        ``key`` is a hash of the client's own name for the request.

        Raises:
            RefusalError: the key was used for something else.
        """
        with self._lock:
            earlier = None if key is None else self._queue.named(key)
        if earlier is None:
            return None
        if earlier[1].digest != digest:
            raise RefusalError("Expected another Idempotency-Key: this one came with another spec", 422)
        return SubmittedSweep(earlier[0], is_new=False)

    def submit(
        self, spec: AcceptedSpec, key: str | None, digest: str, by: str, wanted: Reservation | None = None
    ) -> SubmittedSweep:
        """Keep a sweep to be run, which ``by`` submits.

        ``key`` is a hash of the client's own name for the request; the same one again gives the same sweep. What the
        sweep asks of the account that its spec names, ``wanted``, is reserved.

        Raises:
            RefusalError: the key was used for something else, or too many sweeps wait.
            AccountError: the account has no room for it.
            RecordError: the sweep's folder cannot be made, or the account cannot be written to.
        """
        with self._lock:
            earlier = self.find(key, digest)
            if earlier is not None:
                return earlier
            if self._queue.waiting >= self._settings.limits.queued:
                raise RefusalError("Expected fewer sweeps that wait; try again later", 429, {"Retry-After": "60"})
            hold = None
            if spec.account is not None:
                if wanted is None:
                    raise RecordError(f"Expected what {spec.name} asks of account {spec.account}; plan it first")
                hold = partial(self._accounts.reserve, wanted, spec.account)
            return SubmittedSweep(self._queue.add(spec, key, digest, by, hold), is_new=True)

    def stop(self, name: str, trial: str | None = None, *, by: str) -> None:
        """Stop a sweep, waiting or running, or one of its trials, as ``by`` asks.

        One that rests and never began gives back what it has reserved; it stands as it did.

        Raises:
            UnknownSweepError: no such sweep.
            RecordError: it has begun and does not run, or the trial does not.
            AccountError, RecordError: what it has reserved cannot be given back.
        """
        with self._lock:
            folder, submission, facts = self._look_at(name)
            runs = facts.runs or (submission is not None and submission.intent is Intent.RUN)
            if trial is None and not runs and not self._queue.has_begun(name):
                note_request(folder, {"stop": True}, by)
                release_reservation(folder)
                return
            if trial is not None or not runs:
                ask_to_stop(folder, trial, by=by, driven=facts.runs)
                return
            hears = facts.driven or (facts.runs and facts.status is not None)
            if not hears:
                note_request(folder, {"stop": True}, by)
            if submission is not None:
                self._queue.keep(name, submission.but(intent=Intent.STOP))
            if hears:
                with suppress(RecordError):  # it has ended meanwhile, or is asked again soon
                    ask_to_stop(folder, by=by, driven=True)

    def resume(self, name: str, trials: int | None = None, *, by: str) -> None:
        """Resume a sweep that does not run, or give it more trials, so many in all, as ``by`` asks.

        Raises:
            UnknownSweepError: no such sweep.
            RecordError: it runs, cannot be resumed, or has all its trials.
            SpecError: it cannot have so many trials.
            RefusalError: it is charged in the name of somebody else.
            AccountError: its data have an account to which it is not charged.
        """
        with self._lock:
            folder, submission, state = self._at_rest(name)
            check_resumable(folder, state, trials)
            self._accounts.check_resume(folder, "" if submission is None else submission.by, by)
            before = submission or Submission(submitted=self._clock())
            self._queue.delays.forget(name)
            again = before.but(intent=Intent.RUN, trials=trials, job=None, deaths=0, not_before=0.0)
            note_request(folder, {"resume": True} if trials is None else {"extend": trials}, by)
            self._queue.keep(name, again.but(cause=None, failure=""))

    def check_spender(self, name: str, by: str) -> Path:
        """Return the folder of a sweep, unless another one's share of an account pays for what ``by`` asks it to train.

        Raises:
            UnknownSweepError: no such sweep, or it has not begun.
            RefusalError: it is charged in the name of somebody else.
            RecordError: its account cannot be read.
        """
        with self._lock:
            folder, submission, _ = self._look_at(name)
            self._accounts.check_spender(folder, "" if submission is None else submission.by, by)
        return self._catalog.folder(name).path

    def delete(self, name: str) -> Path | None:
        """Delete a sweep that does not run, and return where its ledger is kept, None if nothing was spent.

        Raises:
            UnknownSweepError: no such sweep.
            RecordError: it runs or waits, or is a private selection that has not ended; or it cannot be deleted.

        Guarantees:
            A ledger is whole in ``spent`` before the first file is deleted.
        """
        with self._lock:
            folder, submission, _ = self._at_rest(name)
            if is_waiting(folder):
                raise RecordError(f"Expected a sweep that has ended, but {name} selects privately and has not")
            kept = None
            if self._queue.has_started(name):
                kept = delete_sweep(folder).kept
            else:
                release_reservation(folder)
                delete_unstarted(folder)
            if submission is not None:
                self._queue.forget(name)
            return kept

    def names(self) -> tuple[str, ...]:
        """Return the names of submissions whose sweep has not begun."""
        return tuple(name for name in self._queue.names() if not self._queue.has_started(name))  # as `status`

    def status(self, name: str) -> Standing:
        """Return how a sweep stands, with a reason only where its own records have none.

        Raises:
            UnknownSweepError: no such sweep.
        """
        _, submission, facts = self._look_at(name)  # without the lock: a reader does not wait for a start
        state = state_of(submission, facts)
        return Standing(
            name=name,
            state=state,
            reason=trouble_of(submission, state, is_away=facts.away),
            place=self._queue.place(name),
            started=self._queue.has_started(name),
            submission=submission,
        )

    def tick(self) -> None:
        """Check every submission once, and start the drivers that may be started."""
        with self._lock:
            running = 0
            for name in self._queue.active():
                try:
                    running += self._look_after(name)
                except (SweeperError, OSError) as error:
                    LOGGER.error("cannot look after", extra={"fields": {"sweep": name, "failure": where(error)}})
            for name in self._queue.due():
                if self._drivers.has_room(running):
                    running += self._start(name)
            for name in self._queue.unsettled():
                if not self._give_back(name):
                    break  # the store may be away, which each attempt may wait for
            self._metrics.drivers.set(running)
            self._metrics.waiting.set(self._queue.waiting)

    def _look_after(self, name: str) -> bool:
        """Update one sweep from what its driver did; return whether it has a driver."""
        submission = self._queue.get(name)
        if submission is None or not self._queue.exists(name):
            self._queue.forget(name)
            return False
        self._queue.write_late(name)
        facts = facts_of(self._catalog.out / name, submission, self._launcher)
        if facts.runs:
            if submission.intent is Intent.STOP:
                self._drivers.stop(self._catalog.out / name, submission, facts)
            return True
        changed = settle(submission, facts, self._clock())
        if changed != submission:
            self._queue.keep(name, changed)
            fields = {"sweep": name, "intent": changed.intent.value, "deaths": changed.deaths}
            LOGGER.info("driver ended", extra={"fields": fields})
        return False

    def _give_back(self, name: str) -> bool:
        """Give back what a sweep that rests has reserved if it never began; return whether that was done.

        A failure is tried again after a pause, without limit. A second time gives nothing.
        """
        try:
            if not self._queue.has_begun(name):
                release_reservation(self._catalog.out / name)
        except (SweeperError, OSError) as error:
            LOGGER.error("reservation not given back", extra={"fields": {"sweep": name, "failure": where(error)}})
            self._queue.delays.add(name)
            return False
        self._queue.note_settled(name)
        return True

    def _start(self, name: str) -> bool:
        """Start the driver of one sweep unless it has one; return whether it was started.

        Guarantees:
            No driver is started for a folder that cannot be written to. A driver that cannot be started does not count
            as one that died: the service tries again after a pause, without limit.
        """
        try:
            folder, submission, facts = self._look_at(name)
            if submission is None or facts.runs or self._refuse_uncharged(folder, submission):
                return False
            arguments = self._drivers.arguments(folder, submission, facts)
            asked = submissions.count_requests(folder)
            failure.forget(folder)
            started = submission.but(mark=facts.mark, points=facts.points, asked=asked)
            self._queue.keep(name, started)
            job = self._drivers.launch(arguments, folder)
        except (SweeperError, OSError) as error:
            LOGGER.error("driver not started", extra={"fields": {"sweep": name, "failure": where(error)}})
            self._queue.delays.add(name)
            return False
        self._queue.delays.forget(name)
        self._metrics.started.inc()
        self._metrics.restarted.inc(int(submission.deaths > 0))
        self._queue.remember(name, started.but(job=job))
        LOGGER.info("driver started", extra={"fields": {"sweep": name, "command": arguments[0]}})
        return True

    def _refuse_uncharged(self, folder: Path, submission: Submission) -> bool:
        """Lay a sweep to rest whose data have got an account since it was submitted, and say whether that was so."""
        try:
            check_charged(folder, self._settings)
        except AccountError as error:
            failed = submission.but(intent=Intent.REST, cause=Cause.FAILED, failure=str(error))
            self._queue.keep(folder.name, failed)
            return True
        return False

    def _look_at(self, name: str) -> tuple[Path, Submission | None, Facts]:
        submission = self._queue.get(name)
        folder = self._catalog.folder(name).path if submission is None else self._catalog.out / name
        if not folder.is_dir():
            raise UnknownSweepError(NO_SWEEP)
        return folder, submission, facts_of(self._catalog.out / name, submission, self._launcher)

    def _at_rest(self, name: str) -> tuple[Path, Submission | None, SweepStatus]:
        """Return how a sweep stands that does not run, or refuse."""
        folder, submission, facts = self._look_at(name)
        state = state_of(submission, facts)
        if facts.runs or state in (SweepStatus.QUEUED, SweepStatus.STARTING, SweepStatus.STOPPING):
            raise RecordError(f"Expected a sweep that does not run, but {name} is {state.value}; stop it first")
        return folder, submission, state

    def _watch(self) -> None:
        while not self._closing.wait(TICK_SECONDS):
            try:
                self.tick()
            except Exception as error:  # a supervisor that ends supervises nothing
                LOGGER.error("supervision failed", extra={"fields": {"failure": where(error)}})


def check_resumable(folder: Path, state: SweepStatus, trials: int | None) -> None:
    """Find out whether a sweep can be resumed, or given as many trials.

    A sweep that never started can always be started.

    Raises:
        RecordError: it selected privately and has ended or began on a cluster, or has all its trials.
        SpecError: it cannot have so many trials.
    """
    if not (folder / "sweep.json").is_file():
        return
    name, manifest = folder.name, SweepFolder(folder).read_manifest()
    goes_on = is_waiting(folder) or (manifest.selects_privately and has_final_left(folder))
    if manifest.selects_privately and (trials is not None or not goes_on):
        raise RecordError(f"Expected a sweep that can be resumed, but {name} selected privately; submit another one")
    spec, course = manifest.read_spec(name), manifest.course
    if manifest.selects_privately:
        check_recorded_cluster(manifest, name)
        return
    if trials is None and state is SweepStatus.COMPLETED:
        raise RecordError(f"Expected a sweep with trials to do, but {name} has completed all of them; extend it")
    if trials is not None and course.stages:
        raise RecordError(
            f"Expected a sweep that can take other trials, but the budget of {name} was cut into "
            f"{number_of(course.trials, 'trial')} before its first result, got trials={trials}; submit another sweep"
        )
    if trials is not None and trials < course.trials:
        raise RecordError(f"Expected at least the {course.trials} trials of {name}, got trials={trials}")
    spec.with_search(trials=trials)
