"""One run of a sweep that has a folder: trials, records, front and report, until it ends or is ended."""

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from clipless.datasets import Dataset
from clipless.privacy.randomness import SecureSource
from sweeper.backend.backend import Backend, RunSettings
from sweeper.backend.endings import INTERRUPTED, RunEnding, RunResult, result_of_error
from sweeper.backend.interruption import Interruption
from sweeper.backend.on_ray.starting import InterruptedStartError
from sweeper.backend.opening import open_backend
from sweeper.backend.queue import TrialQueue
from sweeper.backend.storage import Storage, fetch_models, url_of_sweep
from sweeper.backend.trainable import CliplessTrial, Rehearsal
from sweeper.backend.trial_states import TrialStates
from sweeper.backend.workers.local import count_workers
from sweeper.driver.caller import TrialCaller
from sweeper.driver.finished import FinishedSweep, audit_trials_of_front, troubles_of, write_page, write_results
from sweeper.driver.options import Options, manifest_of
from sweeper.driver.recording.account_charges import AccountCharges, withdraw
from sweeper.driver.recording.held_out_scores import score_front
from sweeper.driver.recording.recorder import Recorder
from sweeper.driver.rehearsals import open_rehearsals
from sweeper.driver.reporting.progress import NOTHING_TO_DO, Earlier, FrontScoring, RunningTrial, SweepProgress
from sweeper.driver.reporting.sweep_tracking import Watch, conclude, introduce, notes_of, track_model
from sweeper.driver.row_digests import note_rows
from sweeper.driver.sketch import LOST, draw_synthetic, take_sketch
from sweeper.driver.stages import TRIALS, FinalSearch, StagedSearch
from sweeper.driver.warm_start import WarmStart
from sweeper.errors import RecordError, one_line
from sweeper.papers.files import SPEC_NAME, spec_text
from sweeper.pareto.dominance import hypervolume_interval
from sweeper.planning.make import state_resumed
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.claims import COPIED
from sweeper.privacy.pricing import ENDED
from sweeper.records import Scalar, SweepStatus, Trial, TrialStatus
from sweeper.results.front import Front
from sweeper.results.sweep import Sweep
from sweeper.search.optuna_search import Search
from sweeper.specification.constraints import parse_constraint
from sweeper.specification.settings import AuditEffort
from sweeper.store.input_format import DATA_NAME, write_input
from sweeper.store.jsonl import replace_file
from sweeper.store.manifest import draw_id, told_spec
from sweeper.store.requests import Requests, stopped_in_words
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.names import version_tags
from sweeper.tracking.outbox import Undelivered
from sweeper.tracking.tracker import Tracker, how_to_look
from sweeper.tracking.view import results_columns
from sweeper.trials.rehearsal import HALVES

SHOW_SECONDS = 0.5
MOST_CLUSTERS = 3  # Rays that a run starts, or joins, when the one before has died
SELECTED = "one trial, selected privately"


