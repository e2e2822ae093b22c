"""Laws of early ends: who dominates a rung goes on, who is dominated by all ends, the order of arrivals is forgotten."""

from math import ceil, inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.adapters import dump
from sweeper.pareto.dominance import costs, dominates
from sweeper.records import Objective, Point
from sweeper.schedulers.asha import Asha
from sweeper.schedulers.hyperband import Hyperband

AXES = tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@0.25", "auroc"))
TWO, THREE = AXES[:2], AXES[:3]
EPOCHS = 9


def point(trial, epsilon, accuracy, certified=0.0, epoch=1):
    values = {"epsilon": epsilon, "accuracy": accuracy, "certified@0.25": certified, "auroc": 1 - accuracy * certified}
    return Point(trial=trial, epoch=epoch, values=values)


KINDS = (Hyperband, Asha)


def scheduler(objectives=TWO, kind=Hyperband, **options):
    return kind(objectives, **options)


def at_first_rung(points, objectives=TWO, **options):
    """Decisions of the first rung, in the order in which points arrive."""
    made = scheduler(objectives, **options)
    decisions = []
    for one in points:
        made.begin(one.trial, [one.values["epsilon"] * (1 + 0.1 * e) for e in range(EPOCHS)])
        decisions.append(made.judge(one))
    return decisions


@pytest.mark.parametrize("kind", KINDS)
def test_rungs_are_those_of_all_brackets_before_the_last_epoch(kind):
    assert list(scheduler(kind=kind, eta=3, grace=2).rungs(19)) == [2, 6, 18]
    assert list(scheduler(kind=kind, eta=3, grace=2).rungs(18)) == [2, 6]
    assert list(scheduler(kind=kind, eta=2, grace=3, brackets=2).rungs(13)) == [3, 6, 12]
    assert list(scheduler(kind=kind).rungs(1)) == []


shares = st.floats(0, 1)
rows = st.lists(st.tuples(st.floats(0.1, 20), shares, shares), min_size=1, max_size=12)


def points_of(rows_):
    return [point(f"t{i:04d}", *row) for i, row in enumerate(rows_)]


@settings(max_examples=40)
@given(rows, st.integers(2, 4))
def test_a_newcomer_that_dominates_a_rung_goes_on(rows_, eta):
    """Even if there is nothing left to gain."""
    best = point("t9999", 0.01, 1.0, 1.0)
    assert at_first_rung([*points_of(rows_), best], THREE, eta=eta)[-1].goes_on


@settings(max_examples=40)
@given(rows, st.integers(2, 4), st.sampled_from(KINDS))
def test_a_newcomer_that_all_dominate_ends(rows_, eta, kind):
    worst = point("t9999", 99.0, -0.1, -0.1)
    assert not at_first_rung([*points_of(rows_), worst], THREE, eta=eta, kind=kind)[-1].goes_on


@settings(max_examples=40)
@given(st.data(), rows, st.sampled_from(KINDS), st.sampled_from([TWO, THREE, AXES]))
def test_decisions_on_a_full_rung_do_not_depend_on_who_came_first(data, rows_, kind, objectives):
    *others, last = points_of(rows_)
    shuffled = data.draw(st.permutations(others))
    one, other = (at_first_rung([*first, last], objectives, kind=kind)[-1] for first in (others, shuffled))
    assert one == other


@settings(max_examples=40)
@given(rows, st.sampled_from([TWO, THREE, AXES]))
def test_a_rank_counts_who_dominates(rows_, objectives):
    """Every trial that fewer dominate is before, every trial that more dominate is behind."""
    points = points_of(rows_)
    decision = at_first_rung(points, objectives, eta=2)[-1]
    matrix = costs(points, objectives)
    above = [sum(dominates(other, row) for other in matrix) for row in matrix]
    if decision.rung is not None:
        before, equal = sum(a < above[-1] for a in above), above.count(above[-1])
        assert before < decision.rank <= before + equal
        assert f"({above[-1]} of them dominate it)" in decision.reason


def test_among_equals_the_larger_gap_wins():
    crowd = [point("t1", 1.0, 0.5), point("t2", 6.0, 0.9), point("t3", 1.01, 0.505)]
    assert [decision.rank for decision in at_first_rung(crowd)] == [1, 1, 2]
    assert at_first_rung([crowd[0], crowd[2], crowd[1]])[-1].rank == 1


@settings(max_examples=40)
@given(rows, st.integers(2, 4))
def test_one_in_eta_goes_on(rows_, eta):
    for count, decision in enumerate(at_first_rung(points_of(rows_), THREE, eta=eta), start=1):
        if decision.rung is not None:
            assert (decision.of, decision.kept) == (count, ceil(count / eta))
            assert decision.goes_on == (decision.rank <= decision.kept)
            assert f"rank {decision.rank} of {count}" in decision.reason


