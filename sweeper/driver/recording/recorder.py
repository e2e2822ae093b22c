"""What the driver does with every event of a trial: it tells ledger, records, tracker, scheduler and search.

Order matters in one place: the ledger has a trial's event, and the mark that it draws, on the disk before the trial may
draw noise, because Ray asks for the next row only after `Recorder.on_plan` and `Recorder.on_draw` have returned.

A recorder of a folder that holds records takes them up: whatever was decided, told and spent before is as if it had
happened in this process.
"""

import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from clipless.sketches.release import Sketch
from sweeper.adapters import dump
from sweeper.backend.trial_states import Hooks, TrialStart
from sweeper.driver.recording.account_charges import AccountCharges
from sweeper.driver.recording.spending import SpendingRecord
from sweeper.driver.recording.trial_records import TrialRecords, points_of, run_tags
from sweeper.errors import RecordError, TrialError
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.sketch_file import read_sketch
from sweeper.privacy.spending import Resumed
from sweeper.records import Point, Trial, TrialStatus, trial_number
from sweeper.results.estimates import show_points
from sweeper.results.front import Front, build_front, refusals_before
from sweeper.schedulers import make_scheduler
from sweeper.search.optuna_search import Proposals
from sweeper.store.sweep_folder import DecisionRow, SweepFolder
from sweeper.store.trial_standings import OPEN
from sweeper.tracking.trial_tracker import TrialTracker
from sweeper.trials.stream import EpochRow, PlanRow

FRONT_SECONDS = 5.0  # between two rewritings of front.json while trials run, at least;
FRONT_PAUSES = 20.0  # and so many times as long as one takes


