import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.pareto.dominance import (
    EPSILON_CEILING,
    EPSILON_FLOOR,
    Box,
    FrontArchive,
    costs,
    dominates,
    exclusive,
    front_mask,
    hypervolume,
    hypervolume_curve,
    hypervolume_interval,
)
from sweeper.records import NoisyScores, Objective, Point

EPSILON, ACCURACY, CERTIFIED = (Objective.named(name) for name in ("epsilon", "accuracy", "certified@1/4"))
ALL = (EPSILON, ACCURACY, CERTIFIED)
UNIT = Box(reference={"epsilon": 1.0, "accuracy": 0.0, "certified@1/4": 0.0}, ideal={"epsilon": 0.0, "accuracy": 1.0, "certified@1/4": 1.0}, log_epsilon=False)  # fmt: skip

coarse = st.integers(0, 4).map(lambda n: n / 4)
broken = st.sampled_from([math.nan, math.inf, -math.inf, None])
rows = st.lists(st.tuples(*[coarse | broken] * 3), max_size=25)
sound_rows = st.lists(st.tuples(*[coarse] * 3), max_size=12)


def point(index, epsilon, accuracy, certified):
    values = {"epsilon": epsilon, "accuracy": accuracy, "certified@1/4": certified}
    return Point(trial="t", epoch=index, values={k: v for k, v in values.items() if v is not None})


def points_of(seq):
    return [point(i, *row) for i, row in enumerate(seq)]


def brute_force(points, objectives):
    """The definition, in plain Python."""

    def comparable(p):
        values = [p.values.get(o.name, math.nan) for o in objectives]
        signed = [v if o.name == "epsilon" else -v for v, o in zip(values, objectives, strict=True)]
        return not any(math.isnan(v) or v == -math.inf for v in signed)

    def better(p, q, o):
        return p.values[o.name] < q.values[o.name] if o.name == "epsilon" else p.values[o.name] > q.values[o.name]

    def beats(p, q):
        return not any(better(q, p, o) for o in objectives) and any(better(p, q, o) for o in objectives)

    able = [p for p in points if comparable(p)]
    return [comparable(p) and not any(beats(q, p) for q in able) for p in points]


@settings(deadline=None)
@given(rows, st.integers(1, 3))
def test_the_front_is_what_nothing_dominates(seq, count):
    points = points_of(seq)
    assert front_mask(points, ALL[:count]).tolist() == brute_force(points, ALL[:count])


@settings(deadline=None)
@given(sound_rows, st.randoms(use_true_random=False))
def test_the_front_does_not_depend_on_the_order(seq, random):
    shuffled = random.sample(seq, len(seq))
    fronts = [
        sorted(row for row, on in zip(s, front_mask(points_of(s), ALL), strict=True) if on) for s in (seq, shuffled)
    ]
    assert fronts[0] == fronts[1]


def test_no_privacy_is_comparable_nan_is_not_and_equals_stand_side_by_side():
    points = points_of([(math.inf, 0.9, 0.5), (1.0, 0.8, 0.5), (math.inf, 0.7, 0.5)])
    assert front_mask(points, ALL).tolist() == [True, True, False]
    points = points_of([(1.0, 0.5, 0.0), (1.0, 0.5, -0.0), (2.0, 0.5, 0.0)])
    assert front_mask(points, ALL).tolist() == [True, True, False]
    points = points_of(
        [(1.0, 0.5, 0.5), (math.nan, 1.0, 1.0), (0.5, 1.0, None), (0.5, math.inf, 1.0), (-math.inf, 1, 1)]
    )
    assert front_mask(points, ALL).tolist() == [True, False, False, False, False]
    assert front_mask(points[1:2], ALL).tolist() == [False]
    assert front_mask(points[2:3], (EPSILON, ACCURACY)).tolist() == [True]


@settings(deadline=None, max_examples=50)
@given(rows, st.lists(st.integers(0, 25), max_size=6))
def test_the_hypervolume_so_far_is_that_of_the_points_so_far(seq, ends):
    points, ends = points_of(seq), sorted(ends)
    found = hypervolume_curve(points, ALL, ends, UNIT)
    assert found == pytest.approx([hypervolume(points[:end], ALL, UNIT) for end in ends])