class SweepRun:
    """One run of a sweep, whose folder this process drives.

    It is long, of more than fifteen methods, because what opens a run, trains in it and closes it shares all its state.

    Args:
        selected: how a private selection ended, which has trained what there is, but for the final that its budget may
            hold.
        caller: who proposes its trials, ``None`` where its search does.
        account: of the data, from which the sweep has reserved.
    """

    def __init__(
        self,
        plan: SweepPlan,
        options: Options,
        data: Dataset,
        folder: SweepFolder,
        interruption: Interruption,
        *,
        earlier: WarmStart | None = None,
        resumed: bool = False,
        selected: RunResult | None = None,
        account: AccountCharges | None = None,
        troubles: Sequence[str] = (),
        caller: TrialCaller | None = None,
    ) -> None:
        self._plan, self._options, self._data, self._folder = plan, options, data, folder
        self._interruption, self._resumed = interruption, resumed
        self._selected, self._caller, self._account = selected, caller, account
        self._requests = Requests(folder.path)  # at once: what is asked from now on is asked of this run
        self._started = self._shown_at = time.monotonic()
        self._earlier = earlier
        self._training_since: float | None = None  # rehearsals included, whatever Rays they take
        self._rehearsed_seconds = 0.0
        self._workers = 0  # of this machine, once it is known
        self._before = Earlier()
        self._ends = False
        self._scoring: FrontScoring | None = None  # while the front is scored on test rows
        self._stopped: RunResult | None = None  # once somebody asked it to stop after its last trial
        self._stopper = ""  # who did so first; a service asks again for who is not named
        self._left_early = False  # before Ray had started: who asked to stop waits for no store and no report
        self._unwritten: list[str] = []  # of the troubles at the end
        self._troubles = [*troubles, *([] if earlier is None else [earlier.statement])]

    def run(self) -> FinishedSweep:
        """Run to the end, or to the first Ctrl-C; whatever happens, write what there is."""
        self._open()
        if self._selected is None:
            for text in filter(None, (self._plan.announcement, self._plan.advice)):
                self._options.tell(text)
        outcome = RunResult()
        try:
            outcome = self._run_trials()
            self._note_early_end(outcome)
        except BaseException as error:
            outcome = result_of_error(error)
            self._folder.save_failure(one_line(error))
            raise
        finally:
            front, left = self._finish(outcome.status, outcome.in_words())
        return FinishedSweep(
            sweep=Sweep(self._folder.path),
            front=front,
            outcome=outcome,
            progress=self._progress(),
            left=left,
            look=how_to_look(self._tracker.destination.uri),
            troubles=tuple(self._troubles),
            unwritten=tuple(self._unwritten),
            failures=self._failures(),
        )

    def _open(self) -> None:
        """Write what the sweep is; a new folder that does not even take that is removed again.

        What it has reserved is given back.

        A resumed sweep is said to run once nothing can fail any more: until then it stands as it ended.
        """
        is_first = self._selected is None
        # A copy has runs and checkpoints of its own: those of the original belong to what that draws.
        is_new = self._folder.is_first_of_copy or (is_first and not self._resumed)
        self._id = draw_id() if is_new else self._folder.read_manifest().id
        try:
            if not self._resumed:
                self._describe(SweepStatus.RUNNING)
                replace_file(self._folder.spec, self._plan.spec.text)
            if self._plan.input and not (self._resumed and (self._folder.path / DATA_NAME).is_file()):
                write_input(self._folder.path, self._plan.input)
            note_rows(self._folder.path, self._data)
        except RecordError as error:
            if not self._resumed and self._selected is None and self._options.into is None:
                withdraw(self._folder, error)
            raise
        if self._folder.is_copy:
            self._plan = replace(self._plan, claim=self._plan.claim.of_copy())
            self._troubles.append(COPIED)
        self._was_complete = self._resumed and self._folder.read_manifest().status is SweepStatus.COMPLETED
        tags = version_tags() | {"sweeper.exploratory": str(self._plan.claim.exploratory).lower()}
        self._tracker = Tracker(
            self._folder.path,
            self._plan.name,
            uri=self._options.tracking,
            id_=self._id,
            columns=results_columns(
                [one.name for one in self._plan.shared.objectives], noisy=self._plan.shared.noise is not None
            ),
            params=told_spec(self._plan.spec.values) if not self._resumed else {},
            tags=tags | {"sweeper.spec_hash": self._plan.spec.digest},
            waits=True,
        )
        introduce(self._tracker, self._data, self._plan.name)
        self._watch = Watch(self._tracker)
        settings, shared = self._plan.search, self._plan.shared
        self._search = Search(
            shared.space.suggest,
            shared.objectives,
            sampler=settings.sampler,
            seed=settings.seed,
            first=[*self._plan.enqueued, *self._requests.earlier] if self._selected is None else (),
            constraints=settings.outcomes,
            earlier=() if self._earlier is None else self._earlier.observations,
            journal=self._folder.proposals,
            trials=self._plan.proposed if self._caller is None else 0,
        )
        self._steer(self._requests.region)
        given = self._plan, self._folder, self._tracker, self._search
        self._recorder = Recorder(*given, account=self._account)
        self._note_enqueued(self._requests.earlier)
        if self._selected is None:
            self._recorder.spending.enter_budget()
        self._rehearsals = open_rehearsals(self._plan, self._folder, self._tracker) if is_first else None
        if self._selected is not None or self._folder.is_first_of_copy:
            self._recorder.records.track_earlier()
        self._recorder.write_front_now_and_then()
        if self._resumed:
            self._before = _finished(self._recorder)
            self._plan = state_resumed(self._plan, self._data, self._recorder.resumed)
            self._describe(SweepStatus.RUNNING)
        self._folder.take_up()

    @property
    def _has_final(self) -> bool:
        """Whether there is a winner of a private selection whose final belongs to this sweep."""
        chosen = self._selected is not None and self._selected.is_complete
        return chosen and self._plan.spending.final_slot is not None

    def _run_trials(self) -> RunResult:
        try:
            is_over = self._selected is not None and not self._has_final
            outcome = self._selected if self._selected is not None and is_over else self._train_on_workers()
        except InterruptedStartError:
            self._left_early = True
            outcome = INTERRUPTED
        self._ends = True
        effort, over = self._plan.privacy.audit or AuditEffort.CHEAP, self._tests_are_over
        self._troubles += audit_trials_of_front(effort, self._folder, self._recorder, is_over=over)
        given = self._plan.shared, self._data, self._folder, self._recorder
        self._troubles += score_front(*given, is_over=over, show=self._show_scoring)
        if self._scoring is not None:  # what stays on the screen scores nothing any more
            self._scoring = None
            self._options.show(self._progress())
        return INTERRUPTED if self._interruption.requested else self._stopped or outcome

    def _note_early_end(self, outcome: RunResult) -> None:
        """Say in the claim that somebody ended the sweep before its last trial began, perhaps because of results."""
        by_people = outcome.ending in (RunEnding.REQUESTED, RunEnding.INTERRUPTED)
        by_people |= self._caller is not None and self._caller.is_closed
        begun, budget = len(self._recorder.records.trials), self._plan.spending.budget
        if by_people and budget is None and 0 < begun < self._plan.trials:
            self._note_chosen(ENDED)

    def _note_enqueued(self, configurations: Iterable[Mapping[str, Scalar]]) -> None:
        """Say in the claim that somebody chose what trainings cost, perhaps because of results."""
        named = {name.rpartition(".")[2] for configuration in configurations for name in configuration}
        chosen = [cost for cost in self._plan.shared.space.open_costs if cost in named]
        if chosen and self._plan.spending.budget is None and self._recorder.records.trials:
            self._note_chosen(*chosen)

    def _note_chosen(self, *what: str) -> None:
        self._plan = replace(self._plan, claim=self._plan.claim.with_chosen(*what))
        self._recorder.claim = self._plan.claim

    def _train_on_workers(self) -> RunResult:
        """Train on workers, and on others if their Ray dies; on none if there is nothing to train."""
        outcome = RunResult()
        if self._queue().finished:
            self._troubles.append(NOTHING_TO_DO)
            if self._was_complete:
                self._tracker.withdraw()
            return outcome
        for _ in range(MOST_CLUSTERS):
            outcome = self._train_in_turn()
            if outcome.ending is not RunEnding.RAY_DIED:
                break
        return outcome

    def _train_in_turn(self) -> RunResult:
        """Rehearse on synthetic rows, on workers that get no others, and train on the rows of the sweep."""
        rows = self._synthetic_rows()
        if rows is not None:
            rehearsed = self._train_with(rows, self._rehearse)
            if self._interruption.requested or not rehearsed.is_complete:
                return rehearsed
        return self._train_with(self._data, self._train)

    def _synthetic_rows(self) -> Dataset | None:
        """Return rows of the private sketch, ``None`` where the budget has none or nothing is rehearsed any more."""
        event = self._plan.spending.sketch
        if event is None or not self._is_rehearsing:
            return None
        sketch = take_sketch(event, self._data, self._folder, self._recorder.spending, SecureSource())
        if sketch is None:
            self._rehearsals = None
            for first in self._plan.first:  # which would have been rehearsed
                self._search.enqueue(first, comes_again=False)
            self._troubles.append(LOST)
            return None
        return draw_synthetic(sketch, self._data)

    def _train_with(self, data: Dataset, train: Callable[[Backend], RunResult]) -> RunResult:
        self._training_since = self._training_since or time.monotonic()
        if self._options.cluster is None:
            self._workers = count_workers(self._plan.resources, self._trainings)
        self._options.show(self._progress())  # that workers start, which takes seconds
        with self._backend(data) as workers:
            self._troubles += [sentence for sentence in workers.statements if sentence not in self._troubles]
            if self._interruption.requested:
                self._left_early = True
                return RunResult()
            self._tracker.deliver()
            outcome = train(workers)
            self._left_early = outcome.is_interrupted and not self._search.asked
        return outcome

    def _backend(self, data: Dataset) -> contextlib.AbstractContextManager[Backend]:
        interruption, plan = self._interruption, self._plan
        return open_backend(
            plan.resources,
            data,
            trainings=self._trainings,
            cluster=self._options.cluster,
            interrupted=lambda: interruption.requested,
        )

    @property
    def _trainings(self) -> int:
        return max(self._plan.trials, HALVES * self._plan.rehearsals)

    def _run_settings(self, storage: str | None = None) -> RunSettings:
        return RunSettings(
            trial=self._plan.shared,
            folder=self._folder.path,
            interruption=self._interruption,
            should_stop=self._between,
            hours=self._plan.search.hours,
            trial_hours=self._plan.search.trial_hours,
            storage=storage,
            spending=self._plan.spending,
        )

    @property
    def _is_rehearsing(self) -> bool:
        """Whether there are rehearsals that have not ended, and no trial has begun."""
        rehearsals = self._rehearsals
        return rehearsals is not None and rehearsals.done < rehearsals.total and not self._search.asked

    def _rehearse(self, workers: Backend) -> RunResult:
        """Rehearse configurations on the public or synthetic rows of these workers, where that is left to do."""
        if self._rehearsals is None or not self._is_rehearsing:
            return RunResult()
        outcome = workers.run(Rehearsal, self._rehearsals.queue(), self._rehearsals.states(), self._run_settings())
        self._rehearsed_seconds = time.monotonic() - self._started
        return outcome

    def _train(self, workers: Backend) -> RunResult:
        rehearsed = self._rehearse(workers) if self._plan.spending.sketch is None else RunResult()
        if not rehearsed.is_complete:
            return rehearsed
        unfinished, queue = self._recorder.unfinished, self._queue()
        hooks, storage = self._recorder.hooks, url_of_sweep(self._options.storage, self._folder.path, self._id)
        if storage is not None:
            hooks = fetch_models(hooks, Storage(storage), self._folder.path)
        return workers.run(CliplessTrial, queue, TrialStates(hooks, unfinished), self._run_settings(storage))

    def _queue(self) -> TrialQueue:
        spending, space, records = self._plan.spending, self._plan.shared.space, self._recorder.records
        unfinished = self._recorder.unfinished
        if self._caller is not None:
            return self._caller.queue(self._plan, self._folder.path, self._search, self._recorder)
        if self._has_final:
            return TrialQueue(FinalSearch(self._search, spending, space, records), TRIALS, unfinished)
        rehearsed = [] if self._rehearsals is None else self._rehearsals.explored()
        wanted, constant = self._plan.search.outcomes, self._plan.constant_scores
        staged = StagedSearch(self._search, spending, space, records, wanted, rehearsed, constant)
        barriers, is_full = accumulate(spending.stage_trials), self._recorder.spending.is_full
        return TrialQueue(staged, self._plan.trials, unfinished, barriers, is_full)

    def _late(self, now: float) -> RunResult | None:
        hours = self._plan.search.hours
        if hours is None or self._training_since is None or now < self._training_since + hours * 3600:
            return None
        return RunResult(RunEnding.OUT_OF_TIME, hours=hours)

    def _between(self) -> RunResult | None:
        now = time.monotonic()
        return self._late(now) or self._look(now)

    def _look(self, now: float) -> RunResult | None:
        """Show now and then how the sweep stands, and do what people asked for; return the ending they ask for."""
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
        self._note_enqueued(news.configurations)
        if news.region is not None:
            self._steer(news.region)
        for trial, by in news.trials.items():
            self._recorder.stop(trial, stopped_in_words(by))
        self._stopper = self._stopper or news.stopped_by
        return RunResult(RunEnding.REQUESTED, by=self._stopper) if news.stop else None

    def _steer(self, region: Sequence[str]) -> None:
        names = [objective.name for objective in self._plan.shared.objectives]
        self._search.steer([parse_constraint(text, names) for text in region])

    def _show_scoring(self, done: int, total: int, seconds: float) -> None:
        self._scoring = FrontScoring(done=done, total=total, seconds=seconds)
        self._options.show(self._progress())

    def _tests_are_over(self) -> bool:
        if not self._interruption.requested:
            self._stopped = self._look(time.monotonic()) or self._stopped
        return self._interruption.requested or self._stopped is not None

    def _tell_spec(self) -> None:
        """Attach the spec as it was given, or as it was run where files of this machine or an account are named."""
        values = self._plan.spec.values
        if told_spec(values) != values:
            self._tracker.text(SPEC_NAME, spec_text(values))
        elif self._folder.spec.exists():
            self._tracker.artifact(self._folder.spec)

    def _finish(self, status: SweepStatus, reason: str) -> tuple[Front, Undelivered]:
        folder, recorder, cut = self._folder, self._recorder, status is SweepStatus.INTERRUPTED
        try:
            recorder.records.close(goes_on=status is not SweepStatus.COMPLETED)
            self._troubles += [] if cut else troubles_of(recorder.spending.settle)
            front = recorder.front(tight=not cut)
            self._unwritten += write_results(folder, front)
            self._unwritten += troubles_of(lambda: self._describe(status, reason))
            self._unwritten += () if self._left_early else write_page(folder)
            for name in ("front.json", "front.html", "front.csv", "ledger.jsonl"):
                if (folder.path / name).exists():
                    self._tracker.artifact(folder.path / name)
            self._tell_spec()
            rehearsals = self._progress().rehearsals
            conclude(
                self._tracker,
                front,
                status=status.value,
                page=self._options.page,
                notes=notes_of(folder.path),
                rehearsed="" if rehearsals is None else rehearsals.ranked.in_words,
            )
        finally:
            patience = 10.0 if cut and self._options.tracking else 30.0  # a store of one's own always answers
            if not self._left_early:
                self._tracker.deliver()
            left = self._tracker.close(status, reason, timeout_seconds=patience)
        if not (left.rows or self._left_early):
            self._troubles += track_model(self._tracker, folder.path)
        if recorder.records.note_runs():  # runs that the store made only now
            front = recorder.front(tight=not cut)
            self._unwritten += troubles_of(lambda: front.write(folder.front))
        self._unwritten += filter(None, [folder.trouble])
        self._troubles += [*self._unwritten, *self._tracker.refused[:1]]
        return front, left

    def _failures(self) -> dict[str, str]:
        failed = {trial.id for trial in self._recorder.records.trials.values() if trial.status is TrialStatus.FAILED}
        told = {row["trial"]: str(row["error"]) for row in self._folder.failures()}
        return {trial: error for trial, error in told.items() if trial in failed}

    def _describe(self, status: SweepStatus, reason: str = "") -> None:
        folder = self._folder
        folder.write_manifest(manifest_of(self._plan, self._options, folder, status, reason, id_=self._id))

    def _progress(self) -> SweepProgress:
        elapsed, rehearsals = time.monotonic() - self._started, self._rehearsals
        selected, total = (None, TRIALS) if self._has_final else (self._selected, self._plan.trials)
        records = self._recorder.records
        made = progress_of(self._plan, self._recorder, elapsed, selected, total)
        made = replace(made, spent=self._recorder.spending.share, scoring=self._scoring, workers=self._workers)
        made = replace(made, earlier=self._before, ends=self._ends)
        if rehearsals is None:
            return made
        trained = {id_: trial.config for id_, trial in records.trials.items()}
        constraints = (*self._plan.search.outcomes, *self._search.region)
        told = rehearsals.progress(
            self._plan.shared.objectives, constraints, trained, constant=self._plan.constant_scores
        )
        return replace(made, rehearsals=told, rehearsed_seconds=self._rehearsed_seconds)


