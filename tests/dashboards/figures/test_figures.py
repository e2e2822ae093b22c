"""Robustness, three dimensions, trajectories, hypervolume, configurations, and what all figures share."""

import itertools
import re
from dataclasses import replace
from math import inf, log10, nan
from statistics import fmean

import pytest

from dashboards.figures import (
    DARK,
    LIGHT,
    NotebookFigure,
    as_json,
    exchange,
    has_content,
    is_empty,
    linear_epsilon,
    refuse,
    sweep_figures,
)
from dashboards.figures._base import FigureInfo
from dashboards.figures._common import WATERMARK, color_bar, epsilon_axis, point_name, zoom
from dashboards.figures._comparable import stage_names
from dashboards.figures._tested import BEST_ON_TEST
from dashboards.figures._ticks import log_ticks
from dashboards.figures.hyperparameters import configurations
from dashboards.figures.search import hypervolume, trajectories, workers
from dashboards.figures.sweep import curves, front3d, price, robustness
from dashboards.text import MISSING, show_epsilon
from sweeper.errors import EmptyFigureError
from sweeper.pareto import dominance
from sweeper.pareto.dominance import hypervolume as measure
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.held_out import wilson
from sweeper.privacy.pricing import Price
from sweeper.records import NoisyScores, Point, SweepStatus, Trial, TrialStatus

FIGURES = sweep_figures()
THREE_STAGES = ("explorers of stage 1", "explorers of stage 2", "finals")


@pytest.fixture
def axes_of(with_configs):
    return lambda *configs: {axis.name: axis for axis in configurations.info(with_configs(*configs)).axes}


