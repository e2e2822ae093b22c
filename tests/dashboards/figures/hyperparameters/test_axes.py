"""Axes of hyperparameters: their scale, their ends and their ticks."""

import re
from dataclasses import replace
from math import log10, nan

import numpy as np
import pytest

from dashboards.figures import LIGHT
from dashboards.figures.hyperparameters import _content, configurations, contours, ranks, slices
from dashboards.figures.hyperparameters._axes import declared_ranges, make_axis
from dashboards.figures.hyperparameters._compared import compare
from dashboards.figures.hyperparameters._judged import judge
from dashboards.text import show_epsilon
from sweeper.records import Point, Trial
from sweeper.results.importance import Importance
from sweeper.specification.fields.ranges import Range
from sweeper.store.manifest import Manifest

SPEC = {
    "training": {"rate": {"log": [0.05, 0.5]}, "batch": {"int": [16, 512], "step": 16}, "epochs": 20},
    "model": [{"architecture": "mlp", "width": {"log_int": [32, 64]}}, {"width": {"log_int": [64, 512]}}],
}


def test_ranges_are_read_from_the_spec_and_joined_over_its_choices():
    assert declared_ranges(SPEC) == {
        "training.rate": Range(low=0.05, high=0.5, log=True),
        "training.batch": Range(low=16, high=512),
        "model.width": Range(low=32, high=512, log=True),
    }
    assert declared_ranges({"search": {"first": [{"log": "no range"}]}}) == {}


def test_an_axis_has_the_scale_and_the_ends_of_its_range():
    axis = make_axis("rate", "rate", [0.06, 0.4], Range(low=0.05, high=0.5, log=True))
    assert (axis.ends, axis.title) == ((log10(0.05), log10(0.5)), "rate (log)")
    assert axis.tick_texts == ("0.05", "0.1", "0.2", "0.5")
    axis = make_axis("batch", "batch", [17, 501], Range(low=16, high=512))
    assert (axis.ends, axis.title, axis.tick_texts) == ((16, 512), "batch", ("16", "100", "200", "300", "400", "512"))
    outside = make_axis("rate", "rate", [0.01, 0.4], Range(low=0.05, high=0.5, log=True))
    assert outside.ends == (log10(0.01), log10(0.5))


@pytest.mark.parametrize("name", ["accuracy", "certified@0.25", "auroc"])
def test_a_score_is_never_on_a_logarithmic_axis(name):
    axis = make_axis(name, name, [0.01 * i for i in range(1, 61)])
    assert not axis.logarithmic
    assert axis.positions[0] == 0.01
    assert axis.tick_texts == ("1%", "20%", "40%", "60%")


def test_listed_numbers_that_are_each_as_many_times_the_one_before_have_a_logarithmic_axis():
    axis = make_axis("width", "width", [128, 32, 64, 32])
    assert (axis.ends, axis.title, axis.tick_texts) == ((log10(32), log10(128)), "width (log)", ("32", "64", "128"))
    for others in ([32, 64], [32, 64, 96], [18, 19, 20], [0, 32, 64], [32, 32]):
        assert not make_axis("width", "width", others).logarithmic
    assert not make_axis("width", "width", [32, 64, 128], Range(low=32, high=128)).logarithmic
    assert not make_axis("accuracy", "accuracy", [0.2, 0.4, 0.8]).logarithmic


def test_own_epsilons_at_an_axis_are_rounded_up():
    assert make_axis("epsilon", "own epsilon", [3.73001, 4.2487]).tick_texts == ("3.731", "4.249")


def test_what_differs_by_rounding_alone_has_no_axis(sweep):
    info = configurations.info(sweep)
    noise = tuple(2.975 + 4e-15 * i for i in range(len(info.trials)))
    axes = tuple(replace(axis, values=noise) if axis.name == "epsilon" else axis for axis in info.axes)
    (lines,) = configurations.plot(replace(info, axes=axes)).data
    assert len(lines.dimensions) == len(info.axes) - 1


@pytest.mark.long
def test_names_of_a_picture_stand_level_as_long_as_there_is_room(sweep):
    info = configurations.info(sweep)
    few = configurations.plot(replace(info, still=True)).layout.xaxis
    assert few.tickangle == 0
    assert "learning_<br>rate<br>(log)" in few.ticktext
    assert "certified<br>@0.25" in few.ticktext
    many = configurations.plot(replace(info, still=True, axes=info.axes * 3)).layout.xaxis
    assert many.tickangle < 0
    assert not any("<br>" in name for name in many.ticktext)


