from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from dashboards.figures import sweep_figures
from dashboards.figures._references import Reference
from dashboards.figures._scores import scores_in_words, within
from dashboards.figures._staircases import curve_lines, explorers_key, staircase
from dashboards.figures._tested import best_tested
from dashboards.figures._theme import LIGHT
from dashboards.figures.search import trajectories
from dashboards.figures.sweep import front
from dashboards.text import show_epsilon
from sweeper.privacy.baselines import Baselines, MajoritySource
from sweeper.privacy.held_out import wilson
from sweeper.records import ClassCounts, Direction, NoisyScores, Point


def point(trial, epoch, epsilon, accuracy, certified=None):
    values = {"epsilon": epsilon, "accuracy": accuracy}
    return Point(
        trial=trial, epoch=epoch, values=values if certified is None else {**values, "certified@0.25": certified}
    )


def test_the_staircase_is_what_is_achievable_within_an_epsilon():
    steps = staircase(
        [point("a", 2, 2.0, 0.8), point("b", 1, 3.0, 0.7), point("a", 1, 1.0, 0.5), point("c", 1, 4.0, 0.9)], "accuracy"
    )
    assert [(s.epsilon, s.value, s.trial, s.epoch) for s in steps] == [
        (1.0, 0.5, "a", 1),
        (2.0, 0.8, "a", 2),
        (4.0, 0.9, "c", 1),
    ]


def test_the_staircase_takes_the_better_of_equals_and_finite_points_alone():
    steps = staircase([point("a", 1, 1.0, 0.5), point("b", 1, 1.0, 0.6)], "accuracy")
    assert [(s.value, s.trial) for s in steps] == [(0.6, "b")]
    assert (
        staircase([point("a", 1, inf, 0.9), point("a", 2, 1.0, nan), Point(trial="b", epoch=1, values={})], "accuracy")
        == ()
    )
    points = [
        Point(trial="a", epoch=e, values={"epsilon": float(e), "loss": v}) for e, v in ((1, 0.9), (2, 1.2), (3, 0.4))
    ]
    assert [s.value for s in staircase(points, "loss", Direction.MINIMIZE)] == [0.9, 0.4]


def test_every_point_is_on_the_front_or_dominated_and_the_axis_says_what_epsilon_promises(sweep):
    info = front.info(sweep)
    assert len(info.front) + info.dominated_total == len(sweep.points)
    assert {p.key for p in info.front} == sweep.result.on_front
    assert not {p.key for p in info.dominated} & sweep.result.on_front
    figure = front.plot(front.info(sweep))
    price = show_epsilon(sweep.result.price.epsilon)
    title = f"own epsilon (fixed in advance, log), delta = 1e-4; price of the sweep: {price}"
    assert figure.layout.xaxis.title.text == title
    narrow = front.plot(replace(info, narrow=True)).layout.xaxis.title.text
    name, terms = title.split(", delta")
    assert narrow == f"{name}<br><span style='font-size:10.5px'>delta{terms}</span>"
    assert figure.layout.xaxis.type == "log"
    assert figure.layout.yaxis.title.text == "accuracy (validation)"


def test_the_line_goes_through_the_running_best_of_all_points_to_the_last_epsilon(sweep):
    info = front.info(sweep)
    for step in info.steps:
        within = [p.values["accuracy"] for p in sweep.points if p.values["epsilon"] <= step.epsilon]
        assert step.value == max(within)
    assert info.steps[-1].value == max(p.values["accuracy"] for p in sweep.points)
    info = front.info(sweep)
    line, above = (trace for trace in front.plot(info).data if trace.line.shape == "hv")
    assert len(info.front) > 60, "so many marks bury the line, which is drawn once more above them"
    assert (above.x, above.y, above.hoverinfo, above.showlegend) == (line.x, line.y, "skip", False)
    assert list(line.y[:-1]) == [step.value for step in info.steps]
    assert line.x[-1] == max(p.values["epsilon"] for p in sweep.points)
    assert line.y[-1] == line.y[-2]


