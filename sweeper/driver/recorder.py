"""What the driver does with every event of a trial: ledger, rows, models, tracking, front, progress.

Order matters in one place: the ledger has a trial's event, and the mark that it draws, on the disk before the trial may
draw noise, because the engine asks for the next row only after `Recorder.on_plan` and `Recorder.on_draw` have returned.

A recorder of a folder that holds records takes them up: whatever was decided, told and spent before is as if it had
happened in this process.
"""

import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sweeper.backend.trial_states import Hooks
from sweeper.errors import RecordError, TrialError
from sweeper.pareto.dominance import FrontArchive
from sweeper.privacy.claims import Claim
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.paid_scores import PaidScores, planned_scores, scored_by
from sweeper.privacy.pricing import drawn_by, epochs_of, round_up, whole_event
from sweeper.records import Point, Trial, TrialStatus
from sweeper.results.front import Front, build_front
from sweeper.schedulers import make_scheduler
from sweeper.search.optuna_search import Proposals
from sweeper.search.space import resolve
from sweeper.spec.spec import Spec
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.names import metric_names
from sweeper.tracking.tracker import Tracker

FRONT_SECONDS = 5.0  # between two rewritings of front.json while trials run, at least;
FRONT_PAUSES = 20.0  # and so many times as long as one takes


