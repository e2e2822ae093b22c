"""Running a sweep: from a spec to a folder with its front."""

import contextlib
import datetime
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from torch import Tensor

import clipless
from clipless.certificates import float64_features
from clipless.datasets import Dataset
from clipless.errors import CliplessError
from sweeper import space
from sweeper.claims import Claim
from sweeper.cluster import cluster
from sweeper.desk import one_line
from sweeper.engine import Outcome, run_trials
from sweeper.errors import RecordError, SweeperError
from sweeper.front import Front
from sweeper.interruption import Interruption
from sweeper.mlflow_names import version_tags
from sweeper.objectives import reads_training_rows
from sweeper.outbox import Left
from sweeper.preview import check_plans
from sweeper.progress import Progress, Running
from sweeper.recorder import Recorder
from sweeper.records import TrialStatus
from sweeper.rows import replace_file
from sweeper.search import FrontSearch
from sweeper.settings import Scheduler
from sweeper.spec import Spec
from sweeper.store import SweepFolder
from sweeper.sweep import Sweep
from sweeper.tracking import Tracker, how_to_look
from sweeper.trainable import CliplessTrial
from sweeper.yaml_file import parse_mapping

SHOW_SECONDS = 0.5
POLL_SECONDS = 0.05
INTERRUPTED = "interrupted"
EXPORTERS = "sweeper.exporters"  # entry-point group: functions of (sweep folder, file to write)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a sweep is run, as opposed to what it is.

    Attributes:
        out: where the sweep's folder is made.
        data_dir: local copies of data sets.
        tracking: MLflow tracking URI; by default a SQLite file in the sweep's folder.
        cluster: address of a Ray cluster; by default one is started on this machine.
        show: is given the state of the sweep about twice a second.
    """

    out: Path = Path("sweeps-out")
    data_dir: Path | None = None
    tracking: str | None = None
    cluster: str | None = None
    show: Callable[[Progress], None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A sweep that was run, and how that ended.

    Attributes:
        sweep: the result.
        front: its front.
        outcome: whether it was interrupted or ended early.
        progress: its last state.
        left: rows that the tracking store has not taken.
        look: the command that shows its runs.
        troubles: what could not be written, one sentence each.
    """

    sweep: Sweep
    front: Front
    outcome: Outcome
    progress: Progress
    left: Left
    look: str
    troubles: tuple[str, ...]


def run(spec: Spec, options: Options | None = None) -> Sweep:
    """Run a sweep to its end, or to the first Ctrl-C, and return it.

    Raises and guarantees: as `run_sweep`.
    """
    return run_sweep(spec, options).sweep


def run_sweep(spec: Spec, options: Options | None = None) -> Ended:
    """Run a sweep to its end, or to the first Ctrl-C.

    Args:
        spec: what to search.
        options: where and with what.

    Returns:
        The sweep and how it ended; after an interruption with the front of what was done.

    Raises:
        SpecError: a spec that does not fit its data, found before anything is written.
        clipless.errors.DataError: data that cannot be used.
        RecordError: the folder cannot be made, or not be written to.
        KeyboardInterrupt: on Ctrl-C before there is a folder, or on a second one.

    Guarantees:
        Every trial's event is in the ledger, on the disk, before the trial draws its first noise.
    """
    options = options or Options()
    data = clipless.datasets.load(**spec.data_options(options.data_dir))
    check_plans(spec, data)
    with Interruption() as interruption:
        folder = SweepFolder.create(options.out, spec.name, datetime.datetime.now())
        return _SweepRun(spec, options, data, folder, interruption).run()


