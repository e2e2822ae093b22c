"""The points of a front that every summary names."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dashboards.text import split_lead
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.held_out import interval_on_test
from sweeper.records import ClassCounts, NoisyScores, Objective, SmoothedCounts, Trial
from sweeper.results.highlights import best, explain, highlights, nearly_best, point_lines, score_by_split


def test_best_of_each_objective_knee_and_pick_are_named_once_each(make_front, make_point):
    points = [
        make_point("t0001", 1, 1.0, 0.5, 0.4),
        make_point("t0001", 2, 2.0, 0.8, 0.3),
        make_point("t0001", 3, 8.0, 0.9, 0.1),
        make_point("t0001", 4, 9.0, 0.1, 0.1),  # on no front
    ]
    titles = {one.point.epoch: one.titles for one in highlights(make_front(points))}
    assert titles[1] == ("best epsilon", "best certified@1/4")
    assert titles[2] == ("knee",)
    assert titles[3] == ("best accuracy", "what pick takes")
    assert 4 not in titles


def test_an_empty_front_names_nothing(make_front):
    assert highlights(make_front([])) == ()


def test_of_equals_the_one_of_the_smaller_epsilon_is_best_and_no_number_is_worst(make_point):
    points = (make_point("t0001", 1, 3.0, 0.9), make_point("t0001", 2, 2.0, 0.9), make_point("t0001", 3, 1.0, math.nan))
    assert best(points, Objective.named("accuracy")).epoch == 2
    assert best(points, Objective.named("epsilon")).epoch == 3
    assert best((), Objective.named("epsilon")) is None


def test_no_point_is_called_the_best_beside_a_larger_estimate(make_front, make_point):
    def noisy(trial, epsilon, value, *, final):
        ends = {"accuracy": (value - 0.07, value + 0.07)}
        scores = NoisyScores(is_final=final, released={}, intervals=ends)
        return replace(make_point(trial, 1, epsilon, value), noisy=scores)

    explorer, final = noisy("t0001", 0.02, 0.785, final=False), noisy("t0002", 0.9, 0.749, final=True)
    objectives = tuple(map(Objective.named, ("epsilon", "accuracy")))
    trials = [Trial(id=id_, config={}) for id_ in ("t0001", "t0002")]
    named = highlights(make_front([explorer, final], objectives=objectives, trials=trials))
    picked = "what pick takes (a final; no other is better beyond the intervals)"
    assert [one.titles for one in named] == [("best epsilon",), (picked,)]
    assert any(line.startswith("Finals come first") for line in explain([explorer, final], named))
    (lone,) = highlights(make_front([final], objectives=objectives, trials=trials))
    assert lone.titles == ("best epsilon", "best accuracy", "what pick takes")
    assert not any(line.startswith("Finals come first") for line in explain([final], [lone]))


@pytest.mark.parametrize("tested", [True, False])
def test_a_mean_over_trainings_says_so_beside_the_test_score_of_the_first(make_front, make_point, tested):
    point = make_point("t0001", 1, 1.0, 0.8)
    several = replace(point, repeats={"accuracy": (0.9, 0.7)}, test={"accuracy": 0.9} if tested else None)
    objectives = tuple(map(Objective.named, ("epsilon", "accuracy")))
    for one, mean in ((several, " as the mean of 2 trainings"), (replace(several, repeats={}), "")):
        front = make_front([one], objectives=objectives)
        chose = f", 0.800 on the validation rows that chose it{mean}"
        said = point_lines(one, front)[1].partition(";")[0]
        assert said == (
            f"  accuracy 0.900 on test rows{chose}" if tested else f"  accuracy 0.800 on validation rows{mean}"
        )
        assert score_by_split(one, "accuracy", front.claim).endswith(f"0.800 on validation rows{mean}")
        _, unit, note = split_lead(one, "accuracy", front.claim)
        assert mean in (note if tested else unit)


def test_points_that_the_validation_rows_hardly_tell_from_the_best_are_counted(make_front, make_point, claim):
    points = [make_point("t0001", epoch, epoch, value) for epoch, value in enumerate((0.7, 0.85, 0.88, 0.9), start=1)]
    known = replace(claim.baselines, rows={"validation": 100})
    assert nearly_best(make_front(points, claim=replace(claim, baselines=known))) == (
        "1 other point of the front lies within one standard error of the best accuracy, 3.0 points on 100 validation "
        "rows: it may be as good."
    )
    few = replace(claim, baselines=replace(known, rows={"validation": 10}))
    assert nearly_best(make_front(points, claim=few)).startswith("2 other points of the front lie within")
    many = replace(claim, baselines=replace(known, rows={"validation": 10000}))
    for other in (claim, many, replace(few, unit="patient")):
        assert nearly_best(make_front(points, claim=other)) == ""
    assert nearly_best(make_front([], claim=few)) == ""
    noise = NoisyScores(is_final=True, released={}, intervals={"accuracy": (0.6, 1.0)})
    noisy = [replace(point, noisy=noise) for point in points]
    assert nearly_best(make_front(noisy, claim=few)) == "", "the error of rows alone says too little of noisy scores"


COUNTS = ClassCounts(rows=(100, 160), decided=(90, 170), correct=(80, 150))
SMOOTHED = SmoothedCounts(sigma=0.25, alpha=0.001, draws=300, selection_draws=75, rows=40, abstained=1, correct=30)
SCORES = {"accuracy": 0.9, "certified@1/4": 1.0, "smoothed@1/4": 0.5, "auroc": 0.9}


def scipys(hits, rows):
    return tuple(stats.binomtest(hits, rows).proportion_ci(0.95, method="wilson"))


def test_a_share_of_public_test_rows_has_wilsons_interval_and_no_other_number(make_point, claim):
    point = replace(make_point("t0001", 1, 1.0, 0.9), test=SCORES, classes=COUNTS, smoothed=SMOOTHED)
    assert interval_on_test(point, "accuracy", claim) == pytest.approx(scipys(234, 260))
    assert interval_on_test(point, "certified@1/4", claim) == pytest.approx(scipys(260, 260))
    assert interval_on_test(point, "smoothed@1/4", claim) == pytest.approx(scipys(20, 40))
    assert interval_on_test(point, "certified@1/2", claim) is None
    assert interval_on_test(replace(point, classes=None), "accuracy", claim) is None


@pytest.mark.parametrize("law", ["the rarer class decides", "alike"])
def test_an_area_under_the_roc_curve_varies_at_most_as_a_share_of_the_rarer_class(make_point, claim, law):
    rng = np.random.default_rng(0)
    counts, held = ClassCounts(rows=(40, 400), decided=(40, 400), correct=(40, 400)), []
    for _ in range(400):
        common, rare = rng.normal(size=400), rng.normal(1.0, size=40)
        if law != "alike":  # each rare row lies beyond all others, on one side or the other
            common, rare = np.zeros(400), np.where(rng.random(40) < 0.76, 1.0, -1.0)
        area = float((rare[:, None] > common).mean())
        point = replace(make_point("t0001", 1, 1.0, 0.9), test={"auroc": area}, classes=counts)
        low, high = interval_on_test(point, "auroc", claim)
        held.append(low <= 0.76 <= high)  # the truth of both laws
    assert np.mean(held) > 0.93
    assert interval_on_test(replace(point, classes=None), "auroc", claim) is None


@pytest.mark.parametrize("other", [{"evaluation": "private"}, {"evaluation": "exploratory"}, {"unit": "patient"}])
def test_no_interval_is_counted_of_rows_that_are_not_public_or_not_independent(make_point, claim, other):
    point = replace(make_point("t0001", 1, 1.0, 0.9), test=SCORES, classes=COUNTS, smoothed=SMOOTHED)
    assert interval_on_test(point, "accuracy", claim) is not None
    for name in SCORES:
        assert interval_on_test(point, name, replace(claim, **other)) is None
    ends = NoisyScores(is_final=True, released={}, intervals={}, test_intervals={"accuracy": (0.7, 0.95)})
    assert interval_on_test(replace(point, noisy=ends), "accuracy", replace(claim, **other)) == (0.7, 0.95)
    assert interval_on_test(replace(point, noisy=ends), "certified@1/4", claim) is None


def test_a_score_leads_with_test_rows_and_is_judged_by_the_interval_that_is_shown(make_front, make_point, claim):
    point = replace(make_point("t0001", 1, 1.0, 0.95), test={"accuracy": 0.9}, classes=COUNTS)
    low, high = scipys(234, 260)
    perhaps = "perhaps no better"
    for reached, said in ((low + 1e-3, perhaps), (high - 1e-3, perhaps), (high, "no better"), (low - 1e-3, None)):
        known = Baselines(classes=("no", "yes"), majority={"validation": 0.99, "test": reached})
        front = make_front([point], claim=replace(claim, baselines=known))
        _, scores, *more = point_lines(front.points[0], front)[:2] + point_lines(front.points[0], front)[-1:]
        assert scores.startswith(
            f"  accuracy 0.900 on test rows (95 % interval {low:.3f} to {high:.3f}), 0.950 on the validation rows"
        )
        assert scores.endswith(f"the majority-class baseline reaches {reached:.3f} on test rows")
        assert more[0].startswith(f"  On test rows this model is {said}") is (said is not None)
