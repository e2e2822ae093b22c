"""One run of a sweep that has a folder: trials, records, front and report, until it ends or is ended."""

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

import clipless
from clipless.certificates import float64_features
from clipless.datasets import Dataset
from clipless.errors import CliplessError
from sweeper import space
from sweeper.agenda import Agenda
from sweeper.candidates import STOPPED_BY_REQUEST
from sweeper.claims import Claim
from sweeper.cluster import cluster
from sweeper.desk import Desk, one_line
from sweeper.engine import Outcome, run_trials
from sweeper.errors import RecordError, SweeperError
from sweeper.exporters import exporter
from sweeper.front import Front
from sweeper.inputs import describe, write_input
from sweeper.interruption import Interruption
from sweeper.mlflow_names import version_tags
from sweeper.objectives import reads_training_rows
from sweeper.outbox import Left
from sweeper.progress import Progress, Running
from sweeper.recorder import Recorder
from sweeper.records import TrialStatus
from sweeper.requests import Requests
from sweeper.rows import replace_file
from sweeper.search import Search
from sweeper.search_settings import Scheduler
from sweeper.spec import Spec
from sweeper.store import SweepFolder
from sweeper.sweep import Sweep
from sweeper.tracking import Tracker, how_to_look
from sweeper.trainable import CliplessTrial
from sweeper.warm_start import Earlier
from sweeper.yaml_file import parse_mapping