class _SweepRun:
    def __init__(
        self, spec: Spec, options: Options, data: Dataset, folder: SweepFolder, interruption: Interruption
    ) -> None:
        self._spec, self._options, self._data, self._folder = spec, options, data, folder
        self._interruption = interruption
        self._claim = Claim.about(
            data.metadata,
            len(data.train),
            delta=spec.privacy.delta,
            reads_training_rows=reads_training_rows(spec.search.metrics),
            ends_trials_early=spec.search.scheduler is not Scheduler.NONE,
        )
        self._started = self._shown_at = time.monotonic()
        self._troubles: list[str] = []

    def run(self) -> Ended:
        self._open()
        status, outcome = TrialStatus.FAILED, Outcome()
        try:
            outcome = self._search()
            status = _status(outcome)
        except BaseException as error:
            forced = isinstance(error, KeyboardInterrupt)
            status = TrialStatus.INTERRUPTED if forced else TrialStatus.FAILED
            outcome = Outcome(forced, INTERRUPTED if forced else one_line(error))
            raise
        finally:
            front, left = self._finish(status, outcome.reason)
        return Ended(
            sweep=Sweep(self._folder.path),
            front=front,
            outcome=outcome,
            progress=self._progress(),
            left=left,
            look=how_to_look(self._tracker.destination.uri),
            troubles=tuple(self._troubles),
        )

    def _open(self) -> None:
        """Write what the sweep is; a folder that does not even take that is removed again."""
        try:
            self._describe(TrialStatus.RUNNING)
            replace_file(self._folder.spec, _as_given(self._spec))
        except RecordError:
            shutil.rmtree(self._folder.path, ignore_errors=True)
            raise
        tags = version_tags() | {"sweeper.exploratory": str(self._claim.exploratory).lower()}
        self._tracker = Tracker(
            self._folder.path,
            self._spec.name,
            uri=self._options.tracking,
            params=self._spec.to_plain(),
            tags=tags | {"sweeper.spec_hash": self._spec.digest()},
        )
        self._recorder = Recorder(self._spec, self._folder, self._claim, self._tracker)
        self._recorder.write_front_now_and_then()

    def _search(self) -> Outcome:
        """Run the trials, wait for their second prices, and score the front on the test split."""
        with cluster(self._options.cluster, threads=max(1, int(self._spec.resources.cpus))):
            self._started = time.monotonic()
            outcome = Outcome() if self._interruption.requested else self._run_trials()
        while self._recorder.waiting and not self._interruption.requested:
            time.sleep(POLL_SECONDS)
            self._between()
        self._test_front()
        return Outcome(True, INTERRUPTED) if self._interruption.requested else outcome

    def _run_trials(self) -> Outcome:
        spec, resources = self._spec, self._spec.resources
        return run_trials(
            CliplessTrial,
            FrontSearch(
                self._propose,
                spec.objectives,
                sampler=spec.search.sampler,
                seed=spec.search.seed,
                first=spec.first,
                constraints=spec.search.outcomes,
            ),
            trials=spec.trials,
            concurrent=resources.concurrent,
            resources={"CPU": resources.cpus, **({"GPU": resources.gpus} if resources.gpus else {})},
            storage_dir=self._folder.path,
            hooks=self._recorder.hooks,
            constants={
                "spec": spec.to_plain(),
                "source": str(Path(spec.source).resolve()),
                "folder": str(self._folder.path.resolve()),
                "data_dir": None if self._options.data_dir is None else str(self._options.data_dir.resolve()),
            },
            hours=spec.search.hours,
            should_stop=self._between,
            interruption=self._interruption,
        )

    def _propose(self, trial: space.Proposer) -> dict[str, Any]:
        return dict(space.suggest(trial, self._spec))

    def _between(self) -> None:
        """What the driver does between two events."""
        self._recorder.settle()
        now = time.monotonic()
        if now - self._shown_at > SHOW_SECONDS:
            self._shown_at = now
            self._recorder.write_front_now_and_then()
            self._options.show(self._progress())

    def _test_front(self) -> None:
        """Touch the test split, once: for the points of the final front."""
        features: dict[str, Tensor] = {}  # of one trial: its models share their fixed front
        for point in sorted(self._recorder.archive.points, key=lambda point: point.key):
            if self._interruption.requested:
                return
            self._between()
            try:
                model = clipless.load(self._folder.path / str(point.model))
            except CliplessError as error:
                self._troubles.append(f"No test scores for trial {point.trial}, epoch {point.epoch}: {error}")
                continue
            if point.trial not in features:
                features = {point.trial: float64_features(model, self._data.test.x)}
            scores = clipless.evaluate(
                model,
                self._data.test,
                self._spec.radii,
                self._data.metadata.input_gain,
                features=features[point.trial],
            )
            self._recorder.add_test(point, scores)

    def _finish(self, status: TrialStatus, reason: str) -> tuple[Front, Left]:
        """Write everything that there is, after an interruption or an error too."""
        folder, recorder, cut = self._folder, self._recorder, status is TrialStatus.INTERRUPTED
        try:
            recorder.settle(all_=True)
            recorder.close()
            front = recorder.front(tight=not cut)
            self._attempt(lambda: front.write(folder.front))
            self._attempt(lambda: replace_file(folder.path / "front.csv", front.to_csv()))
            self._attempt(lambda: export(folder.path, folder.path / "front.html"))
            self._attempt(lambda: self._describe(status, reason))
            for name in ("front.json", "front.html", "front.csv", "ledger.jsonl", "spec.yaml"):
                if (folder.path / name).exists():
                    self._tracker.artifact(folder.path / name)
            self._tracker.log(None, 0, {"hypervolume": front.hypervolume})
        finally:
            patience = 10.0 if cut and self._options.tracking else 30.0  # a store of one's own always answers
            left = self._tracker.close(status, reason, timeout_seconds=patience)
        if recorder.note_runs():  # runs that the store made only now
            front = recorder.front(tight=not cut)
            self._attempt(lambda: front.write(folder.front))
        self._troubles += filter(None, [folder.trouble, *self._tracker.refused[:1]])
        return front, left

    def _attempt(self, write: Callable[[], object]) -> None:
        """Write something; what fails is a trouble, not an error."""
        try:
            write()
        except SweeperError as error:
            self._troubles.append(str(error))

    def _describe(self, status: TrialStatus, reason: str = "") -> None:
        """Replace ``sweep.json``."""
        self._folder.write_sweep(
            {
                "name": self._spec.name,
                "status": status.value,
                "reason": reason,
                "spec": self._spec.to_plain(),
                "spec_hash": self._spec.digest(),
                "source": self._spec.source,
                "versions": version_tags(),
                "started": self._folder.path.name.removeprefix(f"{self._spec.name}-"),
                "tracking": self._options.tracking,
            }
        )

    def _progress(self) -> Progress:
        trials = self._recorder.trials.values()
        last = {point.trial: point.epoch for point in self._recorder.points.values()}
        running = tuple(
            Running(trial.id, last.get(trial.id, 0), int((trial.plan or {}).get("epochs", 0)))
            for trial in trials
            if trial.status is TrialStatus.RUNNING
        )
        ended = [trial.status for trial in trials if trial.status is not TrialStatus.RUNNING]
        hours = self._spec.search.hours
        return Progress(
            name=self._spec.name,
            total=self._spec.trials,
            done=sum(status in (TrialStatus.COMPLETED, TrialStatus.STOPPED) for status in ended),
            failed=sum(status is TrialStatus.FAILED for status in ended),
            running=running,
            objectives=self._spec.objectives,
            front=self._recorder.archive.points,
            hypervolume=self._recorder.archive.hypervolume(),
            elapsed_seconds=time.monotonic() - self._started,
            limit_seconds=None if hours is None else hours * 3600,
        )


def _status(outcome: Outcome) -> TrialStatus:
    if outcome.interrupted:
        return TrialStatus.INTERRUPTED
    return TrialStatus.STOPPED if outcome.reason else TrialStatus.COMPLETED


def _as_given(spec: Spec) -> str:
    """Return the text of the spec's file, comments and all, if that is what is run; its values otherwise."""
    with contextlib.suppress(OSError, ValueError, SweeperError):
        text = Path(spec.source).read_text(encoding="utf-8")
        if Spec.from_mapping(parse_mapping(text, spec.source), spec.source).digest() == spec.digest():
            return text
    return spec.to_yaml()


def export(folder: Path, path: Path) -> None:
    """Write a sweep's front to ``path`` as its suffix says, by the installed exporter.

    Raises:
        SweeperError: no exporter is installed, or it could not write.
    """
    found = entry_points(group=EXPORTERS, name="front")
    if not found:
        raise SweeperError(f"Expected an exporter of {path.suffix[1:]}; install the package's dashboards again")
    next(iter(found)).load()(folder, path)
