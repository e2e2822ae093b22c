"""One run of a sweep that has a folder: trials, records, front and report, until it ends or is ended."""

import contextlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from clipless.datasets import Dataset
from sweeper.backend.endings import RunResult
from sweeper.backend.interruption import Interruption
from sweeper.backend.on_ray.starting import InterruptedStartError
from sweeper.backend.queue import TrialQueue
from sweeper.backend.storage import Storage, fetching, of_sweep
from sweeper.backend.trainable import CliplessTrial, Rehearsal
from sweeper.backend.training import Backend, backend, trained
from sweeper.backend.trial_states import TrialStates
from sweeper.driver.audits import audited
from sweeper.driver.final import TRIALS, FinalSearch
from sweeper.driver.finished import FinishedSweep, troubles_of, write_results
from sweeper.driver.options import Options, manifest_of
from sweeper.driver.recording.held_out_scores import score_front
from sweeper.driver.recording.recorder import Recorder
from sweeper.driver.recording.trial_records import TrialRecords
from sweeper.driver.rehearsals import Rehearsals
from sweeper.driver.reporting.progress import Progress, RunningTrial
from sweeper.driver.reporting.sweep_tracking import Watch, conclude, introduce, track_model
from sweeper.driver.stages import StagedSearch
from sweeper.driver.warm_start import WarmStart
from sweeper.errors import RecordError, SweeperError, one_line, public_line
from sweeper.planning.budget_plan import plan_budget
from sweeper.planning.price_preview import announcement
from sweeper.planning.trial_settings import trial_settings
from sweeper.privacy.budget import Budget
from sweeper.privacy.claims import Claim
from sweeper.privacy.selection import Terms
from sweeper.records import TrialStatus
from sweeper.results.front import Front
from sweeper.results.sweep import Sweep
from sweeper.search.optuna_search import Search
from sweeper.specification.constraints import parse_constraint
from sweeper.specification.spec import Spec
from sweeper.specification.yaml_file import parse_mapping
from sweeper.store.input_format import DATA_NAME, describe, write_input
from sweeper.store.jsonl import replace_file
from sweeper.store.requests import STOPPED_BY_REQUEST, Requests
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.names import version_tags
from sweeper.tracking.outbox import Undelivered
from sweeper.tracking.tracker import Tracker, how_to_look

SHOW_SECONDS = 0.5
INTERRUPTED = "interrupted"
NOTHING_TO_DO = "Every trial has ended: nothing to do"
MOST_CLUSTERS = 3  # Rays that a run starts, or joins, when the one before has died
SELECTED = "one trial, selected privately"