def test_figures_of_a_sweep_follow_its_spec(sweep):
    plain = {axis.name: axis.logarithmic for axis in configurations.info(sweep).axes}
    assert not plain["training.batch_size"]
    spec = {"training": {"batch_size": {"log_int": [64, 512]}, "learning_rate": {"uniform": [0.001, 1.0]}}}
    manifest = sweep.manifest
    assert isinstance(manifest, Manifest)
    found = slices.info(replace(sweep, manifest=replace(manifest, spec=spec)))
    declared = {axis.name: axis for axis in found.axes}
    assert declared["training.batch_size"].logarithmic
    assert declared["training.batch_size"].ends == (log10(64), log10(512))
    assert not declared["training.learning_rate"].logarithmic


@pytest.mark.long
def test_a_picture_has_a_line_for_each_trial_through_every_axis(sweep):
    kind, info = configurations.FIGURE, configurations.info(sweep)
    (words,) = (note.text for note in kind.draw(sweep, still=True).layout.annotations if note.name == "terms")
    assert "lines of one value lie side by side" in words.replace("<br>", " ")
    assert "side by side" not in str(kind.draw(sweep).layout), "lines that can be dragged do not"
    *drawn, bar, ticks, first = kind.draw(sweep, still=True).data
    lines = [line for line in drawn if line.showlegend is False]
    assert (first.name, first.line.dash) == ("best score: t0003, own epsilon 4.21", "solid")
    assert len(ticks.x) == sum(len(axis.tick_texts) for axis in info.axes)
    notes = [note for note in kind.draw(sweep, still=True).layout.annotations if 0.0 <= (note.y or 0.0) <= 1.0]
    notes = [note for note in notes if note.name is None and note.showarrow is False]
    assert {note.x for note in notes} == set(range(len(info.axes)))
    for text in notes:
        assert (text.font.color, text.bgcolor, text.borderpad) == (LIGHT.ink, LIGHT.paper, 0), "lines pass behind it"
        beyond = 9 * ((text.y == 1.0) - (text.y == 0.0))
        assert text.yshift in ([beyond] if beyond else [-9, 0, 9]), "the best and the worst line run along ends of axes"
        assert text.xanchor == ("center" if beyond else "right")
    assert len(lines) == len(info.trials)
    assert all(len(line.y) == len(info.axes) and all(-0.03 <= y <= 1.03 for y in line.y) for line in lines)
    assert {line.y[-2] for line in lines} == {(c - min(info.colors)) / np.ptp(info.colors) for c in info.colors}
    assert bar.marker.color == judge(info).ends
    names = kind.draw(sweep, still=True).layout.xaxis.ticktext
    unbroken = [name.replace("<br>(", " (").replace("<br>", "") for name in names]
    assert [name.replace(" ", "") for name in unbroken] == [axis.title.replace(" ", "") for axis in info.axes]


def test_each_figure_has_a_title_of_its_own_and_counts_what_it_leaves_out(sweep):
    drawn = [kind.FIGURE.draw(sweep).layout.title.text for kind in (configurations, slices, contours, ranks)]
    assert [title.replace("\N{NO-BREAK SPACE}", " ") for title in drawn] == [
        "digits: configurations and their best points",
        "digits: best accuracy by hyperparameter, 4 of 8",
        "digits: best accuracy by hyperparameter pair, 2 of 28 pairs",
        "digits: order in accuracy by hyperparameter pair, 3 of 28 pairs",
    ]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", [configurations, slices, contours, ranks])
def test_the_picture_says_of_what_its_marks_are_the_best_and_what_a_model_costs(sweep, kind):
    for narrow in (False, True):
        notes = kind.FIGURE.draw(sweep, narrow=narrow, still=True).layout.annotations
        (terms,) = (note for note in notes if note.name == "terms")
        said = terms.text.replace("<br>", " ")
        begins = re.match(r"best point of each of (24|17) trials, own epsilon ", said)
        assert begins, said
        assert f"price of the sweep: {show_epsilon(sweep.result.price.epsilon)}" in said
        assert "delta = 1e-4" in said
    ends, grow, _ = said.removeprefix(begins[0]).partition(", and a larger one raises scores;")
    assert grow
    low, high = ends.split(" to ")
    reached = [values["epsilon"] for values in compare(sweep, one_noise=kind in (contours, ranks)).reached.values()]
    assert (low, high) == (show_epsilon(min(reached)), show_epsilon(max(reached)))


def test_nothing_is_filled_in_between_two_values(sweep):
    two = "model.patch"
    losses = {two: 0.9, "model.width": 0.5, "training.learning_rate": 0.4}
    data = replace(sweep)
    data.__dict__["importances"] = (Importance("accuracy", 0.5, losses),)
    assert two in {axis.name for pair in ranks.info(data).shown for axis in pair}
    assert {axis.name for pair in contours.info(data).shown for axis in pair} & losses.keys() == losses.keys() - {two}