@settings(deadline=None)
@given(st.tuples(coarse, coarse), st.tuples(coarse, coarse), st.tuples(coarse, coarse))
def test_dominance_is_a_strict_order(a, b, c):
    assert not dominates(a, a)
    assert not (dominates(a, b) and dominates(b, a))
    assert not (dominates(a, b) and dominates(b, c)) or dominates(a, c)
    assert not dominates((math.nan, 0.0), (1.0, 1.0))


@settings(deadline=None)
@given(sound_rows, st.integers(1, 3))
def test_the_hypervolume_is_the_share_of_cells_dominated(seq, count):
    objectives = ALL[:count]
    matrix = costs(points_of(seq), objectives)
    scaled = UNIT.scaled(matrix, objectives)
    cells = itertools.product(np.arange(0.125, 1, 0.25), repeat=count)  # centres of a grid on which all corners lie
    share = np.mean([bool((scaled <= cell).all(axis=1).any()) for cell in cells]) if len(seq) else 0.0
    assert hypervolume(points_of(seq), objectives, UNIT) == pytest.approx(share)


@settings(deadline=None)
@given(sound_rows, st.tuples(coarse, coarse, coarse))
def test_another_point_never_lowers_the_hypervolume(seq, more):
    assert hypervolume(points_of([*seq, more]), ALL, UNIT) >= hypervolume(points_of(seq), ALL, UNIT) - 1e-12


def test_four_and_five_objectives_are_measured():
    names = ("accuracy", "certified@1", "certified@2", "certified@3", "certified@4")
    for count in (4, 5):
        objectives = [Objective.named(name) for name in names[:count]]
        points = [Point(trial="t", epoch=i, values=dict.fromkeys(names, level)) for i, level in enumerate((0.5, 0.25))]
        assert hypervolume(points, objectives) == pytest.approx(0.5**count)


def test_the_box_counts_epsilon_in_its_logarithm_and_cuts_what_is_beyond():
    middle = math.sqrt(EPSILON_FLOOR * EPSILON_CEILING)
    assert hypervolume(points_of([(middle, 1.0, 1.0)]), ALL) == pytest.approx(0.5)
    linear = Box.default(ALL, log_epsilon=False)
    assert hypervolume(points_of([(EPSILON_CEILING / 2, 1.0, 1.0)]), ALL, linear) == pytest.approx(0.5, abs=1e-4)
    assert hypervolume(points_of([(0.0, 1.0, 1.0)]), ALL) == pytest.approx(1.0)
    assert (
        hypervolume(points_of([(EPSILON_CEILING, 1.0, 1.0), (1.0, 0.0, 1.0), (math.inf, 1, 1), (math.nan, 1, 1)]), ALL)
        == 0.0
    )


def test_a_box_inside_out_is_refused():
    box = Box(reference={"accuracy": 1.0}, ideal={"accuracy": 0.0})
    with pytest.raises(ValueError, match="ideal of accuracy to be better than its reference"):
        hypervolume(points_of([(1.0, 0.5, 0.5)]), (ACCURACY,), box)


@settings(deadline=None)
@given(rows, st.integers(1, 5))
def test_the_archive_always_holds_the_front_of_all_it_saw(seq, size):
    archive, inside = FrontArchive(ALL), set()
    points = points_of(seq)
    for start in range(0, len(points), size):
        entered, left = archive.add(points[start : start + size])
        assert not {p.key for p in entered} & inside
        assert {p.key for p in left} <= inside
        inside = (inside | {p.key for p in entered}) - {p.key for p in left}
        seen = points[: start + size]
        assert {p.key for p in archive.points} == inside
        assert inside == {p.key for p, on in zip(seen, brute_force(seen, ALL), strict=True) if on}
    assert archive.hypervolume() == pytest.approx(hypervolume(points, ALL))


