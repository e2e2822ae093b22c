"""What a tracking store is told of a whole sweep: what it learns from and costs, how it goes, and its best model.

Trials are told of by `sweeper.driver.recording.trial_records`. A private selection tells of its winner alone,
when it has ended.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

from clipless.datasets import Dataset
from clipless.errors import CliplessError
from sweeper.driver.reporting.progress import SweepProgress
from sweeper.errors import PickError, RecordError, SweeperError
from sweeper.records import Point, TrialStatus
from sweeper.results.budgets import best_values, description, tells_own_epsilons
from sweeper.results.front import Front
from sweeper.results.highlights import best, best_by_trial, best_of_trial, name_result, score_by_split, value_text
from sweeper.results.notes import describe_trial
from sweeper.results.sweep import Sweep
from sweeper.rounding import round_up
from sweeper.store.notes import Notes, read_notes
from sweeper.store.trial_standings import NEVER_BEGUN
from sweeper.tracking.names import (
    BEST_TAG,
    NAME_TAG,
    NOTE_TAG,
    PRICE_TAG,
    best_metrics,
    best_name,
    best_test_metrics,
    name_hypervolume,
    name_test_scores,
    price_metrics,
    result_name,
)
from sweeper.tracking.system_metrics import SystemMetrics
from sweeper.tracking.tracker import Tracker

EVERY_SECONDS = 10.0  # between two samples,
AT_LEAST_SECONDS = 1.0  # and when a trial has ended
DIGEST_LENGTH = 16
_DONE = {status.value for status in (TrialStatus.COMPLETED, TrialStatus.STOPPED, TrialStatus.FAILED)}


def public_facts(data: Dataset) -> dict[str, Any]:
    """Return what a store is told of a data set.

    Guarantees:
        Declarations, and the number of training rows that the claims take as public; nothing was computed from a row.
    """
    declared = data.metadata
    return {
        "training_rows": len(data.train),
        "input_shape": list(declared.input_shape),
        "classes": list(declared.classes),
        "evaluation": declared.evaluation.value,
        "unit": declared.unit,
        "public": list(declared.public_facts),
        "conditions": list(declared.conditions),
    }


def introduce(tracker: Tracker, data: Dataset, name: str) -> None:
    """Tell what a sweep learns from, and that it has begun."""
    facts = public_facts(data)
    text = json.dumps([data.metadata.name, facts], sort_keys=True)
    tracker.dataset(data.metadata.name, hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH], facts)
    tracker.tag(None, {NOTE_TAG: f"**{name}** has begun; what it finds is told here when it ends."})


@dataclass
class Watch:
    """Tells of a sweep while it runs: its best values so far, and how busy this machine is."""

    tracker: Tracker
    now: Callable[[], float] = time.monotonic
    _machine: SystemMetrics = field(default_factory=SystemMetrics)
    _last: float = -inf
    _done: int = 0

    def look(self, progress: SweepProgress) -> None:
        """Tell of a state, if it is time to."""
        done, now = progress.done + progress.failed, self.now()
        waited = now - self._last
        if progress.note or waited < (EVERY_SECONDS if done == self._done else AT_LEAST_SECONDS):
            return
        self._last, self._done = now, done
        ended = {"trials/done": float(progress.done), "trials/failed": float(progress.failed)}
        if progress.rehearsals is not None:
            ended["rehearsals/done"] = float(progress.rehearsals.done)
        found = best_values(progress.front, progress.objectives)
        if progress.hypervolume is not None:
            found |= name_hypervolume(progress.hypervolume, progress.hypervolume_interval)
        self.tracker.log(None, done, found | ended | self._machine.sample())


def conclude(
    tracker: Tracker,
    front: Front,
    *,
    status: str,
    page: str | None = None,
    notes: Mapping[str, Notes] = MappingProxyType({}),
    rehearsed: str = "",
) -> None:
    """Tell what a sweep found and costs, and of each trial how it ended, its test scores and what people noted."""
    found = best_values(front.front_points, front.objectives) if tells_own_epsilons(front) else {}
    done = sum(trial.status in _DONE for trial in front.trials.values())
    volume = name_hypervolume(front.hypervolume, front.hypervolume_interval)
    tested = {name: value for point in _best_point(front) for name, value in name_test_scores(point).items()}
    bests = _of_bests(front) if found else {}
    tracker.log(None, done, volume | price_metrics(front.ledger) | found | bests | tested)
    described = description(front, status=status, page=page, rehearsed=rehearsed)
    results = _name_results(front) | _name_sweep(front, tracker.destination.sweep)
    tracker.tag(None, {**results, NOTE_TAG: described})
    for point in front.front_points:
        scores = {} if point.made_from else name_test_scores(point)
        if scores:
            tracker.log(point.trial, point.epoch, scores)
    _conclude_bests(tracker, front)
    for trial in front.trials:
        texts = [str(one) for one in notes[trial].texts] if trial in notes else []
        note = describe_trial(front, trial, notes=texts, page=page)
        tracker.tag(trial, {**_name_trial(front, trial), NOTE_TAG: note})


def _name_results(front: Front) -> dict[str, str]:
    """Return the best score and the price as tags, which a run's page shows above everything else that a sweep told."""
    tags, price = {}, front.ledger.get("winner")
    judged = next((one.name for one in front.objectives if one.name != "epsilon"), "")
    for point in _best_point(front) if tells_own_epsilons(front) else ():
        tags[BEST_TAG] = f"{score_by_split(point, judged, front.claim)} ({point.label})"
    if price is not None and price.released:
        tags[PRICE_TAG] = f"epsilon {round_up(price.epsilon)} at delta {price.delta!r}{price.doubt}"
    return tags


