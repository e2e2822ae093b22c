"""What a sweep has released of each row, by the records of trials and points, and what of it the ledger does not hold.

A row is in one split: what trainings released was computed from training rows, noisy scores of epochs from validation
rows, scores or whole curves of points of the front from test rows. Where these rows are not private, their scores have
no noise and are none of the releases here.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clipless.privacy.events import PoissonGaussian
from clipless.privacy.noisy_counts import scores_event
from sweeper.privacy.evaluation.paid_scores import scored_by
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import drawn_by
from sweeper.records import Point, Trial

TRAINING, VALIDATION, TEST = "a training row", "a validation row", "a test row"
SKETCH = "the sketch"  # what has released it, in place of a trial
SPLITS = (TRAINING, VALIDATION, TEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRelease:
    """What one trial, or one point of it, has released.

    Attributes:
        split: of whose rows.
        trial: id of the trial.
        epoch: of the point, 0 for releases of the whole trial.
        event: what its noise lets through.
    """

    split: str
    trial: str
    epoch: int = 0
    event: PoissonGaussian


def releases(
    trials: Iterable[Trial], points: Iterable[Point], sketch: PoissonGaussian | None = None
) -> tuple[TrialRelease, ...]:
    """Return what trials and points have released: up to the last recorded epoch, by the noise that they planned.

    Curves, and a private sketch of the training rows, are taken with the noise that is recorded beside them.
    """
    points, last = tuple(points), Counter[str]()
    for point in points:
        last[point.trial] = max(point.epoch, last[point.trial])
    found: list[TrialRelease] = []
    if sketch is not None:
        found.append(TrialRelease(split=TRAINING, trial=SKETCH, event=sketch))
    for trial in trials:
        plan, epochs = trial.plan, last[trial.id]
        if plan is None or not epochs:
            continue
        event = plan.event.with_steps(drawn_by(plan, epochs))
        found.append(TrialRelease(split=TRAINING, trial=trial.id, event=event))
        if plan.scores is not None:
            scores = scores_event(plan.scores.noise_multiplier, scored_by(plan, epochs), plan.relation)
            found += [TrialRelease(split=VALIDATION, trial=trial.id, event=scores)] if scores.steps else []
        found += (one for point in points if point.trial == trial.id for one in _test_releases(trial, point))
    return tuple(found)


def _test_releases(trial: Trial, point: Point) -> Iterable[TrialRelease]:
    """Yield what the scores or curves of private test rows of a point have released."""
    plan = trial.plan
    if plan is None or (point.curves is None and (point.test is None or plan.scores is None)):
        return
    noise = math.inf if plan.scores is None else plan.scores.noise_multiplier
    if point.curves is not None:
        noise = point.curves.noise_multiplier
    yield TrialRelease(split=TEST, trial=trial.id, epoch=point.epoch, event=scores_event(noise, 1, plan.relation))


def of_split(found: Iterable[TrialRelease], split: str) -> list[PoissonGaussian]:
    """Return the events of the releases of one split."""
    return [one.event for one in found if one.split == split]


def unpaid(found: Sequence[TrialRelease], ledger: Ledger) -> tuple[TrialRelease, ...]:
    """Return the releases, or parts of them, that no entry of the ledger covers.

    Where a private selection held, its ledger names no training, and test scores alone are looked for.
    """
    selected = ledger.held is not None
    left: list[TrialRelease] = []
    for one in found:
        if one.split == TEST or (selected and one.trial not in {entry.trial for entry in ledger.entries()}):
            continue
        entered = [entry for entry in ledger.entries() if entry.trial == one.trial]
        if one.trial == SKETCH:
            paid = [] if ledger.sketch is None else [ledger.sketch]
        elif one.split == TRAINING:
            paid = [entry.charged for entry in entered]
        else:
            paid = [event for entry in entered for event in entry.charged_scores]
        steps = one.event.steps - sum(event.steps for event in paid if covers(event, one.event))
        if steps > 0:
            left.append(TrialRelease(split=one.split, trial=one.trial, event=one.event.with_steps(steps)))
    return (*left, *_unpaid_tests([one for one in found if one.split == TEST], ledger))


def covers(paid: PoissonGaussian, released: PoissonGaussian) -> bool:
    """Return whether a step of what was paid for lets through as much as one of what was released."""
    same = (paid.relation, paid.sampling_rate) == (released.relation, released.sampling_rate)
    return same and paid.noise_multiplier <= released.noise_multiplier * (1.0 + 1e-9)


def _unpaid_tests(found: Sequence[TrialRelease], ledger: Ledger) -> Iterable[TrialRelease]:
    """Yield releases of test rows for which there is no entry of their point; each entry pays for one."""
    entries = list(ledger.tests())
    for one in found:
        own = (row for row in entries if (row.trial, row.epoch) == (one.trial, one.epoch))
        paid = next((row for row in own if covers(row.scores.event, one.event)), None)
        if paid is None:
            yield one
        else:
            entries.remove(paid)