def progress_of(
    plan: SweepPlan, recorder: Recorder, elapsed_seconds: float, selected: RunResult | None, total: int
) -> SweepProgress:
    """Return how a sweep of so many trials in all stands."""
    records = recorder.records
    trials = records.trials.values()
    running = tuple(_running(trial, recorder) for trial in trials if trial.status is TrialStatus.RUNNING)
    ended = [trial.status for trial in trials if trial.status is not TrialStatus.RUNNING]
    scored = sum(len(point.values) > 1 for point in records.points.values())  # of others the epsilon alone is known
    return SweepProgress(
        name=plan.name,
        total=total if selected is None else len(trials),
        note=SELECTED if selected is not None and selected.is_complete else "",
        done=sum(status in (TrialStatus.COMPLETED, TrialStatus.STOPPED) for status in ended),
        failed=sum(status is TrialStatus.FAILED for status in ended),
        running=running,
        objectives=plan.shared.objectives,
        front=records.archive.points,
        hypervolume=records.archive.hypervolume(),
        hypervolume_interval=hypervolume_interval(records.archive.points, plan.shared.objectives, among=scored),
        elapsed_seconds=elapsed_seconds,
        limit_seconds=None if plan.search.hours is None else plan.search.hours * 3600,
    )


def _finished(recorder: Recorder) -> Earlier:
    """Return how far the trials are before a run goes on with them."""
    trials = recorder.records.trials.values()
    left = [trial for trial in trials if trial.status in (TrialStatus.RUNNING, TrialStatus.INTERRUPTED)]
    ended = len(trials) - len(left)
    return Earlier(ended, ended + sum(_running(trial, recorder).fraction for trial in left))


def _running(trial: Trial, recorder: Recorder) -> RunningTrial:
    epochs = 0 if trial.plan is None else trial.plan.epochs
    return RunningTrial(trial.id, recorder.records.last_epoch(trial.id), epochs, begun=recorder.has_begun(trial.id))
