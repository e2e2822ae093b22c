"""Released curves of private test rows: whose, in what band, and nothing where there are none."""

from dataclasses import replace

import pytest

from dashboards.figures import is_empty, sweep_figures
from dashboards.figures.held_out import calibration, certified_curve, roc
from dashboards.pages.report import build_report
from sweeper.adapters import dump
from sweeper.records import Point, ReleasedCurves, ScoreCurves
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
NAMES = ("roc", "calibration", "certified-curve")


def point(number, curves=CURVES):
    values = {"epsilon": float(number), "accuracy": 0.5 + 0.04 * number}
    return Point(trial=f"t{number:04d}", epoch=1, values=values, curves=curves)


@pytest.fixture
def data(small):
    return small([point(number) for number in range(1, 4)])


def test_every_point_has_its_curve_with_both_ends_of_the_band(data):
    info = certified_curve.info(data)
    assert [line.name for line in info.lines] == [f"own epsilon {number}: accuracy 90.0 %" for number in (1, 2, 3)]
    first = certified_curve.rows(info)[1]
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
    assert info.lines[0].name == "own epsilon 1: AUROC 0.820 [0.700, 0.910]"
    row = roc.rows(info)[1]
    assert (row["false_positive_rate"], row["true_positive_rate"]) == (0.2, 0.85)
    assert (row["false_positive_rate_of_low"], row["true_positive_rate_low"]) == (0.35, 0.6)  # the worst corner
    assert (row["false_positive_rate_of_high"], row["true_positive_rate_high"]) == (0.1, 0.95)
    figure = roc.plot(info)
    assert figure.data[0].fill == "toself"
    assert set(zip(figure.data[0].x, figure.data[0].y, strict=True)) >= {(0.35, 0.6), (0.1, 0.95)}
    assert [trace.showlegend for trace in figure.data] == [False] * 3 + [None] * 3


def test_calibration_states_the_statistic_and_its_p_value(data):
    info = calibration.info(data)
    assert info.lines[0].name == "own epsilon 1: Hosmer-Lemeshow 3.25, p 0.12"
    assert [(row["predicted"], row["observed"], row["observed_low"]) for row in calibration.rows(info)[:2]] == [
        (0.2, 0.1, 0.0),
        (0.7, 0.8, 0.6),
    ]


def test_few_of_many_points_are_drawn_with_both_ends_and_it_is_said(small):
    many = small([point(number) for number in range(1, 11)])
    for name in NAMES:
        kind = sweep_figures()[name]
        info = kind.info(many)
        assert [line.point.trial for line in info.lines] == ["t0001", "t0004", "t0007", "t0010"]
        assert kind.remarks(many) == " Drawn: 4 of 10 points of the front with curves."


def test_points_without_curves_have_no_figure(small):
    bare, many_classes = (small([point(1, curves)]) for curves in (None, replace(CURVES, scores=None)))
    for name in NAMES:
        kind = sweep_figures()[name]
        assert is_empty(kind.draw(bare))
        assert is_empty(kind.draw(many_classes)) == (name != "certified-curve")
        assert f"{kind.heading}: </b>needs {kind.needs}." in build_report(bare)


def test_the_report_shows_them_with_their_level(data):
    page = build_report(data)
    for name in NAMES:
        assert sweep_figures()[name].heading in page
    assert "bands at 95%" in page


def test_curves_are_recorded_as_they_are(tmp_path):
    recorded = dump(point(1))
    assert points_of([recorded], tmp_path) == [point(1)]
    assert "curves" not in dump(point(1, None))
