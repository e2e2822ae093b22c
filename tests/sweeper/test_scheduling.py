"""Laws of early ends: who dominates a rung goes on, who is dominated by all ends, the order of arrivals is forgotten."""

from math import ceil, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.pareto import costs, dominates
from sweeper.records import Objective, Point
from sweeper.scheduling import Order, RungScheduler, by_front, make_scheduler
from sweeper.settings import SearchSettings

AXES = tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@0.25"))
TWO = AXES[:2]
EPOCHS = 9


def point(trial, epsilon, accuracy, certified=0.0, epoch=1):
    return Point(
        trial=trial, epoch=epoch, values={"epsilon": epsilon, "accuracy": accuracy, "certified@0.25": certified}
    )


def scheduler(objectives=TWO, **options):
    return RungScheduler(objectives, **options)


def at_first_rung(points, objectives=TWO, **options):
    """Decisions of the first rung, in the order in which points arrive."""
    made = scheduler(objectives, **options)
    decisions = []
    for one in points:
        made.begin(one.trial, [one.values["epsilon"] * (1 + 0.1 * e) for e in range(EPOCHS)])
        decisions.append(made.judge(one))
    return decisions


shares = st.floats(0, 1)
rows = st.lists(st.tuples(st.floats(0.1, 20), shares, shares), min_size=1, max_size=12)


def points_of(rows_):
    return [point(f"t{i:04d}", *row) for i, row in enumerate(rows_)]


@given(rows, st.integers(2, 4))
def test_a_newcomer_that_dominates_a_rung_goes_on(rows_, eta):
    best = point("t9999", 0.01, 1.0, 1.0)
    assert at_first_rung([*points_of(rows_), best], AXES, eta=eta)[-1].goes_on


@given(rows.filter(lambda r: len(r) >= 1), st.integers(2, 4))
def test_a_newcomer_that_all_dominate_ends(rows_, eta):
    worst = point("t9999", 99.0, -0.1, -0.1)
    assert not at_first_rung([*points_of(rows_), worst], AXES, eta=eta)[-1].goes_on


@given(st.data(), rows)
def test_decisions_on_a_full_rung_do_not_depend_on_who_came_first(data, rows_):
    points = points_of(rows_)
    shuffled = data.draw(st.permutations(points))
    ranked = [points[i].trial for i in by_front(points, AXES)]
    assert [shuffled[i].trial for i in by_front(shuffled, AXES)] == ranked
    last = points[-1]
    others = data.draw(st.permutations(points[:-1]))
    one, other = (at_first_rung([*first, last], AXES)[-1] for first in (points[:-1], others))
    assert one == other


@given(rows)
def test_ranks_are_those_of_peeling_fronts(rows_):
    points = points_of(rows_)
    matrix, order = costs(points, AXES), by_front(points, AXES)
    rank, left = {}, set(range(len(points)))
    while left:
        best = {i for i in left if not any(dominates(matrix[j], matrix[i]) for j in left)}
        rank.update(dict.fromkeys(best, len(rank)))
        left -= best
    assert sorted(order) == list(range(len(points)))
    assert [rank[i] for i in order] == sorted(rank.values())


def test_within_a_rank_the_larger_gap_wins():
    crowd = [point("t1", 1.0, 0.5), point("t2", 1.01, 0.505), point("t3", 6.0, 0.9)]
    assert [crowd[i].trial for i in by_front(crowd, TWO)] == ["t3", "t2", "t1"]


def test_a_point_that_cannot_be_compared_comes_last():
    points = [point("t1", 1.0, nan), point("t2", 5.0, 0.1)]
    assert [points[i].trial for i in by_front(points, TWO)] == ["t2", "t1"]


@given(rows, st.integers(2, 4))
def test_one_in_eta_goes_on(rows_, eta):
    for count, decision in enumerate(at_first_rung(points_of(rows_), AXES, eta=eta), start=1):
        assert (decision.of, decision.kept) == (count, ceil(count / eta))
        assert decision.goes_on == (decision.rank <= decision.kept)
        assert f"rank {decision.rank} of {count}" in decision.reason


def rungs(bracket_of, epochs=28, **options):
    """Epochs with a rung decision of trials that are always the best."""
    made, found = scheduler(**options), []
    for trial in range(bracket_of + 1):
        name = f"t{trial}"
        made.begin(name, [1.0 + e for e in range(epochs)])
    for epoch in range(1, epochs + 1):
        decision = made.judge(point(name, float(epoch), 1.0, epoch=epoch))
        if decision is not None:
            found.append((epoch, decision.rung))
    return [epoch for epoch, rung in found if rung == epoch]


