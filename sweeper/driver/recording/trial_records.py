"""The trials and points of a running sweep: in memory, in its folder, and at the tracker; and the models of its front.

A folder that holds records is taken up: its trials and points are there from the beginning.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import compress

from sweeper.errors import TrialError
from sweeper.pareto.dominance import FrontArchive, front_mask
from sweeper.privacy.claims import Claim
from sweeper.records import (
    ERROR_RULES,
    ClassCounts,
    ConfigValues,
    Objective,
    Point,
    PointKey,
    ReleasedCurves,
    ScoreErrors,
    SmoothedCounts,
    Trial,
    TrialPlan,
    TrialStatus,
)
from sweeper.results.estimates import estimate_points
from sweeper.results.highlights import best
from sweeper.rounding import round_up
from sweeper.specification.settings import PrivacySettings
from sweeper.store.evidence import refusal
from sweeper.store.sweep_folder import SweepFolder
from sweeper.store.trial_standings import OPEN
from sweeper.tracking.names import (
    NAME_TAG,
    NOISE_TAG,
    PLANNED_TAG,
    best_metrics,
    metric_names,
    noise_metrics,
    risk_metrics,
    trial_name,
)
from sweeper.tracking.trial_tracker import TrialTracker
from sweeper.trials.stream import EpochRow


class TrialRecords:
    """Trials and points, each saved as soon as it changes.

    It is long, of more than fifteen methods, because each thing that happens to a trial or a point is one.

    Attributes:
        trials: by id, in the order in which they started.
        points: by key, in the order in which they arrived, as they were released.
        objectives: of the sweep.
        archive: the front of all points that no audit refuses, by estimates where scores are noisy.
    """

    def __init__(
        self,
        folder: SweepFolder,
        objectives: Sequence[Objective],
        tracker: TrialTracker,
        tags: Mapping[str, str],
        *,
        keep_every_model: bool = False,
        noisy_stages: Sequence[int] | None = None,
    ) -> None:
        self._folder, self._tracker, self._tags = folder, tracker, tags
        self._keep_every_model, self._noisy_stages = keep_every_model, noisy_stages
        self.trials: dict[str, Trial] = folder.trials()
        found = folder.points()
        self.points: dict[PointKey, Point] = {key: point for key, point in found.items() if self._is_known(point)}
        self._unplanned = {key: point for key, point in found.items() if key not in self.points}
        self._refused: dict[str, str] = {}
        self._sensitivities: dict[str, dict[str, float]] = {}  # by trial, until its first epoch
        self.objectives = tuple(objectives)
        self._judge_again()
        self._best = _best_points(self._estimates.values(), objectives)
        self._last_epoch: dict[str, int] = {}
        for name, epoch, made_from in found:
            if not made_from:  # a torn write may have left others of an epoch without that of its iterate
                self._last_epoch[name] = max(epoch, self.last_epoch(name))

    def last_epoch(self, trial: str) -> int:
        """Return the last epoch of a trial whose iterate has a point, 0 before its first."""
        return self._last_epoch.get(trial, 0)

    def start(self, trial: str, config: ConfigValues) -> None:
        """Record a trial that starts."""
        self._tracker.start_trial(trial, config, {**self._tags, NAME_TAG: trial_name(trial, config)})
        self.save(Trial(id=trial, config=config))

    def start_again(self, trial: str) -> None:
        """Record a trial that starts again."""
        self._tracker.start_trial(trial, {}, {})
        self.save(replace(self.trials[trial], status=TrialStatus.RUNNING, reason=""))

    def plan(self, trial: str, plan: TrialPlan, placed: Mapping[str, str]) -> list[Point]:
        """Record the plan of a trial, and the node and device that train it.

        Returns:
            Its points of earlier epochs that could not be shown while the plan was lost with the machine.
        """
        self._track_plan(trial, plan)
        epsilon = plan.epsilon_curve[-1] if plan.epsilon_curve else None
        where = {f"sweeper.{key}": text for key, text in placed.items()}
        cost = {} if epsilon is None else {PLANNED_TAG: round_up(epsilon), NOISE_TAG: f"{plan.noise_multiplier:.6g}"}
        self._tracker.tag(trial, {NAME_TAG: trial_name(trial, self.trials[trial].config, epsilon), **cost, **where})
        self.save(replace(self.trials[trial], plan=plan, placed=placed))
        back = {key: point for key, point in self._unplanned.items() if point.trial == trial}
        if back:
            self.points |= back
            self._unplanned = {key: point for key, point in self._unplanned.items() if key not in back}
            self._judge_again()
        return [point for point in back.values() if not point.made_from]

    def _is_known(self, point: Point) -> bool:
        """Whether the records have the plan of a point's trial, without which nobody knows how noisy its scores are.

        A machine that went down may have lost that row, and the point comes back when its trial is planned again.
        """
        return point.trial in self.trials and self.trials[point.trial].plan is not None

    def restart(self, trial: str) -> None:
        """Tell the tracker that a trial lost its process."""
        self._tracker.tag(trial, {"sweeper.restarted": "its process died"})

    def end(self, trial: str, status: TrialStatus, reason: str) -> None:
        """Record how a trial ended; the tracker first, since nobody tells it again of a trial that has ended."""
        if trial in self._sensitivities:  # it ended before its first epoch
            self._tracker.log(trial, 0, self._sensitivities.pop(trial))
        self._tracker.end_trial(trial, status, reason)
        self.save(replace(self.trials[trial], status=status, reason=reason))

    def refuse(self, refused: Mapping[str, str]) -> None:
        """Leave the points that audits refuse out of the front, from now on too; see `sweeper.store.evidence`."""
        self._refused |= refused
        self._judge_again()

    def estimated(self) -> dict[PointKey, Point]:
        """Return all points by key with estimates in place of noisy scores."""
        if self._noisy_stages is None:
            return self.points
        found = estimate_points(self.points.values(), self.trials, self._noisy_stages)
        return {point.key: point for point in found}

    @property
    def _finals(self) -> list[Point]:
        """The points of finals that noisy scores judge: their models are kept, whatever these say."""
        return [point for point in self._estimates.values() if point.is_final]

    def _judge_again(self) -> None:
        """Find the front anew: what one release says changes the estimates of others."""
        self._estimates = self.estimated()
        admitted = [point for point in self._estimates.values() if self._is_admitted(point)]
        front = compress(admitted, front_mask(admitted, self.objectives))
        self.archive = FrontArchive.holding(front, self.objectives)
        if self._noisy_stages is not None:
            self._best = _best_points(self._estimates.values(), self.objectives)

    def _is_admitted(self, point: Point) -> bool:
        return refusal(self._refused, point.trial) is None

    def add(self, points: Sequence[Point]) -> None:
        """Keep the points of an epoch, and the models of the front only, unless every model is kept.

        Points of the front are written first and models removed last, so that no crash takes the model of a point
        without leaving one that is better.
        """
        trial, epoch = points[0].trial, points[0].epoch
        self._last_epoch[trial] = epoch
        if self._noisy_stages is not None:
            self._save_points(*points)
            self._judge_again()
            self._track([self._estimates[point.key] for point in points])
            return
        _, left = self.archive.add(filter(self._is_admitted, points))
        if self._keep_every_model:
            self._save_points(*points)
        else:
            fronts = [one for one in points if one.key in self.archive]
            others = [one for one in points if one.key not in self.archive] + [self.points[one.key] for one in left]
            self._save_points(*fronts, *(replace(one, model=None) for one in others))
            self._remove_models(others)
        self._track(points)

    def track_again(self, trial: str) -> None:
        """Tell the tracker of a trial's last epoch once more: a driver may have been killed before it did."""
        last = trial, self.last_epoch(trial)
        points = [point for point in self._estimates.values() if (point.trial, point.epoch) == last]
        if points:
            self._track(points)

    def _track(self, points: Sequence[Point]) -> None:
        """Tell the tracker of the points of one epoch, and of the best of the trial if it is among them."""
        metrics = {name: value for point in points for name, value in _metrics(point).items()}
        planned = self._sensitivities.pop(points[0].trial, {})  # behind scores: MLflow compares what it heard first
        self._tracker.log(points[0].trial, points[0].epoch, self._best_metrics(points) | metrics | planned)

    def front_values(self) -> list[dict[str, float]]:
        """Return the objectives' values on the front, which a model has to reach to be kept; none if all are kept."""
        names = [objective.name for objective in self.objectives]
        front = () if self._keep_every_model or self._noisy_stages is not None else self.archive.points
        return [{name: point.values[name] for name in names} for point in front]

    def add_test(
        self,
        point: Point,
        scores: Mapping[str, float],
        classes: ClassCounts | None = None,
        curves: ReleasedCurves | None = None,
        errors: ScoreErrors | None = None,
        smoothed: SmoothedCounts | None = None,
    ) -> None:
        """Record the test numbers of a front point, by class too where that may leave, or with released curves."""
        tested = replace(point, test=dict(scores), classes=classes, curves=curves, test_errors=errors)
        rules = ERROR_RULES if errors else point.error_rules
        self._save_points(replace(tested, smoothed=smoothed, error_rules=rules))

    def forget_models(self) -> None:
        """Record that points beside the front, which no audit refuses, have no model any more; `close` removes it."""
        kept = {point.key for point in (*self.archive.points, *self._finals)}
        others = [p for p in self.points.values() if p.model and p.key not in kept and self._is_admitted(p)]
        self._save_points(*(replace(point, model=None) for point in others))

    def track_earlier(self) -> None:
        """Tell the tracker of trials that ran without it, and how those ended that have."""
        for trial in self.trials.values():
            name = trial_name(trial.id, trial.config)  # the price of one training holds for no winner
            self._tracker.start_trial(trial.id, trial.config, {**self._tags, NAME_TAG: name})
            if trial.plan is not None:
                self._track_plan(trial.id, trial.plan)
        for point in self._estimates.values():
            planned = self._sensitivities.pop(point.trial, {})
            self._tracker.log(point.trial, point.epoch, _metrics(point) | planned)
        for trial in self.trials.values():
            if trial.status.value not in OPEN:
                self._tracker.end_trial(trial.id, trial.status, trial.reason)

    def _best_metrics(self, points: Sequence[Point]) -> dict[str, float]:
        """Return the metrics of the best point of a trial so far, of each objective for which it is among these."""
        found: dict[str, float] = {}
        for judged in self.objectives:
            key = points[0].trial, judged.name
            first = best(filter(None, (self._best.get(key), *points)), judged)
            if judged.name == "epsilon" or first is None or first.epoch != points[0].epoch:
                continue
            self._best[key] = first
            found |= best_metrics(first, judged.name)
        return found

    def note_runs(self) -> bool:
        """Record which tracking run is which trial's, and return whether there was a new one."""
        new = [t for t in self.trials.values() if self._tracker.run_id(t.id) not in (None, t.run_id)]
        for trial in new:
            self.save(trial)
        return bool(new)

    def close(self, *, goes_on: bool = False) -> None:
        """Write rows that a full disk refused, and remove models without a point, unless every model is kept.

        The model of a point that an audit refuses stays: the audit can be repeated on it. So do all that noisy scores
        judge while a sweep ``goes_on`` later: what it releases then can bring any of them back to the front.
        """
        self._folder.flush()
        if self._keep_every_model or self._folder.trouble is not None:
            return
        if self._noisy_stages is not None and not goes_on:
            self.forget_models()
        kept = {point.model for point in (*self.points.values(), *self._unplanned.values())}
        for file in (self._folder.path / "models").iterdir():
            if f"models/{file.name}" not in kept:
                file.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # states of trials that can resume
            (self._folder.path / "checkpoints").rmdir()

    def save(self, trial: Trial) -> None:
        """Keep a trial, and its run as soon as it is known."""
        run_id = self._tracker.run_id(trial.id) or trial.run_id
        self.trials[trial.id] = replace(trial, run_id=run_id)
        self._folder.save_trial(self.trials[trial.id])

    def _save_points(self, *points: Point) -> None:
        self.points |= {point.key: point for point in points}
        self._folder.save_points(points)

    def _remove_models(self, points: Iterable[Point]) -> None:
        if self._folder.trouble is None:  # else what outdid them is not on the disk; `close` removes them
            for point in points:
                if point.model is not None:
                    (self._folder.path / point.model).unlink(missing_ok=True)

    def _track_plan(self, trial: str, plan: TrialPlan) -> None:
        self._sensitivities[trial] = metric_names({}, sensitivities=plan.sensitivities)
        if plan.scores is not None:
            std = {f"sweeper.score_std.{split}": f"{value:.3g}" for split, value in plan.scores.std.items()}
            self._tracker.tag(trial, {"sweeper.privacy.score_noise": f"{plan.scores.noise_multiplier:g}", **std})


