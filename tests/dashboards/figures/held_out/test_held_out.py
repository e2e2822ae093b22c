"""Released curves of private test rows: whose, in what band, and nothing where there are none."""

from dataclasses import replace
from inspect import signature
from itertools import pairwise
from math import log

import numpy as np
import pytest

from clipless.curves.classes import ClassCurves, null_of_hosmer_lemeshow
from clipless.curves.grid import Grid
from clipless.curves.release import Gaussian
from clipless.privacy.events import Relation
from dashboards.export.paper import fit
from dashboards.figures import LIGHT, is_empty, refuse, sweep_figures
from dashboards.figures.held_out import calibration, certified_curve, roc
from dashboards.pages.report import build_report
from sweeper.adapters import dump
from sweeper.errors import EmptyFigureError
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.pricing import Price
from sweeper.records import Point, ReleasedCurves, ScoreCurves
from sweeper.results.exporters import Paper
from sweeper.store.sweep_folder import points_of

SCORES = ScoreCurves(
    thresholds=(0.25, 0.75),
    positives=(1.5, 9.75),
    negatives=(12.0, 15.25),
    false_rates=(1.0, 0.2, 0.0),
    false_low=(1.0, 0.1, 0.0),
    false_high=(1.0, 0.35, 0.0),
    true_rates=(1.0, 0.85, 0.0),
    true_low=(1.0, 0.6, 0.0),
    true_high=(1.0, 0.95, 0.0),
    auroc=(0.7, 0.82, 0.91),
    group_rows=(12.0, 13.0),
    group_predicted=(0.2, 0.7),
    group_rates=(0.1, 0.8),
    group_low=(0.0, 0.6),
    group_high=(0.3, 1.0),
    hosmer_lemeshow=3.25,
    p_value=0.125,
)
CURVES = ReleasedCurves(
    confidence=0.95,
    noise_multiplier=4.0,
    rows=25,
    radii=(0.0, 0.5, 1.0),
    certified=(0.9, 0.6, 0.2),
    certified_low=(0.8, 0.5, 0.1),
    certified_high=(1.0, 0.7, 0.3),
    scores=SCORES,
)
UNIT = "columns scaled to [-1, 1] by their declared ranges"
NAMES = ("roc", "calibration", "certified-curve")


def point(number, curves=CURVES):
    values = {"epsilon": float(number), "accuracy": 0.5 + 0.04 * number}
    return Point(trial=f"t{number:04d}", epoch=1, values=values, curves=curves)


@pytest.fixture
def data(small):
    return small([point(number) for number in range(1, 4)])


def test_every_point_has_its_curve_with_both_ends_of_the_band(data):
    info = certified_curve.info(data)
    assert [line.name for line in info.lines] == [
        f"own epsilon {number}: accuracy 90.0 % [80.0, 100.0] at radius 0" for number in (3, 2, 1)
    ]
    first = certified_curve.rows(info)[1 + 2 * len(CURVES.radii)]
    assert first == {
        "trial": "t0001",
        "epoch": 1,
        "epsilon": 1.0,
        "radius": 0.5,
        "certified": 0.6,
        "certified_low": 0.5,
        "certified_high": 0.7,
    }


def test_the_band_of_a_roc_curve_is_bounded_in_both_rates(data):
    info = roc.info(data)
    assert info.lines[0].name == "own epsilon 3: AUROC 0.820 [0.700, 0.910]"
    row = roc.rows(info)[1]
    assert (row["false_positive_rate"], row["true_positive_rate"]) == (0.2, 0.85)
    assert (row["false_positive_rate_of_low"], row["true_positive_rate_low"]) == (0.35, 0.6)  # the worst corner
    assert (row["false_positive_rate_of_high"], row["true_positive_rate_high"]) == (0.1, 0.95)
    assert (row["auroc_low"], row["auroc"], row["auroc_high"]) == (0.7, 0.82, 0.91)
    figure = roc.plot(info)
    assert figure.data[0].fill == "toself"
    assert set(zip(figure.data[0].x, figure.data[0].y, strict=True)) >= {(0.35, 0.6), (0.1, 0.95)}


