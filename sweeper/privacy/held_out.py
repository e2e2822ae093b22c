"""Scores of rows held back: which one to show first, how well it is known, and whether it beats a constant prediction.

Console, cards, reports and live pages say these things of a model by the same functions.
"""

from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

from clipless.datasets import Evaluation
from sweeper.privacy.claims import Claim
from sweeper.records import Interval, Point
from sweeper.specification.objectives import AUROC, BALANCED, is_share_of_rows, needs_two_classes, smoothed_radius

_Z = NormalDist().inv_cdf(0.975)  # of a 95 % interval


@dataclass(frozen=True, slots=True)
class ShownScore:
    """The score of a model that is shown first: on test rows where they are scored, since validation rows chose it."""

    split: str  # "test" or "validation"
    value: float
    interval: Interval | None  # 95 %, for new rows like them; None where it is not known


def mean_in_words(point: Point, name: str) -> str:
    """Return of how many trainings a validation score is the mean, to stand behind it; empty where it is of one.

    The model of a point, and its test score, are those of the first one.
    """
    trainings = len(point.repeats.get(name, ()))
    return f" as the mean of {trainings} trainings" if trainings > 1 else ""


def shown_score(point: Point, name: str, claim: Claim) -> ShownScore:
    """Return the score that is shown first of those that a point has."""
    tested = (point.test or {}).get(name)
    if tested is None:
        return ShownScore("validation", point.values[name], point.interval(name))
    return ShownScore("test", tested, interval_on_test(point, name, claim))


def doubt(point: Point, name: str, claim: Claim) -> str:
    """Say that the score shown first is no better than a constant prediction, or perhaps not; empty where it is."""
    shown = shown_score(point, name, claim)
    majority = claim.baselines.majority
    reached = claim.baselines.ends(name, shown.split if shown.split in majority else "validation")
    if reached is None or shown.value != shown.value:
        return ""
    what = "chance" if name in (AUROC, BALANCED) else "always predicting the most frequent class"
    on_rows = f"On {shown.split} rows this model is"
    low, high = shown.interval or (shown.value, shown.value)
    if max(shown.value, high) <= reached[0]:
        return f"{on_rows} no better in {name} than {what}"
    if min(shown.value, low) <= reached[1]:
        how = "which lies within the 95 % interval" if reached[0] == reached[1] else "as far as noise lets tell"
        return f"{on_rows} perhaps no better in {name} than {what}, {how}"
    return ""


def wilson(share: float, rows: int) -> Interval:
    """Return the 95 % interval of a probability by the share of rows in which its event was seen (Wilson 1927).

    >>> low, high = wilson(0.9, 100)
    >>> round(low, 4), round(high, 4)
    (0.8256, 0.9448)
    """
    weight = _Z**2 / rows
    middle = (share + weight / 2) / (1 + weight)
    half = _Z * sqrt(share * (1 - share) / rows + weight / (4 * rows)) / (1 + weight)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def interval_on_test(point: Point, name: str, claim: Claim) -> Interval | None:
    """Return the 95 % interval of a test number for new rows like them, ``None`` where there is none.

    That of a noisy score is that of its release. A share of public rows has `wilson`'s, of the number of rows that its
    counts by class or its smoothed certificates record; over repeats, whose rows are the same, it is wider than
    need be. An area under the ROC curve has that of a share of as many rows as its rarer class has: its variance is at
    most that one's, whatever the laws of the scores are (Birnbaum and Klose 1957). Rows of a larger privacy unit are
    not independent: there is none.

    Guarantees:
        Nothing is counted of rows that are not declared public.
    """
    if point.noisy is not None:
        return point.test_interval(name)
    value, counted = (point.test or {}).get(name), _rows_counted(point, name)
    if value is None or not counted or claim.unit != "row" or claim.evaluation != Evaluation.PUBLIC.value:
        return None
    return wilson(value, counted) if 0.0 <= value <= 1.0 else None


def _rows_counted(point: Point, name: str) -> int:
    """Return of how many test rows a number is a share, or varies as one; 0 where that is not recorded."""
    if smoothed_radius(name) is not None:
        return 0 if point.smoothed is None else point.smoothed.rows
    if point.classes is None:
        return 0
    if needs_two_classes(name):
        return min(point.classes.rows)
    return sum(point.classes.rows) if is_share_of_rows(name) else 0