def test_a_better_epsilon_replaces_the_point():
    archive = FrontArchive(ALL)
    first, rival = point(1, 2.0, 0.5, 0.5), point(2, 1.9, 0.5, 0.5)
    archive.add([first])
    assert archive.add([rival]) == ((rival,), (first,))
    tighter = point(1, 1.8, 0.5, 0.5)
    assert archive.add([tighter]) == ((tighter,), (rival,))
    assert archive.add([point(1, 1.7, 0.5, 0.5)]) == ((), ())
    assert archive.points[0].values["epsilon"] == 1.7


@pytest.mark.long
def test_a_hundred_thousand_points_take_seconds_at_most():
    rng = np.random.default_rng(0)
    values = rng.dirichlet(np.ones(4), 100_000)[:, :3]
    points = [
        Point(trial="t", epoch=i, values={"epsilon": 10 * (1 - e), "accuracy": a, "certified@1/4": c})
        for i, (e, a, c) in enumerate(values.tolist())
    ]
    seconds = {}
    for name, measure in 3 * (("front", front_mask), ("hypervolume", hypervolume)):
        started = time.process_time()  # the machine may be shared
        measure(points, ALL)
        seconds[name] = min(time.process_time() - started, seconds.get(name, 99.0))
    assert max(seconds.values()) < 5  # about 0.1; an algorithm that is not meant takes minutes


@pytest.mark.parametrize(
    ("rows", "added"),
    [
        ([[0.25]], [0.75]),
        ([[0.25], [0.25]], [0.0, 0.0]),
        ([[1.0]], [0.0]),
        ([[0.25, 0.5]], [0.375]),
        ([[0.25, 0.5], [0.5, 0.25]], [0.125, 0.125]),
    ],
)
def test_each_row_adds_what_no_other_covers_along_one_axis_too(rows, added):
    assert exclusive(np.array(rows)).tolist() == added


# --- noisy scores


def estimated(index, epsilon, accuracy, deviation):
    ends = {"accuracy": (accuracy - 1.959964 * deviation, accuracy + 1.959964 * deviation)}
    noise = NoisyScores(is_final=True, released={}, intervals=ends)
    return Point(trial="t", epoch=index, values={"epsilon": epsilon, "accuracy": accuracy}, noisy=noise)


@pytest.mark.parametrize("count", [1, 40])
def test_the_interval_of_a_hypervolume_holds_whatever_points_noise_has_chosen(count):
    """Of points that are all alike the front has the luckiest ones."""
    generator, objectives, covered, widths = np.random.default_rng(count), (EPSILON, ACCURACY), [], []
    for _ in range(300):
        truth = np.full(count, 0.7)
        scores = truth + 0.05 * generator.standard_normal(count)
        points = [estimated(i, 0.5 + 0.01 * i, float(score), 0.05) for i, score in enumerate(scores)]
        front = list(itertools.compress(points, front_mask(points, objectives)))
        low, high = hypervolume_interval(front, objectives, among=count)
        true = [estimated(one.epoch, one.values["epsilon"], float(truth[one.epoch]), 0.05) for one in front]
        covered.append(low <= hypervolume(true, objectives) <= high)
        widths.append(high - low)
    assert np.mean(covered) >= 0.93
    assert np.mean(widths) < 0.25


def test_an_interval_of_one_noisy_score_is_that_of_its_ends_and_no_noise_has_none():
    one, objectives = estimated(1, 1.0, 0.7, 0.05), (EPSILON, ACCURACY)
    ends = [Point(trial="t", epoch=1, values={"epsilon": 1.0, "accuracy": value}) for value in (0.602, 0.798)]
    assert hypervolume_interval([one], objectives, among=1) == pytest.approx(
        [hypervolume([end], objectives) for end in ends], abs=1e-5
    )
    assert hypervolume_interval(ends, objectives, among=2) is None
    low, high = hypervolume_interval([one], objectives, among=40)
    assert low < hypervolume(ends[:1], objectives) - 0.01
    assert high > hypervolume(ends[1:], objectives) + 0.01