def test_calibration_states_the_statistic_and_its_p_value(data):
    info = calibration.info(data)
    assert info.lines[0].name == "own epsilon 3: Hosmer-Lemeshow p 0.12 (simulated)"
    assert all((row["hosmer_lemeshow"], row["p_value"]) == (3.25, 0.125) for row in calibration.rows(info))
    assert [(row["predicted"], row["observed"], row["observed_low"]) for row in calibration.rows(info)[:2]] == [
        (0.2, 0.1, 0.0),
        (0.7, 0.8, 0.6),
    ]


def test_scores_at_one_threshold_are_one_group_and_the_caption_says_why_there_are_fewer_than_ten():
    grid = Grid(np.linspace(0.0, 1.0, 11))
    apart, together = np.arange(1.0, 12.0), np.array([0.0, 0.0, *(10.0,) * 8, 11.0])
    mechanism = Gaussian(1.0)
    groups = [
        len(ClassCurves(grid, counts, counts, mechanism, Relation.ADD_OR_REMOVE_ONE).calibration().rows)
        for counts in (apart, together)
    ]
    assert groups == [10, 2]
    assert "At most ten groups" in calibration.FIGURE.caption
    assert "fewer where" in calibration.FIGURE.caption


def test_a_p_value_at_the_end_of_its_simulation_is_a_bound(small):
    draws = signature(null_of_hosmer_lemeshow).parameters["draws"].default
    for extreme, words in ((0, "p ≤ 0.005"), (1, "p 0.01")):
        scores = replace(SCORES, p_value=(1 + extreme) / (1 + draws))
        (line,) = calibration.info(small([point(1, replace(CURVES, scores=scores))])).lines
        assert line.name.endswith(f"Hosmer-Lemeshow {words} (simulated)")


def test_groups_that_say_little_are_pale_and_counted_and_where_most_do_there_is_no_figure(small):
    silent = replace(SCORES, group_low=(0.0, 0.0), group_high=(0.95, 1.0))
    few, half = small([point(1)]), small([point(1), point(2, replace(CURVES, scores=silent))])
    words = "much noise in 2 of 4 groups"
    assert calibration.FIGURE.remarks(half) == f" There is {words}."
    assert f"{words} (pale)" in _texts(calibration.plot(calibration.info(half)))[-1]
    assert (calibration.FIGURE.remarks(few), "pale" in _texts(calibration.plot(calibration.info(few)))[-1]) == (
        "",
        False,
    )
    bars = calibration.plot(calibration.info(half)).data
    sizes = [(len(trace.x), trace.error_y.color) for trace in bars if trace.error_y.color]
    assert sorted(sizes) == [(0, LIGHT.blue), (0, LIGHT.line), (2, LIGHT.blue), (2, LIGHT.line)]
    most = small([point(1), point(2, replace(CURVES, scores=silent)), point(3, replace(CURVES, scores=silent))])
    with pytest.raises(EmptyFigureError, match=r"4 of 6 groups \(remedy: a smaller privacy.curve_noise or more test"):
        refuse(sweep_figures(), calibration.FIGURE, most)
    assert calibration.rows(calibration.info(most)) == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize("figure", [roc, calibration, certified_curve])
def test_each_point_has_a_panel_with_the_reference_on_top_and_none_is_empty(small, figure):
    info = figure.info(small([point(number) for number in range(1, 4)]))
    for narrow, columns in ((False, 3), (True, 2)):
        drawn = figure.plot(replace(info, narrow=narrow))
        panels = {trace.yaxis for trace in drawn.data}
        assert len(panels) == len(list(drawn.select_yaxes())) == 3
        assert len({axis.domain for axis in drawn.select_xaxes()}) == columns
        for panel in panels:
            *others, last = (trace for trace in drawn.data if trace.yaxis == panel)
            assert (last.line.dash == "dot") == (last.line.color == LIGHT.ink) == (figure is not certified_curve)
            assert all(trace.line.color != LIGHT.ink for trace in others)
        assert drawn.layout.showlegend is False
        assert [text.split("<br>")[0] for text in _texts(drawn)[:3]] == [f"own epsilon {i}" for i in (3, 2, 1)]


