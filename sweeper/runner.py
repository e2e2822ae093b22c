"""Running a sweep: from a spec to a folder with its front."""

import contextlib
import datetime
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import clipless
from clipless.datasets import Dataset
from clipless.errors import CliplessError
from sweeper import space
from sweeper.claims import Claim
from sweeper.cluster import cluster
from sweeper.engine import Outcome, run_trials
from sweeper.errors import RecordError, SweeperError
from sweeper.interruption import Interruption
from sweeper.mlflow_names import version_tags
from sweeper.outbox import Left
from sweeper.preview import preview
from sweeper.progress import Progress, Running
from sweeper.recorder import Recorder
from sweeper.records import TrialStatus
from sweeper.rows import replace_file
from sweeper.search import FrontSearch
from sweeper.spec import Spec
from sweeper.store import SweepFolder
from sweeper.sweep import Sweep
from sweeper.tracking import Tracker, how_to_look
from sweeper.trainable import CliplessTrial

SHOW_SECONDS = 0.5
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
        outcome: whether it was interrupted or ended early.
        progress: its last state.
        left: rows that the tracking store has not taken.
        look: the command that shows its runs.
        troubles: what could not be written, one sentence each.
    """

    sweep: Sweep
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
        RecordError: the folder cannot be made.

    Guarantees:
        Every trial's event is in the ledger, on the disk, before the trial draws its first noise.
    """
    options = options or Options()
    with Interruption() as interruption:
        data = clipless.datasets.load(**spec.data_options(options.data_dir))
        preview(spec, data)
        folder = SweepFolder.create(options.out, spec.name, datetime.datetime.now())
        return _SweepRun(spec, options, data, folder, interruption).run()


class _SweepRun:
    def __init__(
        self, spec: Spec, options: Options, data: Dataset, folder: SweepFolder, interruption: Interruption
    ) -> None:
        self._spec, self._options, self._data, self._folder = spec, options, data, folder
        self._interruption = interruption
        self._claim = Claim.about(data.metadata, len(data.train), delta=spec.privacy.delta)
        self._started = self._shown_at = time.monotonic()
        self._troubles: list[str] = []

    def run(self) -> Ended:
        self._describe("running")
        tags = version_tags() | {"sweeper.exploratory": str(self._claim.exploratory).lower()}
        self._tracker = Tracker(
            self._folder.path,
            self._spec.name,
            uri=self._options.tracking,
            params=self._spec.to_plain(),
            tags=tags | {"sweeper.spec_hash": self._spec.digest()},
        )
        self._recorder = Recorder(self._spec, self._folder, self._claim, self._tracker)
        outcome = Outcome(interrupted=True, reason="interrupted")
        try:
            self._recorder.write_front()
            with cluster(self._options.cluster, threads=max(1, int(self._spec.resources.cpus))):
                self._started = time.monotonic()
                outcome = self._run_trials()
        finally:
            left = self._finish(outcome)
        look = how_to_look(self._tracker.destination.uri)
        return Ended(
            sweep=Sweep(self._folder.path),
            outcome=outcome,
            progress=self._progress(),
            left=left,
            look=look,
            troubles=tuple(self._troubles),
        )

    def _run_trials(self) -> Outcome:
        spec, resources = self._spec, self._spec.resources
        available = os.cpu_count() or 1
        return run_trials(
            CliplessTrial,
            FrontSearch(
                self._propose,
                spec.objectives,
                sampler=spec.search.sampler,
                seed=spec.search.seed,
                first=spec.first,
            ),
            trials=spec.trials,
            concurrent=resources.concurrent or max(1, int(available / resources.cpus)),
            resources={"CPU": resources.cpus, **({"GPU": resources.gpus} if resources.gpus else {})},
            storage_dir=self._folder.path,
            hooks=self._recorder.hooks,
            constants={
                "spec": spec.to_plain(),
                "source": spec.source,
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
        now = time.monotonic()
        if now - self._shown_at > SHOW_SECONDS:
            self._shown_at = now
            self._recorder.settle()
            self._recorder.write_front_now_and_then()
            self._options.show(self._progress())

    def _finish(self, outcome: Outcome) -> Left:
        """Settle prices, score the front on the test split, write everything; also after an interruption."""
        self._recorder.settle(wait=True, reprice=not outcome.interrupted)
        if not outcome.interrupted:
            self._test_front()
        self._recorder.write_front(tight=not outcome.interrupted)
        self._recorder.close()
        status = TrialStatus.INTERRUPTED if outcome.interrupted else TrialStatus.COMPLETED
        self._describe(status.value, outcome.reason)
        self._export()
        for name in ("front.json", "front.html", "front.csv", "ledger.jsonl", "spec.yaml"):
            self._tracker.artifact(self._folder.path / name)
        self._tracker.log(None, 0, {"hypervolume": self._recorder.archive.hypervolume()})
        return self._tracker.close(
            status, outcome.reason, timeout_seconds=5.0 if outcome.interrupted else 30.0
        )

    def _test_front(self) -> None:
        """Touch the test split, once: for the points of the final front."""
        radii = [
            o.name.removeprefix("certified@")
            for o in self._spec.objectives
            if o.name.startswith("certified@")
        ]
        for point in self._recorder.archive.points:
            try:
                model = clipless.load(self._folder.path / str(point.model))
            except CliplessError as error:
                self._troubles.append(f"No test scores for trial {point.trial}, epoch {point.epoch}: {error}")
                continue
            gain = self._data.metadata.input_gain
            self._recorder.add_test(point, clipless.evaluate(model, self._data.test, radii, gain))

    def _export(self) -> None:
        """Write the report and the table; what fails is a trouble, not an error."""
        try:
            replace_file(self._folder.path / "front.csv", self._recorder.front().to_csv())
            export(self._folder.path, self._folder.path / "front.html")
        except SweeperError as error:
            self._troubles.append(str(error))

    def _describe(self, status: str, reason: str = "") -> None:
        """Write the spec as given, and ``sweep.json``."""
        content = {
            "name": self._spec.name,
            "status": status,
            "reason": reason,
            "spec": self._spec.to_plain(),
            "spec_hash": self._spec.digest(),
            "source": self._spec.source,
            "versions": version_tags(),
            "started": self._folder.path.name.removeprefix(f"{self._spec.name}-"),
            "tracking": self._options.tracking,
        }
        with contextlib.suppress(RecordError):
            self._folder.write_sweep(content)
            if not self._folder.spec.exists():
                replace_file(self._folder.spec, self._spec.to_yaml())

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


def export(folder: Path, path: Path) -> None:
    """Write a sweep's front to ``path`` as its suffix says, by the installed exporter.

    Raises:
        SweeperError: no exporter is installed, or it could not write.
    """
    found = entry_points(group=EXPORTERS, name="front")
    if not found:
        raise SweeperError(
            f"Expected an exporter of {path.suffix[1:]}; install the package's dashboards again"
        )
    next(iter(found)).load()(folder, path)