class Recorder:
    """Keeps the records of one running sweep; used from the driver's main thread only.

    Args:
        spec: of the sweep.
        folder: its folder.
        claim: what holds for every point.
        tracker: told of every trial.
        search: told how each trial did.
        rebooted: whether the machine was started again since the last run, so that the last rows may be lost: a trial
            that ran then is charged in full.
    """

    def __init__(
        self,
        spec: Spec,
        folder: SweepFolder,
        claim: Claim,
        tracker: Tracker,
        search: Proposals,
        *,
        rebooted: bool = False,
    ) -> None:
        self._spec, self._folder, self._claim, self._tracker, self._search = spec, folder, claim, tracker, search
        self._ledger = Ledger(folder.ledger)
        self._archive = FrontArchive(spec.objectives)
        self._scheduler = make_scheduler(spec.search, spec.objectives)
        self._write_at = -math.inf
        self._stopping: dict[str, str] = {}
        self.trials: dict[str, Trial] = folder.trials()
        self.points: dict[tuple[str, int], Point] = folder.points()
        self._last_epoch: dict[str, int] = {}
        self._take_up(rebooted)

    @property
    def hooks(self) -> Hooks:
        """What the trial states calls."""
        return Hooks(
            on_start=self.on_start,
            on_plan=self.on_plan,
            on_draw=self.on_draw,
            on_epoch=self.on_epoch,
            on_restart=self.on_restart,
            on_end=self.on_end,
            on_failure=self.on_failure,
        )

    @property
    def unfinished(self) -> dict[str, int]:
        """The last epoch of each trial that can go on, 0 before its first."""
        return {trial: self._last_epoch.get(trial, 0) for trial in self._search.open}

    @property
    def archive(self) -> FrontArchive:
        """The front of all points."""
        return self._archive

    def _take_up(self, rebooted: bool) -> None:
        """Bring ledger, scheduler and search to where the records are."""
        for name, epoch in self.points:
            self._last_epoch[name] = max(epoch, self._last_epoch.get(name, 0))
        for trial in self.trials.values():
            if trial.plan is None:
                continue
            self._ledger.check_charged(trial.id)
            if self._ledger.is_open(trial.id):
                self._close_at(trial, self._most_epochs(trial, rebooted))
            if self._scheduler is not None:
                self._scheduler.begin(trial.id, trial.plan["epsilon_curve"], number=_number(trial.id))
        last: dict[str, str] = {}  # why a trial ended that was decided on last
        for point in self.points.values():
            self._search.report(point)
            decision = None if self._scheduler is None else self._scheduler.judge(point)
            last[point.trial] = "" if decision is None or decision.goes_on else decision.reason
        self._archive.add(self.points.values())
        self._search.skip(max(map(_number, self.trials), default=0))
        for trial in list(self.trials.values()):
            self._end_if_done(trial, last.get(trial.id, ""))

    def _end_if_done(self, trial: Trial, decided: str) -> None:
        """End a trial that had come to its end when the driver died, and tell the search."""
        if trial.status in (TrialStatus.RUNNING, TrialStatus.INTERRUPTED):
            planned = 0 if trial.plan is None else int(trial.plan["epochs"])
            done = 0 < planned <= self._last_epoch.get(trial.id, 0)
            lost = trial.id not in self._search.open
            if not (done or decided or lost):
                return
            status = TrialStatus.COMPLETED if done else TrialStatus.STOPPED if decided else TrialStatus.FAILED
            reason = decided or ("" if done else "its proposal was lost with the machine")
            trial = replace(trial, status=status, reason=reason)
            self._save(trial)
            self._tracker.end_trial(trial.id, trial.status, trial.reason)
        self._search.finish(trial.id, failed=trial.status is TrialStatus.FAILED)

    def _most_epochs(self, trial: Trial, rebooted: bool) -> int:
        """Return how many epochs a trial can have begun when the driver died."""
        if trial.plan is None:  # it had not been let go
            return 0
        epochs = int(trial.plan["epochs"])
        return epochs if rebooted else min(epochs, self._last_epoch.get(trial.id, 0) + 1)

    def _close_at(self, trial: Trial, begun: int) -> None:
        """Close the last training of a trial, with the noise that it can have drawn in so many epochs."""
        plan = trial.plan or {}
        # It may have gone on from an epoch whose row was lost with the machine.
        begun = max(begun, epochs_of(plan, self._ledger.kept(trial.id)))
        self._ledger.close(trial.id, drawn_by(plan, begun), scored=scored_by(plan, begun))

    def on_start(self, trial: str, config: Mapping[str, Any]) -> None:
        """A trial has begun, or begins again."""
        if trial in self.trials:
            self._tracker.start_trial(trial, {}, {})
            self._save(replace(self.trials[trial], status=TrialStatus.RUNNING, reason=""))
            return
        chosen = resolve(self._spec, config["proposal"]).to_json() if "proposal" in config else {}
        self._start_run(trial, chosen)
        self._save(Trial(id=trial, config=chosen))

    def _start_run(self, trial: str, config: Mapping[str, Any]) -> None:
        tags = {
            "sweeper.delta": f"{self._spec.privacy.delta:g}",
            "sweeper.relation": self._spec.privacy.relation.value,
        }
        self._tracker.start_trial(trial, config, tags | {"sweeper.exploratory": str(self._claim.exploratory).lower()})

    def track_ended(self) -> None:
        """Tell the tracker of trials that ran and ended without it."""
        for trial in self.trials.values():
            self._start_run(trial.id, trial.config)
            if trial.plan is not None:
                self._track_plan(trial.id, trial.plan)
        for point in self.points.values():
            self._tracker.log(point.trial, point.epoch, _metrics(point))
        for trial in self.trials.values():
            self._tracker.end_trial(trial.id, trial.status, trial.reason)

    def on_plan(self, trial: str, row: Mapping[str, Any]) -> str | None:
        """A trial is ready to train: its event goes into the ledger first, if the sweep's budget has room for it."""
        plan, kept = row["plan"], int(row["kept"])
        event = whole_event(plan)
        scores = planned_scores(plan, int(row.get("scores_kept", 0)))
        if self._ledger.is_open(trial):  # it ran out of memory
            self._close_at(self.trials[trial], self._most_epochs(self.trials[trial], rebooted=False))
        budget = self._spec.privacy.sweep_epsilon
        if budget is not None:
            total = self._ledger.epsilon_with(trial, event, plan["delta"], kept=kept, scores=scores)
            if not total <= budget:
                return (
                    f"with this trial the sweep would cost epsilon {round_up(total)}, more than privacy.sweep_epsilon ="
                    f" {budget:g}; it is not trained"
                )
        self._ledger.open(trial, event, kept=kept, scores=scores, marked=True)
        self._track_plan(trial, plan)
        placed = dict(row.get("placed", {}))
        self._tracker.tag(trial, {f"sweeper.{name}": text for name, text in placed.items()})
        self._save(replace(self.trials[trial], plan=plan, placed=placed))
        if self._scheduler is not None:
            self._scheduler.begin(trial, plan["epsilon_curve"], number=_number(trial))
        return None

    def on_draw(self, trial: str) -> None:
        """A trial is about to draw its first noise: from now on it is charged."""
        self._ledger.draw(trial)

    def _track_plan(self, trial: str, plan: Mapping[str, Any]) -> None:
        self._tracker.log(trial, 0, metric_names({}, sensitivities=plan["sensitivities"]))
        if scores := plan.get("scores"):
            std = {f"sweeper.score_std.{split}": f"{value:.3g}" for split, value in scores["std"].items()}
            self._tracker.tag(trial, {"sweeper.privacy.score_noise": f"{scores['noise_multiplier']:g}", **std})

    def on_epoch(self, trial: str, row: Mapping[str, Any]) -> str | None:
        """An epoch is done: one point, and perhaps the trial's last."""
        if not self._ledger.is_drawn(trial):
            self._ledger.draw(trial)
            raise TrialError("it reported an epoch before it said that it draws noise; it is charged in full")
        plan, epoch = self.trials[trial].plan or {}, int(row["epoch"])
        point = Point(
            trial=trial,
            epoch=epoch,
            values=dict(row["values"]),
            accountants={name: bounds[epoch - 1] for name, bounds in plan["accountants"].items()},
            repeats={name: tuple(found) for name, found in row["repeats"].items()},
            model=row.get("model"),
        )
        self._last_epoch[trial] = epoch
        self._take(point)
        self._search.report(point)
        return self._judge(point)

    def stop(self, trial: str, reason: str) -> None:
        """End a trial after the epoch that it is in."""
        self._stopping[trial] = reason

    def _judge(self, point: Point) -> str | None:
        """Return why a trial ends here, ``None`` if it goes on; what was decided is written down either way."""
        decision = None if self._scheduler is None else self._scheduler.judge(point)
        if decision is not None:
            self._folder.save_decision(decision.to_json())
            if decision.failed:
                raise TrialError(decision.reason)
        if point.trial in self._stopping:
            return self._stopping[point.trial]
        return None if decision is None or decision.goes_on else decision.reason

    def on_restart(self, trial: str, begun: int) -> None:
        """A trial lost its process and will be started again."""
        self._close(trial, begun)
        self._tracker.tag(trial, {"sweeper.restarted": "its process died"})

    def on_end(self, trial: str, status: TrialStatus, reason: str, begun: int) -> None:
        """A trial has ended; one that was interrupted may go on in a later run."""
        self._close(trial, begun)
        self._save(replace(self.trials[trial], status=status, reason=reason))
        self._tracker.end_trial(trial, status, reason)
        if status is not TrialStatus.INTERRUPTED:
            self._search.finish(trial, failed=status is TrialStatus.FAILED)
            self._folder.forget_checkpoints(trial)

    def on_failure(self, trial: str, error: str) -> None:
        """A trial fails with this error, which is for the owner alone."""
        self._folder.save_failure(error, trial)

    def _close(self, trial: str, begun: int) -> None:
        if self.trials[trial].plan is not None:
            with contextlib.suppress(RecordError):  # an entry that stays open is charged in full
                self._close_at(self.trials[trial], begun)

    def front(self, *, tight: bool = False) -> Front:
        """Return the front of everything recorded so far.

        Args:
            tight: price the sweep by both accountants, which takes seconds.
        """
        answers = self._ledger.answers(self._spec.privacy.delta, tight=tight)
        self.note_runs()
        return build_front(
            sweep=self._spec.name,
            objectives=self._spec.objectives,
            trials=self.trials.values(),
            points=self.points.values(),
            ledger=answers,
            claim=self._claim,
            ledger_rows=self._ledger.rows,
        )

    def write_front_now_and_then(self) -> None:
        """Replace ``front.json`` if that was not done for a while; a full disk is tried again later."""
        now = time.monotonic()
        if now > self._write_at:
            with contextlib.suppress(RecordError):
                self.front().write(self._folder.front)
            took = time.monotonic() - now
            self._write_at = now + max(FRONT_SECONDS, FRONT_PAUSES * took)

    def pay_test(self, point: Point, paid: PaidScores) -> str | None:
        """Enter what noisy test scores of a point cost before they are drawn; a text says why they may not be."""
        budget, delta = self._spec.privacy.sweep_epsilon, self._spec.privacy.delta
        if budget is not None and not (total := self._ledger.epsilon_with_test(paid, delta)) <= budget:
            return f"with them the sweep would cost epsilon {round_up(total)}, more than its budget of {budget:g}"
        self._ledger.enter_test(point.trial, point.epoch, paid)
        return None

    def add_test(self, point: Point, scores: Mapping[str, float]) -> None:
        """Record the test numbers of a front point."""
        self._save_point(replace(point, test=dict(scores)))

    def note_runs(self) -> bool:
        """Record which tracking run is which trial's, and return whether there was a new one."""
        new = [t for t in self.trials.values() if t.run_id is None and self._tracker.run_id(t.id)]
        for trial in new:
            self._save(trial)
        return bool(new)

    def close(self) -> None:
        """Let go of models without a point, and of rows that a full disk refused."""
        self._folder.flush()
        kept = {point.model for point in self._archive.points}
        for file in (self._folder.path / "models").iterdir():
            if f"models/{file.name}" not in kept:
                file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # states of trials that may go on
            (self._folder.path / "checkpoints").rmdir()

    def _take(self, point: Point) -> None:
        """Keep a point, and the models of the front only."""
        _, left = self._archive.add([point])
        kept = {one.key for one in self._archive.points}
        self._save_point(point if point.key in kept else self._without_model(point))
        self._tracker.log(point.trial, point.epoch, _metrics(point))
        for key in (one.key for one in left if one.key not in kept):
            self._save_point(self._without_model(self.points[key]))

    def _without_model(self, point: Point) -> Point:
        if point.model is not None:
            (self._folder.path / point.model).unlink(missing_ok=True)
        return replace(point, model=None)

    def _save(self, trial: Trial) -> None:
        """Keep a trial, and its run as soon as it is known."""
        run_id = self._tracker.run_id(trial.id) or trial.run_id
        self.trials[trial.id] = replace(trial, run_id=run_id)
        self._folder.save_trial(self.trials[trial.id])

    def _save_point(self, point: Point) -> None:
        self.points[point.key] = point
        self._folder.save_point(point)


def _number(trial: str) -> int:
    return int(trial.removeprefix("t"))


def _metrics(point: Point) -> dict[str, float]:
    """Return a point's numbers as they are tracked."""
    deviations = {name: found for name in point.repeats if (found := point.deviation(name)) is not None}
    named = {f"deviation/{name}": value for name, value in metric_names(deviations).items()}
    return metric_names(point.values, point.accountants) | named