def test_probabilities_of_groups_lie_apart_on_an_axis_that_is_named(small):
    scores = replace(SCORES, group_predicted=(0.0009, 0.99))
    figure = calibration.plot(calibration.info(small([point(i, replace(CURVES, scores=scores)) for i in range(1, 5)])))
    axis = figure.layout.xaxis
    assert axis.ticktext == ("1%", "50%", "99%"), "all have no room"
    still = calibration.FIGURE.draw(small([point(i, replace(CURVES, scores=scores)) for i in range(1, 5)]), still=True)
    assert still.layout.xaxis.ticktext == ("0.1%", "1%", "10%", "50%", "90%", "99%")
    assert figure.layout.yaxis.ticktext == axis.ticktext
    assert figure.layout.yaxis.scaleanchor == "x", "a square"
    assert figure.data[1].x == pytest.approx([log(0.0009 / 0.9991), log(99)])
    assert "(axes of log-odds)" in _texts(figure)[-2]
    diagonal = figure.data[3]
    assert diagonal.x == diagonal.y == axis.range == figure.layout.yaxis.range
    bars = figure.data[1]
    top = bars.y[1] + bars.error_y.array[1]
    assert (bars.y[0], top) == pytest.approx((log(0.1 / 0.9), log(0.9995 / 0.0005))), "no bar ends at infinity"


def test_bars_that_go_on_to_0_have_a_mark_at_the_edge(small):
    scores = replace(SCORES, group_low=(0.0, 0.2))
    figure = calibration.plot(calibration.info(small([point(1, replace(CURVES, scores=scores))])))
    (mark,) = (trace for trace in figure.data if trace.marker.symbol == "triangle-down")
    assert (mark.x, mark.y) == ((figure.data[1].x[0],), (figure.layout.yaxis.range[0],))


def test_a_roc_is_thin_where_no_threshold_was_released(small):
    rates = {"false_rates": (1.0, 0.3, 0.2, 0.0), "true_rates": (1.0, 0.9, 0.85, 0.8)}
    ends = {"false_low": (1.0, 0.2, 0.1, 0.0), "false_high": (1.0, 0.4, 0.3, 0.1)}
    ends |= {"true_low": (1.0, 0.8, 0.75, 0.7), "true_high": (1.0, 1.0, 0.95, 0.9)}
    scores = replace(SCORES, **rates, **ends)
    *_, curve, thin, _ = roc.plot(roc.info(small([point(1, replace(CURVES, scores=scores))]))).data
    assert (thin.x, thin.y) == ((1.0, 0.3, None, 0.2, 0.0, None), (1.0, 0.9, None, 0.85, 0.8, None))
    assert curve.x == (1.0, None, 0.3, 0.2, None, 0.0)
    assert thin.line.width < curve.line.width


def test_a_certified_curve_is_compared_with_a_constant_answer(small):
    data = small([point(1)])
    claim = replace(data.result.claim, baselines=Baselines(classes=("a", "b"), majority={"validation": 0.52}))
    data = replace(data, result=replace(data.result, claim=claim))
    figure = certified_curve.plot(certified_curve.info(data))
    (line,) = (trace for trace in figure.data if trace.line.dash == "dot")
    assert set(line.y) == {0.52}
    assert "dotted: majority class, 52.0 %" in _texts(figure)[-1].replace("<br>", " ")
    assert figure.layout.yaxis.range[0] < 0.52


