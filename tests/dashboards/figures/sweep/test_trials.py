"""Curves and trajectories as pictures: how sure the best is, what is named, and what the axes show."""

from dataclasses import replace

import pytest

from dashboards.figures.sweep import curves, trajectories
from sweeper.records import Point, Trial, TrialStatus


@pytest.fixture
def trials(small):
    """A sweep of so many trials, a later one better by 1 % in each of its three epochs; no interval of it is known."""

    def make(count, *more):
        points = [
            Point(trial=f"t{i}", epoch=e, values={"epsilon": e + i / 100, "accuracy": 0.5 + i / 100 + e / 10})
            for i in range(count)
            for e in (1, 2, 3)
        ]
        points += more
        ids = dict.fromkeys(point.trial for point in points)
        named = tuple(Trial(id=id_, config={}, status=TrialStatus.COMPLETED) for id_ in ids)
        return small(points, objectives=("epsilon", "accuracy"), trials=named)

    return make


def _as_picture(info, half=0.3):
    return replace(info, still=True, half=half)


def test_a_bar_behind_the_last_epoch_says_how_sure_a_score_is_and_is_not_cut(trials):
    info = _as_picture(curves.info(trials(8)))
    figure = curves.plot(info)
    (bar,) = (trace for trace in figure.data if trace.name == "bar: 95 % CI of a score")
    assert (bar.y, bar.error_y.value) == ((pytest.approx(0.87),), 0.3)
    assert 3 < bar.x[0] < figure.layout.xaxis.range[1]
    low, high = figure.layout.yaxis.range
    assert low < 0.57
    assert high > 1.17
    for other in (replace(info, still=False), replace(info, half=None), replace(info, best="")):
        assert not [trace for trace in curves.plot(other).data if "CI" in (trace.name or "")]


def test_only_of_many_curves_the_rise_may_be_cut(trials):
    few, many = (curves.plot(curves.info(trials(count))).layout.yaxis.range for count in (curves.HUES, curves.HUES + 1))
    assert few[0] < 0.6
    assert many[0] > 0.6, "the first epoch of three shows nothing of many trials that later ones do not"


def test_the_best_point_has_a_bar_and_other_trials_of_the_line_their_names(trials):
    info = _as_picture(trajectories.info(trials(8)))
    figure = trajectories.plot(info)
    (star,) = (trace for trace in figure.data if trace.marker.symbol == "star")
    assert (star.error_y.value, star.name) == (0.3, "t7, its best point, 95 % CI")
    (names,) = (trace for trace in figure.data if trace.mode == "text")
    assert set(names.text) <= {f"t{i}" for i in range(7)}
    assert len(names.text) == 3
    assert names.x[0] == pytest.approx(3 + int(names.text[0][1:]) / 100), "at the end of its trial"
    column = trajectories.plot(replace(info, narrow=True)).data
    assert not [trace for trace in column if trace.mode == "text"]
    unknown = trajectories.plot(replace(info, half=None)).data
    assert [trace.error_y.value for trace in unknown if trace.marker.symbol == "star"] == [None]


def test_trials_that_add_nothing_to_the_line_are_pale(trials):
    useless = Point(trial="w", epoch=1, values={"epsilon": 2.5, "accuracy": 0.1})
    figure = trajectories.plot(trajectories.info(trials(8, useless)))
    lines = {trace.name: trace.opacity for trace in figure.data if trace.mode == "lines"}
    assert lines["completed"] < lines["completed, adds to the line"]
