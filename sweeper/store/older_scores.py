"""Scores by class as earlier versions recorded them: their errors could be too small, and are stated as now.

Recalls, balanced accuracy and AUROC are divided by the noisy sizes of classes. Where noise of a release is more than
half of the rows nothing is known of these, of a class that may have less than one row nothing is known of its recall,
and an AUROC is known no better than by the rows of the smaller class (`clipless.privacy.class_scores`). Versions that
did not know recorded narrow errors, from which intervals followed that did not hold the truth. Both show in what stands
beside: the noise of the accuracy, which is that of each number of the release, and how many rows a recall is said to be
of. Of the mean of several releases that shows what may be so, hence errors of other rules are never stated smaller than
they were, and what this version records says so (``error_rules``) and stays as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import hypot, sqrt

import numpy as np

from clipless.privacy.class_scores import (
    UNKNOWN_ROWS,
    NoiseSlopes,
    doubted_size,
    least_rows,
    leaves_no_sizes,
    rows_of_balanced,
)
from sweeper.records import ERROR_RULES, Interval, Point, ScoreErrors
from sweeper.specification.objectives import AUROC, BALANCED, is_share_of_rows, recall_text

_NOTHING_KNOWN = (0.0, 1.0)  # the interval of such a score
_UNKNOWN_STD = 1.0
_MORE, _HALVINGS = 1.1, 40  # times the rows of the smaller class, that an AUROC was said to be of; of their interval


def restate(point: Point) -> Point:
    """Return a recorded point with the errors of its scores by class as this version states them; itself if it did.

    Where it has intervals already, those of scores whose errors were too small hold every share.
    """
    if point.error_rules == ERROR_RULES:
        return point
    noisy = point.noisy
    repeats = max(map(len, point.repeats.values()), default=1)
    values, tests = point.values, point.test or {}
    if noisy is not None:
        values, tests = {**values, **noisy.released}, {**tests, **noisy.test_released}
    errors, test_errors = _restated(point.errors, values, repeats), _restated(point.test_errors, tests, 1)
    changed, tests_changed = _differing(point.errors, errors), _differing(point.test_errors, test_errors)
    if not changed and not tests_changed:
        return point
    if noisy is not None:
        intervals, tested = _widened(noisy.intervals, changed), _widened(noisy.test_intervals, tests_changed)
        noisy = replace(noisy, intervals=intervals, test_intervals=tested)
    return replace(point, errors=errors, test_errors=test_errors, noisy=noisy, error_rules=ERROR_RULES)


def _differing(before: ScoreErrors | None, now: ScoreErrors | None) -> list[str]:
    return [name for name, error in (now or {}).items() if error != (before or {})[name]]


def _widened(intervals: Mapping[str, Interval], names: Sequence[str]) -> dict[str, Interval]:
    return {name: _NOTHING_KNOWN if name in names else ends for name, ends in intervals.items()}


def _restated(errors: ScoreErrors | None, values: Mapping[str, float], repeats: int) -> ScoreErrors | None:
    """Return errors of the mean of several releases."""
    if not errors or "accuracy" not in errors:
        return errors
    recalls = [name for name in errors if recall_text(name) is not None]
    share, rows = errors["accuracy"]
    left = len(recalls) / (len(recalls) + 1) if recalls else 1.0  # of the accuracy's variance beside those of recalls
    population, std = round(rows), share * rows * sqrt(repeats / left)
    found = dict(errors)
    if leaves_no_sizes(std, population):
        least = hypot(*[_UNKNOWN_STD] * repeats) / repeats  # as `sweeper.trials.scores.mean_errors` computes it
        for name, (known, of_rows) in errors.items():
            if known < least and not is_share_of_rows(name):
                found[name] = (_UNKNOWN_STD, of_rows)
    if AUROC in found and 2.0 * least_rows(std, 2) < population:
        known, of_rows = found[AUROC]
        of_classes = [errors[name][1] for name in recalls]
        smaller = min(of_classes) if recalls else _smaller_class(values[AUROC], known * sqrt(repeats) / std, population)
        found[AUROC] = (known, smaller if of_rows > _MORE * smaller else of_rows)
    doubted = _doubted(errors, values, recalls, std * sqrt(1 / repeats), doubted_size(std, len(recalls) or 2))
    for name in doubted:
        found[name] = (found[name][0], UNKNOWN_ROWS)
    if BALANCED in found and doubted:
        sizes = np.array([found[name][1] for name in recalls])
        of_rows = rows_of_balanced(np.array([values[name] for name in recalls]), sizes)
        found[BALANCED] = (found[BALANCED][0], min(of_rows, found[BALANCED][1]))
    return found


def _smaller_class(auroc: float, deviation: float, population: int) -> float:
    """Return the size of the smaller class with which the noise of an AUROC has this deviation, in those of numbers."""
    low, high = 0.0, population / 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        slopes = NoiseSlopes.of_auroc(auroc, np.array([middle, population - middle]), population)
        low, high = (middle, high) if slopes.deviation > deviation else (low, middle)
    return high


def _doubted(
    errors: ScoreErrors, values: Mapping[str, float], recalls: Sequence[str], std: float, least: float
) -> list[str]:
    """Return the recalls and the AUROC that a class decides which may have less than one row, and does not say so."""
    small = [name for name in recalls if errors[name][1] < least]
    found = [name for name in small if errors[name][1] != UNKNOWN_ROWS]
    if AUROC not in errors or errors[AUROC][1] == UNKNOWN_ROWS:
        return found
    if recalls:
        return [*found, AUROC] if small else found
    population = round(errors["accuracy"][1])  # where no recall is there, its noise tells the sizes that it was made of
    if 2.0 * least >= population:
        return found
    smallest = NoiseSlopes.of_auroc(values[AUROC], np.array([least, population - least]), population)
    return [*found, AUROC] if errors[AUROC][0] > std * smallest.deviation else found
