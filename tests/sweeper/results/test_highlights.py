"""The points of a front that every summary names."""

import math

from sweeper.records import Objective
from sweeper.results.highlights import best, highlights


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