def test_certified_accuracy_sets_the_colour(sweep):
    info = front.info(sweep)
    (trace,) = (t for t in front.plot(info).data if t.name == "points of the front")
    certified = [p.values["certified@0.25"] for p in info.front]
    assert list(trace.marker.color) == certified
    assert (trace.marker.cmin, trace.marker.cmax) == (min(certified), max(certified))


def test_a_front_without_certificates_is_drawn_in_one_colour(small):
    figure = front.plot(front.info(small([point("a", 1, 1.0, 0.5), point("a", 2, 2.0, 0.6)])))
    (trace,) = (t for t in figure.data if t.text)
    assert trace.marker.color == LIGHT.blue


def test_a_certificate_that_was_not_computed_has_no_colour(small):
    data = small([point("a", 1, 1.0, 0.5, 0.2), point("a", 2, 2.0, 0.6), point("a", 3, 3.0, 0.7, 0.3)])
    known, plain = (t for t in front.plot(front.info(data)).data if t.name == "points of the front")
    assert (list(known.marker.color), list(known.x)) == ([0.2, 0.3], [1.0, 3.0])
    assert (plain.marker.color, list(plain.x)) == (LIGHT.blue, [2.0])


def test_hover_names_trial_epoch_configuration_and_test_values(sweep):
    info = front.info(sweep)
    chosen = info.front[len(info.front) // 2]
    text = info.front_hover[len(info.front) // 2]
    assert f"<b>{chosen.trial}</b>, epoch {chosen.epoch}" in text
    assert f"(test {100 * chosen.test['accuracy']:.1f} %)" in text
    assert "training.learning_rate = " in text
    assert "method" not in text  # the same in every trial


def test_a_point_made_from_iterates_says_so_wherever_it_is_shown(small):
    made = Point(trial="a", epoch=2, made_from="slow-midpoint", values={"epsilon": 2.0, "accuracy": 0.8})
    data = small([point("a", 1, 1.0, 0.5), point("a", 2, 2.0, 0.7), made])
    info = front.info(data)
    assert [p.key for p in info.front] == [("a", 1, ""), made.key]
    assert "<b>a</b>, epoch 2, slow-midpoint" in info.front_hover[1]
    assert [(row["epoch"], row["made_from"]) for row in front.rows(info)] == [(1, ""), (2, "slow-midpoint"), (2, "")]
    assert info.steps[-1].made_from == "slow-midpoint"
    names = [name for trace in front.plot(info).data if trace.customdata is not None for name in trace.customdata]
    assert {"a.1", "a.2.slow-midpoint"} <= set(names)
    assert [t.epochs for t in trajectories.info(data).trajectories] == [(1, 2)]


def test_training_without_privacy_is_a_line_not_a_point(small):
    info = front.info(small([point("a", 1, 1.0, 0.94), point("n", 1, inf, 0.9), point("n", 2, inf, 0.95)]))
    assert info.lines == (Reference("without privacy", 0.95),)
    assert [p.key for p in info.front] == [("a", 1, "")]
    names = {trace.name for trace in front.plot(info).data}
    assert "without privacy: 95.0 %" in names
    assert "dominated points" not in names  # the legend names nothing that is not drawn


def test_many_dominated_points_are_thinned_evenly(small):
    info = front.info(small([point("a", epoch, 1.0 + epoch, 0.5) for epoch in range(5000)]))
    assert info.dominated_total == 4999
    assert len(info.dominated) == front.DRAWN_DOMINATED
    gaps = {b.epoch - a.epoch for a, b in zip(info.dominated, info.dominated[1:], strict=False)}
    assert gaps <= {4, 5, 6}


def test_repeats_are_error_bars_of_one_standard_deviation(sweep, small):
    (trace,) = (t for t in front.plot(front.info(sweep)).data if t.name == "points of the front")
    assert trace.error_y.array == pytest.approx([0.03 / 3**0.5] * len(trace.x))
    assert " ± 1.7 % (test " in front.info(sweep).front_hover[0]
    single = front.plot(front.info(small([point("a", 1, 1.0, 0.5), point("a", 2, 2.0, 0.6)])))
    assert all(t.error_y.array is None for t in single.data)


def sweep_with(small, points, **baselines):
    data = small(points)
    claim = replace(data.result.claim, baselines=Baselines(**baselines))
    return replace(data, result=replace(data.result, claim=claim))


SPREAD = [point("a", 1, 1.0, 0.83), point("a", 2, 2.0, 0.88), point("b", 1, 1.5, 0.12), point("b", 2, 9.0, 0.5)]


def test_the_axes_are_those_of_the_front_and_not_of_what_it_dominates(small):
    axes = front.plot(front.info(small(SPREAD))).layout
    low, high = axes.yaxis.range
    assert 0.82 < low < 0.83
    assert 0.88 < high < 0.89
    assert 10 ** axes.xaxis.range[1] < 2.2
    assert max(axes.xaxis.tickvals) >= 8  # for who zooms out


def test_points_of_the_front_that_a_constant_answer_beats_do_not_stretch_the_axes(small):
    data = sweep_with(small, [point("a", 0, 0.01, 0.11), *SPREAD], classes=("a", "b"), majority={"validation": 0.81})
    info = front.info(data)
    assert [p.epoch for p in info.front] == [0, 1, 2]
    assert [p.epoch for p in info.shown] == [1, 2]
    figure = front.plot(info)
    assert figure.layout.yaxis.range[0] < 0.81  # its line is near enough to be seen
    assert figure.data[-1].name == "majority class: 81.0 %"  # declared, not counted
    assert len(figure.layout.annotations) == 0  # words in the panel would cover points
    assert [p.epoch for p in data.useful_points] == [1, 2]


def test_an_area_under_the_roc_curve_is_as_sure_as_a_share_of_the_rarer_class(small):
    counted = {"classes": ("a", "b"), "majority": {"validation": 0.9}, "rows": {"validation": 1000}}
    points = [Point(trial="t", epoch=1, values={"epsilon": 1.0, "auroc": 0.9, "accuracy": 0.9})]
    for source, is_counted in (("rows", True), ("declared", False)):
        data = sweep_with(small, points, majority_source=MajoritySource(source), **counted)
        claim = replace(data.result.claim, evaluation="public", unit="row")
        low, high = wilson(0.9, 100)
        sure = f"1000 validation rows, {within((high - low) / 2)}, ignoring selection"
        assert scores_in_words(replace(data.result, claim=claim), ["auroc"]) == (sure if is_counted else "validation")


@pytest.mark.parametrize(("source", "words"), [("declared", "as declared"), ("sketch", "by the private sketch")])
def test_a_line_of_private_rows_says_where_the_share_of_their_largest_class_is_known_from(small, source, words):
    known = {"majority_source": MajoritySource(source), "rows": {"validation": 25}}
    data = sweep_with(small, SPREAD, classes=("a", "b"), majority={"validation": 0.85}, **known)
    assert front.plot(front.info(data)).data[-1].name == f"majority class, {words}: 85.0 %"


def test_the_legend_names_no_line_that_lies_beyond_the_axis(small):
    data = sweep_with(small, SPREAD, classes=("a", "b"), majority={"validation": 0.6})
    figure = front.plot(front.info(data))
    assert figure.layout.yaxis.range[0] > 0.6
    assert not [trace.name for trace in figure.data if "majority" in (trace.name or "")]
    assert [shape.y0 for shape in figure.layout.shapes] == [0.6]  # for who zooms out


def test_marks_of_a_column_are_small_and_none_is_cut_at_the_edge(sweep):
    for name in ("points of the front", "knee"):
        wide, narrow = (
            next(trace for trace in front.FIGURE.draw(sweep, narrow=is_narrow, still=True).data if trace.name == name)
            for is_narrow in (False, True)
        )
        assert np.max(narrow.marker.size) < 0.6 * np.max(wide.marker.size)
        assert narrow.cliponaxis is wide.cliponaxis is False


def test_where_nothing_beats_a_constant_answer_everything_is_shown(small):
    data = sweep_with(small, SPREAD, classes=("a", "b"), majority={"validation": 0.95})
    assert front.info(data).shown == front.info(data).front
    assert data.useful_points == data.front_points


def test_what_the_spec_gives_as_reached_without_privacy_is_a_line(small):
    info = front.info(sweep_with(small, SPREAD, without_privacy={"accuracy": 0.9, "auroc": 0.99}))
    assert info.lines == (Reference("without privacy, as given", 0.9),)


def test_bars_of_repeats_lie_within_the_axes(sweep):
    info = front.info(sweep)
    low, high = front.plot(info).layout.yaxis.range
    for one in info.shown:
        assert low < one.values["accuracy"] - one.deviation("accuracy")
        assert one.values["accuracy"] + one.deviation("accuracy") < high


def test_the_knee_is_ringed(sweep):
    info = front.info(sweep)
    knee, text = info.knee
    assert knee == sweep.result.knee
    (ring,) = (trace for trace in front.plot(info).data if trace.name == "knee")
    assert (ring.x, ring.y) == ((knee.values["epsilon"],), (knee.values["accuracy"],))
    assert ring.customdata[0] == text
    drawn = [trace.name for trace in front.plot(info).data]
    assert drawn.index("knee") < drawn.index("points of the front")  # else it hides points beside it
    assert [(row["trial"], row["epoch"], row["made_from"]) for row in front.rows(info) if row["knee"]] == [knee.key]


def test_means_of_several_trainings_and_test_scores_of_one_are_told_apart(small):
    counted = {"classes": ("a", "b"), "majority": {"validation": 0.81}, "rows": {"validation": 261, "test": 260}}
    trained = [replace(p, repeats={"accuracy": (0.7, 0.8, 0.9)}, test={"accuracy": 0.8}) for p in SPREAD]
    for points, told in ((trained, True), ([replace(p, repeats={}) for p in trained], False)):
        figure = front.FIGURE.draw(sweep_with(small, points, **counted))
        means = "(261 validation rows,<br>means of 3 trainings,<br>95 % CI" in figure.layout.yaxis.title.text
        assert means is told
        crosses = " ".join(trace.name or "" for trace in figure.data)
        assert ("260 test rows (first training)" in crosses) is told
        assert ("bars ±1 SD" in crosses) is told, "where bars are"


def test_how_sure_a_share_of_public_rows_is_stands_at_the_axis_and_in_the_caption(small):
    counted = {"classes": ("a", "b"), "majority": {"validation": 0.81}, "rows": {"validation": 261}}
    data = sweep_with(small, SPREAD, **counted)
    figure = front.FIGURE.draw(data)
    assert (
        figure.layout.yaxis.title.text == "accuracy (261 validation rows,<br>95 % CI ≤ ±6.1 points, ignoring selection)"
    )
    assert figure.data[-1].name == "majority class on validation rows: 81.0 %"
    assert "tells what new rows would score (95 % CI ≤ ±6.1 points)" in front.FIGURE.remarks(data)
    shown = {name: kind.draw(data) for name, kind in sweep_figures().items() if name in ("price", "trajectories")}
    assert shown["trajectories"].layout.yaxis.title.text == "accuracy (261 validation rows)", "a band says the rest"
    assert "95 % CI of the best, ignoring selection" in [trace.name for trace in shown["trajectories"].data]
    assert shown["price"].layout.yaxis.title.text.endswith(
        "(261 validation rows,<br>95 % CI ≤ ±6.1 points, ignoring selection)"
    )
    claim = replace(data.result.claim, unit="patient")
    for other in (sweep_with(small, SPREAD), replace(data, result=replace(data.result, claim=claim))):
        assert front.FIGURE.draw(other).layout.yaxis.title.text == "accuracy (validation)"
        assert "±" not in front.FIGURE.remarks(other)


def test_the_caption_names_what_is_drawn_alone(sweep, small):
    plain = front.FIGURE.remarks(small(SPREAD))
    assert not any(word in plain for word in ("Bars", "below the line"))
    said = front.FIGURE.remarks(sweep)
    assert all(word in said for word in ("Bars are one standard deviation", "below the line", "knee"))
    for kind in sweep_figures().values():
        assert not any(word in kind.caption for word in ("bars are", "Bars are", "ashed: ", "repeats to"))


def noisy(trial, epsilon, accuracy, *, is_final=True):
    ends = {"accuracy": (accuracy - 0.06, accuracy + 0.06)}
    scores = NoisyScores(is_final=is_final, released={}, intervals=ends)
    return replace(point(trial, 1, epsilon, accuracy), noisy=scores)


def test_noise_alone_takes_no_point_off_the_front_of_a_figure(small):
    points = [noisy("a", 0.5, 0.65), noisy("b", 1.0, 0.778), noisy("c", 2.0, 0.79)]
    data = sweep_with(small, points, classes=("a", "b"), majority={"validation": 0.78})
    assert [p.trial for p in front.info(data).front] == ["a", "b", "c"]
    assert [p.trial for p in front.info(data).shown] == [p.trial for p in data.useful_points] == ["b", "c"]
    assert (
        " Outside the axes: 1 of 3 points of the front, no better than the majority-class baseline even at the upper "
        "ends of their intervals." in front.FIGURE.remarks(data)
    )
    assert "Outside" not in front.FIGURE.remarks(small(points))
    still, moving = (front.FIGURE.draw(data, still=is_still) for is_still in (True, False))
    assert [t.name for t in still.data if t.name.startswith("front")] == ["front (2 of 3 points)"]
    assert [t.name for t in moving.data if t.name.startswith("front")] == ["front"]


def test_every_line_passes_through_finals_and_explorers_are_open_marks(small):
    points = [noisy("a", 0.1, 0.80, is_final=False), noisy("b", 1.0, 0.75), noisy("c", 2.0, 0.78)]
    data = small(points)
    figures = sweep_figures()
    drawn = [figures[name].info(data).steps for name in ("front", "trajectories")]
    drawn += [bought.alone for bought in figures["price"].info(data).values]
    assert [[(step.trial, step.is_explorer) for step in steps] for steps in drawn] == [
        [("a", True), ("b", False), ("c", False)]
    ] * 3
    for name in ("front", "trajectories", "price"):
        lines = [trace for trace in figures[name].draw(data).data if trace.mode == "lines" and trace.x[0] is not None]
        steps = [line for line in lines if line.line.width and ("best" in line.name or "own" in line.name)]
        assert [(line.line.dash, line.x[:2]) for line in steps] == [
            ("dot", (0.1, 1.0)),
            ("solid", (1.0, 2.0)),
        ]
    assert [step.value for step in staircase(data.points, "accuracy")] == [0.80, 0.75, 0.78]
    steps = staircase(data.points, "accuracy")
    assert [key.name for key in explorers_key([steps], LIGHT)] == ["explorers"]
    assert explorers_key([steps[1:]], LIGHT) == []
    finals, explorers, bars = curve_lines(steps, 3.0, "#000", "circle", name="a", texts="abc")
    assert (finals.x, finals.y, finals.marker.size) == ((1.0, 2.0, 3.0), (0.75, 0.78, 0.78), (7, 7, 0))
    assert (explorers.x, explorers.y, explorers.marker.size) == ((0.1, 1.0), (0.8, 0.8), (7, 0))
    assert [(line.line.dash, line.marker.symbol) for line in (finals, explorers)] == [
        ("solid", "circle"),
        ("dot", "circle-open"),
    ]
    assert (bars.x, bars.marker.opacity, len(bars.error_y.array)) == ((0.1, 1.0, 2.0), 0, 3), "no bar at a line's end"
    figure = figures["front"].draw(data)
    (marks,) = (trace for trace in figure.data if trace.name == "points of the front")
    assert marks.marker.symbol == ("circle-open", "circle", "circle")
    assert {t.name: t.marker.symbol for t in figure.data if t.name.startswith("front")} == {
        "front, finals (most budget)": "circle",
        "front, explorers (less budget)": "circle-open",
    }
    assert (
        figure.layout.yaxis.title.text
        == "accuracy (noisy validation scores,<br>95 % CI ≤ ±6 points, selection allowed for)"
    )
    claim = data.result.claim
    for unit, words in (("row", "1511 validation rows"), ("patient", "1511 validation units")):
        counted = replace(claim, unit=unit, baselines=replace(claim.baselines, rows={"validation": 1511}))
        title = figures["front"].draw(replace(data, result=replace(data.result, claim=counted))).layout.yaxis.title
        assert title.text == f"accuracy (noisy scores of {words},<br>95 % CI ≤ ±6 points, selection allowed for)"
    for name in ("front", "price", "trajectories"):
        assert "finals" in figures[name].remarks(data), name
        assert "finals" not in figures[name].remarks(small(points[1:])), name
    beyond = small([noisy("a", 0.1, 0.95, is_final=False), *points[1:]])
    assert [(step.trial, step.is_explorer) for step in front.info(beyond).steps] == [("a", False)], (
        "beyond both intervals"
    )


def test_the_legend_names_no_dominated_points_that_lie_beyond_the_axes(small):
    for far, near in ((SPREAD, False), ([*SPREAD, point("c", 1, 2.0, 0.86)], True)):
        figure = front.plot(front.info(small(far)))
        (trace,) = (t for t in figure.data if t.name == "dominated points")
        assert trace.showlegend is near


def with_test(point, value, interval=None):
    if interval is None:
        return replace(point, test={"accuracy": value})
    scores = replace(point.noisy, test_intervals={"accuracy": interval})
    return replace(point, test={"accuracy": value}, noisy=scores)


def test_models_of_the_line_are_shown_on_test_rows_too(small):
    data = small([with_test(point("a", 1, 1.0, 0.8), 0.75), with_test(point("a", 2, 2.0, 0.85), 0.78)])
    figure = front.FIGURE.draw(data)
    (crosses,) = (trace for trace in figure.data if trace.name == "models of the line on test rows")
    assert (crosses.x, crosses.y, crosses.error_y.array) == ((1.0, 2.0), (0.75, 0.78), None)
    assert crosses.customdata == ("a.1", "a.2"), "a click on a cross picks its model"
    low, high = figure.layout.yaxis.range
    assert low < 0.75 < 0.85 < high
    below = replace(data.result.claim, baselines=Baselines(classes=("a", "b"), majority={"validation": 0.82}))
    axis = front.FIGURE.draw(replace(data, result=replace(data.result, claim=below))).layout.yaxis.range
    assert axis[0] > 0.75, "what lies beyond the axes leaves them as they are"
    assert (
        "Crosses: the same models on test rows, which did not choose them; over the front 6.0 points lower on average."
        in front.FIGURE.remarks(data)
    )
    untested = small([point("a", 1, 1.0, 0.8)])
    assert "Crosses" not in front.FIGURE.remarks(untested)
    assert "models of the line on test rows" not in [trace.name for trace in front.FIGURE.draw(untested).data]


def test_the_best_model_of_a_line_has_the_interval_of_its_test_score(small):
    counts = ClassCounts(rows=(50, 50), decided=(50, 50), correct=(40, 40))
    data = small([replace(with_test(point("a", 1, 1.0, 0.85), 0.8), classes=counts)])
    public = replace(data.result.claim, evaluation="public", unit="row")
    data = replace(data, result=replace(data.result, claim=public))
    steps = front.info(data).steps
    (found,) = best_tested(data.result, steps, "accuracy")
    assert found.interval == pytest.approx(wilson(0.8, 100))
    assert [one.interval for one in front.info(data).tested] == [None], "where many would cover each other"
    private = replace(data.result, claim=replace(public, evaluation="private"))
    assert best_tested(private, steps, "accuracy")[0].interval is None


def test_a_model_that_is_alike_another_of_the_front_has_the_test_score_of_that_one(small):
    first, second = point("a", 1, 1.0, 0.8, 0.4), with_test(point("b", 1, 1.0, 0.8, 0.5), 0.75)
    data = small([first, second], objectives=("epsilon", "accuracy", "certified@0.25"))
    assert [one.value for one in front.info(data).tested] == [0.75]


def test_the_numbers_of_the_front_have_intervals_and_test_scores(small):
    (row,) = front.rows(front.info(small([with_test(noisy("a", 1.0, 0.8), 0.75, (0.7, 0.81))])))
    ends = (row["low"], row["high"], row["test"], row["test low"], row["test high"])
    assert ends == pytest.approx((0.74, 0.86, 0.75, 0.7, 0.81))


def test_noisy_test_scores_have_bars_and_none_stands_without_its_interval(small):
    data = small([with_test(noisy("a", 1.0, 0.8), 0.75, (0.7, 0.81)), with_test(noisy("b", 2.0, 0.85), 0.78)])
    (crosses,) = (trace for trace in front.FIGURE.draw(data).data if trace.name.startswith("models of the line"))
    assert (crosses.name, crosses.y) == (
        "models of the line (1 of 2) on test rows,<br>95 % CI ≤ ±5.5 points (moved right)",
        (0.75,),
    )
    assert crosses.x[0] > 1.0, "beside the bar of its validation score"
    assert (crosses.error_y.array, crosses.error_y.arrayminus) == (pytest.approx((0.06,)), pytest.approx((0.05,)))
    assert ", with their 95 % intervals." in front.FIGURE.remarks(data)
    column = front.FIGURE.draw(data, narrow=True)
    assert "test rows (1 of 2, moved right)" in [trace.name for trace in column.data]
    assert "test rows, 95 % CI ≤ ±5.5 points" in column.layout.xaxis.title.text, "a column says it below its axis"


@pytest.mark.parametrize(("half", "said"), [(0.01245, "1.3"), (0.055, "5.5"), (0.06041, "6.1"), (0.0601, "6.1")])
def test_no_interval_is_wider_than_a_figure_says(small, half, said):
    data = small([with_test(noisy("a", 1.0, 0.8), 0.75, (0.75 - half, 0.75 + half))])
    (crosses,) = (trace for trace in front.FIGURE.draw(data).data if trace.name.startswith("models of the line"))
    assert f"95 % CI ≤ ±{said} points" in crosses.name


def test_the_number_of_test_rows_is_said_where_it_is_known(small):
    data = small([with_test(point("a", 1, 1.0, 0.8), 0.75)])
    known = replace(data.result.claim, baselines=Baselines(rows={"test": 360}))
    drawn = front.FIGURE.draw(replace(data, result=replace(data.result, claim=known)))
    assert any(trace.name.startswith("models of the line on 360 test rows") for trace in drawn.data)


def test_a_picture_enlarges_where_points_crowd_and_covers_none(small):
    many = [point("a", epoch, 0.3 * 1.1**epoch, 0.9 + 0.001 * epoch) for epoch in range(5, 30)]
    steep = [point("b", 1, 0.2, 0.3), point("b", 2, 0.25, 0.6)]
    still = front.FIGURE.draw(small([*steep, *many]), still=True)
    inside = [trace for trace in still.data if trace.yaxis == "y2"]
    assert inside
    assert not any(trace.showlegend for trace in inside)
    low, high = still.layout.yaxis2.range
    assert low < 0.905 < 0.929 < high
    assert still.layout.shapes[0].y0 == low
    assert "yaxis2" not in front.FIGURE.draw(small([*steep, *many])).layout, "a page can be zoomed"
    level = [point("b", 1, 0.2, 0.3), point("b", 2, 0.25, 0.5)]
    level += [point("a", epoch, 2.0 * 1.05**epoch, 0.9 + 0.001 * epoch) for epoch in range(5, 30)]
    assert "yaxis2" not in front.FIGURE.draw(small(level), still=True).layout, "the line runs level through its place"
    below = [point("c", 1, 5.0, 0.5, 0.9)]
    drawn = small([*steep, *many, *below], objectives=("epsilon", "accuracy", "certified@0.25"))
    assert "yaxis2" not in front.FIGURE.draw(drawn, still=True).layout, "a point lies where it would stand"
