"""Gaps and margins on rows of costs; the laws of whole rungs are in ``test_rung_schedulers.py``."""

from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.pareto.dominance import costs
from sweeper.records import Objective, Point
from sweeper.schedulers._rungs import DominanceRung, Frontier, Margins, crowding


def test_gaps_are_crowding_distances_and_a_frontier_forgets_what_is_dominated():
    rows_ = np.array([[0.0, 4.0], [1.0, 3.0], [3.0, 1.0], [4.0, 0.0]])
    assert crowding(rows_).tolist() == [inf, 1.5, 1.5, inf]
    assert crowding(np.array([[inf, 1.0], [inf, 2.0]])).tolist() == [inf, inf]
    frontier = Frontier(2)
    assert not frontier.covers(np.array([9.0, 9.0]))
    for row in ([2.0, 2.0], [1.0, 3.0], [1.0, 2.0], [4.0, 4.0]):
        frontier.add(np.array(row))
    assert frontier.covers(np.array([1.0, 2.0]))
    assert not frontier.covers(np.array([0.9, 9.0]))
    assert len(frontier.rows) == 1


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 6), st.integers(-9, 0)), min_size=1, max_size=25))
def test_margins_are_those_of_comparing_every_pair(points):
    margins = Margins(worst=0.0)
    for i, (trial, epsilon, cost) in enumerate(points):
        margins.add(trial, float(epsilon), float(cost))
        if i % 5 == 0:  # in between, what changes nothing is forgotten
            margins.of(np.array([[1.0, 0.0, 0.0]]))
    asked = np.array([[epsilon, cost, margins.number(trial)] for trial, epsilon, cost in points], dtype=float)
    expected = [
        min([0, *(c for t, e, c in points if t != trial and e <= epsilon)]) - cost for trial, epsilon, cost in points
    ]
    assert margins.of(asked).tolist() == expected


def test_who_was_first_falls_behind_those_who_come_to_dominate_it():
    objectives = [Objective.named("epsilon"), Objective.named("accuracy")]
    rung = DominanceRung(objectives)
    ranks = []
    for trial, epsilon, accuracy in (("t1", 5.0, 0.5), ("t2", 4.0, 0.6), ("t3", 4.5, 0.55)):
        point = Point(trial=trial, epoch=1, values={"epsilon": epsilon, "accuracy": accuracy})
        ranks.append(rung.enter(trial, costs([point], objectives)[0]).rank)
    assert ranks == [1, 1, 2]