def test_each_trial_stands_at_its_best_point_that_of_averaged_weights_too(small):
    points = [
        Point(trial=trial, epoch=epoch, made_from=made_from, values={"epsilon": float(epoch), "accuracy": accuracy})
        for trial, epoch, made_from, accuracy in (
            ("a", 1, "", 0.7),
            ("a", 2, "", 0.9),
            ("a", 3, "", 0.8),
            ("b", 1, "", 0.6),
            ("b", 2, "slow-midpoint", 0.65),
            ("b", 3, "", 0.65),
        )
    ]
    trials = tuple(Trial(id=id_, config={"training": {"epochs": i}}) for i, id_ in enumerate("ab"))
    info = configurations.info(small(points, trials=trials))
    assert info.colors == (0.9, 0.65)
    assert [row["epsilon"] for row in configurations.rows(info)] == [2.0, 2.0]  # of equals the cheaper one
    assert "best point" in configurations.FIGURE.caption


def test_the_lines_of_the_best_trials_stand_out_in_a_picture(with_configs):
    data = with_configs(*({"training": {"rate": 0.1 + i / 10}} for i in range(20)))
    info = configurations.info(data)
    found = replace(info, still=True, sure=(sorted(info.colors)[-2], max(info.colors)))
    drawn = configurations.plot(found).data
    lines = [trace for trace in drawn if trace.mode == "lines" and trace.showlegend is False]
    *_, first, second = (trace for trace in drawn if trace.mode == "lines")
    assert (first.line.width, second.name) == (2.6, "second: t18, own epsilon 19")
    assert first.name.replace("\N{NO-BREAK SPACE}", " ") == "best score: t19, 69.0 % (68.0 to 69.0 %), own epsilon 20"
    widths = [(line.line.width, line.opacity) for line in lines]
    assert len(lines) == 20
    opacities = [opacity for _, opacity in widths[:18]]
    assert {width for width, _ in widths[:18]} == {1.2}, "the two best of 20 are drawn last, on top"
    assert sorted(opacities) == [0.25] * 4 + [0.85] * 14, "of 16 that have rivals none is behind"
    assert _clear_in_words(found) == "clear: the 16 lines at most 0 points behind"
    behind = replace(found, behind=tuple(i / 1000 + 1e-7 for i in range(20)))
    assert _clear_in_words(behind) == "clear: the 12 lines at most 1.11 points behind"
    assert _clear_in_words(replace(found, behind=())) == "clear: the 12 lines from 58.0 % on"
    assert widths[18:] == [(2.6, 1.0)] * 2 > widths[:2]
    assert [line.y[-1] for line in lines[18:]] == pytest.approx([18 / 19, 1.0])
    assert ("star",) not in [trace.marker.symbol for trace in drawn], "stars are for what was rehearsed and trained"


def _clear_in_words(info):
    (terms,) = (note.text for note in configurations.plot(info).layout.annotations if note.name == "terms")
    return next(part for part in terms.replace("<br>", " ").split("; ") if "clear" in part)


def test_all_lines_have_colours_whatever_their_epsilons(small):
    ends = [(0.4, 0.3), (0.9, 0.2), (1.0, 0.6), (2.0, 0.9)]
    points = [
        Point(trial=f"t{i}", epoch=1, values={"epsilon": epsilon, "accuracy": score})
        for i, (epsilon, score) in enumerate(ends)
    ]
    configs = [Trial(id=f"t{i}", config={"rate": 0.1 * (i + 1)}) for i in range(len(ends))]
    info = configurations.info(small(points, objectives=("epsilon", "accuracy"), trials=tuple(configs)))
    drawn = configurations.plot(replace(info, still=True)).data
    lines = [trace for trace in drawn if trace.mode == "lines" and trace.showlegend is False]
    colors = [line.line.color for line in lines]  # the best is the last one
    assert [line.opacity for line in lines] == [0.85, 0.85, 0.85, 1.0], "of few, all"
    assert len({*colors}) == 2, "one is behind the front"
    assert colors[-1] in (colors[0], colors[1], colors[2]), "the best is wide, and has the colour of the front"
    assert [line.line.width for line in lines] == [1.2, 1.2, 1.2, 2.6]
    few = configurations.plot(replace(info, still=True, behind=(nan, *info.behind[1:]))).data
    assert "too early to compare: 1 of 4" in [trace.name for trace in few]
    assert next(trace.line.color for trace in few if trace.mode == "lines") == LIGHT.faint
    (scale,) = (trace.marker for trace in drawn if trace.marker.showscale)
    assert scale.color == pytest.approx((0.1, 0.0))
    assert (scale.cmin, scale.cmax, scale.reversescale) == (0.0, pytest.approx(0.1), True)
    (alike,) = (
        trace.marker
        for trace in configurations.plot(replace(info, still=True, behind=(), sure=(0.85, 0.92))).data
        if trace.marker.showscale
    )
    assert alike.color == pytest.approx((0.2, 0.85)), "and of those within the interval none is better"
    assert not alike.reversescale


