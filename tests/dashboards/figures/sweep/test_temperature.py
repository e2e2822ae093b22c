"""Temperature against radius and membership: each mark the best of its range, nothing drawn where there is nothing."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from dashboards.figures import LIGHT, is_empty, refuse, sweep_figures
from dashboards.figures.sweep import temperature
from dashboards.pages.report import build_report
from dashboards.text import is_fraction, show, title_of
from sweeper.errors import EmptyFigureError
from sweeper.privacy.held_out import wilson
from sweeper.privacy.pricing import Price
from sweeper.records import Point, Trial, TrialStatus
from sweeper.results.importance import Importance

FIGURES = sweep_figures()


def trials(*temperatures):
    configs = [{} if t is None else {"training": {"loss": {"temperature": t}}} for t in temperatures]
    return tuple(Trial(id=f"t{i}", config=c, status=TrialStatus.COMPLETED) for i, c in enumerate(configs))


def point(trial, epoch, epsilon, accuracy, **values):
    names = {"half": "certified@0.5", "one": "certified@1", "attacked": "attacked@1/2", "auto": "autoattacked@0.5"}
    names |= {"auroc": "membership-auroc", "advantage": "membership-advantage"}
    found = {names[key]: value for key, value in values.items()}
    return Point(trial=trial, epoch=epoch, values={"epsilon": epsilon, "accuracy": accuracy, **found})


@pytest.fixture
def two_rows(small):
    """Trials 0 and 2 share a temperature."""
    points = [
        point("t0", 1, 1.0, 0.6, half=0.5, one=0.1, attacked=0.55, auroc=0.51, advantage=0.03),
        point("t0", 2, 2.0, 0.8, half=0.4, one=0.2, auroc=0.6, advantage=0.2),
        point("t2", 1, 2.9, 0.7, half=0.45, one=0.3, attacked=0.5, auto=0.48, auroc=0.9, advantage=0.7),
        point("t2", 2, 3.1, 0.99, half=0.9, one=0.9, auroc=0.99, advantage=0.9),
        point("t1", 1, 1.0, 0.5, half=0.45, one=0.4),
    ]
    return small(points, trials=trials(0.1, 2.0, 0.1))


def test_each_cell_is_the_best_of_its_row_within_the_budget(two_rows):
    info = temperature.info(two_rows)
    assert (info.budget, info.names) == (3.0, ("accuracy", "certified@0.5", "certified@1"))
    assert [(row.label, row.trials) for row in info.rows] == [("0.1", ("t0", "t2")), ("2", ("t1",))]
    assert [[cell.value for cell in row.cells] for row in info.rows] == [[0.8, 0.5, 0.3], [0.5, 0.45, 0.4]]
    assert [cell.point.key for cell in info.rows[0].cells] == [("t0", 2, ""), ("t0", 1, ""), ("t2", 1, "")]
    others = [[(cell.value, cell.point.key) for cell in cells] for cells in info.rows[0].others]
    assert others == [[(0.7, ("t2", 1, ""))], [(0.45, ("t2", 1, ""))], [(0.2, ("t0", 2, ""))]]
    assert {cell.temperature for cells in info.rows[0].others for cell in cells} == {0.1}


def test_rows_that_may_differ_by_chance_are_not_drawn_unless_attacks_tell_them_apart(small, two_rows):
    points = [point(f"t{i}", 1, 1.0, 0.5 + i / 100, half=0.4) for i in range(4)]
    data = small(points, trials=trials(0.1, 0.1, 2.0, 2.0))
    assert temperature.info(data).rows
    for sweep, drawn in ((data, 0), (two_rows, 2)):
        sweep.__dict__["importances"] = (Importance("accuracy", 0.05, {}, {}),)
        assert len(temperature.info(sweep).rows) == drawn
    with pytest.raises(
        EmptyFigureError, match=r"found trials of which hyperparameters explain no result \(an R² of 0.05"
    ):
        refuse({"temperature": temperature.FIGURE}, temperature.FIGURE, data)


def test_membership_is_that_of_the_most_accurate_model_of_the_row(two_rows):
    info = temperature.info(two_rows)
    assert info.attacks == ("membership-auroc", "membership-advantage")
    assert [row.membership for row in info.rows] == [(0.6, 0.2), (None, None)]


def test_an_attack_stands_in_the_cell_of_its_model_and_radius(two_rows):
    first = temperature.info(two_rows).rows[0].cells
    assert [cell.attacked for cell in first] == [None, 0.55, None]  # attacked@1/2 of t0, epoch 1
    figure = temperature.plot(temperature.info(two_rows))
    (attacked,) = (trace for trace in figure.data if trace.name == "certified, L2 radius 0.5, attacked")
    assert (attacked.x, attacked.y) == ((0.1, 2.0), (0.55, None))
    assert "attacked@1/2: 55.0 %" in attacked.text[0]


def test_the_stronger_of_two_attacks_is_shown(small):
    points = [
        point("t0", 1, 1.0, 0.6, half=0.4, attacked=0.5, auto=0.48),
        point("t1", 1, 1.0, 0.6, half=0.3, auroc=0.5),
    ]
    info = temperature.info(small(points, trials=trials(1.0, 2.0)))
    assert info.rows[0].cells[1].attacked == 0.48


def test_of_equals_the_cheaper_point_is_shown(small):
    points = [
        point("t0", 2, 2.0, 0.6, half=0.3),
        point("t0", 1, 1.0, 0.6, half=0.3),
        point("t1", 1, 1.0, 0.5, half=0.3, auroc=0.5),
    ]
    info = temperature.info(small(points, trials=trials(1.0, 2.0)))
    assert {cell.point.key for cell in info.rows[0].cells} == {("t0", 1, "")}


def test_the_budget_is_the_first_that_every_row_meets(small):
    def budget(*epsilons):
        points = [point(f"t{i}", 1, e, 0.5, half=0.1, auroc=0.5) for i, e in enumerate(epsilons)]
        return temperature.info(small(points, trials=trials(1.0, 2.0))).budget

    assert [budget(1.0, 2.5), budget(1.0, 5.0), budget(9.0, 1.0)] == [3.0, 8.0, 9.0]


def test_many_temperatures_are_ranges_of_equal_ratio(small):
    temperatures = [0.01 * 10 ** (4 * i / 99) for i in range(100)]
    points = [point(f"t{i}", 1, 1.0, 0.5, half=0.1) for i in range(100)]
    rows = temperature.info(small(points, trials=trials(*temperatures))).rows
    assert len(rows) == temperature.MOST_ROWS
    assert sorted(id_ for row in rows for id_ in row.trials) == sorted(f"t{i}" for i in range(100))
    assert all(one.high < other.low for one, other in pairwise(rows))
    assert all(row.high / row.low <= 10**0.5 * (1 + 1e-9) for row in rows)
    assert rows[0].label == "0.01 to 0.0305"


def test_trials_without_a_temperature_have_no_row(small):
    points = [point(f"t{i}", 1, 1.0, 0.5, half=0.1) for i in range(5)]
    assert len(temperature.info(small(points, trials=trials(1.0, None, 2.0, 2.0, 2.0))).rows) == 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("temperatures", "values"),
    [
        ((1.0, 1.0), {"half": 0.1, "auroc": 0.5}),
        ((1.0, 2.0), {"auroc": 0.5}),
        ((None, None), {"half": 0.1, "auroc": 0.5}),
        ((1.0, 2.0, 2.0), {"half": 0.1}),
    ],
    ids=["one temperature", "no radius", "no temperature", "three trials without membership"],
)
def test_without_two_temperatures_a_radius_and_trials_to_compare_nothing_is_drawn(small, temperatures, values):
    points = [point(f"t{i}", 1, 1.0, 0.5, **values) for i in range(len(temperatures))]
    data = small(points, trials=trials(*temperatures))
    assert is_empty(FIGURES["temperature"].draw(data, LIGHT))
    assert 'id="plot-temperature"' not in build_report(data)


def test_each_name_has_marks_over_the_temperatures_and_membership_a_panel_below(sweep, two_rows):
    figure = temperature.plot(temperature.info(two_rows))
    lines = {trace.name: trace for trace in figure.data}
    assert [
        lines[name].x
        for name in (
            "accuracy",
            "certified, L2 radius 0.5",
            "certified, L2 radius 1",
        )
    ] == [(0.1, 2.0)] * 3
    names = ("accuracy", "certified, L2 radius 1")
    assert [lines[name].y for name in names] == [(0.8, 0.5), (0.3, 0.4)]
    assert {trace.mode for trace in figure.data} == {"markers"}, "they are other models, not one that changes"
    assert (lines["accuracy, other trials"].x, lines["accuracy, other trials"].y) == ((0.1,), (0.7,))
    keys = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert [name for name in keys if "other trials" in name] == ["open: other trials"], "one key for all"
    leaks = lines["membership AUROC"], lines["membership advantage"]
    assert [(one.x, one.y, one.yaxis) for one in leaks] == [((0.1, 2.0), (y, None), "y2") for y in (0.6, 0.2)]
    assert figure.layout.yaxis2.domain[1] < figure.layout.yaxis.domain[0]
    assert figure.layout.xaxis.anchor == "y2"
    alone = temperature.plot(temperature.info(sweep))
    assert alone.layout.yaxis.domain is None
    assert {trace.yaxis for trace in alone.data} == {None}


def test_the_figure_says_within_which_epsilon_and_at_which_delta(sweep):
    info = temperature.info(replace(sweep, result=replace(sweep.result, stages=())))
    title = temperature.plot(info).layout.xaxis.title.text.replace("<br>", " ")
    assert "own epsilon ≤\xa03 (fixed in advance), delta = 1e-4" in title
    assert "L2 radius in pixels in [0,\xa01]" in title


def test_the_picture_says_how_sure_scores_are_how_many_trials_there_are_and_what_the_sweep_costs(two_rows):
    rows = replace(two_rows.result.claim.baselines, rows={"validation": 261})
    claim = replace(two_rows.result.claim, baselines=rows, evaluation="public", unit="row")
    price = Price(epsilon=2.5, delta=1e-5, events=3)
    data = replace(two_rows, result=replace(two_rows.result, claim=claim, ledger={"winner": price}))
    for narrow in (False, True):
        axes = FIGURES["temperature"].draw(data, narrow=narrow, still=True).layout
        words = re.sub("<.*?>", " ", f"{axes.xaxis.title.text} {axes.yaxis.title.text}")
        assert "(261" in words or narrow
        for said in ("validation rows", "95 % CI ≤ ±6.1 points", "best of each of 2 ranges (dashed borders), 3 trials"):
            assert said in re.sub(" +", " ", words)
        assert "price of the sweep: 2.5" in words


def test_bars_are_intervals_of_scores(two_rows):
    rows = replace(two_rows.result.claim.baselines, rows={"validation": 50})
    claim = replace(two_rows.result.claim, baselines=rows, evaluation="public", unit="row")
    info = temperature.info(replace(two_rows, result=replace(two_rows.result, claim=claim)))
    figure = temperature.plot(info)
    bars = {trace.name: trace.error_y for trace in figure.data}
    for name, scores in (("accuracy", (0.8, 0.5)), ("certified, L2 radius 1", (0.3, 0.4))):
        ends = [wilson(score, 50) for score in scores]
        assert bars[name].array == pytest.approx([high - score for (_, high), score in zip(ends, scores, strict=True)])
    assert figure.layout.yaxis.range[0] < wilson(0.3, 50)[0], "a bar is not cut"
    assert "bars: 95 % CI" in [trace.name for trace in figure.data]
    known = temperature.rows(info)[0]
    assert (known["low"], known["high"]) == wilson(0.8, 50)
    row = info.rows[0]
    noisy = replace(row.cells[0], interval=(0.75, 0.95))
    shown = replace(info, rows=(replace(row, cells=(noisy, *row.cells[1:])), info.rows[1]))
    (best,) = (trace for trace in temperature.plot(shown).data if trace.name == "accuracy")
    assert (best.error_y.array[0], best.error_y.arrayminus[0]) == (pytest.approx(0.15), pytest.approx(0.05))


def test_an_auroc_sweep_shows_certified_auroc(small):
    values = {
        "epsilon": 1.0,
        "accuracy": 0.9,
        "auroc": 0.95,
        "certified@1": 0.1,
        "certified-auroc@1": 0.4,
        "attacked@1": 0.3,
        "membership-auroc": 0.5,
    }
    points = [Point(trial=f"t{i}", epoch=1, values=values) for i in range(2)]
    info = temperature.info(small(points, objectives=("epsilon", "auroc"), trials=trials(1.0, 2.0)))
    assert info.names == ("auroc", "certified-auroc@1")
    assert [(cell.value, cell.attacked) for cell in info.rows[0].cells] == [(0.95, None), (0.4, None)]


@pytest.mark.parametrize(
    ("name", "title", "shown"),
    [
        ("certified-auroc@1/2", "certified AUROC at radius 1/2", "50.0 %"),
        ("attacked@36/255", "accuracy under PGD at radius 36/255", "50.0 %"),
        ("autoattacked@0.1", "accuracy under AutoAttack at radius 0.1", "50.0 %"),
        ("membership-auroc", "membership AUROC", "50.0 %"),
        ("membership-advantage", "membership advantage", "50.0 %"),
        ("epsilon", "own epsilon", "0.5"),
    ],
)
def test_metrics_are_shares_with_their_titles(name, title, shown):
    assert (title_of(name), show(name, 0.5), is_fraction(name)) == (title, shown, shown.endswith("%"))


def test_trials_of_another_stage_have_no_row_and_the_figure_says_so(small):
    loud = [point(f"t{i}", 1, 0.25, 0.2, half=0.1) for i in range(1, 5)]
    data = small([*loud, point("t5", 1, 2.9, 0.9, half=0.5)], trials=trials(9.0, 0.1, 0.2, 0.3, 0.4, 0.5)[1:])
    info = temperature.info(replace(data, result=replace(data.result, stages=(4, 1))))
    assert [row.label for row in info.rows] == ["0.1", "0.2", "0.3", "0.4"]
    assert (info.budget, info.note) == (
        0.25,
        "Only trials of stage 1 (own epsilon ≤ 0.25); other stages have other noise",
    )
