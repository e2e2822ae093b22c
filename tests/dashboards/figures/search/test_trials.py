"""Curves and trajectories as pictures: how sure the best is, what is named, and what the axes show."""

from dataclasses import replace

import pytest

from dashboards.figures.search import trajectories
from dashboards.figures.sweep import curves
from sweeper.privacy.held_out import wilson
from sweeper.records import NoisyScores, Point, Trial, TrialStatus


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


def _as_picture(info):
    return replace(info, still=True, sure=(0.5, 1.1))


def test_a_bar_behind_the_last_epoch_says_how_sure_a_score_is_and_is_not_cut(trials):
    info = _as_picture(curves.info(trials(8)))
    figure = curves.plot(info)
    assert "bar: 95 % CI of t7's last epoch" in [trace.name for trace in figure.data]
    (bar,) = (trace for trace in figure.data if trace.error_y.array)
    assert bar.y == (pytest.approx(0.87),)
    assert (bar.error_y.array[0], bar.error_y.arrayminus[0]) == pytest.approx((0.23, 0.37))
    assert 3 < bar.x[0] < figure.layout.xaxis.range[1]
    low, high = figure.layout.yaxis.range
    assert low < 0.5
    assert high > 1.1
    for other in (replace(info, still=False), replace(info, sure=None)):
        assert not [trace for trace in curves.plot(other).data if "CI" in (trace.name or "")]


def test_only_of_many_curves_the_rise_may_be_cut(trials):
    few, many = (curves.plot(curves.info(trials(count))).layout.yaxis.range for count in (12, 13))
    assert few[0] < 0.6
    assert many[0] > 0.6, "the first epoch of three shows nothing of many trials that later ones do not"


def _star_and_bar(figure):
    on_axes = [trace for trace in figure.data if trace.yaxis != "y2"]
    (star,) = (trace for trace in on_axes if trace.marker.symbol == "star")
    bar = on_axes[on_axes.index(star) + 1]
    assert (bar.marker.opacity, bool(bar.error_y.array)) == (0, True)
    return star, bar


def test_the_best_point_has_a_bar_that_is_not_cut(trials):
    info = trajectories.info(trials(8))
    figure = trajectories.plot(_as_picture(info))
    star, bar = _star_and_bar(figure)
    assert (bar.error_y.array[0], bar.error_y.arrayminus[0]) == pytest.approx((0.23, 0.37))
    assert bar.x == star.x, "on the star, which hides none of it"
    assert (
        star.name.replace("\N{NO-BREAK SPACE}", " ")
        == "t7 at its best: 87.0 % (50.0 to 110.0 %)<br>at own epsilon 3.07"
    )
    paid, _ = _star_and_bar(trajectories.plot(replace(_as_picture(info), price=", price 4.2")))
    assert paid.name.endswith("<br>at own epsilon 3.07, price 4.2"), "who publishes it pays that"
    (unknown,) = (trace for trace in trajectories.plot(info).data if trace.marker.symbol == "star")
    assert (unknown.error_y.array, unknown.name) == (None, "t7 at its best")


def test_the_best_of_few_trials_has_a_star_with_its_bar_too(trials):
    star, bar = _star_and_bar(trajectories.plot(_as_picture(trajectories.info(trials(3)))))
    assert (star.marker.symbol, star.x, bar.x) == ("star", (3.02,), (3.02,))
    assert (star.y[0], bar.y[0], bar.error_y.array[0]) == pytest.approx((0.82, 0.82, 0.28))
    assert star.name.startswith("t2 at its best: 82.0")


def test_the_line_of_the_best_goes_on_behind_the_mark_of_the_last_end(trials):
    for count in (3, 8):
        info = trajectories.info(trials(count))
        line, last = trajectories.plot(info).data[0], max(t.epsilons[-1] for t in info.trajectories)
        assert (line.name, line.x[-1]) == ("best accuracy", pytest.approx(1.12 * last))


def test_the_legend_says_how_trials_ended_only_where_some_ended_otherwise(trials):
    useless = [Point(trial=t, epoch=1, values={"epsilon": 2.5, "accuracy": 0.1}) for t in ("v", "w")]

    def legends(data, *, stages=()):
        whole = replace(trajectories.info(data), stages=stages)
        stopped = {"v": TrialStatus.STOPPED, "t0": TrialStatus.STOPPED}
        ways = tuple(replace(t, status=stopped.get(t.trial, t.status)) for t in whole.trajectories)
        for info in (whole, replace(whole, trajectories=ways)):
            names = [trace.name for trace in trajectories.plot(info).data if trace.showlegend is not False]
            yield [name for name in names if name and not name.endswith("at its best") and name != "best accuracy"]

    assert [*legends(trials(2))] == [
        ["t1, completed", "t0, completed at 80.0 %"],
        ["t1, completed", "t0, stopped at 80.0 %"],
    ]
    some = trials(8, *useless)
    assert [*legends(some, stages=("explorers",))] == [["explorers"], ["explorers, completed", "explorers, stopped"]]
    heads = "others, until last best"
    assert [*legends(some)] == [
        ["others", heads, "t7, completed"],
        ["others, completed", "others, stopped", heads, "t7, completed"],
    ]


