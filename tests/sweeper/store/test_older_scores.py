"""Errors of scores by class of earlier versions are stated as now; those of this version stay to the last digit."""

from dataclasses import replace
from math import nan

import pytest
import torch

from clipless.privacy.class_scores import NoiseSlopes, ScoreError, ScoreForm, release_class_scores, rows_of_balanced
from clipless.testing import SeededSource
from sweeper.adapters import dump
from sweeper.records import ERROR_RULES, NoisyScores, Point
from sweeper.specification.objectives import AUROC, BALANCED, recall_name
from sweeper.store.older_scores import restate
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.scores import EpochScores, mean_errors


def rows_of_auroc(auroc, negatives, positives):
    """As earlier versions had it, of Hanley and McNeil (1982)."""
    first, second = auroc / (2.0 - auroc) - auroc**2, 2.0 * auroc**2 / (1.0 + auroc) - auroc**2
    variance = auroc * (1.0 - auroc) + (positives - 1.0) * first + (negatives - 1.0) * second
    return auroc * (1.0 - auroc) * negatives * positives / variance


HITS, ORDER, BOTH = (ScoreForm(2, 2, hits=h, order=o) for h, o in ((True, False), (False, True), (True, True)))
MANY = ScoreForm(1, 5, hits=True)


def release(form, noise, rows_of_class, seed=0, rows=200):
    """Return a release with noise of so many rows."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.zeros(rows, dtype=torch.int64)
    y[:rows_of_class] = form.classes - 1
    right = torch.rand(rows, form.answers, generator=generator) < 0.8
    scores = y + 0.7 * torch.randn(rows, generator=generator, dtype=torch.float64) if form.order else None
    return release_class_scores(right, y, scores, form, rows, noise / form.sensitivity, SeededSource(seed))


def scores_of(found, *, old):
    """Return scores with the errors of this version, or as versions stated them that took sizes as known."""
    values = dict(zip(("accuracy", "certified@0.5"), found.shares, strict=False))
    errors = dict(zip(values, found.share_errors, strict=True))
    std, rows = found.std, found.rows
    if found.form.hits:
        slopes = NoiseSlopes.of_recalls(found.recalls, rows)
        earlier = [ScoreError(std * one.deviation, size) for one, size in zip(slopes, rows, strict=True)]
        for label, error in enumerate(earlier if old else found.recall_errors):
            values[recall_name(label)], errors[recall_name(label)] = found.recalls[label], error
        balanced = NoiseSlopes.of_balanced(found.recalls, rows)
        earlier = ScoreError(std * balanced.deviation, rows_of_balanced(found.recalls, rows))
        values[BALANCED], errors[BALANCED] = found.balanced_accuracy, earlier if old else found.balanced_error
    if found.form.order:
        slopes = NoiseSlopes.of_auroc(found.auroc, rows, found.population)
        earlier = ScoreError(std * slopes.deviation, rows_of_auroc(min(max(found.auroc, 0.01), 0.99), *rows))
        values[AUROC], errors[AUROC] = found.auroc, earlier if old else found.auroc_error
    scores = EpochScores({name: float(value) for name, value in values.items()})
    scores.errors = {name: (float(error.std), float(error.rows)) for name, error in errors.items()}
    return scores


def point_of(*found, old):
    """Return a point of a release, which its test rows have too, or of the mean of several."""
    repeats = [scores_of(one, old=old) for one in found]
    by_name = {name: tuple(one[name] for one in repeats) for name in repeats[0]}
    means = {name: sum(several) / len(several) for name, several in by_name.items()}
    made = Point(trial="t0001", epoch=1, values=means, errors=mean_errors(repeats))
    if len(repeats) > 1:
        return replace(made, repeats=by_name)
    return replace(made, test=means, test_errors=mean_errors(repeats))


@pytest.mark.parametrize("form", [HITS, ORDER, BOTH, MANY], ids=["hits", "order", "both", "classes"])
@pytest.mark.parametrize("noise", [0.05, 0.6, 2.5, 30.0, 99.0, 101.0, 1000.0])
def test_what_this_version_records_stays_as_it_is(form, noise):
    for seed, rows_of_class in enumerate((0, 1, 2, 3, 4, 8, 60, 100) * 3):
        point = point_of(release(form, noise, rows_of_class, seed), old=False)
        assert restate(point) is point


@pytest.mark.parametrize("noise", [101.0, 1000.0])
def test_repeats_of_this_version_stay_as_they_are(noise):
    point = point_of(*(release(BOTH, noise, 60, seed) for seed in range(3)), old=False)
    assert restate(point) is point


@pytest.mark.parametrize("form", [HITS, ORDER, BOTH, MANY], ids=["hits", "order", "both", "classes"])
@pytest.mark.parametrize("noise", [0.6, 2.5, 30.0])
def test_what_says_whose_rules_it_follows_stays_as_it_is_and_no_error_of_repeats_gets_smaller(form, noise):
    changed = 0
    for seed, rows_of_class in enumerate((2, 4, 8, 60, 100) * 3):
        point = point_of(*(release(form, noise, rows_of_class, 100 * seed + i) for i in range(5)), old=False)
        marked = replace(point, error_rules=ERROR_RULES)
        assert restate(marked) is marked
        found = restate(point)
        changed += found is not point
        for name, (std, rows) in point.errors.items():
            assert found.errors[name][0] >= std
            assert found.errors[name][1] <= rows
    assert changed or noise > 2.5 or form == HITS, "these look like those of earlier versions"


@pytest.mark.parametrize("form", [HITS, ORDER, BOTH, MANY], ids=["hits", "order", "both", "classes"])
@pytest.mark.parametrize(("noise", "rows_of_class"), [(0.1, 0), (0.1, 1), (0.1, 40), (20.0, 60), (101.0, 60), (1e3, 0)])
def test_errors_of_earlier_versions_are_those_of_this_one(form, noise, rows_of_class):
    for seed in range(6):
        found = release(form, noise, rows_of_class, seed)
        now, before = point_of(found, old=False), restate(point_of(found, old=True))
        for stated, expected in ((before.errors, now.errors), (before.test_errors, now.test_errors)):
            assert list(stated) == list(expected)
            for name, error in expected.items():
                if name == AUROC and noise < 1.0:  # the smaller class is told by the noise alone without recalls
                    assert stated[name] == pytest.approx(error, rel=0.1)
                elif noise < 1.0 or name in ("accuracy", "certified@0.5"):
                    assert stated[name] == error, name
                else:  # a class that is doubted beside noise of more than a row says so by that noise
                    assert stated[name][0] == error[0]
        assert before.values == now.values


def test_of_repeats_of_earlier_versions_nothing_is_known_either():
    found = [release(BOTH, 1000.0, 60, seed) for seed in range(4)]
    stated = restate(point_of(*found, old=True)).errors
    assert [stated[name][0] for name in (BALANCED, AUROC, recall_name(0), recall_name(1))] == [1.0] * 4
    assert stated["accuracy"] == mean_errors([scores_of(one, old=True) for one in found])["accuracy"]


def test_intervals_that_were_too_narrow_hold_every_share():
    point = point_of(release(ORDER, 1000.0, 60), old=True)
    narrow = {"accuracy": (0.0, 1.0), "certified@0.5": (0.1, 1.0), AUROC: (0.45, 0.55)}
    noisy = NoisyScores(
        is_final=True, released=point.values, intervals=narrow, test_released=point.test, test_intervals=narrow
    )
    estimated = replace(point, values={**point.values, AUROC: 0.5}, noisy=noisy)
    found = restate(estimated)
    for intervals in (found.noisy.intervals, found.noisy.test_intervals):
        assert intervals == narrow | {AUROC: (0.0, 1.0)}
    assert found.values == estimated.values
    assert restate(found) is found
    assert found.error_rules == ERROR_RULES


def test_a_folder_of_an_earlier_version_is_read_so(tmp_path):
    folder, old = SweepFolder(tmp_path), point_of(release(BOTH, 1000.0, 60), old=True)
    folder.save_points([old, Point(trial="t0001", epoch=2, values={"accuracy": nan})])
    first, second = folder.points().values()
    assert dump(first) == dump(restate(old)) != dump(old)
    assert second.errors is None
