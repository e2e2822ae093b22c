"""Runs what was submitted: a few drivers at a time, in the order of submission, started again when they died.

What is to be done is on the disk before it is done, so that a service that was killed goes on where it was. It is the
only service of its folder: a lock says so.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sweeper.driver import failure
from sweeper.errors import RecordError, RefusalError, SweeperError, UnknownSweepError
from sweeper.service.catalog import Catalog
from sweeper.service.settings import ServiceSettings
from sweeper.service.supervision import submissions
from sweeper.service.supervision.backoff import Backoff
from sweeper.service.supervision.launcher import Launcher
from sweeper.service.supervision.observation import facts_of
from sweeper.service.supervision.states import Facts, State, settled, state_of
from sweeper.service.supervision.submissions import Intent, Submission
from sweeper.service.telemetry import LOGGER, Metrics, where
from sweeper.spec.spec import Spec
from sweeper.store.requests import ask_to_stop
from sweeper.store.sweep_folder import SweepFolder

LOCK_NAME = ".service.lock"
NO_DATA = ".no-data"  # an empty folder: drivers that are given one fetch nothing
TICK_SECONDS = 1.0
ASK_AGAIN_SECONDS = 5.0
LAUNCH_PAUSE_SECONDS = 10.0  # in which no driver is started after one that could not be


@dataclass(frozen=True, slots=True)
class Standing:
    """How a sweep stands.

    Attributes:
        state: in a word.
        submission: what the service was asked about it, None if nothing.
        has_begun: whether its driver has written what it is.
    """

    state: State
    submission: Submission | None
    has_started: bool

    @property
    def trouble(self) -> str:
        """Why it does not go on, where the sweep itself does not say."""
        return "" if self.submission is None else self.submission.trouble


@dataclass(frozen=True, slots=True)
class Submitted:
    """A sweep that was submitted.

    Attributes:
        name: of its folder.
        is_new: False if the same request had been made before.
    """

    name: str
    is_new: bool


class Supervisor:
    """Keeps submissions and their drivers; its methods may be called from any thread.

    Args:
        settings: of the service.
        catalog: of the sweeps.
        launcher: starts drivers.
        metrics: where to count.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        catalog: Catalog,
        launcher: Launcher,
        metrics: Metrics,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._catalog, self._launcher, self._metrics = settings, catalog, launcher, metrics
        self._clock = clock
        self._all: dict[str, Submission] = {}
        self._unwritten: set[str] = set()
        self._asked_at: dict[str, float] = {}
        self._delays, self._launch_after = Backoff(clock), 0.0
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._handle: int | None = None

    def open(self) -> None:
        """Take the folder, find what was submitted earlier, and begin to watch.

        Raises:
            RecordError: another service has the folder, or it cannot be written to.
        """
        self._take()
        for folder in submissions.found(self._catalog.out):
            try:
                self._all[folder.name] = submissions.read(folder)
            except RecordError as error:
                LOGGER.error("unreadable submission", extra={"fields": {"sweep": folder.name, "failure": where(error)}})
        self._closing.clear()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching; drivers go on."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    @property
    def is_well(self) -> bool:
        """Whether it watches."""
        return self._thread is not None and self._thread.is_alive()

    def submit(self, spec: Spec, key: str | None, digest: str) -> Submitted:
        """Keep a sweep to be run.

        Args:
            spec: of the sweep.
            key: hash of the client's own name for the request; the same one again gives the same sweep.
            digest: hash of what was submitted.

        Raises:
            RefusalError: the key was used for something else, or too many sweeps wait.
            RecordError: the sweep's folder cannot be made.
        """
        with self._lock:
            for name, earlier in self._all.items():
                if key is not None and earlier.key == key and self._is_there(name):
                    if earlier.digest != digest:
                        raise RefusalError("Expected another Idempotency-Key: this one came with another spec", 422)
                    return Submitted(name, is_new=False)
            if (
                sum(one.wish is Intent.RUN and one.job is None for one in self._all.values())
                >= self._settings.limits.queued
            ):
                raise RefusalError("Expected fewer sweeps that wait; try again later", 429, {"Retry-After": "60"})
            submission = Submission(submitted=self._clock(), key=key, digest=digest)
            now = datetime.fromtimestamp(self._clock())
            folder = submissions.reserve(self._catalog.out, spec.name, spec.to_yaml(), submission, now)
            self._all[folder.name] = submission
            return Submitted(folder.name, is_new=True)

    def stop(self, name: str, trial: str | None = None) -> None:
        """Stop a sweep, waiting or running, or one of its trials.

        Raises:
            UnknownSweepError: no such sweep.
            RecordError: it does not run, or the trial does not.
        """
        with self._lock:
            folder, submission, facts = self._seen(name)
            runs = facts.runs or (submission is not None and submission.wish is Intent.RUN)
            if trial is not None or not runs:
                ask_to_stop(folder, trial, driven=facts.runs)
                return
            if submission is not None:
                self._keep(name, submission.but(wish=Intent.STOP))
            if facts.driven or (facts.runs and facts.status is not None):
                with suppress(RecordError):  # it has ended meanwhile, or is asked again soon
                    ask_to_stop(folder, driven=True)

    def resume(self, name: str, trials: int | None = None) -> None:
        """Go on with a sweep that does not run, or give it more trials.

        Args:
            name: of the sweep.
            trials: how many in all, those that ran included.

        Raises:
            UnknownSweepError: no such sweep.
            RecordError: it runs, cannot go on, or has all its trials.
            SpecError: it cannot have so many trials.
        """
        with self._lock:
            folder, submission, facts = self._seen(name)
            state = state_of(submission, facts)
            if facts.runs or state in (State.QUEUED, State.STARTING, State.STOPPING):
                raise RecordError(f"Expected a sweep that does not run, but {name} is {state.value}; stop it first")
            self._check_can_go_on(name, folder, state, trials)
            before = submission or Submission(submitted=self._clock())
            self._delays.forget(name)
            self._keep(name, before.but(wish=Intent.RUN, trials=trials, job=None, deaths=0, not_before=0.0, trouble=""))

    def names(self) -> tuple[str, ...]:
        """Return the names of submissions whose sweep has not begun."""
        known = tuple(self._all)  # whoever asks does not wait for what is being done
        return tuple(name for name in known if self._is_there(name) and not self._has_started(name))

    def standing(self, name: str) -> Standing:
        """Return how a sweep stands.

        Raises:
            UnknownSweepError: no such sweep.
        """
        _, submission, facts = self._seen(name)  # nor do they here
        return Standing(state_of(submission, facts), submission, self._has_started(name))

    def tick(self) -> None:
        """Look after every submission once, and start what may be started."""
        with self._lock:
            running = 0
            for name in [name for name, one in self._all.items() if one.wish is not Intent.REST]:
                try:
                    running += self._look_after(name)
                except (SweeperError, OSError) as error:
                    LOGGER.error("cannot look after", extra={"fields": {"sweep": name, "failure": where(error)}})
            for name in self._due():
                if running < self._settings.drivers and self._clock() >= self._launch_after:
                    running += self._start(name)
            self._metrics.drivers.set(running)
            self._metrics.waiting.set(sum(one.wish is Intent.RUN and one.job is None for one in self._all.values()))

    def _due(self) -> list[str]:
        """Return the sweeps that a driver may be started for, those that came first first."""
        now = self._clock()
        waiting = [
            (one.submitted, name)
            for name, one in self._all.items()
            if one.wish is Intent.RUN and one.job is None and one.not_before <= now and not self._delays.hold(name)
        ]
        return [name for _, name in sorted(waiting) if not self._facts(name, self._all[name]).runs]

    def _look_after(self, name: str) -> bool:
        """Do what is due about one sweep; return whether it has a driver."""
        folder = self._catalog.out / name
        if not self._is_there(name):
            self._forget(name)
            return False
        submission = self._all[name]
        if name in self._unwritten:
            self._remember(name, submission)
        facts = self._facts(name, submission)
        if facts.runs:
            if submission.wish is Intent.STOP:
                self._press(folder, submission, facts)
            return True
        changed = settled(submission, facts, self._clock())
        if changed != submission:
            self._keep(name, changed)
            fields = {"sweep": name, "wish": changed.wish.value, "deaths": changed.deaths}
            LOGGER.info("driver ended", extra={"fields": fields})
        return False

    def _press(self, folder: Path, submission: Submission, facts: Facts) -> None:
        """Ask a driver to stop that may not have heard it yet, or end one that has not begun."""
        if facts.status is None:
            self._launcher.kill(submission.job or "")
        elif self._clock() - self._asked_at.get(folder.name, 0.0) > ASK_AGAIN_SECONDS:
            self._asked_at[folder.name] = self._clock()
            with suppress(RecordError):  # it has ended meanwhile, or is asked again
                ask_to_stop(folder, driven=True)

    def _start(self, name: str) -> bool:
        """Start the driver of one sweep; return whether it has one.

        Guarantees:
            No driver is started for a folder that cannot be written to. What keeps one from being started is no death:
            it is tried again after a pause, however long that lasts.
        """
        folder, submission = self._catalog.out / name, self._all[name]
        try:
            facts = self._facts(name, submission)
            arguments = self._arguments(folder, submission, facts)
            asked = submissions.count_requests(folder)
            failure.forget(folder)
            self._keep(name, submission.but(mark=facts.mark, points=facts.points, asked=asked))
            job = self._launch(arguments, folder)
        except (SweeperError, OSError) as error:
            LOGGER.error("driver not started", extra={"fields": {"sweep": name, "failure": where(error)}})
            self._delays.add(name)
            return False
        self._delays.forget(name)
        self._metrics.started.inc()
        self._metrics.restarted.inc(int(submission.deaths > 0))
        self._remember(name, self._all[name].but(job=job))
        LOGGER.info("driver started", extra={"fields": {"sweep": name, "command": arguments[0]}})
        return True

    def _arguments(self, folder: Path, submission: Submission, facts: Facts) -> list[str]:
        if facts.status is None:
            given, data = self._settings, self._data_dir()
            arguments = ["run", str(SweepFolder(folder).spec), "--into", str(folder)]
            arguments += ["--data-dir", str(data)] if data else []
            arguments += ["--trials", str(submission.trials)] if submission.trials else []
            arguments += ["--tracking", given.tracking] if given.tracking else []
            return arguments + (["--cluster", given.cluster] if given.cluster else [])
        if submission.trials is not None:
            return ["extend", str(folder), "--trials", str(submission.trials)]
        return ["resume", str(folder)]

    def _launch(self, arguments: list[str], folder: Path) -> str:
        try:
            return self._launcher.start(arguments, folder)
        except SweeperError:
            self._launch_after = self._clock() + LAUNCH_PAUSE_SECONDS
            raise

    def _data_dir(self) -> Path | None:
        """Return where drivers find data; a driver that has such a folder fetches nothing."""
        if self._settings.data_dir is not None or self._settings.allow_fetch:
            return self._settings.data_dir
        empty = self._catalog.out / NO_DATA
        empty.mkdir(exist_ok=True)
        return empty

    def _keep(self, name: str, submission: Submission) -> None:
        """Write down what is to be, which is not so unless it is written."""
        submissions.write(self._catalog.out / name, submission)
        self._all[name] = submission
        self._unwritten.discard(name)

    def _remember(self, name: str, submission: Submission) -> None:
        """Write down what is so already; what cannot be written is true all the same, and is written later."""
        self._all[name] = submission
        try:
            self._keep(name, submission)
        except (SweeperError, OSError) as error:
            if name not in self._unwritten:
                LOGGER.error("submission not written", extra={"fields": {"sweep": name, "failure": where(error)}})
            self._unwritten.add(name)

    def _forget(self, name: str) -> None:
        del self._all[name]
        self._unwritten.discard(name)
        self._delays.forget(name)

    def _seen(self, name: str) -> tuple[Path, Submission | None, Facts]:
        submission = self._all.get(name)
        folder = self._catalog.folder(name).path if submission is None else self._catalog.out / name
        if not folder.is_dir():
            raise UnknownSweepError("Expected the name of a sweep, as the list of sweeps has it; got another one")
        return folder, submission, self._facts(name, submission)

    def _facts(self, name: str, submission: Submission | None) -> Facts:
        return facts_of(self._catalog.out / name, submission, self._launcher)

    def _has_started(self, name: str) -> bool:
        return (self._catalog.out / name / "sweep.json").is_file()

    def _is_there(self, name: str) -> bool:
        """Whether a submission was not deleted since."""
        return (self._catalog.out / name / submissions.NAME).is_file()

    def _check_can_go_on(self, name: str, folder: Path, state: State, trials: int | None) -> None:
        if not self._has_started(name):
            return  # it never began: it is begun once more
        manifest = SweepFolder(folder).read_manifest()
        if manifest.selects_privately:
            raise RecordError(f"Expected a sweep that can go on, but {name} selected privately; submit another one")
        spec = manifest.read_spec(name)
        if trials is None and state is State.COMPLETED:
            raise RecordError(f"Expected a sweep with trials to do, but {name} has completed all of them; extend it")
        if trials is not None and trials < spec.trials:
            raise RecordError(f"Expected at least the {spec.trials} trials of {name}, got trials={trials}")
        spec.with_search(trials=trials)

    def _take(self) -> None:
        path = self._catalog.out / LOCK_NAME
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise RecordError(f"Expected no other service of {self._catalog.out}, but one runs; stop it") from None
        except OSError as error:
            raise RecordError(f"Cannot write {path}: {error.strerror or error}; choose another with --out") from error

    def _watch(self) -> None:
        while not self._closing.wait(TICK_SECONDS):
            try:
                self.tick()
            except Exception as error:  # a supervisor that ends supervises nothing
                LOGGER.error("supervision failed", extra={"fields": {"failure": where(error)}})