def test_lines_through_one_of_few_values_lie_side_by_side_the_best_at_the_top(with_configs):
    settings = [{"batch": 16 * (1 + i % 2), "rate": 0.1 * (1 + i // 2)} for i in range(20)]
    info = configurations.info(with_configs(*({"training": one} for one in settings)))
    lines = configurations.plot(replace(info, still=True)).data[: len(info.trials)]  # the best is the last
    heights = {axis.name: [line.y[i] for line in lines] for i, axis in enumerate(info.axes)}
    for value in (0, 1):  # none lies beyond an end of the axis
        first = value - 0.072 * value
        assert heights["training.batch"][value::2] == pytest.approx([first + 0.008 * i for i in range(10)])
    gaps = np.subtract(heights["training.rate"][1::2], heights["training.rate"][::2])
    assert gaps == pytest.approx(0.01), "of ten values too"


def test_scores_grow_with_epsilons_that_differ(small):
    points = [Point(trial=f"t{i}", epoch=1, values={"epsilon": 1.0, "accuracy": 0.5 + 0.1 * i}) for i in range(3)]
    assert configurations.info(small(points)).terms.startswith("best point of each of 3 trials, own epsilon 1;")


def test_the_interval_of_the_best_score_is_drawn_and_places_within_it_are_named(sweep):
    found = replace(configurations.info(sweep), still=True)
    assert (found.sure, found.sure_as) == (None, "95 % CI of the best"), "of how many rows nobody knows"
    scores = sorted(found.colors, reverse=True)
    for inside, named in ((1, 1), (2, 2), (5, 3)):
        ends = (scores[inside - 1], scores[0] + 0.01)
        count = sum(score >= ends[0] for score in scores)
        drawn = configurations.plot(replace(found, sure=ends)).data
        (bar,) = (trace for trace in drawn if trace.error_y.array)
        (axis,) = (axis for axis in found.axes if axis.name == "accuracy")
        low, high = axis.ends
        assert (bar.y[0] * (high - low) + low) == pytest.approx(scores[0])
        assert bar.error_y.array[0] * (high - low) == pytest.approx(0.01)
        assert bar.error_y.arrayminus[0] * (high - low) == pytest.approx(scores[0] - ends[0])
        names = [trace.name for trace in drawn if trace.name]
        said = f"the scores of {count} of {len(scores)} lie in it" if count > 1 else "no other score lies in it"
        assert f"95 % CI of the best; {said}" in names
        assert len([name for name in names if name.startswith(("best score: ", "second: ", "third: "))]) == named
    assert not [trace for trace in configurations.plot(found).data if trace.error_y.array]


def test_texts_of_ticks_give_way_to_wide_lines():
    axis = make_axis("a", "a", [0.0, 1.0], Range(low=0.0, high=1.0))
    found = {}
    for name, line in (("below", [0.4, 0.39]), ("above", [0.4, 0.41]), ("far", [0.4, 0.9])):
        texts = configurations._tick_texts([axis, axis], LIGHT, [line])
        ink = [text for text in texts if text["font"]["color"] == LIGHT.ink and text["text"] == "0.4"]
        found[name] = [text["yshift"] for text in ink]
    assert found == {"below": [0, 9], "above": [0, -9], "far": [0, 0]}, "no line arrives at the first axis"


def test_axes_of_results_do_not_enlarge_differences_within_their_errors(sweep):
    compared, axis = replace(compare(sweep), half_width=0.05), _content._result_axis
    accuracy = axis(compared, "accuracy", "accuracy", [0.8, 0.81])
    epsilon = axis(compared, "epsilon", "epsilon", [2.0, 1.9])
    assert accuracy.ends == pytest.approx((0.67, 0.87)), (
        "whole percents: the interval of the best, and four times half of it"
    )
    assert [10**end for end in epsilon.ends] == pytest.approx([1.0, 2.0])
    unknown = replace(compared, half_width=None, sure=None)
    assert axis(unknown, "accuracy", "accuracy", [0.8, 0.81]).ends == (0.8, 0.81)


def test_stages_of_a_budget_have_an_axis_but_are_no_hyperparameter(sweep):
    info = configurations.info(sweep)
    (stage,) = (axis for axis in info.axes if axis.name == "stage")
    assert list(stage.values) == [str(sweep.result.stage_of(id_) + 1) for id_ in info.trials]
    assert "stage" not in [axis.name for axis in _content.in_order(info)]
    assert "stage" not in [axis.name for axis in configurations.info(sweep, one_noise=True).axes]