@pytest.mark.parametrize("figure", [roc, certified_curve])
def test_a_band_has_an_outline_and_the_released_curve_is_the_thickest_line(data, figure):
    info = figure.info(data)
    template = figure.plot(info).layout.template
    assert template.data.scatter[0].line.simplify is False, "steps of a small picture would be slopes"
    drawn = figure.plot(info).data
    filled, outline, released = drawn[:3]
    assert filled.opacity < 0.2
    assert outline.line.color == filled.fillcolor == released.line.color == LIGHT.blue
    shown = [place for place in zip(released.x, released.y, strict=True) if place != (None, None)]
    assert shown == list(zip(info.lines[0].x, info.lines[0].y, strict=True))
    assert all(trace.line.width < released.line.width for trace in drawn if trace.name is None)
    for ends in (info.lines[0].below, info.lines[0].above):
        assert set(zip(*ends, strict=True)) <= set(zip(outline.x, outline.y, strict=True))


@pytest.mark.parametrize("fall", [0.001, 0.25, 0.499])  # behind a radius
def test_the_band_contains_every_falling_curve_that_keeps_it_at_the_released_radii(data, fall):
    outline = certified_curve.plot(certified_curve.info(data)).data[1]
    ends = list(zip(outline.x, outline.y, strict=True))
    low, high = ends[: ends.index((None, None))], ends[ends.index((None, None)) + 1 :]
    for shares in (CURVES.certified_low, CURVES.certified_high):
        for i in range(len(CURVES.radii) - 1):
            at = CURVES.radii[i] + fall
            for value in (shares[i], shares[i + 1]):  # before a fall to the next share, and behind it
                assert _at(low, at) <= value <= _at(high, at)


def _at(ends, radius):
    """The height of an end of a band between two of its corners."""
    (x, y), (next_x, next_y) = next(pair for pair in pairwise(ends) if pair[1][0] > radius)
    return y + (next_y - y) * (radius - x) / (next_x - x)


def test_the_roc_curve_of_rounded_scores_is_in_its_band_between_thresholds(data):
    outline = roc.plot(roc.info(data)).data[1]
    ends = list(zip(outline.x, outline.y, strict=True))
    low, high = ends[: ends.index((None, None))], ends[ends.index((None, None)) + 1 :]
    for x, y in ((SCORES.false_low, SCORES.true_low), (SCORES.false_high, SCORES.true_high)):
        for i, weight in ((0, 0.2), (0, 0.9), (1, 0.5)):
            false, true = (weight * one[i] + (1 - weight) * one[i + 1] for one in (x, y))
            assert _at(low[::-1], false) <= true <= _at(high[::-1], false) + 1e-12
    assert "scores rounded to the released thresholds" in roc.FIGURE.caption


def test_the_axis_of_certified_accuracy_begins_near_the_lowest_band_and_it_is_said(small):
    def drawn(*low):
        sweep = small([point(1, replace(CURVES, certified_low=low))])
        figure = certified_curve.plot(certified_curve.info(sweep))
        return figure.layout.yaxis.range[0], certified_curve.FIGURE.remarks(sweep)

    assert drawn(0.8, 0.7, 0.62) == (0.6, " The vertical axis begins at 60 %.")
    assert drawn(0.8, 0.5, 0.1) == (0.0, "")
    beyond = replace(CURVES, certified=(0.9, 0.01, 0.0), certified_low=(0.8, 0.5, 0.0))
    assert certified_curve.plot(certified_curve.info(small([point(1, beyond)]))).layout.yaxis.range[0] == 0.5


@pytest.mark.parametrize(
    ("classes", "words"), [((), "1"), (("<=50K", ">50K"), "&gt;50K"), (("n", "malignant neoplasms"), "malignan…")]
)
def test_calibration_names_the_class_as_far_as_there_is_room(data, classes, words):
    claim = replace(data.result.claim, baselines=Baselines(classes=classes))
    info = replace(calibration.info(replace(data, result=replace(data.result, claim=claim))), narrow=True)
    assert calibration.plot(info).layout.yaxis.title.text == f"share of class {words} (test)"


