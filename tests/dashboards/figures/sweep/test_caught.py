"""The front by what an attacker finds."""

from dashboards.figures.sweep import caught


def test_each_step_is_the_best_that_is_reached_at_so_many_rows_caught(sweep):
    info = caught.info(sweep)
    assert len(info.front) == len(sweep.front_points)
    for step in info.steps[::5]:
        within = [p.values["accuracy"] for p in sweep.points if p.risk.caught[1] <= step.epsilon]
        assert step.value == max(within)
    figure = caught.plot(info)
    assert max(figure.data[-1].x) == 100.0 * max(point.risk.caught[1] for point in (*info.front, *info.dominated))


def test_rows_have_what_is_caught_at_every_share_of_false_alarms(sweep):
    row = caught.rows(caught.info(sweep))[0]
    assert row["on_front"]
    assert row["caught@0.001"] < row["caught@0.01"] < row["caught@0.1"]


def test_hovers_say_the_bound_rounded_up(sweep):
    info = caught.info(sweep)
    point, text = info.front[0], info.front_hover[0]
    shown = float(text.rpartition("caught at 1 %: ")[2].removesuffix(" %"))
    assert 0.0 <= shown - 100.0 * point.risk.caught[1] < 0.01