class Recorder:
    """Answers every event of the trials of one running sweep; used from the driver's main thread only.

    It is long, of more than fifteen methods, because each event of `Hooks` is one.

    Args:
        keep_every_model: keep the models of points that are not on the front too.
        account: of the data, from which the sweep has reserved.
    """

    def __init__(
        self,
        plan: SweepPlan,
        folder: SweepFolder,
        tracker: TrialTracker,
        search: Proposals,
        *,
        keep_every_model: bool = False,
        account: AccountCharges | None = None,
    ) -> None:
        self._plan, self._folder, self._search = plan, folder, search
        self.claim = plan.claim  # of the front
        objectives, tags = plan.shared.objectives, run_tags(plan.privacy, plan.claim)
        is_noisy = plan.shared.noise is not None or any(map(_has_noisy_scores, folder.trials().values()))
        noisy = plan.spending.stage_trials if is_noisy else None
        self.records = TrialRecords(
            folder, objectives, tracker, tags, keep_every_model=keep_every_model, noisy_stages=noisy
        )
        self.spending = SpendingRecord(folder, plan, account)
        self._scheduler = make_scheduler(plan.search, objectives)
        self._write_at = -math.inf
        self._stopping: dict[str, str] = {}
        self._begun: set[str] = set()  # that have drawn noise since they were planned in this process
        self._refused = refusals_before(folder)
        self.records.refuse(self._refused)
        self._take_up()

    @property
    def hooks(self) -> Hooks:
        """What the states of trials call."""
        return Hooks(
            on_start=self.on_start,
            on_plan=self.on_plan,
            on_draw=self.on_draw,
            on_epoch=self.on_epoch,
            on_restart=self.on_restart,
            on_end=self.on_end,
            on_failure=self.on_failure,
            front=self.records.front_values,
        )

    @property
    def unfinished(self) -> dict[str, int]:
        """The last epoch of each trial that can resume, 0 before its first."""
        return {trial: self.records.last_epoch(trial) for trial in self._search.open}

    def has_begun(self, trial: str) -> bool:
        """Whether a trial has drawn noise since its last plan; before, it waits for its turn."""
        return trial in self._begun

    @property
    def resumed(self) -> Resumed:
        """How the sweep stands when it goes on; a trial that was never planned has yet to begin."""
        trials, unfinished = self.records.trials, self.unfinished
        plans = {id_: trial.plan for id_, trial in trials.items() if id_ in unfinished}
        begun = [(id_, plan, unfinished[id_]) for id_, plan in plans.items() if plan is not None]
        return Resumed(
            charged=self.spending.charged_with(),
            planned=self.spending.charged_with(begun),
            begun=len(begun),
            left=max(0, self._plan.trials - len(trials.keys() - unfinished.keys()) - len(begun)),
            scores_test=self._plan.shared.noise is not None,
        )

    def _take_up(self) -> None:
        """Take up what an earlier driver left; where its last rows may be lost, what ran then is charged in full."""
        records = self.records
        for trial in records.trials.values():
            self.spending.take_up(trial, records.last_epoch(trial.id))
            if trial.status is TrialStatus.RUNNING:
                records.track_again(trial.id)
            if self._scheduler is not None and trial.plan is not None:
                self._scheduler.begin(trial.id, trial.plan.epsilon_curve, number=trial_number(trial.id))
        last: dict[str, str] = {}  # why a trial ended that was decided on last
        for point in (point for point in records.points.values() if not point.made_from):
            self._search.report(point)
            decision = None if self._scheduler is None else self._scheduler.judge(point)
            last[point.trial] = "" if decision is None or decision.goes_on else decision.reason
        self._search.skip(max(map(trial_number, records.trials), default=0))
        for trial in list(records.trials.values()):
            self._end_if_done(trial, last.get(trial.id, ""))

    def _end_if_done(self, trial: Trial, decided: str) -> None:
        """End a trial that had come to its end when the driver died, and tell the search."""
        if trial.status in (TrialStatus.RUNNING, TrialStatus.INTERRUPTED):
            planned = 0 if trial.plan is None else trial.plan.epochs
            done = 0 < planned <= self.records.last_epoch(trial.id)
            lost = trial.id not in self._search.open
            if not (done or decided or lost):
                return
            status = TrialStatus.COMPLETED if done else TrialStatus.STOPPED if decided else TrialStatus.FAILED
            reason = decided or ("" if done else "its proposal was not saved before the driver ended")
            trial = replace(trial, status=status, reason=reason)
            self.records.end(trial.id, status, reason)
        self._search.finish(trial.id, failed=trial.status is TrialStatus.FAILED)

    def on_start(self, trial: str, config: TrialStart) -> None:
        """A trial has begun, or begins again."""
        if trial in self.records.trials:
            self.records.start_again(trial)
            return
        self.records.start(trial, self._plan.shared.space.resolve(config["proposal"]).to_json())

    def on_plan(self, trial: str, row: PlanRow) -> str | None:
        """A trial is ready to train: its event goes into the ledger first, if the sweep's budget has room for it."""
        recorded, last_epoch = self.records.trials[trial], self.records.last_epoch(trial)
        rungs = () if self._scheduler is None else self._scheduler.rungs(row.plan.epochs)
        refused = self.spending.open(recorded, row, last_epoch, rungs)
        if refused is not None:
            return refused
        self._begun.discard(trial)
        back = self.records.plan(trial, row.plan, row.placed)
        if self._scheduler is not None:
            self._scheduler.begin(trial, row.plan.epsilon_curve, number=trial_number(trial))
            for point in back:
                self._scheduler.judge(point)
        return None

    def on_draw(self, trial: str) -> str | None:
        """A trial is about to draw its first noise: from now on it is charged, unless it was asked to stop before."""
        if trial in self._stopping:
            return self._stopping[trial]
        self.spending.draw(self.records.trials[trial])
        self._begun.add(trial)
        return None

    def on_epoch(self, trial: str, row: EpochRow) -> str | None:
        """An epoch is done, and perhaps the trial: its point, and those made from the iterates so far.

        Search and scheduler are told of the iterate alone, once for each epoch: free points are near copies of it,
        which would crowd out what else a trial teaches.
        """
        self.spending.check_drawn(self.records.trials[trial])
        points = points_of(trial, row, self.records.trials[trial].plan)
        self.records.add(points)
        self.spending.check_points()
        self._search.report(points[0])
        ended = self._judge(points[0])
        if ended is None and not row.done:
            self.spending.go_on(self.records.trials[trial], row.epoch)
        return ended

    def stop(self, trial: str, reason: str) -> None:
        """End a trial after the epoch that it is in, and before the first one if it has not begun."""
        self._stopping[trial] = reason

    def _judge(self, point: Point) -> str | None:
        decision = None if self._scheduler is None else self._scheduler.judge(point)
        if decision is not None:
            self._folder.save_decision(cast(DecisionRow, dump(decision)))
            if decision.failed:
                raise TrialError(decision.reason)
        if point.trial in self._stopping:
            return self._stopping[point.trial]
        return None if decision is None or decision.goes_on else decision.reason

    def on_restart(self, trial: str, started_epochs: int) -> None:
        """A trial lost its process and will be started again."""
        self.spending.close(self.records.trials[trial], started_epochs)
        self.records.restart(trial)

    def on_end(self, trial: str, status: TrialStatus, reason: str, started_epochs: int) -> None:
        """A trial has ended; one that was interrupted can resume in a later run."""
        self.spending.close(self.records.trials[trial], started_epochs)
        self.records.end(trial, status, reason)
        if status is not TrialStatus.INTERRUPTED:
            self._search.finish(trial, failed=status is TrialStatus.FAILED)
            self._folder.forget_checkpoints(trial)

    def on_failure(self, trial: str, error: str) -> None:
        """A trial fails with this error, which is for the owner alone."""
        self._folder.save_failure(error, trial)

    def refuse(self, refused: Mapping[str, str]) -> None:
        """Leave what audits refuse out of the front, and keep what they have refused before out of it."""
        self._refused = dict(refused) | self._refused
        self.records.refuse(self._refused)

    def front(self, *, tight: bool = False) -> Front:
        """Return the front of everything recorded so far that no audit refuses.

        ``tight`` prices the sweep by both accountants, which takes seconds.
        """
        prices = self.spending.prices(tight=tight)
        self.records.note_runs()
        baselines = self.claim.baselines.with_sketch(self._read_sketch(), self.claim.population)
        return build_front(
            sweep=self._plan.name,
            objectives=self._plan.shared.objectives,
            trials=self.records.trials.values(),
            points=show_points(self.records.points.values(), self.records.trials, self.spending.stages),
            ledger=prices,
            claim=replace(self.claim, baselines=baselines),
            ledger_entries=self.spending.rows,
            stages=self.spending.stages,
            refused=self._refused,
            silent=self._silent(),
        )

    def _silent(self) -> frozenset[str]:
        """Return the trials that wait, or were ended, before they drew noise."""
        waiting = {id_ for id_, trial in self.records.trials.items() if trial.status.value in OPEN}
        waiting -= {point.trial for point in self.records.points.values()}
        return frozenset(id_ for id_ in waiting if not self.spending.has_drawn(id_))

    def _read_sketch(self) -> Sketch | None:
        return None if self._plan.spending.sketch is None else read_sketch(self._folder.sketch)

    def write_front_now_and_then(self) -> None:
        """Replace ``front.json`` if that was not done for a while; a full disk is tried again later."""
        now = time.monotonic()
        if now > self._write_at:
            with contextlib.suppress(RecordError):
                self.front().write(self._folder.front)
            took = time.monotonic() - now
            self._write_at = now + max(FRONT_SECONDS, FRONT_PAUSES * took)


def _has_noisy_scores(trial: Trial) -> bool:
    """Whether a recorded trial scored private rows: where the data are not at hand, no other plan says so."""
    return trial.plan is not None and trial.plan.scores is not None