@pytest.mark.parametrize(
    ("options", "bracket", "expected"),
    [
        ({}, 0, [1, 3, 9, 27]),
        ({"grace": 2}, 0, [2, 6, 18]),
        ({"eta": 2, "grace": 3}, 0, [3, 6, 12, 24]),
        ({"brackets": 2}, 1, [3, 9, 27]),
        ({"brackets": 3, "grace": 2}, 2, [18]),
        ({"brackets": 2}, 2, [1, 3, 9, 27]),
    ],
)
def test_rungs_grow_by_eta_and_brackets_start_later(options, bracket, expected):
    assert rungs(bracket, **options) == expected


def test_nothing_is_decided_after_the_last_epoch():
    made = scheduler()
    made.begin("t1", [1.0, 2.0, 3.0])
    made.begin("t2", [1.0, 2.0, 3.0])
    made.judge(point("t1", 1.0, 0.9))
    made.judge(point("t1", 2.0, 0.95, epoch=2))
    assert made.judge(point("t1", 3.0, 0.96, epoch=3)) is None


def project(gain, curve, front):
    """Judge epoch 8 of a trial that gains ``gain`` per unit of log epoch, grace beyond it, against a known front."""
    from math import log

    made = scheduler(grace=8, eta=10)
    for i, (epsilon, accuracy) in enumerate(front):
        made.begin(f"f{i}", [epsilon] * 99)
        made.judge(point(f"f{i}", epsilon, accuracy, epoch=7))
    made.begin("t", curve)
    decision = None
    for epoch in range(1, 10):
        decision = made.judge(point("t", curve[epoch - 1], 0.2 + gain * log(epoch), epoch=epoch))
    return decision


CURVE = [0.5 + 0.1 * e for e in range(40)]


def test_a_trial_that_cannot_catch_up_ends():
    decision = project(0.01, CURVE, [(0.3, 0.9)])
    assert not decision.goes_on
    assert "optimistic continuation" in decision.reason
    assert decision.rung is None


def test_a_trial_that_still_gains_goes_on():
    assert project(0.6, CURVE, [(0.3, 0.9)]) is None


def test_a_trial_at_epsilons_that_nobody_reached_goes_on():
    assert project(0.0, CURVE, [(99.0, 0.99)]) is None


def test_the_projection_looks_at_epsilons_not_at_epochs():
    """The same scores are hopeless behind a front at smaller epsilons, and not behind one at larger ones."""
    assert project(0.0, CURVE, [(1.0, 0.9)]) is not None
    assert project(0.0, CURVE, [(3.0, 0.9)]) is None


def test_asha_compares_utility_at_equal_epsilon():
    made = scheduler(order=Order.MARGIN, eta=2)
    found = {}
    for trial, epsilon, accuracy in (("a", 8.0, 0.80), ("b", 1.0, 0.70), ("c", 8.5, 0.81), ("d", 0.5, 0.60)):
        made.begin(trial, [epsilon] * 9)
        found[trial] = made.judge(point(trial, epsilon, accuracy))
    assert found["a"].goes_on
    assert found["b"].goes_on  # .70 where nobody else has anything
    assert not found["c"].goes_on  # .01 above a, though the most accurate
    assert found["d"].goes_on


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 5), shares, shares), min_size=1, max_size=60), st.sampled_from(Order))
def test_the_same_events_give_the_same_decisions(events, order):
    def run():
        made, epochs, log = scheduler(AXES, order=order, brackets=2), {}, []
        for trial, accuracy, certified in events:
            name = f"t{trial}"
            made.begin(name, [0.5 + 0.2 * e for e in range(30)])
            epochs[name] = epochs.get(name, 0) + 1
            if epochs[name] <= 30:
                one = point(name, 0.3 + 0.2 * epochs[name], accuracy, certified, epochs[name])
                log.append(made.judge(one))
        return log

    assert run() == run()


@pytest.mark.parametrize("options", [{"eta": 1}, {"eta": 2.0}, {"grace": 0}, {"brackets": 0}])
def test_settings_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match="whole number"):
        scheduler(**options)


def test_the_spec_chooses():
    assert make_scheduler(SearchSettings(), TWO) is None
    assert make_scheduler(SearchSettings(scheduler="hyperband"), TWO)._order is Order.FRONT
    made = make_scheduler(SearchSettings(scheduler="asha", eta=4, grace=2, brackets=3), TWO)
    assert (made._order, made._eta, made._grace, made._brackets) == (Order.MARGIN, 4, 2, 3)


def test_a_decision_is_plain_values():
    (decision,) = at_first_rung([point("t1", 1.0, 0.5)])
    assert decision.to_json() == {
        "trial": "t1",
        "epoch": 1,
        "goes_on": True,
        "reason": "rank 1 of 1 at the rung of epoch 1, where the best 1 go on: goes on",
        "rung": 1,
        "rank": 1,
        "of": 1,
        "kept": 1,
    }