def test_every_figure_says_price_delta_and_rows_in_lines_that_fit(data):
    price = Price(epsilon=2.5, delta=1e-5, events=3)
    paid = replace(data.result, ledger={"winner": price}, claim=replace(data.result.claim, radius_unit=UNIT))
    for name in NAMES:
        kind = sweep_figures()[name]
        for narrow, letters in ((False, (106, 130)), (True, (46, 66))):
            *_, title, below = _texts(kind.draw(replace(data, result=paid), narrow=narrow))
            for text, most in zip((title, below), letters, strict=True):
                assert max(map(len, text.split("<br>"))) <= most
            for words in ("delta = 1e-5", "price of the sweep: 2.5", "25 test rows", "simultaneous 95 % CI"):
                assert words in below
            assert ("between two released radii" in below.replace("<br>", " ")) is (name == "certified-curve")


@pytest.mark.parametrize(("low", "is_said"), [(0.5, True), (0.501, False)])
def test_a_roc_says_where_a_model_may_be_no_better_than_chance(small, low, is_said):
    worse = replace(CURVES, scores=replace(SCORES, auroc=(low, 0.82, 0.91)))
    *_, below = _texts(sweep_figures()["roc"].draw(small([point(1), point(2, worse)])))
    assert ("may be no better than chance" in below) is is_said


def test_the_axis_of_radii_ends_where_nothing_is_certified_any_more(small):
    radii = tuple(0.5 * i for i in range(7))
    far = replace(
        CURVES,
        radii=radii,
        certified=(0.9, 0.3, 0.021, 0.019, 0.01, 0.0, 0.0),
        certified_low=(0.8, 0.2, *(0.0,) * 5),
        certified_high=(1.0, 0.4, *(0.12,) * 5),
    )
    sweep = small([point(1, far)])
    assert certified_curve.plot(certified_curve.info(sweep)).layout.xaxis.range == (0, 1.5)
    assert "no released curve is above 2 %." in certified_curve.FIGURE.remarks(sweep)
    assert certified_curve.FIGURE.gestures_here(sweep) == " A double click shows all radii."
    assert [row["radius"] for row in certified_curve.rows(certified_curve.info(sweep))] == list(radii)
    whole = small([point(1)])
    assert certified_curve.plot(certified_curve.info(whole)).layout.xaxis.range == (0, 1.0)
    assert certified_curve.FIGURE.remarks(whole) == certified_curve.FIGURE.gestures_here(whole) == ""


def _texts(figure):
    return [note.text for note in figure.layout.annotations]


def test_few_of_many_points_are_drawn_with_both_ends_and_it_is_said(small):
    many = small([point(number) for number in range(1, 11)])
    for name in NAMES:
        kind = sweep_figures()[name]
        info = kind.info(many)
        assert [line.point.trial for line in info.lines] == ["t0010", "t0007", "t0004", "t0001"]
        assert kind.remarks(many) == " Drawn: 4 of 10 points of the front with curves."


def test_points_without_curves_have_no_figure(small):
    bare, many_classes = (small([point(1, curves)]) for curves in (None, replace(CURVES, scores=None)))
    for name in NAMES:
        kind = sweep_figures()[name]
        assert is_empty(kind.draw(bare))
        assert is_empty(kind.draw(many_classes)) == (name != "certified-curve")
        assert f"{kind.heading}: </b>needs {kind.needs}." in build_report(bare)


@pytest.mark.long
def test_the_report_shows_them_with_their_level(data):
    page = build_report(data)
    for name in NAMES:
        assert sweep_figures()[name].heading in page
    assert "simultaneous 95 % CI" in page


def test_curves_are_recorded_as_they_are(tmp_path):
    recorded = dump(point(1))
    assert points_of([recorded], tmp_path) == [point(1)]
    assert "curves" not in dump(point(1, None))


def test_panels_of_rates_are_squares(small):
    figure = sweep_figures()["roc"].draw(small([point(i) for i in range(1, 5)]), narrow=True, still=True)
    layout = fit(figure, Paper(width=85.0, font=8.0))
    panels = layout.height - figure.layout.margin.t - figure.layout.margin.b
    (low, high), (left, right) = figure.layout.yaxis.domain, figure.layout.xaxis.domain
    wide = (right - left) * (layout.width - 60.0)  # without the texts beside the axis
    assert panels * (high - low) == pytest.approx(wide, rel=0.15)
