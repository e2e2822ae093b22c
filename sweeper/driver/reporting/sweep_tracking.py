"""What a tracking store is told of a whole sweep: what it learns from and costs, how it goes, and its best model.

Trials are told of by `sweeper.driver.recording.trial_records`. A private selection tells of its winner alone,
when it has ended.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clipless.datasets import Dataset
from clipless.errors import CliplessError
from sweeper.driver.reporting.progress import SweepProgress
from sweeper.errors import PickError, SweeperError
from sweeper.results.budgets import best_values, description, tells_own_epsilons
from sweeper.results.front import Front
from sweeper.results.sweep import Sweep
from sweeper.tracking.names import NOTE_TAG, price_metrics
from sweeper.tracking.system_metrics import SystemMetrics
from sweeper.tracking.tracker import Tracker

EVERY_SECONDS = 10.0  # between two samples
DIGEST_LENGTH = 16


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
    _due: float = 0.0

    def look(self, progress: SweepProgress) -> None:
        """Tell of a state, if it is time to."""
        if progress.note or self.now() < self._due:
            return
        self._due = self.now() + EVERY_SECONDS
        ended = {"trials/done": float(progress.done), "trials/failed": float(progress.failed)}
        if progress.rehearsals is not None:
            ended["rehearsals/done"] = float(progress.rehearsals.done)
        found = best_values(progress.front, progress.objectives)
        if progress.hypervolume is not None:
            found["hypervolume"] = progress.hypervolume
        self.tracker.log(None, _step(), ended | found | self._machine.sample())


def conclude(tracker: Tracker, front: Front, *, status: str, page: str | None = None) -> None:
    """Tell what a sweep found and costs."""
    found = best_values(front.front_points, front.objectives) if tells_own_epsilons(front) else {}
    tracker.log(None, _step() + 1, {"hypervolume": front.hypervolume} | price_metrics(front.ledger) | found)
    tracker.tag(None, {NOTE_TAG: description(front, status=status, page=page)})


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


def _step() -> int:
    """Return the step of what is told now: seconds of the clock, which grow when a sweep is resumed."""
    return int(time.time())
