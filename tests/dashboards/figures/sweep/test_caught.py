"""The front by what an attacker finds."""

from dataclasses import replace
from math import log10

import pytest

from clipless.privacy.exposure import Basis, Exposure, Risk
from dashboards.figures import is_empty
from dashboards.figures._references import Reference
from dashboards.figures.sweep import caught
from sweeper.records import NoisyScores


def test_each_step_is_the_best_that_is_reached_at_so_many_rows_caught(sweep):
    info = caught.info(sweep)
    assert len(info.front) == len(sweep.front_points)
    for step in info.steps[::5]:
        within = [p.values["accuracy"] for p in sweep.points if caught.place(p.risk.caught[1]) <= step.epsilon]
        assert step.value == max(within)
    dominated, line, marks, crosses, key = caught.plot(info).data
    assert (dominated.name, marks.name, key.name) == (
        "dominated points",
        "points of the front",
        "front (colour: certificate), bars ±1 SD",
    )
    assert list(marks.marker.color) == [point.values["certified@0.25"] for point in info.front], "why they are there"
    assert dominated.legendrank > crosses.name.count("test rows") * 1000 > key.legendrank
    assert max(line.x) == caught.place(max(point.risk.caught[1] for point in (*info.front, *info.dominated)))


def test_the_axis_is_the_logarithm_of_what_exceeds_guessing_and_its_ticks_are_shares_of_rows(sweep):
    axis = caught.plot(caught.info(sweep)).layout.xaxis
    assert axis.type == "log"
    shares = [float(text.removesuffix("%")) for text in axis.ticktext]
    assert len(shares) > 3
    assert list(axis.tickvals) == pytest.approx([share - 1.0 for share in shares])
    assert "log of what exceeds guessing, 1 %" in axis.title.text


def test_few_points_that_are_near_have_ticks_and_one_that_is_no_more_than_guessing_has_a_place(sweep):
    info = replace(caught.info(sweep), dominated=(), steps=(), tested=(), at_price=None)
    for shares in ((0.0301, 0.0399), (0.01, 0.02)):
        risks = [replace(info.front[0].risk, caught=(0.001, share, 0.1)) for share in shares]
        points = tuple(replace(info.front[0], risk=risk) for risk in risks)
        axis = caught.plot(replace(info, front=points, front_hover=("", ""))).layout.xaxis
        assert len(axis.tickvals) >= 3
        assert all(axis.range[0] < log10(caught.place(share)) < axis.range[1] for share in shares)


def test_rows_have_what_is_caught_at_every_share_of_false_alarms(sweep):
    row = caught.rows(replace(caught.info(sweep), at_price=0.87))[0]
    assert row["on_front"]
    assert row["caught_at_price"] == 0.87
    assert row["caught@0.001"] < row["caught@0.01"] < row["caught@0.1"]


def test_the_price_is_a_line_on_the_axis_and_crosses_say_what_the_line_has_on_test_rows(sweep):
    most = max(point.risk.caught[1] for point in sweep.points)
    for times, far in ((2.0, ""), (4.0, ", beyond the axis")):
        info = replace(caught.info(sweep), at_price=times * most)
        figure = caught.plot(info)
        low, high = figure.layout.xaxis.range
        assert low < log10(caught.place(most)) < high
        assert (log10(caught.place(times * most)) < high) is not bool(far), "a far price would leave points no room"
        lines = [line.x0 for line in figure.layout.shapes if line.x0 == line.x1]
        assert lines == [caught.place(times * most)][: not far]
        (key,) = (trace for trace in figure.data if (trace.name or "").startswith("caught at the price of the sweep: "))
        assert key.name.endswith(" %, beyond the axis" if far else " %")
        assert bool([one for one in figure.layout.annotations if one.name == "far"]) is bool(far)
        assert key.mode == ("markers" if far else "lines"), "no key of a line that is not there"
    (crosses,) = (trace for trace in figure.data if trace.name.startswith("models of the line on test rows"))
    points = {point.key: point for point in info.front}
    for step, x, y in zip(info.steps, crosses.x, crosses.y, strict=True):
        found = points[step.trial, step.epoch, step.made_from]
        assert (x, y) == (caught.place(found.risk.caught[1]), found.test["accuracy"])
    assert caught.rows(info)[0]["test"] == info.front[0].test["accuracy"]


def test_hovers_say_the_bound_rounded_up(sweep):
    info = caught.info(sweep)
    point, text = info.front[0], info.front_hover[0]
    shown = float(text.rpartition("caught at 1 %: ")[2].removesuffix(" %"))
    assert 0.0 <= shown - 100.0 * point.risk.caught[1] < 0.01


def test_noisy_scores_have_their_intervals(sweep):
    info = caught.info(sweep)
    value = info.front[0].values["accuracy"]
    ends = {"accuracy": (value - 0.1, value + 0.05)}
    noisy = replace(info.front[0], noisy=NoisyScores(is_final=True, released={"accuracy": value}, intervals=ends))
    figure = caught.plot(replace(info, front=(noisy, *info.front[1:])))
    (marks,) = (trace for trace in figure.data if trace.name == "points of the front")
    assert (marks.error_y.array[0], marks.error_y.arrayminus[0]) == pytest.approx((0.05, 0.1))


def test_the_baseline_is_a_line_and_a_picture_counts_points_beyond_the_axes(sweep):
    best = max(p.values["accuracy"] for p in sweep.points)
    top = tuple(point for point in caught.info(sweep).front if point.values["accuracy"] > best - 0.1)
    lines = (Reference("majority class", best - 0.08),)
    info = replace(caught.info(sweep), front=top, front_hover=("",) * len(top), tested=(), lines=lines, still=True)
    figure = caught.plot(info)
    assert [line.y0 for line in figure.layout.shapes][-1] == best - 0.08
    low, high = figure.layout.yaxis.range
    inside = sum(low <= point.values["accuracy"] <= high for point in info.dominated)
    assert 0 < inside < len(info.dominated)
    assert f"dominated points ({inside} of {len(info.dominated)})" in [trace.name for trace in figure.data]


def test_without_points_a_price_alone_is_no_figure(sweep):
    assert is_empty(caught.plot(replace(caught.info(sweep), front=(), dominated=(), steps=(), tested=(), at_price=0.1)))


@pytest.mark.parametrize(("basis", "words"), [(Basis.RENYI, "loose"), (Basis.PROFILE, "")])
def test_a_bound_that_falls_when_the_sweep_ends_is_called_loose(sweep, basis, words):
    risk = Risk(caught=(0.2, 0.4, 0.6), advantage=0.5, basis=basis)
    price = replace(sweep.result.price, exposure=Exposure(risk=risk, groups=()))
    front = replace(sweep.result, ledger=sweep.result.ledger | {"winner": price})
    info = caught.info(replace(sweep, result=front))
    figure = caught.plot(info)
    (key,) = (trace.name for trace in figure.data if (trace.name or "").startswith("caught at the price"))
    for text in (key, caught.FIGURE.found(info)):
        assert ("loose" in text) is bool(words), "who saw the larger share would take the smaller one for a change"