def test_robustness_has_the_best_of_each_radius_in_order_and_less_for_larger_ones(sweep):
    info = robustness.info(sweep)
    assert [curve.name for curve in info.curves] == ["accuracy", "certified@0.1", "certified@0.25", "certified@0.5"]
    assert [curve.radius for curve in info.curves] == [0.0, 0.1, 0.25, 0.5]
    for curve in robustness.info(sweep).curves:
        for step in curve.steps[:: max(1, len(curve.steps) // 5)]:
            assert step.value == max(p.values[curve.name] for p in sweep.points if p.values["epsilon"] <= step.epsilon)
    ends = [curve.steps[-1].value for curve in robustness.info(sweep).curves]
    assert ends == sorted(ends, reverse=True)


def test_smoothed_accuracy_has_a_line_of_its_own_and_is_no_certificate_of_the_model(sweep):
    points = tuple(replace(p, values={**p.values, "smoothed@0.5": 0.4}) for p in sweep.result.points)
    data = replace(sweep, result=replace(sweep.result, points=points))
    info = robustness.info(data)
    assert (info.curves[-1].name, info.curves[-1].radius) == ("smoothed@0.5", 0.5)
    assert robustness.plot(info).data[len(info.curves) - 1].name == "smoothed, L2 radius 0.5"
    assert data.certificates == sweep.certificates
    assert data.certificate == sweep.certificate


def test_robustness_curves_differ_in_symbol_too_and_no_staircase_is_dashed(sweep):
    lines = robustness.plot(robustness.info(sweep)).data[:4]
    assert len({trace.marker.symbol for trace in lines}) == 4
    assert {trace.line.dash for trace in lines} == {"solid"}
    inks = [LIGHT.scale.index(trace.line.color) for trace in lines[1:]]
    assert inks == sorted(set(inks), reverse=True)  # less ink for a larger radius
    assert [trace.name for trace in lines] == [
        "accuracy",
        *(f"certified, L2 radius {radius}" for radius in (0.1, 0.25, 0.5)),
    ]


def test_each_line_of_robustness_has_its_best_model_on_test_rows_and_the_baseline_beside_it(sweep):
    claim = replace(sweep.result.claim, baselines=Baselines(classes=("a", "b"), majority={"validation": 0.52}))
    info = robustness.info(replace(sweep, result=replace(sweep.result, claim=claim)))
    figure = robustness.plot(info)
    points = {point.key: point for point in sweep.result.front_points}
    best = [(curve.name, curve.steps[-1]) for curve in info.curves]
    reached = {name: points[step.trial, step.epoch, step.made_from].test[name] for name, step in best}
    crosses = [trace for trace in figure.data if trace.marker.symbol == "x" and trace.showlegend is False]
    assert [trace.y[0] for trace in crosses] == list(reached.values())
    assert [trace.marker.color for trace in crosses] == [trace.line.color for trace in figure.data[: len(info.curves)]]
    tests = {row["name"]: row["value"] for row in robustness.rows(info) if row["rows"] == "test"}
    assert tests == reached
    low, high = figure.layout.yaxis.range
    assert all(low < value < high for value in reached.values())
    names = [trace.name for trace in figure.data]
    assert any(name.startswith(BEST_ON_TEST) for name in names)
    right = max(x for trace in figure.data[: len(info.curves)] for x in trace.x)
    places = [trace.x[0] for trace in crosses]
    assert right < places[0] < places[1] < 10.0 ** figure.layout.xaxis.range[1], "in a strip, side by side"
    assert [shape.y0 for shape in figure.layout.shapes] == [0, 0.52]
    assert names[-1] == "majority class: 52.0 %"
    assert "On test rows, on average over the front: accuracy: " in FIGURES["robustness"].remarks(sweep)


def test_of_points_that_are_alike_a_line_passes_through_the_one_on_the_front(small):
    def make_point(made_from, certified):
        values = {"epsilon": 1.0, "accuracy": 0.8, "certified@0.1": certified}
        return Point(trial="t0001", epoch=26, values=values, made_from=made_from)

    names = ("epsilon", "accuracy", "certified@0.1")
    data = small([make_point("", 0.5), make_point("slow-midpoint", 0.6)], objectives=names)
    (accuracy, _) = robustness.info(data).curves
    assert [step.moment for step in accuracy.steps] == ["26, slow-midpoint"]
    assert [step.moment for step in FIGURES["front"].info(data).steps] == ["26, slow-midpoint"]


def test_colours_and_heights_of_certified_accuracy_are_said_to_be_of_validation_rows(sweep):
    points = [point for point in sweep.result.front_points if point.test]
    gap = 100.0 * fmean(point.values["certified@0.25"] - point.test["certified@0.25"] for point in points)
    said = f"certified accuracy at L2 radius 0.25: {abs(gap):.1f} points {'lower' if gap > 0 else 'higher'}"
    terms = next(a for a in FIGURES["front-3d"].draw(sweep).layout.annotations if a.name == "terms")
    assert said in terms.text
    assert "delta = 1e-4" in terms.text
    assert f"on test rows {said.replace('0.25: ', '0.25 is ')} on average" in FIGURES["front"].remarks(sweep)
    bars = [trace.marker.colorbar.title.text for trace in FIGURES["front"].draw(sweep).data]
    assert "certified accuracy at L2 radius 0.25 (validation)" in bars
    (row, *_) = front3d.rows(front3d.info(sweep))
    assert row["test certified@0.25"] == points[0].test["certified@0.25"]


def test_three_dimensions_of_noisy_scores_have_what_the_best_model_is_on_test_rows(sweep):
    def make_noisy(point):
        ends = {"intervals": {"accuracy": (0.0, 1.0)}, "test_intervals": {"accuracy": (0.4, 0.6)}}
        tested = {"accuracy": 0.5, "certified@0.25": 0.3}  # the second without an interval, which is not shown
        return replace(point, noisy=NoisyScores(is_final=True, released={}, **ends), test=tested)

    data = replace(sweep, result=replace(sweep.result, points=tuple(map(make_noisy, sweep.points))))
    assert front3d.info(data).on_test == (
        "on test rows, the model of best accuracy:",
        "accuracy: 50.0 % (40.0 to 60.0\xa0%)",
    )
    bare = tuple(replace(p, test=None, noisy=replace(p.noisy, test_intervals={})) for p in data.points)
    assert front3d.info(replace(data, result=replace(data.result, points=bare))).on_test == ()


def test_the_three_dimensional_front_has_the_three_numbers_of_every_point(sweep):
    info = front3d.info(sweep)
    _, markers = front3d.plot(info).data
    assert {p.key for p in info.front} == sweep.result.on_front
    assert list(markers.x) == [p.values["epsilon"] for p in info.front]
    assert list(markers.z) == [p.values["certified@0.25"] for p in info.front]


@pytest.mark.parametrize(("count", "opacity"), [(40, 1.0), (80, 0.5)])
def test_every_point_drops_a_line_to_the_floor_fainter_where_there_are_many(sweep, count, opacity):
    info = front3d.info(sweep)
    many = replace(info, front=(info.front * count)[:count], hover=("",) * count)
    drawn, markers = front3d.plot(many).data
    assert sum(z is None for z in drawn.z) == len(markers.z) == count
    assert drawn.opacity == opacity


def test_a_picture_of_three_dimensions_is_a_plane_with_own_epsilons_as_colours(sweep):
    figure = FIGURES["front-3d"].draw(sweep, still=True)
    (drawn,) = figure.data
    points = {point_name(point): point for point in front3d.info(sweep).front}
    assert drawn.type == "scatter", "nobody can turn a picture"
    assert len(drawn.text) == len(points)
    for name, x, y, color in zip(drawn.text, drawn.x, drawn.y, drawn.marker.color, strict=True):
        values = points[name].values
        assert (x, y) == (values["accuracy"], values["certified@0.25"])
        assert color == pytest.approx(log10(values["epsilon"]))
    title = figure.layout.xaxis.title.text.replace("<br>", " ")
    front = f"{len(drawn.x)} points of the front"
    assert title.startswith(f"accuracy (validation); {front}; delta = 1e-4; price of the sweep: ")
    assert "on test rows, on average: accuracy: " in title
    assert figure.layout.yaxis.title.text.replace("<br>", " ") == "certified accuracy at L2 radius 0.25 (validation)"


def test_a_picture_of_noisy_scores_in_three_dimensions_has_their_intervals_and_open_explorers(sweep):
    def make_noisy(point, *, is_final):
        ends = {name: (value - 0.02, value + 0.03) for name, value in point.values.items() if name != "epsilon"}
        return replace(point, noisy=NoisyScores(is_final=is_final, released={}, intervals=ends))

    info = front3d.info(sweep)
    front = tuple(make_noisy(point, is_final=i == 0) for i, point in enumerate(info.front[:9]))
    figure = front3d.plot(replace(info, front=front, hover=("",) * 9, still=True))
    (drawn,) = figure.data
    assert sorted(drawn.marker.symbol) == ["circle", *["circle-open"] * 8]
    for bars in (drawn.error_x, drawn.error_y):
        assert (bars.array, bars.arrayminus) == (pytest.approx([0.03] * 9), pytest.approx([0.02] * 9))
    assert "open marks: explorers" in figure.layout.xaxis.title.text


def test_a_point_whose_certificate_was_not_computed_is_not_in_the_three_dimensional_front(make_front, load):
    front = make_front()
    chosen = next(p for p in front["points"] if p["on_front"])
    chosen["values"]["certified@0.25"] = "NaN"
    assert (chosen["trial"], chosen["epoch"], "") not in {p.key for p in front3d.info(load(front)).front}


def test_a_trajectory_follows_the_epochs_of_its_trial(sweep):
    info = trajectories.info(sweep)
    assert len(info.trajectories) == 24
    for t in info.trajectories:
        assert t.epochs == tuple(range(1, len(t.epochs) + 1))
        assert list(t.epsilons) == sorted(t.epsilons)


def test_trajectories_end_with_a_mark_that_says_how_and_why(sweep):
    info = trajectories.info(replace(sweep, result=replace(sweep.result, stages=())))
    drawn = trajectories.plot(info).data
    ends = {trace.name: trace for trace in drawn if trace.mode in ("markers", "markers+text")}
    lasts = {step.trial: step.epsilon for step in info.steps if step.trial != "t0003"}
    heads = "others, until last best"
    assert {name: len(trace.x) for name, trace in ends.items()} == {
        "others, completed": 19,
        heads: len(lasts),
        "t0003, completed": 1,
        "t0003 at its best": 1,
        "others, stopped": 2,
        "others, failed": 1,
        "others, interrupted": 1,
    }
    assert "failed: accuracy is NaN at epoch 7" in ends["others, failed"].text[0]
    assert len({trace.marker.symbol for trace in ends.values()}) == 7
    assert ends["others, completed"].marker.color != ends[heads].marker.color
    assert dict(zip(ends[heads].text, ends[heads].x, strict=True)) == lasts
    (colored,) = (trace for trace in drawn if trace.name == heads and trace.mode == "lines")
    (pale,) = (trace for trace in drawn if trace.name == "others, completed" and trace.mode == "lines")
    for t in (t for t in info.trajectories if t.trial in lasts):
        place = t.epsilons.index(lasts[t.trial])
        assert _holds(colored, t.epsilons[: place + 1]), t.trial
        assert _holds(pale, t.epsilons[place:]), "from there on"
    best = max(sweep.front_points, key=lambda point: point.values["accuracy"])
    star = ends.pop("t0003 at its best")
    assert (star.x[0], star.y[0]) == (best.values["epsilon"], best.values["accuracy"])
    lines = {trace.name: trace.line for trace in drawn if "lines" in trace.mode and trace.text}
    keys = {trace.name: trace for trace in drawn if trace.showlegend and trace.legendgroup}
    assert keys.keys() == ends.keys()
    for name, key in keys.items():  # a piece of the line, and the mark at its end
        assert (key.mode, key.x, key.line, key.marker) == ("lines+markers", (None,), lines[name], ends[name].marker)
        assert ends[name].showlegend is False


def _holds(line, epsilons):
    """Whether a line of several pieces has one through these and no others."""
    return (None, *epsilons, None) in {
        (None, *line.x)[start : start + len(epsilons) + 2] for start in range(len(line.x))
    }


def test_bad_first_epochs_do_not_stretch_the_axis_of_trajectories_and_the_caption_counts_them(small):
    def make(count):
        reached = {"t1": [0.8 + 0.1 * i / (count - 3) for i in range(count - 2)], "t2": [0.1, 0.85]}
        return small(
            [
                Point(trial=trial, epoch=epoch, values={"epsilon": 1.0 + 0.1 * i + epoch, "accuracy": value})
                for i, (trial, values) in enumerate(reached.items())
                for epoch, value in enumerate(values, start=1)
            ]
        )

    low, high = trajectories.plot(trajectories.info(make(20))).layout.yaxis.range
    assert 0.7 < low < 0.8 < 0.9 < high
    remarks = FIGURES["trajectories"].remarks
    assert "Some points lie outside the axes: 1 below, of 20 points." in remarks(make(20))
    gestures = FIGURES["trajectories"].gestures_here
    assert (gestures(make(20)), gestures(make(19))) == (" A double click shows what lies outside the axes.", "")
    low, high = trajectories.plot(trajectories.info(make(19))).layout.yaxis.range
    assert low < 0.1 < 0.9 < high, "more than 5 % of the points are not few"
    assert "outside" not in remarks(make(19))


def test_trajectories_are_lines_below_steps_and_few_trials_are_told_apart_by_colour_dash_and_name(sweep):
    whole = trajectories.info(replace(sweep, result=replace(sweep.result, stages=())))
    steps, *ways = (trace for trace in trajectories.plot(whole).data if trace.mode == "lines")
    assert (steps.name, steps.line.shape, {trace.line.shape for trace in ways}) == ("best accuracy", "hv", {None})
    few = replace(whole, trajectories=whole.trajectories[: trajectories.NAMED_TRIALS])
    best, *drawn = trajectories.plot(few).data
    paths = [trace for trace in drawn if trace.mode == "lines+markers" and trace.text]
    assert [path.line.shape for path in (best, *paths)] == ["hv", *[None] * len(paths)]
    assert len({path.line.color for path in paths}) == len({path.line.dash for path in paths}) == 5
    keys = [trace for trace in drawn if trace.showlegend and trace.mode == "lines+markers"]
    marked = [trace for trace in drawn if trace.mode == "markers" and trace.legendgroup]
    ids = [t.trial for t in few.trajectories]
    best_first = sorted(ids, key=lambda id_: (id_ != few.best.trial, id_))
    assert [key.name.partition(" at ")[0] for key in keys] == [f"{id_}, completed" for id_ in best_first]
    symbols = {key.name: key.marker.symbol for key in keys}
    assert {end.name: end.marker.symbol for end in marked} == symbols
    ring = f"{few.best.trial}, completed"
    assert {name for name, symbol in symbols.items() if symbol == "circle-open"} == {ring}, "around the star"
    assert few.best.epoch == next(t for t in few.trajectories if t.trial == few.best.trial).epochs[-1]
    best = replace(few.best, values=few.best.values | {"epsilon": 0.9 * few.best.values["epsilon"]})
    earlier = trajectories.plot(replace(few, best=best)).data
    assert {t.marker.symbol for t in earlier if t.showlegend and t.mode == "lines+markers"} == {"circle"}
    assert {path.name: path.line.color for path in paths} == {key.name: key.line.color for key in keys}


def test_the_axis_of_a_price_says_which_crosses_are_missing(sweep):
    info = price.info(sweep)
    first, second = info.values
    for values, said in (
        ((first, second), ""),
        ((first, replace(second, tested=())), "; without a cross: not tested"),
        ((replace(first, tested=()), replace(second, tested=())), ""),
    ):
        assert price.about_crosses(values) == said


def test_fronts_in_space_begin_near_heights_that_are_all_far_above_0(sweep):
    info = front3d.info(sweep)
    for lift, begins_below_0 in ((0.0, True), (0.5, False)):
        name = info.certificate
        points = [replace(p, values={**p.values, name: 0.4 * p.values[name] + lift}) for p in info.front]
        lines, _ = front3d.plot(replace(info, front=tuple(points))).data
        floor = min(z for z in lines.z if z is not None)
        assert (-0.05 < floor < 0.0) is begins_below_0, "marks at 0 are whole"
        assert floor < min(p.values[name] for p in points)


def test_lines_of_a_price_are_told_apart_without_colour(sweep):
    figure = FIGURES["price"].draw(sweep)
    lines = {trace.name: trace.line for trace in figure.data if trace.mode == "lines"}
    assert len({(line.dash, line.width) for line in lines.values()}) == len(lines) == 4
    for value in price.info(sweep).values:
        model = f"{100.0 * value.best.value:.1f} %, {value.best.trial}, epoch {value.best.epoch}"
        assert f"{value.name}, price {show_epsilon(sweep.result.price.epsilon)}: {model}" in lines
    crosses = [trace for trace in figure.data if trace.marker.symbol == "x"]
    assert [trace.name for trace in crosses] == ["", "", "these models on test rows (at the right)"]
    assert figure.layout.xaxis.ticktext[-1] == "test"
    assert figure.layout.yaxis.title.text == "rows decided correctly (validation)"
    last = {max(trace.x) for trace in figure.data if trace.mode == "lines"}
    paid = round(sweep.result.price.epsilon, 2)
    (border,) = {shape.x0 for shape in figure.layout.shapes if shape.x0 == shape.x1}
    assert last == {paid, border}, "to the price, or from there to the strip of test scores"


def test_every_step_of_a_line_over_epsilon_is_marked(sweep):
    info = robustness.info(sweep)
    for curve, trace in zip(info.curves, robustness.plot(info).data, strict=False):
        assert [size > 0 for size in trace.marker.size] == [*[True] * len(curve.steps), False]


def test_one_value_alone_has_room_around_it():
    assert zoom([0.9]) == pytest.approx([0.85, 0.95])


def test_the_front_beside_a_trial_that_ended_early_goes_to_the_right(sweep):
    info = trajectories.info(sweep)
    short = replace(info, trajectories=(replace(info.trajectories[0], epsilons=(1e-3,), values=(0.5,), epochs=(1,)),))
    (front,) = (trace for trace in trajectories.plot(short).data if trace.name == "best accuracy")
    assert list(front.x) == sorted(front.x)


def test_the_tenth_worker_comes_behind_the_second(sweep):
    info = workers.info(sweep)
    stays = tuple(replace(stay, worker=number) for stay, number in zip(info.stays, (10, 1, 2), strict=False))
    lanes = workers.plot(replace(info, stays=stays)).layout.yaxis.categoryarray
    assert [lane.rpartition(" ")[2] for lane in lanes] == ["10", "2", "1"], "from below"


def test_members_of_a_stack_are_lanes_of_one_worker(sweep):
    """A worker is a process: one that trains three trials at a time, and one that trains one after the other."""
    place = {"node": "head", "device": "cpu"}

    def row(number, process, status=TrialStatus.RUNNING):
        return Trial(id=f"t{number:04d}", config={}, placed={**place, "process": process}, status=status)

    rows = [row(1, "71"), row(2, "71"), row(3, "71"), row(4, "70"), row(4, "70", TrialStatus.COMPLETED), row(5, "70")]
    data = replace(sweep, trial_rows=tuple(rows))
    assert [row["worker"].removeprefix("head, cpu, ") for row in workers.FIGURE.numbers(data)] == [
        *(f"worker 1, member {member}" for member in (1, 2, 3)),
        *["worker 2"] * 2,
    ]
    assert "5 stays of trials with 2 workers" in workers.FIGURE.found(workers.info(data))


def test_trajectories_of_stages_are_told_apart_by_colour_and_width(sweep):
    figure = trajectories.plot(trajectories.info(sweep))
    lines = {
        trace.name: trace.line for trace in figure.data if trace.name.startswith("stage") and "lines" in trace.mode
    }
    assert {name.partition(",")[0] for name in lines} == {"stage 1", "stage 2", "stage 3"}
    for look in ("color", "width"):
        assert len({(name.partition(",")[0], line[look]) for name, line in lines.items()}) == 3
        assert len({line[look] for line in lines.values()}) == 3
    told = [trace for trace in trajectories.plot(trajectories.info(sweep)).data if trace.text and trace.legendgroup]
    ends = {trace.name.partition(", ")[2]: trace.marker.symbol for trace in told if trace.mode == "markers"}
    assert (ends["completed"], ends["stopped"]) == ("circle-open", "square-open"), "in every stage"
    assert {row["stage"] for row in trajectories.rows(trajectories.info(sweep))} == {1, 2, 3}


def _completed(data):
    trials = {id_: replace(trial, status=TrialStatus.COMPLETED) for id_, trial in data.result.trials.items()}
    return replace(data, result=replace(data.result, trials=trials))


@pytest.mark.parametrize(("stages", "names"), [((4, 1), ("explorers", "finals")), ((4, 3, 1), THREE_STAGES)])
def test_stages_of_noisy_scores_are_called_explorers_and_finals(sweep, stages, names):
    def make_noisy(point):
        is_final = point.trial > "t0019"
        return replace(point, noisy=NoisyScores(is_final=is_final, released={}, intervals={}))

    assert stage_names(sweep) == ("stage 1", "stage 2", "stage 3")
    noisy = tuple(map(make_noisy, sweep.points))
    data = replace(sweep, result=replace(sweep.result, points=noisy, stages=stages))
    assert stage_names(data) == names
    drawn = trajectories.plot(trajectories.info(_completed(data))).data
    paths = [trace for trace in drawn if trace.mode == "lines+markers" and trace.text]
    marks = {trace.name.partition(",")[0]: trace.marker.symbol for trace in paths}
    assert {name for name, symbol in marks.items() if symbol.endswith("-open")} == {*names[:-1]}
    for mode in ("markers", "lines+markers"):  # ends, and their entries in the legend
        ends = {trace.name: trace.marker.symbol for trace in drawn if trace.mode == mode and trace not in paths}
        assert {name: ends[name] for name in names} == {name: marks[name] for name in names}
    said = {line.name.partition(",")[0] for line in curves.plot(curves.info(data)).data if line.name}
    assert said == {*names}


def test_what_a_budget_buys_is_the_model_of_the_headline(small):
    def noisy(trial, epsilon, value, *, final):
        scores = NoisyScores(is_final=final, released={}, intervals={"accuracy": (value - 0.07, value + 0.07)})
        return Point(trial=trial, epoch=1, values={"epsilon": epsilon, "accuracy": value}, noisy=scores)

    data = small([noisy("t0001", 0.02, 0.785, final=False), noisy("t0002", 0.9, 0.749, final=True)])
    paid = Price(epsilon=1.0, delta=1e-5, events=2, statement="Price: epsilon 1.")
    info = price.info(replace(data, result=replace(data.result, ledger={"winner": paid})))
    (bought,) = info.values
    assert (bought.best.trial, bought.best.epsilon, bought.best.value) == ("t0002", 1.0, 0.749)
    assert [(step.epsilon, step.value) for step in bought.alone] == [(0.02, 0.785), (0.9, 0.749)]
    assert any("price 1: 74.9 % (67.9 to 81.9\xa0%), t0002" in (trace.name or "") for trace in price.plot(info).data)
    (bars,) = (trace.error_y for trace in price.plot(info).data if trace.mode == "markers" and trace.marker.size == 5)
    assert (bars.array, bars.arrayminus) == (pytest.approx((0.07, 0.07)), pytest.approx((0.07, 0.07)))


@pytest.mark.parametrize("is_noisy", [False, True])
def test_the_way_of_a_trial_passes_averages_of_its_weights_where_they_are_better_and_not_chosen_by_luck(
    small, is_noisy
):
    noise = NoisyScores(is_final=True, released={}, intervals={"accuracy": (0.0, 1.0)}) if is_noisy else None
    points = [
        Point(trial="a", epoch=epoch, values={"epsilon": epoch, "accuracy": score}, made_from=made_from, noisy=noise)
        for epoch, score, made_from in (
            (1, 0.7, "slow-midpoint"),
            (1, 0.6, ""),
            (2, 0.8, ""),
            (2, 0.75, "slow-midpoint"),
            (2, 0.85, "quick-midpoint"),
        )
    ]
    data = small([*points, Point(trial="b", epoch=1, values={"epsilon": 1, "accuracy": 0.1}, noisy=noise)])
    way, _ = trajectories.info(data).trajectories
    assert (way.epochs, way.epsilons) == ((1, 2), (1, 2))
    assert way.values == ((0.6, 0.8) if is_noisy else (0.7, 0.85))
    assert way.moments == (("1", "2") if is_noisy else ("1, slow-midpoint", "2, quick-midpoint"))
    said = FIGURES["trajectories"].remarks(data)
    assert "Lines pass the better of the last weights and averages" in said
    assert ("but for noisy scores the last weights" in said) is is_noisy
    assert "averages" not in FIGURES["trajectories"].remarks(small([one for one in points if not one.made_from]))


def test_how_sure_the_best_score_is_at_each_epsilon_is_a_band_around_it(small):
    points = [Point(trial="a", epoch=e, values={"epsilon": e, "accuracy": 0.5 + 0.1 * e}) for e in (1, 2)]
    info = trajectories.info(small(points))
    assert {step.interval for step in info.steps} == {None}
    assert not [trace for trace in trajectories.plot(info).data if "CI" in (trace.name or "")]
    known = replace(info, steps=tuple(replace(step, interval=(step.value - 0.1, 0.9)) for step in info.steps))
    low, high, *_ = trajectories.plot(known).data
    assert (low.x, low.y) == ((1, 2, 2 * 1.12), pytest.approx((0.5, 0.6, 0.6)))
    assert (high.y, high.fill, high.name) == ((0.9, 0.9, 0.9), "tonexty", "95 % CI of the best, ignoring selection")
    assert trajectories.plot(replace(known, narrow=True)).data[1].name == "95 % CI of the best"
    assert {trace.line.shape for trace in (low, high)} == {"hv"}


def test_curves_have_an_epoch_an_epsilon_and_the_interval_of_a_noisy_score_at_each_point(sweep, small):
    info = curves.info(sweep)
    assert len(info.curves) == 24
    drawn = curves.plot(info).data
    bars = [trace for trace in drawn if trace.error_y.array]
    spread = [curve for curve in info.curves if curve.deviations[-1]]
    assert [bar.error_y.array[0] for bar in bars] == pytest.approx([curve.deviations[-1] for curve in spread])
    assert len({bar.x for bar in bars}) == len(bars), "side by side"
    for curve, line in zip(info.curves, [trace for trace in drawn if trace not in bars], strict=True):
        assert (list(line.x), list(line.y), line.meta) == (list(curve.epochs), list(curve.values), curve.trial)
        assert [cell[0] for cell in line.customdata] == list(curve.epsilons)
        assert line.error_y.array is None
    noisy = NoisyScores(is_final=False, released={}, intervals={"accuracy": (0.4, 0.8)})
    data = small([Point(trial="t0001", epoch=1, values={"epsilon": 1.0, "accuracy": 0.7}, noisy=noisy)])
    (line,) = curves.plot(curves.info(data)).data
    assert line.customdata[0][2] == "70.0 % (40.0 to 80.0\N{NO-BREAK SPACE}%)"
    assert (line.error_y.array[0], line.error_y.arrayminus[0]) == pytest.approx((0.1, 0.3))
    (row,) = curves.rows(curves.info(data))
    assert (row["low"], row["high"]) == (0.4, 0.8)


def test_workers_have_their_trials_in_the_order_of_the_records_and_a_private_selection_has_none(sweep):
    info = workers.info(sweep)
    assert len(info.stays) == 24
    assert {(stay.place, stay.lane) for stay in info.stays} == {("head, cpu", f"worker {i}") for i in (1, 2)}
    for worker in (1, 2):
        own = [stay for stay in info.stays if stay.worker == worker]
        assert all(before.end <= after.stint.first for before, after in itertools.pairwise(own))
    drawn = workers.plot(info).data
    assert sum(len(trace.x) for trace in drawn) == 24
    assert all(length > 0 for trace in drawn for length in trace.x)
    assert {trial for trace in drawn for trial in trace.text} == {stay.stint.trial for stay in info.stays}
    assert {trace.textposition for trace in drawn} == {"inside"}
    private = replace(sweep.manifest, spec={"search": {"selection": "private"}})
    for manifest in (private, None):
        assert not workers.info(replace(sweep, manifest=manifest)).stays


def test_of_many_curves_of_one_stage_the_best_is_told_from_the_others(small):
    reached = {"t1": 0.6, "t2": 0.9, "t3": 0.7, "t4": 0.5, "t5": 0.8, "t6": 0.4}
    values = [{"epsilon": 1.0, "accuracy": value} for value in reached.values()]
    points = [Point(trial=trial, epoch=1, values=own) for trial, own in zip(reached, values, strict=True)]
    drawn = curves.plot(curves.info(small(points))).data
    assert [line.name for line in drawn] == [*["trials"] * 5, "t2, own epsilon 1, with the best point"]
    assert {line.name: line.line.color for line in drawn} == {
        "trials": LIGHT.blue,
        "t2, own epsilon 1, with the best point": LIGHT.orange,
    }


def test_many_curves_of_one_stage_have_the_colours_of_their_own_epsilons_where_these_differ(small):
    def drawn(epsilons):
        points = [
            Point(trial=f"t{i}", epoch=epoch, values={"epsilon": own * epoch / 2, "accuracy": 0.5 + 0.01 * i})
            for i, own in enumerate(epsilons)
            for epoch in (1, 2)
        ]
        return curves.plot(curves.info(small(points)))

    *lines, bar = drawn([8.0, 1.0, 2.0, 4.0, 1.0, 2.0, 8.0]).data
    colors = {line.meta: line.line.color for line in lines}
    assert (colors["t0"], colors["t1"], colors["t4"]) == (LIGHT.scale[0], LIGHT.scale[-1], LIGHT.scale[-1])
    assert len({colors["t1"], colors["t2"], colors["t3"], colors["t0"]}) == 4
    assert (colors["t6"], lines[-1].meta) == (LIGHT.ink, "t6"), "the best, above all others"
    assert [line.name for line in lines if line.showlegend] == ["t6, own epsilon 8, with the best point"]
    assert (bar.marker.cmin, bar.marker.cmax) == pytest.approx((0.0, log10(8.0)))
    assert {"1", "2", "5"} <= set(bar.marker.colorbar.ticktext)
    alike = drawn([2.0, 1.9, 2.0, 2.0, 1.9, 2.0, 2.0])
    assert {line.line.color for line in alike.data} == {LIGHT.blue, LIGHT.orange}


@pytest.mark.parametrize(("epochs", "ticks"), [(2, 1), (10, 1), (30, None)])
def test_ticks_of_epochs_are_whole_and_few_curves_have_a_colour_and_a_name_each(small, epochs, ticks):
    points = [
        Point(trial=trial, epoch=epoch, values={"epsilon": float(epoch), "accuracy": 0.5})
        for trial in ("t1", "t2")
        for epoch in range(1, epochs + 1)
    ]
    figure = curves.plot(curves.info(small(points)))
    assert figure.layout.xaxis.dtick == ticks
    assert ticks or epochs / figure.layout.xaxis.nticks >= 2
    assert [trace.name for trace in figure.data if trace.showlegend] == [
        f"{trial}, own epsilon {epochs}" for trial in ("t1", "t2")
    ]
    assert len({(trace.line.color, trace.marker.symbol) for trace in figure.data}) == 2


@pytest.mark.parametrize("name", ["architectures", "price", "stages", "trajectories"])
def test_bars_show_the_intervals_of_noisy_scores(sweep, name):
    def make_noisy(point):
        ends = {"accuracy": (point.values["accuracy"] - 0.1, point.values["accuracy"] + 0.1)}
        return replace(point, noisy=NoisyScores(is_final=False, released={}, intervals=ends))

    points = tuple(make_noisy(point) for point in sweep.points if point.epoch == 1)
    data = replace(sweep, result=replace(sweep.result, points=points))
    bars = [trace.error_y for trace in FIGURES[name].draw(data).data if trace.error_y.array is not None]
    assert bars
    assert max(above for bar in bars for above in bar.array if above is not None) == pytest.approx(0.1)


def test_few_trials_and_those_of_one_worker_have_no_lanes(sweep):
    assert is_empty(workers.FIGURE.draw(replace(sweep, trial_rows=sweep.trial_rows[:7])))  # of three trials
    began = [row for row in sweep.trial_rows if row.placed and row.status is TrialStatus.RUNNING]
    rows = [row for begun in began for row in (begun, replace(begun, status=TrialStatus.COMPLETED))]
    assert workers.FIGURE.numbers(replace(sweep, trial_rows=tuple(rows))) == []


def test_lanes_of_one_node_are_named_by_their_workers_and_the_axis_by_the_node(sweep):
    axis = workers.plot(workers.info(sweep)).layout.yaxis
    assert (axis.title.text, set(axis.ticktext)) == ("host head, device cpu", {"worker 1", "worker 2"})
    info = workers.info(sweep)
    other = replace(info.stays[0], place="second, cpu")
    assert workers.plot(replace(info, stays=(other, *info.stays[1:]))).layout.yaxis.ticktext is None


def test_a_trial_that_resumes_has_two_stays_and_one_that_runs_keeps_its_worker(sweep):
    place = {"node": "head", "device": "cuda"}
    again = [TrialStatus.RUNNING, TrialStatus.INTERRUPTED, TrialStatus.RUNNING]
    rows = [Trial(id="t0001", config={}, placed=place, status=status) for status in again]
    others = [Trial(id=f"t{i:04d}", config={}, placed={"node": "second", "device": "cuda"}) for i in (2, 3)]
    first, second, *more = workers.info(replace(sweep, trial_rows=(*rows, *others))).stays
    assert (first.stint.first, first.stint.last, second.stint.first, second.stint.last) == (0, 1, 2, None)
    assert second.end > second.stint.first
    assert (first.place, first.worker) == (second.place, second.worker)
    assert len({(stay.place, stay.worker) for stay in (second, *more)}) == 3
    alone = [replace(one, id=f"t{i:04d}") for i, one in enumerate(others * 2)]
    assert not workers.info(replace(sweep, trial_rows=tuple(alone))).stays, "a trial for each worker"


def test_a_trial_that_waits_for_its_turn_does_not_run_on_its_worker(sweep):
    placed = {"node": "head", "device": "cpu"}
    own = [replace(sweep.recorded[id_], status=TrialStatus.RUNNING, placed=placed) for id_ in list(sweep.trials)[:3]]
    trials = {one.id: replace(sweep.trials[one.id], status="running") for one in own}
    drawn = frozenset([own[0].id])
    rows = tuple(row for row in sweep.trial_rows if row.id not in trials)
    sweep = replace(sweep, result=replace(sweep.result, trials=sweep.trials | trials), drawn=drawn)
    ways = {SweepStatus.RUNNING: ["running", "waiting", "waiting"], SweepStatus.STOPPED: ["lost", *["never begun"] * 2]}
    for status, expected in ways.items():
        data = replace(sweep, trial_rows=(*rows, *own), manifest=replace(sweep.manifest, status=status))
        info = workers.info(data)
        stays = {stay.stint.trial: stay.stint.status for stay in info.stays}
        assert [stays[one.id] for one in own] == expected
        assert {trace.name for trace in workers.plot(info).data} == set(stays.values())


def test_of_a_huge_sweep_the_trials_of_the_front_are_drawn_and_others_evenly(small):
    points = [
        Point(trial=f"t{i:04d}", epoch=1, values={"epsilon": 1.0, "accuracy": 0.9 if i in (7, 499) else 0.5})
        for i in range(500)
    ]
    info = trajectories.info(small(points))
    drawn = [int(t.trial[1:]) for t in info.trajectories]
    assert len(drawn) == trajectories.DRAWN_TRIALS
    assert {7, 499} < set(drawn)
    assert drawn == sorted(drawn)
    assert max(b - a for a, b in itertools.pairwise(drawn)) <= 4


def test_rungs_that_a_trial_passed_are_rings_with_their_reason(sweep):
    went_on = {"trial": "t0000", "epoch": 3, "goes_on": True, "reason": "rank 1 of <3>: goes on"}
    ended = {"trial": "t0005", "epoch": 8, "goes_on": False, "reason": "rank 11 of 12"}
    data = replace(sweep, decisions=(went_on | {"reason": "asked first"}, went_on, ended))
    info = trajectories.info(data)
    (rungs,) = (trace for trace in trajectories.plot(info).data if trace.name == "continued after a decision")
    first = next(t for t in info.trajectories if t.trial == "t0000")
    assert (list(rungs.x), list(rungs.y)) == ([first.epsilons[2]], [first.values[2]])
    assert "rank 1 of &lt;3&gt;: goes on" in rungs.text[0]
    rows = {(row["trial"], row["epoch"]): row for row in trajectories.rows(info)}
    assert rows["t0005", 8]["decision"] == "rank 11 of 12"
    assert rows["t0000", 3]["decision"] == "rank 1 of <3>: goes on"
    assert rows["t0000", 2]["decision"] == ""


def test_hypervolume_counts_the_epochs_that_were_paid_for_and_never_falls(sweep):
    info = hypervolume.info(sweep)
    assert info.trials == tuple(sweep.trials)
    assert list(info.values) == sorted(info.values)
    whole = measure(sweep.points, sweep.result.objectives, sweep.result.box)
    assert info.values[-1] == pytest.approx(whole, rel=1e-12)
    info = hypervolume.info(sweep)
    assert info.counts == tuple(range(1, 25))
    assert info.epochs[-1] == len(sweep.points)
    assert hypervolume.rows(info)[5]["epochs"] == 5 * 20 + 8  # the sixth was stopped


def test_of_three_trials_no_curve_says_whether_more_would_help(small):
    points = [Point(trial=f"t{i}", epoch=1, values={"epsilon": 1.0 + i, "accuracy": 0.5 + 0.1 * i}) for i in range(4)]
    assert is_empty(FIGURES["hypervolume"].draw(small(points[:3])))
    assert hypervolume.info(small(points)).counts == (1, 2, 3, 4)
    with pytest.raises(EmptyFigureError, match="Expected 4 trials with points for the figure hypervolume, found 3;"):
        refuse(FIGURES, FIGURES["hypervolume"], small(points[:3]))


def test_the_hypervolume_of_noisy_scores_has_its_interval(small):
    ends = {"accuracy": (0.5, 0.9)}
    noise = NoisyScores(is_final=True, released={}, intervals=ends)
    points = [
        Point(trial=f"t{i}", epoch=1, values={"epsilon": 1.0 + i, "accuracy": 0.7}, noisy=noise) for i in range(4)
    ]
    data = small(points)
    low, high = data.result.hypervolume_interval
    *before, last = hypervolume.rows(hypervolume.info(data))
    assert (last["low"], last["high"]) == (low, high)
    assert {row["low"] for row in before} == {None}
    _, whole, *_ = hypervolume.plot(hypervolume.info(data)).data
    (value,) = whole.y
    assert (value - whole.error_y.arrayminus[0], value + whole.error_y.array[0]) == pytest.approx((low, high))
    assert hypervolume.info(small([replace(point, noisy=None) for point in points])).interval is None


def test_the_hypervolume_of_public_scores_has_the_ends_of_all_scores(small):
    points = [Point(trial=f"t{i}", epoch=1, values={"epsilon": 1.0 + i, "accuracy": 0.5 + 0.1 * i}) for i in range(4)]
    data = small(points, objectives=("epsilon", "accuracy"))
    assert hypervolume.info(data).interval is None, "nobody knows of how many rows"
    baselines = replace(data.result.claim.baselines, rows={"validation": 261})
    claim = replace(data.result.claim, baselines=baselines, evaluation="public", unit="row")
    data = replace(data, result=replace(data.result, claim=claim))
    info = hypervolume.info(data)
    for found, end in zip(info.interval, (0, 1), strict=True):
        moved = [replace(p, values=p.values | {"accuracy": wilson(p.values["accuracy"], 261)[end]}) for p in points]
        assert found == pytest.approx(measure(moved, data.result.objectives, data.result.box), rel=1e-12)
    assert info.interval[0] < info.values[-1] < info.interval[1]
    assert "bar: range, all scores at an end of their 95 % CI" in [trace.name for trace in hypervolume.plot(info).data]
    assert hypervolume.plot(info).layout.xaxis.title.text.replace("<br>", " ").count("sampling error not shown") == 0


def test_the_picture_of_a_hypervolume_says_what_it_is_a_share_of_and_what_the_sweep_costs(sweep):
    info = hypervolume.info(sweep)
    axis, *box, paid = hypervolume.plot(info).layout.xaxis.title.text.split("<br>")
    assert axis == "trials, in the order of their proposals"
    said = " ".join(box).replace("\xa0", " ")
    assert said.startswith("box: own epsilon (0.01 to 100, log), accuracy and certified accuracy at radius")
    price = f"delta = 1e-4; price of the sweep: {show_epsilon(sweep.result.price.epsilon)}"
    assert paid == f"validation scores, their sampling error not shown; {price}"
    known = replace(info, scores="25 validation rows, 95 % CI ≤ ±20 points, ignoring selection")
    assert hypervolume.plot(known).layout.xaxis.title.text.endswith(
        f"<br>scores of 25 validation rows, their sampling error not shown; {price}"
    )


def test_rows_that_choose_a_front_flatter_its_hypervolume_and_a_cross_says_by_how_much(sweep):
    def scored(change):
        points = tuple(
            replace(p, test=p.values | {"epsilon": 0.0, "accuracy": p.values["accuracy"] - 0.1}) for p in sweep.points
        )
        return replace(sweep, result=replace(sweep.result, points=tuple(map(change, points))))

    data = scored(lambda point: point)
    info = hypervolume.info(data)
    lower = [replace(p, values=p.values | {"accuracy": p.values["accuracy"] - 0.1}) for p in data.front_points]
    assert info.on_test == pytest.approx(measure(lower, data.result.objectives, data.result.box), rel=1e-12)
    assert 0.0 < info.on_test < info.values[-1], "the own epsilon is no score: it is the same on all rows"
    figure = hypervolume.plot(info)
    assert (figure.data[-1].marker.symbol, list(figure.data[-1].x)) == ("x", [24.25])
    assert [row["on_test"] for row in hypervolume.rows(info)] == [None] * 23 + [info.on_test]
    assert "Crosses: what the models of the front have on test rows" in hypervolume.FIGURE.remarks(data)
    last = data.front_points[-1].key
    noisy = NoisyScores(is_final=True, released={"accuracy": 0.5}, intervals={"accuracy": (0.4, 0.6)})
    for change in (
        lambda point: replace(point, test=None) if point.key == last else point,
        lambda point: replace(point, noisy=noisy) if point.key == last else point,
    ):
        info = hypervolume.info(scored(change))
        assert info.on_test is None
        assert not [trace for trace in hypervolume.plot(info).data if trace.marker.symbol == "x"]


def test_scales_of_near_values_have_ticks_that_differ():
    assert color_bar("AUROC", [0.87, 0.9])["tickformat"] == ".1%"
    assert color_bar("accuracy", [0.5, 0.9])["tickformat"] == color_bar("share")["tickformat"] == ".0%"


def test_a_long_title_of_an_axis_takes_two_lines_on_a_page(sweep):
    info = replace(
        price.info(sweep),
        epsilon_title=f"{price.info(sweep).epsilon_title}; price not proven; without a cross: not tested",
    )
    lines = price.plot(info).layout.xaxis.title.text.split("<br>")
    assert max(map(len, lines)) <= 105
    assert len(lines) == 2


def test_figures_say_that_a_price_is_not_proven(sweep):
    proven = sweep.result.ledger["winner"]
    doubted = {name: replace(one, unproven="results steer it") for name, one in sweep.result.ledger.items()}
    data = replace(sweep, result=replace(sweep.result, ledger=doubted))
    said = f"price of the sweep: {show_epsilon(proven.epsilon)} (not proven)"
    for name in ("front", "caught", "robustness", "trajectories", "hypervolume"):
        assert said in str(FIGURES[name].draw(data).layout.xaxis.title.text).replace("<br>", " ")
        assert "not proven" not in str(FIGURES[name].draw(sweep).to_json())
    assert "; price not proven" in FIGURES["price"].draw(data).layout.xaxis.title.text


def test_without_a_certificate_there_is_no_figure_of_radii(small):
    assert is_empty(
        FIGURES["robustness"].draw(small([Point(trial="t", epoch=1, values={"epsilon": 1.0, "accuracy": 0.5})]))
    )


def test_of_many_trials_the_hypervolume_is_measured_so_often_and_no_oftener(small, monkeypatch):
    count = 1001
    values = [{"epsilon": 1.0, "accuracy": i / (2 * count)} for i in range(count)]
    data = small([Point(trial=f"t{i:04d}", epoch=1, values=v) for i, v in enumerate(values)])
    measured = []
    monkeypatch.setattr(dominance, "volume", lambda rows: measured.append(len(rows)) or float(len(measured)))
    info = hypervolume.info(data)
    assert len(measured) == hypervolume.DRAWN_STEPS  # every step brought a better point
    assert max(measured) == 1  # and was measured on the front alone
    assert info.counts[-1] == count
    assert list(info.counts) == sorted(set(info.counts))


def test_only_what_differs_between_trials_has_an_axis(sweep):
    info = configurations.info(sweep)
    names = [axis.name for axis in info.axes]
    assert names[-3:] == ["epsilon", "accuracy", "certified@0.25"]
    assert "training.method" not in names
    assert {"model.architecture", "model.patch", "training.loss.temperature"} <= set(names)
    assert all(len(axis.positions) == len(info.trials) == 24 for axis in info.axes)


def test_a_wide_range_is_logarithmic_many_values_get_five_ticks_and_touching_ones_are_one(axes_of):
    axes = axes_of({"rate": 0.001, "width": 64}, {"rate": 1.0, "width": 128})
    assert axes["rate"].positions == pytest.approx((-3.0, 0.0))
    assert axes["width"].positions == (64.0, 128.0)
    assert axes["width"].tick_texts == ("64", "128")
    axes = axes_of(*({"width": 10.0 + i} for i in range(9)))
    assert axes["width"].tick_positions == (10.0, 12.0, 14.0, 16.0, 18.0)
    assert axes_of(*({"rate": 10.0**-i} for i in range(9)))["rate"].tick_texts[0] == "1e-8"
    axis = axes_of({"rate": 0.001}, {"rate": 0.00102}, {"rate": 0.05})["rate"]
    assert axis.tick_texts == ("0.001", "0.05")
    assert len(axis.positions) == 3


def test_categories_are_sorted_and_a_missing_one_has_its_place(axes_of):
    axes = axes_of({"loss": "hkr", "alpha": 2.0}, {"loss": "cce"}, {"loss": "cce", "alpha": 4.0})
    assert axes["loss"].tick_texts == ("cce", "hkr")
    assert axes["loss"].positions == (1.0, 0.0, 0.0)
    assert axes["alpha"].positions[1] < 2.0
    assert axes["alpha"].tick_texts[0] == MISSING


@pytest.mark.parametrize("values", [(True, False), ("a", 1), (inf, 1.0), ([1], [2])])
def test_what_is_no_plain_number_is_a_category(axes_of, values):
    axes = axes_of(*({"x": value} for value in values))
    assert sorted(axes["x"].positions) == [0.0, 1.0]


def test_names_are_short_where_they_stay_distinct(axes_of):
    labels = {
        a.name: a.label
        for a in axes_of(
            {"privacy": {"epsilon": 1.0}, "a": {"width": 1}}, {"privacy": {"epsilon": 2.0}, "a": {"width": 2}}
        ).values()
    }
    assert labels == {
        "privacy.epsilon": "privacy.epsilon",
        "a.width": "width",
        "epsilon": "own epsilon",
        "accuracy": "accuracy",
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_in_both_themes_and_survives_an_empty_sweep(sweep, small, name):
    for theme in (LIGHT, DARK):
        assert not is_empty(FIGURES[name].draw(sweep, theme))
        assert is_empty(FIGURES[name].draw(small([]), theme))
    assert has_content(FIGURES[name], sweep)
    assert not has_content(FIGURES[name], small([]))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_of_an_exploratory_sweep_is_watermarked_and_no_other(exploratory_sweep, sweep, name):
    assert WATERMARK in [a.text for a in FIGURES[name].draw(exploratory_sweep, LIGHT).layout.annotations]
    assert WATERMARK not in [a.text for a in FIGURES[name].draw(sweep, LIGHT).layout.annotations]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FIGURES)
def test_no_figure_lets_a_name_become_markup(make_front, load, name):
    front = make_front(name="<b>x</b><script>")
    front["points"] = [p | {"trial": "<i>" if p["trial"] == "t0000" else p["trial"]} for p in front["points"]]
    front["trials"]["<i>"] = front["trials"].pop("t0000") | {"reason": "<u>", "status": "failed"}
    text = str(as_json(FIGURES[name].draw(load(front), LIGHT)))
    assert not re.search(r"<(i|u|script)>|<b>x", text)
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_numbers_as_flat_rows(sweep, small, name):
    rows = FIGURES[name].numbers(sweep)
    assert rows
    assert all(row.keys() == rows[0].keys() for row in rows)
    assert all(isinstance(value, str | int | float | None) for row in rows for value in row.values())
    assert FIGURES[name].numbers(small([])) == []


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FIGURES)
def test_the_dark_figure_is_the_light_one_with_colours_exchanged(sweep, name):
    colors = exchange(LIGHT, DARK)

    def repaint(value):
        match value:
            case str():
                return colors.get(value, value)
            case dict():
                return {key: repaint(inner) for key, inner in value.items()}
            case list() | tuple():
                return [repaint(inner) for inner in value]
        return value

    def plain(value):
        match value:
            case dict():
                return {key: plain(inner) for key, inner in value.items()}
            case list() | tuple():
                return [plain(inner) for inner in value]
        return value

    assert repaint(as_json(FIGURES[name].draw(sweep, LIGHT))) == plain(as_json(FIGURES[name].draw(sweep, DARK)))


def test_no_colour_of_a_theme_has_two_names():
    assert len(set(LIGHT.colors())) == len(LIGHT.colors()) == len(exchange(LIGHT, DARK))


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_can_be_read(theme):
    paper = luminance(theme.paper)

    def contrast(color):
        low, high = sorted((paper, luminance(color)))
        return (high + 0.05) / (low + 0.05)

    assert contrast(theme.ink) > 12
    assert contrast(theme.muted) > 4.5
    assert min(map(contrast, (theme.blue, theme.orange, theme.green, theme.purple, theme.red))) > 4
    strengths = [contrast(color) for color in theme.scale]
    assert strengths == sorted(strengths)  # larger values stand out more, in print too


def test_an_axis_has_the_ticks_that_people_quote_however_wide_it_is():
    info = FigureInfo(title="", epsilon_title="own epsilon", exploratory=False)
    assert epsilon_axis(info, [0.5, 10.0])["ticktext"] == ["0.5", "1", "2", "3", "5", "8", "10"]
    assert log_ticks([1e-3, 1e4])["tickvals"] == pytest.approx([10.0**k for k in range(-3, 5)])
    assert epsilon_axis(info, [2.1, 2.8])["ticktext"] == ["2.2", "2.4", "2.6", "2.8"]
    assert epsilon_axis(info, [1.1, 2.8])["ticktext"] == ["1.5", "2", "2.5"]
    assert log_ticks([nan, inf, 0.0]) == {}
    for alone in (0.032, 1.202, 2.0, 97.0):
        assert len(log_ticks([alone])["ticktext"]) >= 3


def test_a_logarithmic_epsilon_axis_says_that_it_is_one(sweep):
    title = "own epsilon (fixed in advance, log), delta"
    for name in ("front", "price", "trajectories", "robustness"):
        figure = FIGURES[name].draw(sweep)
        assert ", log" in figure.layout.xaxis.title.text
        assert "log" not in linear_epsilon(figure).layout.xaxis.title.text
    assert FIGURES["front"].draw(sweep).layout.xaxis.title.text.startswith(title)
    scene = FIGURES["front-3d"].draw(sweep)
    assert scene.layout.scene.xaxis.title.text == "own epsilon, log"
    assert linear_epsilon(scene).layout.scene.xaxis.title.text == "own epsilon"


def test_an_axis_begins_and_ends_with_what_is_shown():
    info = FigureInfo(title="", epsilon_title="own epsilon", exploratory=False)
    axis = epsilon_axis(info, [0.01, 100.0], shown=[1.0, 8.0])
    assert axis["range"] == log_ticks([1.0, 8.0])["range"]
    assert {"0.1", "1", "5", "10", "100"} <= set(axis["ticktext"])


@pytest.mark.parametrize("name", ["front", "trajectories", "robustness"])
def test_what_a_figure_says_of_a_noisy_score_has_its_interval(sweep, name):
    def noisy(point):
        ends = {one: (value - 0.03, value + 0.03) for one, value in point.values.items() if one != "epsilon"}
        return replace(point, noisy=NoisyScores(is_final=False, released={}, intervals=ends))

    data = replace(sweep, result=replace(sweep.result, points=tuple(map(noisy, sweep.points))))
    texts = [text for trace in FIGURES[name].plot(FIGURES[name].info(data)).data for text in _texts(trace)]
    scores = [text for text in texts if "accuracy" in text]
    assert scores
    assert all(re.search(r"\([\d.]+ to [\d.]+\xa0%\)", text) for text in scores)


def _texts(trace):
    """What is said of the marks of a trace, one by one."""
    return [] if trace.text is None or isinstance(trace.text, str) else [str(text) for text in trace.text if text]


def shown_in(value, path=()):
    """Yield what a figure shows as text, with its place, but for what a reader never sees."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("template", "meta", "marker"):
                yield from shown_in(inner, (*path, key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from shown_in(inner, path)


# A price, an epsilon that a trial was asked for, and the epsilon of either kind that is paid, are no own epsilons.
OTHER_EPSILONS = re.compile(r"own epsilon|price: epsilon|privacy\.epsilon|epsilon paid|no later epsilon")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FIGURES)
def test_the_epsilon_of_a_point_is_called_its_own(sweep, name):
    figure = as_json(FIGURES[name].draw(sweep))
    texts = [text.replace("<br>", " ") for _, text in shown_in(figure)]  # wherever a line is broken
    assert [text for text in texts if "epsilon" in OTHER_EPSILONS.sub("", text)] == []


@pytest.mark.long
def test_a_figure_of_a_notebook_has_room_for_each_row_of_its_legend():
    named = [{"type": "scatter", "y": [1, 2], "name": "a name of thirty characters, no"} for _ in range(4)]
    for width, rows in ((1200, 1), (700, 2), (420, 4)):
        figure = NotebookFigure(data=named, layout={"width": width, "height": 500})
        html = figure._repr_mimebundle_()["text/html"]
        more = (rows - 1) * 19
        assert (f'"margin":{{"t":{64 + more}}}' in html) == (rows > 1)
        assert f'"height":{500 + more}' in html
    assert figure.layout.height == 500


def test_a_title_has_the_name_of_the_data_where_that_of_the_sweep_has_not(sweep):
    named = {name: replace(sweep, result=replace(sweep.result, sweep=name)) for name in ("digits-3", "mine")}
    titles = {name: FIGURES["front"].draw(data).layout.title.text.partition(":")[0] for name, data in named.items()}
    assert titles == {"digits-3": "digits-3", "mine": f"mine ({sweep.result.claim.data})"}