def test_the_interval_of_the_best_is_that_of_its_score_among_so_many_rows(trials):
    data = trials(8)
    rows = replace(data.result.claim.baselines, rows={"validation": 50})
    claim = replace(data.result.claim, baselines=rows, evaluation="public", unit="row")
    known = replace(data, result=replace(data.result, claim=claim))
    for figure in (curves, trajectories):
        assert figure.info(data).sure is None
        assert figure.info(known).sure == pytest.approx(wilson(0.87, 50))
    assert trajectories.plot(trajectories.info(known)).layout.yaxis.range[0] < wilson(0.87, 50)[0]


def test_trials_that_add_nothing_to_the_line_are_pale(trials):
    useless = Point(trial="w", epoch=1, values={"epsilon": 2.5, "accuracy": 0.1})
    figure = trajectories.plot(trajectories.info(trials(8, useless)))
    lines = {trace.name: trace.opacity for trace in figure.data if trace.mode == "lines"}
    assert lines["others"] < lines["others, until last best"]


def test_of_stages_too_trials_that_add_nothing_are_pale_and_the_legend_names_a_stage_once(trials):
    useless = Point(trial="w", epoch=1, values={"epsilon": 2.5, "accuracy": 0.1})
    figure = trajectories.plot(replace(trajectories.info(trials(8, useless)), stages=("explorers", "finals")))
    opacities = [trace.opacity for trace in figure.data if trace.name == "explorers" and trace.text and trace.x[0]]
    assert sorted(set(opacities) - {None}) == [0.3, 0.7]
    assert [trace.name for trace in figure.data if trace.name == "explorers" and trace.showlegend] == ["explorers"]


def test_an_end_of_another_trial_is_seen_above_the_star_and_that_of_the_best_below_it(trials):
    data = trajectories.plot(replace(trajectories.info(trials(8)), sure=(0.845, 0.9))).data
    places = {trace.name: i for i, trace in enumerate(data) if trace.mode == "markers" and trace.name}
    (star,) = (i for i, trace in enumerate(data) if trace.marker.symbol == "star")
    assert places["t7, completed"] < star < min(places["t6, completed at 86.0 %"], places["t5, completed at 85.0 %"])


def test_a_picture_enlarges_where_the_best_is_if_nothing_is_drawn_there(trials):
    info = replace(trajectories.info(trials(8)), sure=(0.80, 0.88), still=True, span=(0.2, 0.9))
    drawn = trajectories.plot(info)
    assert drawn.layout.yaxis2.range == pytest.approx((0.72 - 0.12 * 0.16, 0.88 + 0.12 * 0.16))
    assert any(trace.yaxis == "y2" and trace.marker.symbol == "star" for trace in drawn.data)
    low = replace(info.trajectories[0], epsilons=(1.5, 2.0, 2.9), values=(0.4, 0.4, 0.4))
    covered = replace(info, trajectories=(low, *info.trajectories[1:]))
    for other in (replace(info, still=False), covered, replace(info, sure=None), replace(info, span=(0.7, 0.9))):
        assert "yaxis2" not in trajectories.plot(other).layout.to_plotly_json()


def test_a_column_has_thinner_lines_of_others_and_says_how_many_points_are_outside(trials):
    useless = [Point(trial=t, epoch=1, values={"epsilon": 2.5, "accuracy": 0.55}) for t in ("v", "w")]
    passed = {"goes_on": True, "epoch": 1, "reason": "ahead"}
    info = trajectories.info(replace(trials(8, *useless), decisions=[{"trial": t, **passed} for t in ("t6", "v")]))
    widths = []
    for narrow in (False, True):
        figure = trajectories.plot(replace(info, span=(0.65, 0.9), still=True, narrow=narrow))
        said = figure.layout.xaxis.title.text if narrow else " ".join(trace.name or "" for trace in figure.data)
        assert "outside the axes: 5 below, of 26 points" in said.replace("<br>", " ")  # t0 to t2 and two
        assert [len(trace.x) for trace in figure.data if trace.name == "continued after a decision"] == [2]
        widths += [trace.line.width for trace in figure.data if trace.name == "others" and trace.mode == "lines"]
    assert widths == [1.0, 0.4]
    figure = trajectories.plot(replace(info, span=(0.65, 0.66), still=True))
    (outside,) = (trace.name for trace in figure.data if trace.name.startswith("outside"))
    assert outside == "outside the axes: 7 below and 17 above, of 26 points"