@pytest.mark.parametrize("epoch", [1, 2, EPOCHS])
@pytest.mark.parametrize("score", [nan, inf])
@pytest.mark.parametrize("kind", KINDS)
def test_a_score_that_is_no_number_ends_its_trial_as_failed(kind, score, epoch):
    made = scheduler(kind=kind)
    made.begin("t1", [1.0] * EPOCHS)
    decision = made.judge(partial("t1", 1.0, score, epoch))
    assert (decision.goes_on, decision.failed, decision.rung) == (False, True, None)
    assert "accuracy is not a number" in decision.reason


def partial(trial, epsilon, accuracy, epoch):
    return Point(trial=trial, epoch=epoch, values={"epsilon": epsilon, "accuracy": accuracy})


def test_an_infinite_epsilon_can_be_compared():
    decisions = at_first_rung([point("t1", inf, 0.9), point("t2", 1.0, 0.5), point("t3", inf, 0.8)])
    assert [decision.goes_on for decision in decisions] == [True, True, False]
    made = scheduler(grace=2)
    made.begin("t", [inf] * 9)
    assert [made.judge(point("t", inf, 0.1 * e, epoch=e)) is None for e in range(1, 5)] == [True, False, True, True]


def test_nothing_is_decided_before_every_objective_was_computed_or_after_the_last_epoch():
    made = scheduler(THREE)
    made.begin("t1", [1.0] * EPOCHS)
    assert made.judge(partial("t1", 1.0, 0.5, 1)) is None
    assert made.judge(point("t1", 1.0, 0.5, 0.5, epoch=3)).of == 1
    made = scheduler()
    made.begin("t1", [1.0, 2.0, 3.0])
    made.begin("t2", [1.0, 2.0, 3.0])
    made.judge(point("t1", 1.0, 0.9))
    made.judge(point("t1", 2.0, 0.95, epoch=2))
    assert made.judge(point("t1", 3.0, 0.96, epoch=3)) is None


def test_an_objective_computed_now_and_then_counts_with_its_last_value():
    made = scheduler(THREE, eta=2)
    for trial in ("t1", "t2"):
        made.begin(trial, [1.0, 2.0, 3.0, 4.0])
    made.judge(point("t1", 1.0, 0.5, 0.4))
    made.judge(point("t1", 2.0, 0.6, 0.4, epoch=2))
    made.judge(point("t2", 1.0, 0.5, 0.9))
    decision = made.judge(partial("t2", 2.0, 0.6, 2))
    assert (decision.rung, decision.rank, decision.goes_on) == (2, 1, True)


def rungs(bracket_of, epochs=28, **options):
    """Epochs with a rung decision of trials that are always the best."""
    made, found = scheduler(**options), []
    for trial in range(bracket_of + 1):
        name = f"t{trial}"
        made.begin(name, [1.0 + e for e in range(epochs)], number=trial + 1)
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


@pytest.mark.parametrize("begun", [(1, 2), (2, 1), (2,)])
def test_a_trial_joins_the_bracket_of_its_number_whenever_it_begins(begun):
    made = scheduler(brackets=2)
    for number in begun:
        made.begin(f"t{number}", [1.0] * EPOCHS, number=number)
    assert made.judge(point("t2", 1.0, 0.9)) is None
    assert 1 not in begun or made.judge(point("t1", 1.0, 0.9)).rung == 1


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
    assert "optimistic continuation from epoch 9 to 40 (epsilon 4.401, accuracy 0.252)" in decision.reason, "rounded up"
    assert decision.rung is None


def test_a_trial_that_cannot_catch_up_ends_at_a_rung_too_whatever_its_rank():
    made = scheduler(eta=2)
    made.begin("front", [0.1] * 3)
    made.judge(point("front", 0.1, 0.99, epoch=2))
    for trial, epsilon, accuracy in (("t1", 1.0, 0.10), ("t2", 0.9, 0.05), ("t3", 0.8, 0.07)):
        made.begin(trial, [epsilon, 2.0, 3.0])
        last = made.judge(point(trial, epsilon, accuracy))
    assert (last.goes_on, last.rung) == (False, None), "second of three, where two go on"


def test_after_one_epoch_a_trial_may_gain_a_fifth_per_unit_of_log_epoch():
    ends = []
    for accuracy in (0.9 - 0.2 * np.log(4) - 0.01, 0.9 - 0.2 * np.log(4) + 0.01):
        made = scheduler(brackets=2)  # the second bracket has no rung at epoch 1
        made.begin("front", [0.5] * 9)
        made.judge(point("front", 0.5, 0.9, epoch=9))
        made.begin("t", [1.0, 2.0, 3.0, 4.0], number=2)
        ends.append(made.judge(point("t", 1.0, accuracy)) is not None)
    assert ends == [True, False]


