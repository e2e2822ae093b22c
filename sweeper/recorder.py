"""What the driver does with every event of a trial: ledger, rows, models, tracking, front, progress.

Order matters in one place: the ledger has a trial's event on the disk before the trial may draw noise,
because the engine asks for the next row only after `Recorder.on_plan` has returned.
"""

import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from clipless.errors import AccountantsDisagreeError
from clipless.privacy.events import Relation
from sweeper.claims import Claim
from sweeper.desk import Hooks
from sweeper.errors import RecordError
from sweeper.front import Front, build_front
from sweeper.ledger import Ledger
from sweeper.mlflow_names import metric_names
from sweeper.pareto import FrontArchive
from sweeper.pricing import round_up, steps_by
from sweeper.records import Point, Trial, TrialStatus
from sweeper.repricing import Repricer
from sweeper.scheduling import make_scheduler
from sweeper.space import resolve
from sweeper.spec import Spec
from sweeper.store import SweepFolder
from sweeper.tracking import Tracker

FRONT_SECONDS = 5.0  # between two rewritings of front.json while trials run


class Recorder:
    """Keeps the records of one running sweep; used from the driver's main thread only."""

    def __init__(self, spec: Spec, folder: SweepFolder, claim: Claim, tracker: Tracker) -> None:
        self._spec, self._folder, self._claim, self._tracker = spec, folder, claim, tracker
        self._ledger = Ledger(folder.ledger)
        self._repricer = Repricer()
        self._archive = FrontArchive(spec.objectives)
        self._scheduler = make_scheduler(spec.search, spec.objectives)
        self._pending: dict[tuple[str, int], Point] = {}
        self._written_at = -math.inf
        self.trials: dict[str, Trial] = {}
        self.points: dict[tuple[str, int], Point] = {}

    @property
    def hooks(self) -> Hooks:
        """What the engine calls."""
        return Hooks(on_start=self.on_start, on_plan=self.on_plan, on_epoch=self.on_epoch, on_end=self.on_end)

    @property
    def archive(self) -> FrontArchive:
        """The front of the points whose epsilon is settled."""
        return self._archive

    def on_start(self, trial: str, config: Mapping[str, Any]) -> None:
        """A trial has begun."""
        chosen = resolve(self._spec, config["proposal"]).to_json() if "proposal" in config else {}
        tags = {
            "sweeper.delta": f"{self._spec.privacy.delta:g}",
            "sweeper.relation": self._spec.privacy.relation.value,
        }
        self._tracker.start_trial(trial, chosen, tags | {"sweeper.exploratory": str(self._claim.exploratory).lower()})
        self._save(Trial(id=trial, config=chosen))

    def on_plan(self, trial: str, row: Mapping[str, Any]) -> str | None:
        """A trial is ready to train: its event goes into the ledger first, if the sweep's budget has room for it."""
        plan = row["plan"]
        budget = self._spec.privacy.sweep_epsilon
        if budget is not None and not (total := self._ledger.epsilon_with(plan["event"], plan["delta"])) <= budget:
            return (
                f"with this trial the sweep would cost epsilon {round_up(total)}, more than privacy.sweep_epsilon = "
                f"{budget:g}; it drew no noise"
            )
        self._ledger.open(trial, plan["event"])
        self._repricer.order(trial, plan)
        self._tracker.log(trial, 0, metric_names({}, sensitivities=plan["sensitivities"]))
        self._save(replace(self.trials[trial], plan=plan))
        if self._scheduler is not None:
            self._scheduler.begin(trial, row["epsilon_curve"])
        return None

    def on_epoch(self, trial: str, row: Mapping[str, Any]) -> str | None:
        """An epoch is done: one point, whose second price may still be on its way, and perhaps the trial's last."""
        if self.trials[trial].status is TrialStatus.FAILED:
            raise AccountantsDisagreeError(self.trials[trial].reason)
        values = dict(row["values"])
        plan = self.trials[trial].plan or {}
        accountant = "rdp" if plan["relation"] == Relation.ADD_OR_REMOVE_ONE.value else "pld"
        point = Point(
            trial=trial,
            epoch=int(row["epoch"]),
            values=values,
            accountants={accountant: values["epsilon"]},
            model=row.get("model"),
        )
        self.points[point.key] = self._pending[point.key] = point
        self._folder.save_point(point)
        self.settle()
        return self._judge(point)

    def _judge(self, point: Point) -> str | None:
        """Return why a trial ends here, ``None`` if it goes on; what was decided is written down either way."""
        decision = None if self._scheduler is None else self._scheduler.judge(point)
        if decision is None:
            return None
        self._folder.save_decision(decision.to_json())
        return None if decision.goes_on else decision.reason

    def on_end(self, trial: str, status: TrialStatus, reason: str, begun: int) -> None:
        """A trial has ended."""
        plan = self.trials[trial].plan
        if plan is not None:
            with contextlib.suppress(RecordError):  # an entry that stays open is charged in full
                self._ledger.close(trial, steps_by(plan, begun) if begun else 0)
        self._save(replace(self.trials[trial], status=status, reason=reason))
        self._tracker.end_trial(trial, status, reason)

    @property
    def waiting(self) -> bool:
        """Whether points wait for their second price."""
        return bool(self._pending)

    def settle(self, *, all_: bool = False) -> None:
        """Give pending points their smaller epsilon as curves arrive, and keep the models of the front only.

        Args:
            all_: settle the others too, at the first accountant's upper bound, as an interrupted sweep does.
        """
        settled = []
        for point in list(self._pending.values()):
            ready = self._repricer.ready(point.trial)
            if not (ready or all_):
                continue
            try:
                settled.append(self._repricer.reprice(point) if ready else point)
            except AccountantsDisagreeError as error:
                self._withdraw(point, str(error))
            del self._pending[point.key]
        if settled:
            self._take(settled)

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
        )

    def write_front_now_and_then(self) -> None:
        """Replace ``front.json`` if that was not done for a while; a full disk is tried again later."""
        if time.monotonic() - self._written_at > FRONT_SECONDS:
            self._written_at = time.monotonic()
            with contextlib.suppress(RecordError):
                self.front().write(self._folder.front)

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
        """Let go of the background thread, of models without a point, and of rows that a full disk refused."""
        self._repricer.close()
        self._folder.flush()
        kept = {point.model for point in self._archive.points}
        for file in (self._folder.path / "models").iterdir():
            if f"models/{file.name}" not in kept:
                file.unlink(missing_ok=True)

    def _take(self, settled: list[Point]) -> None:
        _, left = self._archive.add(settled)
        on_front = {point.key for point in self._archive.points}
        for point in settled:
            self._save_point(point if point.key in on_front else self._without_model(point))
            self._tracker.log(point.trial, point.epoch, metric_names(point.values, point.accountants))
        for point in left:
            self._save_point(self._without_model(self.points[point.key]))

    def _withdraw(self, point: Point, reason: str) -> None:
        self._without_model(point)
        del self.points[point.key]
        ended = self.trials[point.trial].status is not TrialStatus.RUNNING
        self._save(replace(self.trials[point.trial], status=TrialStatus.FAILED, reason=reason))
        if ended:
            self._tracker.end_trial(point.trial, TrialStatus.FAILED, reason)

    def _without_model(self, point: Point) -> Point:
        if point.model is not None:
            (self._folder.path / point.model).unlink(missing_ok=True)
        return replace(point, model=None)

    def _save(self, trial: Trial) -> None:
        run_id = self._tracker.run_id(trial.id) or trial.run_id
        self.trials[trial.id] = replace(trial, run_id=run_id)
        self._folder.save_trial(self.trials[trial.id])

    def _save_point(self, point: Point) -> None:
        self.points[point.key] = point
        self._folder.save_point(point)
