import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.pareto.attainment import attainment
from sweeper.pareto.dominance import attained
from sweeper.records import Objective, Point

ACCURACY = Objective.named("accuracy")
levels = st.integers(1, 6).map(float)
runs = st.lists(st.lists(st.tuples(levels, levels), min_size=1, max_size=5), min_size=2, max_size=6)


def points(*pairs):
    return [Point(trial="t", epoch=i, values={"epsilon": e, "accuracy": a}) for i, (e, a) in enumerate(pairs)]


def by_name(*each):
    return {surface.name: surface for surface in attainment(each, ACCURACY)}


def test_best_median_and_worst_of_three_runs():
    found = by_name(points((1.0, 0.1), (2.0, 0.6)), points((1.0, 0.3), (4.0, 0.9)), points((2.0, 0.4)))
    assert found["best"].steps == ((1.0, 0.3), (2.0, 0.6), (4.0, 0.9))
    assert found["median"].steps == ((1.0, 0.1), (2.0, 0.4), (4.0, 0.6))
    assert found["worst"].steps == ((2.0, 0.3), (4.0, 0.4))
    assert [found[name].count for name in ("best", "median", "worst")] == [1, 2, 3]


@settings(deadline=None, max_examples=50)
@given(runs)
def test_a_surface_is_what_so_many_runs_attain(seq):
    each = [points(*pairs) for pairs in seq]
    for surface in attainment(each, ACCURACY):
        for epsilon in range(8):
            # The definition: the k-th best of what each run reaches within this epsilon.
            reached = [max((a for e, a in pairs if e <= epsilon), default=-math.inf) for pairs in seq]
            expected = sorted(reached, reverse=True)[surface.count - 1]
            assert surface.at(epsilon) == (None if expected == -math.inf else expected)


def test_a_minimised_value_is_attained_from_above():
    loss = Objective.named("membership-auroc")
    each = [[Point(trial="t", epoch=1, values={"epsilon": 1.0, loss.name: v})] for v in (0.5, 0.6, 0.7)]
    assert [s.steps for s in attainment(each, loss)] == [((1.0, 0.5),), ((1.0, 0.6),), ((1.0, 0.7),)]
    assert [s.name for s in attainment(each[:2], loss)] == ["best", "worst"], "a median of two is one of them"


def test_one_run_has_no_band_and_one_without_points_no_worst():
    assert attainment([points((1.0, 0.5))], ACCURACY) == ()
    assert attainment([[], []], ACCURACY) == ()
    found = by_name(points((1.0, 0.5), (math.inf, 0.9), (2.0, math.nan)), [], points((1.0, 0.4)))
    assert set(found) == {"best", "median"}
    assert found["median"].steps == ((1.0, 0.4),)


@pytest.mark.parametrize("count", range(1, 10))
def test_a_count_of_runs_is_not_rounded(count):
    matrix = np.array([[float(i), 0.0] for i in range(9)])
    assert attained(matrix, list(range(9)), count).tolist() == [[float(count - 1), 0.0]]


@pytest.mark.parametrize(("rows", "count"), [([[1.0, math.inf]], 1), ([[1.0, 1.0]], 2), ([[1.0, 1.0]], 0)])
def test_what_cannot_be_counted_is_refused(rows, count):
    with pytest.raises(ValueError, match="finite rows and 1 <= count <= 1 runs"):
        attained(np.array(rows), [0], count)