def test_nothing_is_projected_before_grace_is_over():
    made = scheduler(grace=3)
    for trial, epsilon, accuracy, epoch in (("front", 0.1, 0.99, 5), ("t1", 1.0, 0.1, 1), ("t1", 2.0, 0.1, 2)):
        made.begin(trial, [epsilon] * 9)
        assert made.judge(point(trial, epsilon, accuracy, epoch=epoch)) is None or trial == "front"


def test_a_trial_that_still_gains_goes_on():
    assert project(0.3, CURVE, [(0.3, 0.9)]) is None


def test_a_trial_at_epsilons_that_nobody_reached_goes_on():
    assert project(0.0, CURVE, [(99.0, 0.99)]) is None


def test_the_projection_looks_at_epsilons_not_at_epochs():
    """The same scores are hopeless behind a front at smaller epsilons, and not behind one at larger ones."""
    assert project(0.0, CURVE, [(1.0, 0.9)]) is not None
    assert project(0.0, CURVE, [(3.0, 0.9)]) is None


def test_asha_compares_utility_at_equal_epsilon():
    made = scheduler(kind=Asha, eta=2)
    found = {}
    for trial, epsilon, accuracy in (("a", 8.0, 0.80), ("b", 1.0, 0.70), ("c", 8.5, 0.81), ("d", 0.5, 0.60)):
        made.begin(trial, [epsilon] * 9)
        found[trial] = made.judge(point(trial, epsilon, accuracy))
    assert found["a"].goes_on
    assert found["b"].goes_on  # .70 where nobody else has anything
    assert not found["c"].goes_on  # .01 above a, though the most accurate
    assert found["d"].goes_on


def test_what_a_trial_had_itself_is_nothing_to_beat():
    made, reasons = scheduler(kind=Asha, eta=2, grace=3), {}
    for trial, epsilons, accuracies in (
        ("a", (1.0, 2.0, 3.0), (0.9, 0.9, 0.8)),
        ("b", (2.0, 4.0, 6.0), (0.5, 0.6, 0.7)),
    ):
        made.begin(trial, [*epsilons, 9.0])
        for epoch, (epsilon, accuracy) in enumerate(zip(epsilons, accuracies, strict=True), start=1):
            decision = made.judge(point(trial, epsilon, accuracy, epoch=epoch))
        reasons[trial] = decision.reason
    assert "0.8 above" in reasons["a"], "its own .9 does not count"
    assert "0.2 below" in reasons["b"], "it has .7 where the other has .9"


events_ = st.lists(st.tuples(st.integers(0, 5), shares, shares), min_size=1, max_size=60)


def decided(events, kind, *, begin_first=False, twice=False):
    """Decisions about a log of events, trials begun as they come or all at once, in the order of their numbers."""
    made, epochs, log = scheduler(THREE, kind=kind, brackets=2), {}, []
    curve = [0.5 + 0.2 * e for e in range(30)]
    for trial in sorted({trial for trial, _, _ in events if begin_first}):
        made.begin(f"t{trial}", curve, number=trial)
    for trial, accuracy, certified in events:
        name = f"t{trial}"
        made.begin(name, curve, number=trial)
        epochs[name] = epochs.get(name, 0) + 1
        if epochs[name] <= 30:
            one = point(name, curve[epochs[name] - 1], accuracy, certified, epochs[name])
            log.append(made.judge(one))
            assert not twice or made.judge(one) == log[-1]
    return log


@settings(max_examples=20)
@given(events_, st.sampled_from(KINDS))
def test_the_same_events_give_the_same_decisions(events, kind):
    """Whether trials begin one by one or, as when records are read back, all at once; an epoch seen twice counts once."""
    log = decided(events, kind)
    assert decided(events, kind, begin_first=True) == log
    assert decided(events, kind, twice=True) == log


@pytest.mark.parametrize("options", [{"eta": 1}, {"eta": 2.0}, {"grace": 0}, {"brackets": 0}])
def test_settings_out_of_range_are_refused(options):
    with pytest.raises(ValueError, match="whole number"):
        scheduler(**options)


def test_a_decision_is_plain_values():
    (decision,) = at_first_rung([point("t1", 1.0, 0.5)])
    said = "rank 1 of 1 at the rung of epoch 1 (0 of them dominate it), where the best 1 go on: goes on"
    told = {"trial": "t1", "epoch": 1, "goes_on": True, "reason": said, "rung": 1, "rank": 1, "of": 1, "kept": 1}
    assert dump(decision) == told | {"failed": False}