def _best_points(points: Iterable[Point], objectives: Sequence[Objective]) -> dict[tuple[str, str], Point]:
    """Return the best point of each trial in each objective, by the names of both."""
    found: dict[tuple[str, str], Point] = {}
    for point in points:
        for judged in objectives:
            key = point.trial, judged.name
            found[key] = best(filter(None, (found.get(key), point)), judged) or point
    return found


def points_of(trial: str, row: EpochRow, plan: TrialPlan | None) -> tuple[Point, ...]:
    """Return the points of an epoch: that of the iterate first, then those made from the iterates so far.

    Raises:
        TrialError: points made from iterates, of a trial whose scores are paid for one by one.

    Guarantees:
        All of them have the epsilon of this epoch, that of the last iterate they were made from.
    """
    if row.free and plan is not None and plan.scores is not None:
        raise TrialError("it reported scores beside those of its epochs, which nobody has paid for")
    bounds = {} if plan is None else plan.accountants
    iterate = Point(
        trial=trial,
        epoch=row.epoch,
        values=row.values,
        accountants={name: curve[row.epoch - 1] for name, curve in bounds.items()},
        risk=plan.risks[row.epoch - 1] if plan is not None and plan.risks else None,
        repeats=row.repeats,
        model=row.model,
        errors=row.errors,
        error_rules=ERROR_RULES if row.errors else None,
    )
    epsilon = {name: value for name, value in row.values.items() if name == "epsilon"}
    free = []
    for one in row.free:
        values = {**one.values, **epsilon}  # the epsilon last: whatever a row says, it is that of the epoch
        free.append(replace(iterate, made_from=one.made_from, values=values, repeats=one.repeats, model=one.model))
    return (iterate, *free)


def run_tags(privacy: PrivacySettings, claim: Claim) -> dict[str, str]:
    """Return what the run of every trial of a sweep is tagged with."""
    return {
        "sweeper.delta": f"{privacy.delta!r}",
        "sweeper.relation": privacy.relation.value,
        "sweeper.exploratory": str(claim.exploratory).lower(),
    }


def _metrics(point: Point) -> dict[str, float]:
    deviations = {name: found for name in point.repeats if (found := point.deviation(name)) is not None}
    named = {f"deviation/{name}": value for name, value in metric_names(deviations).items()}
    if not point.made_from:
        risk = {} if point.risk is None else risk_metrics(point.risk)
        return metric_names(point.values, point.accountants) | risk | named | noise_metrics(point)
    own = {name: value for name, value in point.values.items() if name != "epsilon"}  # which is that of the epoch
    return {f"{point.made_from}/{name}": value for name, value in (metric_names(own) | named).items()}
