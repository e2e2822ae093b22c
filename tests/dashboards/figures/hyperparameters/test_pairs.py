"""Slices, contours and ranks: which hyperparameters they show, and what of them."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dashboards.figures import LIGHT, refuse, sweep_figures
from dashboards.figures.hyperparameters import contours, importances, ranks, slices
from dashboards.figures.hyperparameters._axes import ranks as places
from sweeper.errors import EmptyFigureError
from sweeper.records import Point, SweepStatus, Trial
from sweeper.results.importance import Importance
from sweeper.store.manifest import Manifest


def test_hyperparameters_stand_in_the_order_of_their_importances(sweep):
    order = importances.info(sweep).parameters
    accuracy = next(one for one in sweep.importances if one.target == "accuracy")
    assert [accuracy.losses[name] for name in order] == sorted(accuracy.losses.values(), reverse=True)
    assert [axis.name for axis in slices.info(sweep).slices] == list(order[:4])
    assert ranks.info(sweep).shown[0][0].name == order[0]
    assert "The most important hyperparameter comes first" in slices.FIGURE.remarks(sweep)
    assert " Drawn: 4 of 8 hyperparameters." in slices.FIGURE.remarks(sweep)


def test_without_importances_no_order_is_claimed(with_configs):
    data = with_configs(*({"a": float(i % 3), "b": i % 2} for i in range(6)))
    assert [axis.name for axis in slices.info(data).slices] == ["a", "b"]
    assert slices.FIGURE.remarks(data) == ""


def test_a_range_comes_before_a_choice_that_matters_as_much(with_configs):
    data = with_configs(*({"a": i % 2 == 0, "b": float(i % 5), "c": i % 2 == 1} for i in range(12)))
    spec = {"b": {"uniform": [0, 4]}}
    ranges = Manifest(name="s", status=SweepStatus.COMPLETED, spec=spec, source="spec.yaml")
    alike = Importance("accuracy", 0.9, {"a": 0.004, "b": 0.0, "c": 0.5})
    for found, names in ((alike, ("c", "b", "a")), (replace(alike, explained=0.0), ("b", "a", "c"))):
        shown = replace(data, manifest=ranges)
        shown.__dict__["importances"] = (found,)
        assert tuple(axis.name for axis in slices.info(shown).slices) == names


@pytest.mark.long
def test_the_best_of_the_trials_in_one_place_is_drawn_last_and_in_its_middle(with_configs):
    data = with_configs(*({"a": i % 2, "b": i % 2 == 0} for i in range(16)))
    info = ranks.info(data)
    (trace,) = ranks.plot(info).data
    assert list(trace.marker.color) == sorted(info.shares)
    assert len(set(zip(trace.x, trace.y, strict=True))) == 16
    assert {(trace.x[i], trace.y[i]) for i in (-1, -2)} <= {(a, b) for a in (0.0, 1.0) for b in (0.0, 1.0)}
    assert max(abs(x - round(x)) for x in trace.x) < 0.13


def test_marks_that_may_be_as_good_as_the_best_have_orange_rims(sweep, monkeypatch):
    best = max(ranks.info(sweep).colors)
    for half in (0.02, None):
        monkeypatch.setattr(ranks, "half_width_of", lambda _, half=half: half)
        info = ranks.info(sweep)
        apart = 0.02 * math.sqrt(2.0) if half else 0.0
        assert info.near == tuple(best - value < apart for value in info.colors)
        assert any(info.near) is (half is not None)
        assert not all(info.near)
        first, *others = ranks.plot(info).data
        x, y = info.shown[0]
        shown = [near for near, *at in zip(info.near, x.values, y.values, strict=True) if None not in at]
        assert first.marker.line.color.count(LIGHT.orange) == sum(shown)
        said = [trace.name for trace in others if trace.name]
        assert said == (["perhaps not worse than the best (95 %)"] if half else [])
        assert [row["near the best"] for row in ranks.rows(info)] == list(info.near)


def test_a_score_near_1_is_surer_than_one_half(small):
    scores = (0.96, 0.90, 0.6, 0.5)
    points = [Point(trial=f"t{i}", epoch=1, values={"epsilon": 1.0, "accuracy": s}) for i, s in enumerate(scores * 5)]
    trials = tuple(
        Trial(id=f"t{i}", config={"training": {"epochs": i, "batch_size": i * i % 7}}) for i in range(len(points))
    )
    data = small(points, trials=trials)
    rows = replace(data.result.claim.baselines, rows={"validation": 261})
    known = replace(data, result=replace(data.result, claim=replace(data.result.claim, baselines=rows)))
    info = ranks.info(known)
    assert {value for value, near in zip(info.colors, info.near, strict=True) if near} == {0.96}, "±4.6 points, not 8.5"


def test_places_of_equal_values_are_shared():
    assert places([3.0, 1.0, 3.0, 2.0]).tolist() == [2.5, 0.0, 2.5, 1.0]


def test_every_trial_has_its_mark_in_every_slice_that_of_its_stage(sweep):
    info = slices.info(sweep)
    figure = slices.plot(info)
    assert len(figure.data) == 3 * len(info.slices) == 12
    named = [trace for trace in figure.data if trace.showlegend]
    assert [trace.name.partition(",")[0] for trace in named] == ["stage 1", "stage 2", "stage 3"]
    assert len({trace.marker.symbol for trace in named}) == len({trace.marker.color for trace in named}) == 3
    assert [len(trace.x) for trace in named] == [17, 6, 1]  # the fixture counts from t0000
    assert "Compare marks of one stage alone" in slices.FIGURE.remarks(sweep)
    assert {row["stage"].partition(",")[0] for row in slices.rows(info)} == {"stage 1", "stage 2", "stage 3"}
    alike = replace(sweep, result=replace(sweep.result, stages=()))
    info = slices.info(alike)
    for trace in slices.plot(info).data:
        assert tuple(trace.y) == info.colors
        assert [text.startswith(f"<b>{id_}</b>") for text, id_ in zip(trace.text, info.trials, strict=True)]
    assert "stage" not in slices.FIGURE.remarks(alike)


def test_marks_of_slices_have_the_colours_of_their_own_epsilons_where_these_differ(sweep):
    info = slices.info(replace(sweep, result=replace(sweep.result, stages=())))
    (own,) = (axis.values for axis in info.axes if axis.name == "epsilon")
    for number, trace in enumerate(slices.plot(info).data):
        assert list(trace.marker.color) == pytest.approx([math.log10(one) for one in own])
        assert trace.marker.showscale is (number == 0), "one bar for all panels"
    alike = tuple(replace(axis, values=(1.0,) * len(own)) if axis.name == "epsilon" else axis for axis in info.axes)
    assert {trace.marker.color for trace in slices.plot(replace(info, axes=alike)).data} == {LIGHT.blue}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [contours, ranks, importances])
def test_trials_of_other_noise_are_not_compared_and_the_figure_says_so(sweep, kind):
    assert len(sweep.comparable) == 17
    assert {sweep.result.stage_of(trial) for trial in sweep.comparable} == {0}
    assert kind.info(sweep).note.startswith("Only trials of stage 1 (own epsilon ≤ ")
    assert kind.info(sweep).note in kind.FIGURE.remarks(sweep)
    assert kind.info(replace(sweep, result=replace(sweep.result, stages=()))).note == ""
    if kind is not importances:
        assert kind.info(sweep).trials == sweep.comparable


@pytest.mark.parametrize("name", ["ranks", "temperature"])
def test_on_a_page_a_note_stands_above_the_legend_and_below_the_top(sweep, monkeypatch, name):
    monkeypatch.setattr(ranks, "half_width_of", lambda _: 0.02)
    figure = sweep_figures()[name].draw(sweep)
    (note,) = figure.select_annotations({"name": "rehearsed"})
    margin = figure.layout.template.layout.margin.update(figure.layout.margin)
    assert any(trace.name and trace.showlegend is not False for trace in figure.data)
    legend = (figure.layout.template.layout.legend.y - 1.0) * (figure.layout.height - margin.t - margin.b) + 19.0
    assert legend <= note.yshift <= margin.t - 40.0 - 1.3 * note.font.size, "pages take the room of a title away"


@pytest.mark.parametrize("places", [[(0, 0), (4, 0), (0, 4), (1, 1)], [(0, 0), (1, 1), (3, 3), (4, 4)]])
def test_a_contour_follows_what_trials_reached_and_fades_where_none_is_near(with_configs, monkeypatch, places):
    monkeypatch.setattr(contours, "explained_share", lambda *_: 0.5)  # of few trials none is known
    assert contours.info(with_configs(*({"a": float(a), "b": float(b)} for a, b in places))).shown == ()
    monkeypatch.setattr(contours, "_LEAST_MARKS", 4)
    monkeypatch.setattr(contours, "_AROUND", 1)  # of four marks no three are near
    info = contours.info(with_configs(*({"a": float(a), "b": float(b)} for a, b in places)))
    ((x, y),) = info.shown
    values = [0.1, 0.9, 0.5, 0.3]
    grid = contours.fill_grid(x, y, range(4), values)
    heights, faded = np.array(grid.heights), np.array(grid.faded)
    assert np.all((heights > 0.1 - 1e-9) & (heights < 0.9 + 1e-9))
    assert (grid.x[0], grid.x[-1]) == (0.0, 4.0), "nothing is guessed beyond the ends of an axis"
    for (a, b), value in zip(places, values, strict=True):
        at = np.abs(np.array(grid.y) - b).argmin(), np.abs(np.array(grid.x) - a).argmin()
        assert heights[at] == pytest.approx(value, abs=0.1)
        assert faded[at] < 0.5
    assert faded[-1, -1 if places[1][1] == 0 else 0] == 1.0, "a corner without a trial"
    shade = [trace for trace in contours.plot(info).data if trace.type == "contour"][-1]
    assert np.array_equal(np.array(shade.z), faded)
    assert [color for _, color in shade.colorscale] == [LIGHT.clear, LIGHT.paper]


def test_one_score_among_others_makes_no_island(with_configs, monkeypatch):
    monkeypatch.setattr(contours, "explained_share", lambda *_: 0.5)
    places = [(float(i % 5), float(i // 5)) for i in range(25)]
    info = contours.info(with_configs(*({"a": a, "b": b} for a, b in places)))
    ((x, y),) = info.shown
    values = [0.9 if i == 12 else 0.5 for i in range(25)]
    heights = np.array(contours.fill_grid(x, y, range(25), values).heights)
    assert 0.5 < heights.max() < 0.75


def test_one_mark_alone_colours_nothing_around_it(with_configs, monkeypatch):
    monkeypatch.setattr(contours, "explained_share", lambda *_: 0.5)
    near = [(0.2 * i, 0.2 * (i * i % 5)) for i in range(17)]
    info = contours.info(with_configs(*({"a": float(a), "b": float(b)} for a, b in [*near, (10.0, 10.0)])))
    ((x, y),) = info.shown
    grid = contours.fill_grid(x, y, range(18), [0.5] * 18)
    assert grid.faded[-1][-1] == 1.0, "it would be a halo of its colour"
    assert grid.faded[0][0] < 0.5


def test_no_landscape_is_drawn_of_hyperparameters_that_explain_nothing(sweep):
    shown = contours.info(sweep)
    assert shown.shown
    (accuracy,) = (one for one in sweep.importances if one.target == "accuracy")
    assert shown.terms.endswith(f"; a random forest explains R² {accuracy.explained:.2f} of unseen trials")
    data = replace(sweep)
    data.__dict__["importances"] = tuple(replace(one, explained=0.05) for one in sweep.importances)
    assert contours.rows(contours.info(data)) == []
    with pytest.raises(
        EmptyFigureError, match=r"R² ≥ 0.1.*but an R² of 0.05 for accuracy: hyperparameters do not explain it"
    ):
        refuse({"contours": contours.FIGURE}, contours.FIGURE, data)


def test_lines_of_a_contour_are_no_nearer_than_scores_are_sure(sweep, monkeypatch):
    low, high = (end(contours.info(sweep).colors) for end in (min, max))
    apart = 0.1 * (high - low)
    for half in (apart, None):
        monkeypatch.setattr(contours, "half_width_of", lambda _, half=half: half)
        drawn = [trace for trace in contours.plot(contours.info(sweep)).data if trace.type == "contour"]
        lines = [trace for trace in drawn if trace.contours.coloring == "none"]
        assert not any(trace.line.width for trace in drawn if trace not in lines)
        assert bool(lines) is (half is not None)
        for line in lines:
            assert drawn[drawn.index(line) - 1].z is not None, "above the paper, which would fade it"
            ticks = drawn[0].colorbar.tickvals
            assert (line.contours.start, line.contours.end) == (ticks[0], ticks[-1])
            assert line.contours.size == pytest.approx(ticks[1] - ticks[0])
            assert apart <= line.contours.size <= 2.5 * apart
            assert all(low <= tick <= high and 1000 * tick == pytest.approx(round(1000 * tick)) for tick in ticks)
            assert any(None in row for row in line.z), "none where there is no colour"


def test_lines_are_no_more_than_the_ticks_of_a_bar(sweep, monkeypatch):
    low, high = (end(contours.info(sweep).colors) for end in (min, max))
    monkeypatch.setattr(contours, "half_width_of", lambda _: (high - low) / 30.5)
    drawn = [one for one in contours.plot(contours.info(sweep)).data if one.type == "contour"]
    (line, *_) = (one for one in drawn if one.contours.coloring == "none")
    assert (high - low) / 12 <= line.contours.size <= (high - low) / 4


def test_a_trial_without_a_value_is_in_no_pair_of_it(sweep):
    info = ranks.info(sweep)
    for x, y in info.shown:
        both = sum(a is not None and b is not None for a, b in zip(x.values, y.values, strict=True))
        trace = next(t for t, pair in zip(ranks.plot(info).data, info.shown, strict=True) if pair == (x, y))
        assert len(trace.x) == both
    assert (min(info.shares), max(info.shares)) == (0.0, 1.0)
    best = max(range(len(info.trials)), key=lambda i: info.colors[i])
    assert math.isclose(info.shares[best], 1.0)


@pytest.mark.parametrize("kind", [slices, contours, ranks])
def test_few_trials_say_so(kind, with_configs):
    figure = kind.plot(kind.info(with_configs({"a": 1}, {"a": 2})))
    assert len(figure.data) == 0
    assert [one.text for one in figure.layout.annotations] == ["fewer than 4 trials with different hyperparameters"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", [slices, contours, ranks])
def test_names_cannot_be_markup(kind, with_configs):
    configs = [{"<b>x": float(i % 5), "y": float(i * i % 7), "z": "<i>" if i % 2 else "b"} for i in range(12)]
    info = kind.info(with_configs(*configs))
    text = kind.plot(info).to_json()
    assert "<i>" not in text
    assert "\\u003cb\\u003ex" not in text


def test_importances_that_explain_nothing_say_how_little_and_of_how_many_trials(with_configs):
    data = with_configs(*({"a": i % 2, "b": i % 3} for i in range(12)))
    data.__dict__["importances"] = (Importance("accuracy", 0.04, {"a": 0.0, "b": 0.0}),)
    assert importances.FIGURE.numbers(data) == []
    with pytest.raises(EmptyFigureError, match=r"found 12 trials, but an R² of 0\.04 at most: hyperparameters"):
        refuse({"importances": importances.FIGURE}, importances.FIGURE, data)
    assert importances.FIGURE.lacks(with_configs({"a": 1}, {"a": 2})) == "2 trials"


def test_the_panel_of_a_trials_own_points_is_named_by_its_value(sweep):
    text = importances.plot(importances.info(sweep)).to_json()
    assert "hypervolume<br>" in text.replace("\\u003c", "<").replace("\\u003e", ">")


def test_panels_of_importances_are_of_one_size_and_the_picture_says_that_a_loss_may_exceed_what_is_explained(
    with_configs,
):
    data = with_configs(*({"a": i % 2, "b": i % 3} for i in range(12)))
    names = ("accuracy", "certified@0.25", "hypervolume")
    data.__dict__["importances"] = tuple(Importance(name, 0.4, {"a": 0.9, "b": 0.1}) for name in names)
    for narrow in (False, True):
        figure = importances.FIGURE.draw(data, narrow=narrow)
        widths = [axis.domain[1] - axis.domain[0] for axis in figure.select_xaxes()]
        assert widths == pytest.approx([widths[0]] * 3)
        assert len({tuple(axis.range) for axis in figure.select_xaxes()}) == 1
        (words,) = [one for one in figure.layout.annotations if one.text.startswith("Permutation")]
        assert "(n = 12 trials)" in words.text.replace("<br>", " ").replace("\N{NO-BREAK SPACE}", " ")
        assert words.text.replace("<br>", " ").endswith("It may exceed the R² above the bars.")
        assert words.y == 0, "two settings make panels too low for it beside them"
    data = with_configs(*({"a": i % 2, "b": i % 3, **{f"c{n}": (i + n) % 5 for n in range(6)}} for i in range(12)))
    losses = {"a": 0.9, "b": 0.1, **{f"c{n}": 0.0 for n in range(6)}}
    data.__dict__["importances"] = tuple(Importance(name, 0.4, losses) for name in names)
    figure = importances.FIGURE.draw(data, narrow=True)
    (words,) = [one for one in figure.layout.annotations if one.text.startswith("Permutation")]
    assert words.y > 0, "in the place of a fourth panel"
    tall = figure.layout.yaxis2.domain[1] * figure.layout.height
    assert 16 * (words.text.count("<br>") + 1) < tall


def test_whiskers_of_losses_near_0_are_drawn_whole(with_configs):
    data = with_configs(*({"a": i % 2, "b": i % 3} for i in range(12)))
    losses, errors = {"a": 0.9, "b": -0.02}, {"a": 0.1, "b": 0.08}
    data.__dict__["importances"] = (Importance("accuracy", 0.4, losses, errors),)
    figure = importances.FIGURE.draw(data)
    low, high = figure.layout.xaxis.range
    assert low < -0.18
    assert high > 1.1
    assert figure.layout.xaxis.zeroline
    (bars,) = figure.data
    assert list(bars.marker.color) == [LIGHT.blue, LIGHT.faint]
    assert list(bars.error_x.array) == [0.2, 0.16], "95 % intervals"
    data.__dict__["importances"] = (Importance("accuracy", 0.4, {"a": 0.9, "b": 0.15}, errors),)
    (bars,) = importances.FIGURE.draw(data).data
    assert list(bars.marker.color) == [LIGHT.blue, LIGHT.faint], "less than two standard errors may be chance"
    data.__dict__["importances"] = (Importance("accuracy", 0.4, {"a": 0.9, "b": 0.01}, {"a": 0.1, "b": 0.001}),)
    (bars,) = importances.plot(importances.info(data)).data
    assert list(bars.marker.color) == [LIGHT.blue, LIGHT.faint], "sure, and next to nothing"