class SweepRun:
    """One run of a sweep, whose folder this process drives.

    It is long, of more than fifteen methods, because what opens a run, trains in it and closes it shares all its state.

    Args:
        selected: how a private selection ended, which has trained what there is, but for the final that its budget may
            hold.
    """

    def __init__(
        self,
        spec: Spec,
        options: Options,
        data: Dataset,
        claim: Claim,
        folder: SweepFolder,
        interruption: Interruption,
        *,
        earlier: WarmStart | None = None,
        resumed: bool = False,
        rebooted: bool = False,
        selected: RunResult | None = None,
        troubles: Sequence[str] = (),
    ) -> None:
        self._spec, self._options, self._data, self._folder = spec, options, data, folder
        self._interruption, self._resumed, self._rebooted = interruption, resumed, rebooted
        self._selected = selected
        self._claim, self._settings = claim, trial_settings(spec, data)
        self._requests = Requests(folder.path)  # at once: what is asked from now on is asked of this run
        self._started = self._shown_at = time.monotonic()
        self._earlier = earlier
        self._training_since: float | None = None  # rehearsals included, whatever Rays they take
        self._left_early = False  # before Ray had started: who asked to stop waits for no store and no report
        self._troubles = [*troubles, *([] if earlier is None else [earlier.statement])]

    def run(self) -> FinishedSweep:
        """Run to the end, or to the first Ctrl-C; whatever happens, write what there is."""
        self._open()
        if self._selected is None:
            self._options.tell(announcement(self._spec, self._data, self._recorder.spending.budget))
        status, outcome = TrialStatus.FAILED, RunResult()
        try:
            outcome = self._run_trials()
            status = _status(outcome)
        except BaseException as error:
            forced = isinstance(error, KeyboardInterrupt)
            status = TrialStatus.INTERRUPTED if forced else TrialStatus.FAILED
            outcome = RunResult(forced, INTERRUPTED if forced else public_line(error))
            self._folder.save_failure(one_line(error))
            raise
        finally:
            front, left = self._finish(status, outcome.reason)
        return FinishedSweep(
            sweep=Sweep(self._folder.path),
            front=front,
            outcome=outcome,
            progress=self._progress(),
            left=left,
            look=how_to_look(self._tracker.destination.uri),
            troubles=tuple(self._troubles),
            failures=self._failures(),
        )

    def _open(self) -> None:
        """Write what the sweep is; a new folder that does not even take that is removed again.

        A resumed sweep is said to run once nothing can fail any more: until then it stands as it ended.
        """
        try:
            if not self._resumed:
                self._describe(TrialStatus.RUNNING)
                replace_file(self._folder.spec, _as_given(self._spec))
            if not self._resumed or not (self._folder.path / DATA_NAME).is_file():
                write_input(self._folder.path, describe(self._spec, self._options.data_dir))
        except RecordError:
            if not self._resumed and self._selected is None and self._options.into is None:
                shutil.rmtree(self._folder.path, ignore_errors=True)
            raise
        tags = version_tags() | {"sweeper.exploratory": str(self._claim.exploratory).lower()}
        self._tracker = Tracker(
            self._folder.path,
            self._spec.name,
            uri=self._options.tracking,
            params=self._spec.to_plain() if not self._resumed else {},
            tags=tags | {"sweeper.spec_hash": self._spec.digest()},
            waits=True,
        )
        introduce(self._tracker, self._data, self._spec.name)
        self._watch = Watch(self._tracker)
        settings = self._spec.search
        self._search = Search(
            self._spec.space.suggest,
            self._spec.objectives,
            sampler=settings.sampler,
            seed=settings.seed,
            first=[*self._spec.first, *self._requests.earlier] if self._selected is None else (),
            constraints=settings.outcomes,
            earlier=() if self._earlier is None else self._earlier.observations,
            journal=self._folder.proposals,
            trials=self._proposed(),
        )
        self._steer(self._requests.region)
        self._recorder = Recorder(
            self._spec, self._folder, self._claim, self._tracker, self._search, rebooted=self._rebooted
        )
        self._budget = self._enter_budget()
        self._rehearsals = (
            Rehearsals(self._spec.space, self._spec.rehearsals, self._folder, self._budget)
            if self._spec.rehearsals and self._budget is not None and self._selected is None
            else None
        )
        if self._selected is not None:
            self._recorder.records.track_ended()
        self._recorder.write_front_now_and_then()
        if self._resumed:
            self._describe(TrialStatus.RUNNING)

    def _proposed(self) -> int:
        """Return how many trials the search proposes by itself."""
        if self._spec.rehearsals:
            return 0
        return self._spec.stages[0].trials if self._spec.stages else self._spec.trials

    def _enter_budget(self) -> Budget | None:
        """Cut the budget of a sweep that begins; return its slots, ``None`` where there are none."""
        spending, given = self._recorder.spending, self._spec.privacy.sweep_epsilon
        if given is not None and self._selected is None and spending.budget is None:
            if spending.rows:
                raise RecordError(f"Expected the budget of the sweep in {self._folder.ledger}, got none; restore it")
            budget = plan_budget(self._spec, self._data)
            if budget is not None:
                spending.set_budget(budget)
        return spending.budget if isinstance(spending.budget, Budget) else None

    @property
    def _selection(self) -> Terms | None:
        """The private selection of which there is a winner whose final belongs to this sweep."""
        chosen = self._selected is not None and not self._selected.reason
        return self._budget.selection if chosen and self._budget is not None else None

    def _run_trials(self) -> RunResult:
        try:
            is_over = self._selected is not None and self._selection is None
            outcome = self._selected if self._selected is not None and is_over else self._train_on_workers()
        except InterruptedStartError:
            self._left_early = True
            outcome = RunResult(True, INTERRUPTED)
        given = self._spec, self._data, self._folder, self._recorder
        self._troubles += audited(self._spec, self._folder, self._recorder, is_over=self._tests_are_over)
        self._troubles += score_front(*given, is_over=self._tests_are_over)
        return RunResult(True, INTERRUPTED) if self._interruption.requested else outcome

    def _train_on_workers(self) -> RunResult:
        """Train on workers, and on others if their Ray dies; on none if there is nothing to train."""
        outcome = RunResult()
        if self._queue().finished:
            self._troubles.append(NOTHING_TO_DO)
            return outcome
        for _ in range(MOST_CLUSTERS):
            with self._backend() as workers:
                self._troubles += [sentence for sentence in workers.said if sentence not in self._troubles]
                if self._interruption.requested:
                    self._left_early = True
                    break
                self._tracker.deliver()
                outcome = self._train(workers)
                self._left_early = outcome.interrupted and not self._search.asked
            if not outcome.lost:
                break
        return outcome

    def _backend(self) -> contextlib.AbstractContextManager[Backend]:
        interruption = self._interruption
        return backend(self._spec, self._data, self._options.cluster, interrupted=lambda: interruption.requested)

    def _rehearse(self, workers: Backend) -> RunResult:
        """Train configurations on public rows, where the spec says so and no trial has begun."""
        if self._rehearsals is None or self._search.asked or self._rehearsals.done == self._rehearsals.total:
            return RunResult()
        given = self._settings, self._spec, self._data, self._folder, self._interruption
        queue, states = self._rehearsals.queue(), self._rehearsals.states()
        return trained(workers, Rehearsal, queue, states, *given, self._between, None, self._budget)

    def _train(self, workers: Backend) -> RunResult:
        self._training_since = self._training_since or time.monotonic()
        rehearsed = self._rehearse(workers)
        if rehearsed.reason:
            return rehearsed
        unfinished = self._recorder.unfinished
        queue = self._queue()
        hooks, storage = self._recorder.hooks, of_sweep(self._options.storage, self._folder.path)
        if storage is not None:
            hooks = fetching(hooks, Storage(storage), self._folder.path)
        given = self._settings, self._spec, self._data, self._folder, self._interruption
        states = TrialStates(hooks, unfinished)
        return trained(workers, CliplessTrial, queue, states, *given, self._between, storage, self._budget)

    def _queue(self) -> TrialQueue:
        budget, unfinished = self._budget, self._recorder.unfinished
        if budget is None:
            return TrialQueue(self._search, self._spec.trials, unfinished)
        if self._selection is not None:
            final = FinalSearch(self._search, self._selection, budget, self._spec.space, self._recorder.records)
            return TrialQueue(final, TRIALS, unfinished)
        rehearsed = [] if self._rehearsals is None else self._rehearsals.explored()
        constraints = self._spec.search.outcomes
        staged = StagedSearch(self._search, budget, self._spec.space, self._recorder.records, constraints, rehearsed)
        return TrialQueue(staged, budget.trials, unfinished, accumulate(stage.trials for stage in budget.stages))

    def _late(self, now: float) -> str | None:
        hours = self._spec.search.hours
        if hours is None or self._training_since is None or now < self._training_since + hours * 3600:
            return None
        return f"the {hours:g} hours are used up"

    def _between(self) -> str | None:
        now = time.monotonic()
        if late := self._late(now):
            return late
        if now - self._shown_at <= SHOW_SECONDS:
            return None
        self._shown_at = now
        self._recorder.write_front_now_and_then()
        progress = self._progress()
        self._options.show(progress)
        self._watch.look(progress)
        news = self._requests.look()
        for configuration in news.configurations:
            self._search.enqueue(configuration)
        if news.region is not None:
            self._steer(news.region)
        for trial in news.trials:
            self._recorder.stop(trial, STOPPED_BY_REQUEST)
        return STOPPED_BY_REQUEST if news.stop else None

    def _steer(self, region: Sequence[str]) -> None:
        names = [objective.name for objective in self._spec.objectives]
        self._search.steer([parse_constraint(text, names) for text in region])

    def _tests_are_over(self) -> bool:
        if not self._interruption.requested:
            self._between()
        return self._interruption.requested

    def _finish(self, status: TrialStatus, reason: str) -> tuple[Front, Undelivered]:
        folder, recorder, cut = self._folder, self._recorder, status is TrialStatus.INTERRUPTED
        try:
            recorder.records.close()
            front = recorder.front(tight=not cut)
            self._troubles += write_results(folder, front, page=not self._left_early)
            self._troubles += troubles_of(lambda: self._describe(status, reason))
            for name in ("front.json", "front.html", "front.csv", "ledger.jsonl", "spec.yaml"):
                if (folder.path / name).exists():
                    self._tracker.artifact(folder.path / name)
            conclude(self._tracker, front, status=status.value, page=self._options.page)
        finally:
            patience = 10.0 if cut and self._options.tracking else 30.0  # a store of one's own always answers
            if not self._left_early:
                self._tracker.deliver()
            left = self._tracker.close(status, reason, timeout_seconds=patience)
        if not (left.rows or self._left_early):
            self._troubles += track_model(self._tracker, folder.path)
        if recorder.records.note_runs():  # runs that the store made only now
            front = recorder.front(tight=not cut)
            self._troubles += troubles_of(lambda: front.write(folder.front))
        self._troubles += filter(None, [folder.trouble, *self._tracker.refused[:1]])
        return front, left

    def _failures(self) -> dict[str, str]:
        failed = {trial.id for trial in self._recorder.records.trials.values() if trial.status is TrialStatus.FAILED}
        told = {row["trial"]: str(row["error"]) for row in self._folder.failures()}
        return {trial: error for trial, error in told.items() if trial in failed}

    def _describe(self, status: TrialStatus, reason: str = "") -> None:
        folder = self._folder
        folder.write_manifest(manifest_of(self._spec, self._options, self._claim, folder, status, reason))

    def _progress(self) -> Progress:
        elapsed, rehearsals = time.monotonic() - self._started, self._rehearsals
        if rehearsals is not None and rehearsals.done < rehearsals.total and not self._search.asked:
            note = f"rehearsing on public rows, {rehearsals.done} of {rehearsals.total} done; nothing is spent yet"
            return Progress(name=self._spec.name, total=self._spec.trials, note=note, elapsed_seconds=elapsed)
        selected = None if self._selection is not None else self._selected
        total = TRIALS if self._selection is not None else self._spec.trials
        made = progress_of(self._spec, self._recorder.records, elapsed, selected, total)
        return replace(made, spent=self._recorder.spending.share)


def progress_of(
    spec: Spec, records: TrialRecords, elapsed_seconds: float, selected: RunResult | None, total: int
) -> Progress:
    """Return how a sweep of so many trials in all stands."""
    trials = records.trials.values()
    running = tuple(
        RunningTrial(trial.id, records.last_epoch(trial.id), 0 if trial.plan is None else trial.plan.epochs)
        for trial in trials
        if trial.status is TrialStatus.RUNNING
    )
    ended = [trial.status for trial in trials if trial.status is not TrialStatus.RUNNING]
    return Progress(
        name=spec.name,
        total=total if selected is None else len(trials),
        note="" if selected is None or selected.reason else SELECTED,
        done=sum(status in (TrialStatus.COMPLETED, TrialStatus.STOPPED) for status in ended),
        failed=sum(status is TrialStatus.FAILED for status in ended),
        running=running,
        objectives=spec.objectives,
        front=records.archive.points,
        hypervolume=records.archive.hypervolume(),
        elapsed_seconds=elapsed_seconds,
        limit_seconds=None if spec.search.hours is None else spec.search.hours * 3600,
    )


def _status(outcome: RunResult) -> TrialStatus:
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