def _name_sweep(front: Front, folder: str) -> dict[str, str]:
    """Return the name of a run of a sweep: its result and its price first, in few letters, for lists cut names."""
    price, found = front.ledger.get("winner"), _best_point(front)
    if price is None or not price.released or front.claim.exploratory or not tells_own_epsilons(front):
        return {}
    cost = f"eps {'≈' if price.doubt else ''}{round_up(price.epsilon)}{price.doubt}"
    if not found:
        return {NAME_TAG: f"no point, {cost}, {folder}"} if front.total == 0 else {}
    judged = next(one.name for one in front.objectives if one.name != "epsilon")
    return {NAME_TAG: f"{name_result(found[0], judged, front.claim, cost)}, {folder}"}


def _name_trial(front: Front, trial: str) -> dict[str, str]:
    """Return the name of the run of a trial, which begins with what tells it from others.

    The score is that of validation rows, which every trial has: the test scores of some would not compare with it.
    """
    if front.trials[trial].begun is False:
        return {NAME_TAG: f"{trial} {NEVER_BEGUN}"}
    found, stage = best_of_trial(front, trial), front.stage_of(trial)
    if found is None:
        return {}
    judged = next(one.name for one in front.objectives if one.name != "epsilon")
    of = "" if stage is None or len(front.stages) < 2 else f"stage {stage + 1} of {len(front.stages)}"
    reached = f"{judged} {value_text(found, judged)} on validation rows"
    return {NAME_TAG: result_name(trial, front.trials[trial].config, reached, of)}


def notes_of(folder: Path) -> Mapping[str, Notes]:
    """Return what people noted of trials; nothing where the file is broken, which is no reason to fail at the end."""
    try:
        return read_notes(folder)
    except RecordError:
        return {}


def _best_point(front: Front) -> tuple[Point, ...]:
    """Return the point of the front that is best in the first objective that is not epsilon, if any."""
    judged = next((one for one in front.objectives if one.name != "epsilon"), None)
    found = None if judged is None else best(front.front_points, judged)
    return () if found is None else (found,)


def _of_bests(front: Front) -> dict[str, float]:
    """Return own epsilon and test score of the point of the front that is best in each objective but epsilon."""
    told: dict[str, float] = {}
    for judged in front.objectives:
        point = None if judged.name == "epsilon" else best(front.front_points, judged)
        if point is not None:
            told |= best_test_metrics(point, judged.name)
            told |= {f"{best_name(judged.name)}/epsilon": point.values["epsilon"]} if "epsilon" in point.values else {}
    return told


def _conclude_bests(tracker: Tracker, front: Front) -> None:
    """Tell of each trial the point that a reader would take in each objective but epsilon, in place of its best so far.

    A store shows the values of the last epoch: they are told there, under the epoch that has them.
    """
    last: dict[str, int] = {}
    for point in front.points:
        last[point.trial] = max(point.epoch, last.get(point.trial, 0))
    for judged in front.objectives:
        name = judged.name
        if name == "epsilon":
            continue
        for trial, point in best_by_trial(front.points, judged).items():
            reached = best_metrics(point, name) if tells_own_epsilons(front) else {}
            if metrics := reached | best_test_metrics(point, name):
                tracker.log(trial, last[trial], metrics)


def track_model(tracker: Tracker, folder: Path) -> Iterator[str]:
    """Log the model that ``pick`` takes, and yield why it could not be; of a store that is out of reach ask nothing."""
    try:
        picked = Sweep(folder).pick()
        run = tracker.run_id(picked.point.trial)
        if run is not None:
            from sweeper.results.models.registry import log_model  # MLflow, which takes seconds to import

            log_model(picked, tracker.destination, run)
    except PickError:
        return
    except (SweeperError, CliplessError) as error:
        yield str(error)