SHOW_SECONDS = 0.5
POLL_SECONDS = 0.05
INTERRUPTED = "interrupted"
MOST_CLUSTERS = 3  # Rays that a run starts, or joins, when the one before has died
SELECTED = "one trial, selected privately"


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
        troubles: what could not be written, and what else there is to say, one sentence each.
    """

    sweep: Sweep
    front: Front
    outcome: Outcome
    progress: Progress
    left: Left
    look: str
    troubles: tuple[str, ...]


class SweepRun:
    """One run.

    Args:
        spec: of the sweep.
        options: of the run.
        data: that the spec names.
        folder: of the sweep, which this process drives.
        interruption: where Ctrl-C is noted.
        earlier: what an earlier sweep teaches a new one.
        begun: ``sweep.json`` of a sweep that is gone on with.
        rebooted: see `Recorder`.
        selected: how a private selection ended, which has trained what there is.
        troubles: what else there is to say at the end.
    """

    def __init__(
        self,
        spec: Spec,
        options: Options,
        data: Dataset,
        folder: SweepFolder,
        interruption: Interruption,
        *,
        earlier: Earlier | None = None,
        begun: Mapping[str, Any] | None = None,
        rebooted: bool = False,
        selected: Outcome | None = None,
        troubles: Sequence[str] = (),
    ) -> None:
        self._spec, self._options, self._data, self._folder = spec, options, data, folder
        self._interruption, self._begun, self._rebooted = interruption, begun, rebooted
        self._selected = selected
        self._claim = claimed(spec, data)
        self._started = self._shown_at = time.monotonic()
        self._earlier = earlier
        self._troubles = [*troubles, *([] if earlier is None else [earlier.statement])]

    def run(self) -> Ended:
        """Run to the end, or to the first Ctrl-C; whatever happens, write what there is."""
        self._open()
        status, outcome = TrialStatus.FAILED, Outcome()
        try:
            outcome = self._run_trials()
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
        """Write what the sweep is; a new folder that does not even take that is removed again."""
        try:
            self._describe(TrialStatus.RUNNING)
            if self._begun is None:
                replace_file(self._folder.spec, _as_given(self._spec))
                write_input(self._folder.path, describe(self._spec, self._options.data_dir))
        except RecordError:
            if self._begun is None and self._selected is None:
                shutil.rmtree(self._folder.path, ignore_errors=True)
            raise
        tags = version_tags() | {"sweeper.exploratory": str(self._claim.exploratory).lower()}
        self._tracker = Tracker(
            self._folder.path,
            self._spec.name,
            uri=self._options.tracking,
            params=self._spec.to_plain() if self._begun is None else {},
            tags=tags | {"sweeper.spec_hash": self._spec.digest()},
        )
        settings, self._requests = self._spec.search, Requests(self._folder.path)
        self._search = Search(
            self._propose,
            self._spec.objectives,
            sampler=settings.sampler,
            seed=settings.seed,
            first=[*self._spec.first, *self._requests.earlier],
            constraints=settings.outcomes,
            earlier=() if self._earlier is None else self._earlier.observations,
            journal=self._folder.proposals,
        )
        self._recorder = Recorder(
            self._spec, self._folder, self._claim, self._tracker, self._search, rebooted=self._rebooted
        )
        if self._selected is not None:
            self._recorder.track_ended()
        self._recorder.write_front_now_and_then()

    def _run_trials(self) -> Outcome:
        """Run the trials, wait for their second prices, and score the front on the test split."""
        outcome = self._selected or self._train_on_ray()
        while self._recorder.waiting and not self._interruption.requested:
            time.sleep(POLL_SECONDS)
            self._between()
        self._test_front()
        return Outcome(True, INTERRUPTED) if self._interruption.requested else outcome

    def _train_on_ray(self) -> Outcome:
        """Train on a Ray, and on another one if it dies."""
        outcome = Outcome()
        for _ in range(MOST_CLUSTERS):
            with cluster(self._options.cluster, threads=threads_of(self._spec)):
                if self._interruption.requested:
                    break
                outcome = self._train()
            if not outcome.lost:
                break
        return outcome

    def _train(self) -> Outcome:
        unfinished = self._recorder.unfinished
        agenda = Agenda(self._search, self._spec.trials, unfinished)
        desk = Desk(self._recorder.hooks, unfinished)
        given = self._spec, self._options, self._folder, self._interruption
        return trained(CliplessTrial, agenda, desk, *given, self._between)

    def _propose(self, trial: space.Proposer) -> dict[str, Any]:
        return dict(space.suggest(trial, self._spec))

    def _between(self) -> str | None:
        """What the driver does between two events; a text ends the run."""
        self._recorder.settle()
        now = time.monotonic()
        if now - self._shown_at <= SHOW_SECONDS:
            return None
        self._shown_at = now
        self._recorder.write_front_now_and_then()
        self._options.show(self._progress())
        news = self._requests.look()
        for configuration in news.configurations:
            self._search.enqueue(configuration)
        for trial in news.trials:
            self._recorder.stop(trial, STOPPED_BY_REQUEST)
        return STOPPED_BY_REQUEST if news.stop else None

    def _test_front(self) -> None:
        """Touch the test split, once: for the points of the final front."""
        features: dict[str, Tensor] = {}  # of one trial: its models share their fixed front
        untested = [point for point in self._recorder.archive.points if point.test is None]
        for point in sorted(untested, key=lambda point: point.key):
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
            self._attempt(lambda: exporter("front")(folder.path, folder.path / "front.html"))
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
        folder = self._folder
        folder.write_sweep(described(self._spec, self._options, self._data, folder, status, reason))

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
            total=self._spec.trials if self._selected is None else len(trials),
            note="" if self._selected is None or self._selected.reason else SELECTED,
            done=sum(status in (TrialStatus.COMPLETED, TrialStatus.STOPPED) for status in ended),
            failed=sum(status is TrialStatus.FAILED for status in ended),
            running=running,
            objectives=self._spec.objectives,
            front=self._recorder.archive.points,
            hypervolume=self._recorder.archive.hypervolume(),
            elapsed_seconds=time.monotonic() - self._started,
            limit_seconds=None if hours is None else hours * 3600,
        )


def claimed(spec: Spec, data: Dataset) -> Claim:
    """Return what a sweep claims."""
    return Claim.about(
        data.metadata,
        len(data.train),
        delta=spec.privacy.delta,
        reads_training_rows=reads_training_rows(spec.search.metrics),
        ends_trials_early=spec.search.scheduler is not Scheduler.NONE,
        warm_start=spec.search.warm_start,
    )


def described(
    spec: Spec, options: Options, data: Dataset, folder: SweepFolder, status: TrialStatus, reason: str = ""
) -> dict[str, Any]:
    """Return the content of ``sweep.json``."""
    return {
        "name": spec.name,
        "status": status.value,
        "reason": reason,
        "spec": spec.to_plain(),
        "spec_hash": spec.digest(),
        "source": str(Path(spec.source).resolve()),
        "versions": version_tags(),
        "started": folder.path.name.removeprefix(f"{spec.name}-"),
        "population": len(data.train),
        "data_dir": None if options.data_dir is None else str(options.data_dir.resolve()),
        "tracking": options.tracking,
        "cluster": options.cluster,
    }


def trained(
    trainable: type[CliplessTrial],
    agenda: Agenda,
    desk: Desk,
    spec: Spec,
    options: Options,
    folder: SweepFolder,
    interruption: Interruption,
    should_stop: Callable[[], str | None],
) -> Outcome:
    """Run trials as the spec says."""
    resources = spec.resources
    return run_trials(
        trainable,
        agenda,
        desk,
        concurrent=resources.concurrent,
        resources={"CPU": resources.cpus, **({"GPU": resources.gpus} if resources.gpus else {})},
        storage_dir=folder.path,
        constants={
            "spec": spec.to_plain(),
            "source": str(Path(spec.source).resolve()),
            "folder": str(folder.path.resolve()),
            "data_dir": None if options.data_dir is None else str(options.data_dir.resolve()),
        },
        hours=spec.search.hours,
        trial_hours=spec.search.trial_hours,
        should_stop=should_stop,
        interruption=interruption,
    )


def threads_of(spec: Spec) -> int:
    """Return the threads of a trial's process."""
    return max(1, int(spec.resources.cpus))


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