def test_trials_in_the_interval_of_the_best_are_named_beside_it(trials):
    info = replace(trajectories.info(trials(8)), sure=(0.845, 0.9))  # t5 to t7 reach 0.85 to 0.87
    named = [trace.name for trace in trajectories.plot(info).data if trace.showlegend and "completed" in trace.name]
    assert named == ["t7, completed", "t6, completed at 86.0 %", "t5, completed at 85.0 %"], "a star says it of t7"
    column = trajectories.plot(replace(info, narrow=True)).data
    assert {"t6, completed", "t5, completed"} < {trace.name for trace in column}
    colors = {trace.name: trace.line.color for trace in trajectories.plot(info).data if trace.name in named}
    assert len(set(colors.values())) == 3
    alone = replace(info, sure=(0.865, 0.9))
    assert [t.name for t in trajectories.plot(alone).data if t.showlegend and "completed" in t.name] == [
        "t7, completed"
    ]
    wide = replace(info, sure=(0.0, 1.0))
    assert len([t for t in trajectories.plot(wide).data if t.showlegend and "completed" in t.name]) == 3, "not all"


def test_a_picture_says_what_its_bars_are(trials):
    def make_noisy(point):
        return replace(point, noisy=NoisyScores(is_final=False, released={}, intervals={"accuracy": (0.5, 0.9)}))

    for count, said in ((3, "95 % CI"), (8, "95 % CI, not drawn of others")):
        data = trials(count)
        noisy = replace(data, result=replace(data.result, points=tuple(map(make_noisy, data.points))))
        for found, expected in ((noisy, [said]), (data, [])):
            drawn = trajectories.plot(replace(trajectories.info(found), still=True)).data
            bands = ["95 % CI of the best, selection allowed for"] * bool(expected)
            assert [one.name for one in drawn if (one.name or "").startswith("95 % CI")] == bands + expected


def test_lines_of_a_column_are_solid_for_gaps_would_hide_their_corners(trials):
    info = _as_picture(trajectories.info(trials(3)))
    dashes = []
    for narrow in (False, True):
        drawn = trajectories.plot(replace(info, narrow=narrow)).data
        dashes.append([trace.line.dash for trace in drawn if trace.mode and "lines" in trace.mode and trace.text])
    assert len(set(dashes[0])) == 3
    assert set(dashes[1]) == {"solid"}


def test_bars_of_other_trials_stand_beside_their_points(trials):
    def make_noisy(point):
        return replace(point, noisy=NoisyScores(is_final=False, released={}, intervals={"accuracy": (0.5, 0.9)}))

    data = trials(8)
    noisy = replace(data, result=replace(data.result, points=tuple(map(make_noisy, data.points))))
    found = replace(trajectories.info(noisy), sure=(0.855, 0.9))  # t6 lies in it too
    epsilons = {t.values[0]: t.epsilons[0] for t in found.trajectories}
    sides = {
        trace.legendgroup: trace.x[0] > epsilons[trace.y[0]]
        for trace in trajectories.plot(found).data
        if trace.error_y.array and trace.legendgroup and trace.x[0] != epsilons[trace.y[0]]
    }
    ended = "t6, completed at 86.0 % (50.0 to 90.0\N{NO-BREAK SPACE}%)"
    assert sides == {"others, until last best": False, ended: True}


def test_names_of_trials_are_written_where_there_is_room(trials):
    early = [
        Point(trial=id_, epoch=1, values={"epsilon": epsilon, "accuracy": value})
        for id_, epsilon, value in (("a", 0.01, 0.1), ("b", 0.0101, 0.2), ("c", 0.0102, 0.21), ("d", 0.1, 0.3))
    ]
    info = replace(trajectories.info(trials(8, *early)), still=True)
    found = {}
    for narrow in (False, True):
        (named,) = (
            dict(zip(one.text, one.textposition, strict=True))
            for one in trajectories.plot(replace(info, narrow=narrow)).data
            if one.mode == "markers+text"
        )
        found[narrow] = named
    assert found[False]["a"] == found[False]["b"] == "bottom right", "left of them is the axis"
    assert found[False]["d"] == "top left"
    assert "c" not in found[False], "b is where its name would be"
    assert found[True].keys() < found[False].keys() | {""}
