"""From explorers to finals: where a promoted trial comes from, and whether the order held."""

from dataclasses import replace

import pytest

from dashboards.figures import LIGHT, is_empty
from dashboards.figures.search import stages
from dashboards.figures.sweep import price
from sweeper.privacy.pricing import Price
from sweeper.records import Point, Trial, TrialStatus

RATES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
EXPLORED = (0.25, 0.3, 0.35, 0.4, 0.5, 0.6)


@pytest.fixture
def staged(small):
    """Six explorers, five of them promoted with another fraction, and one final; accuracy by trial."""

    def make(*accuracies):
        rates = (*RATES, *RATES[1:], RATES[-1])
        fractions = (0.5,) * 6 + (0.3,) * 5 + (0.1,)
        trials = tuple(
            Trial(
                id=f"t{i:04d}",
                config={"training": {"learning_rate": rate, "sensitivity_fraction": fraction}},
                status=TrialStatus.COMPLETED,
            )
            for i, (rate, fraction) in enumerate(zip(rates, fractions, strict=True), start=1)
        )
        points = [
            Point(
                trial=trial.id, epoch=epoch, values={"epsilon": epoch * 0.5, "accuracy": accuracy - 0.1 * (2 - epoch)}
            )
            for trial, accuracy in zip(trials, (*EXPLORED, *accuracies), strict=True)
            for epoch in (1, 2)
        ]
        data = small(points, objectives=("epsilon", "accuracy"), trials=trials)
        return replace(data, result=replace(data.result, stages=(6, 5, 1)))

    return make


def test_a_promoted_trial_comes_from_the_one_whose_configuration_it_has(staged):
    info = stages.info(staged(0.7, 0.75, 0.8, 0.85, 0.9, 0.95))
    assert [(one.trial, one.stage, one.source) for one in info.trials[6:]] == [
        *((f"t{5 + source:04d}", 1, f"t{source:04d}") for source in range(2, 7)),
        ("t0012", 2, "t0011"),
    ]
    assert all(one.source is None for one in info.trials[:6])
    assert [one.value for one in info.trials][-1] == pytest.approx(0.95)
    assert info.trials[0].epsilon == 1.0


def test_the_order_is_measured_where_five_were_promoted(staged):
    assert stages.info(staged(0.7, 0.75, 0.8, 0.85, 0.9, 0.95)).taus == (1.0, None)
    assert stages.info(staged(0.9, 0.85, 0.8, 0.75, 0.7, 0.95)).taus == (-1.0, None)
    assert stages.info(staged(0.7, 0.75, 0.8, 0.9, 0.85, 0.95)).taus[0] == pytest.approx(8 / 10)
    data = staged(0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
    fewer = tuple(point for point in data.points if point.trial != "t0008")
    assert stages.info(replace(data, result=replace(data.result, points=fewer))).taus == (None, None)
    assert "where at least 5 trials were promoted" in stages.FIGURE.remarks(data)


def test_trials_stand_beside_those_that_they_would_hide(staged):
    info = stages.info(staged(0.7, 0.7001, 0.7, 0.8, 0.9, 0.95))
    x = next(one.x for one in stages.plot(info).data if one.name == "one trial")
    assert len(set(x[6:9])) == 3
    assert x[9] == x[10] == 1


def test_marks_are_open_of_trials_that_were_not_promoted(staged):
    marks = stages.plot(stages.info(staged(0.7, 0.75, 0.8, 0.85, 0.9, 0.95))).data[1]
    assert marks.marker.symbol == ("circle-open", *["circle"] * 5, *["circle-open"] * 4, "circle", "circle")


def test_the_best_of_every_stage_has_its_interval(staged):
    info = replace(
        stages.info(staged(0.7, 0.75, 0.8, 0.85, 0.9, 0.95)), sure={"t0006": (0.5, 0.7), "t0011": (0.8, 1.0)}
    )
    bars = next(one for one in stages.plot(info).data if one.error_y.array)
    assert (bars.x, bars.y) == (pytest.approx((-0.06, 0.94)), (0.6, 0.9)), "beside the marks"
    assert bars.error_y.array == pytest.approx((0.1, 0.1))


def test_every_stage_is_named_with_its_epsilon(staged):
    figure = stages.plot(stages.info(staged(0.7, 0.75, 0.8, 0.85, 0.9, 0.95)))
    assert figure.layout.xaxis.ticktext[1] == "stage 2<br>own epsilon ≤ 1<br>Kendall's tau 1.00 (n = 5)"


def test_the_epsilon_of_the_best_epoch_is_told_from_that_of_the_whole_training(staged):
    data = staged(0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
    points = [replace(p, values={**p.values, "accuracy": 0.99}) if p.epoch == 1 else p for p in data.points]
    data = replace(data, result=replace(data.result, points=tuple(points)))
    row = stages.rows(stages.info(data))[0]
    assert (row["epoch"], row["epsilon"], row["epsilon_of_training"]) == (1, 0.5, 1.0)
    assert "in epoch 1, own epsilon 0.5<br>whole training: own epsilon 1" in stages.FIGURE.draw(data).data[1].text[0]
    assert "tau is Kendall's" not in stages.FIGURE.remarks(data)  # all alike


def test_a_sweep_without_stages_has_no_such_figure(sweep):
    data = replace(sweep, result=replace(sweep.result, stages=()))
    assert is_empty(stages.FIGURE.draw(data, LIGHT))


def test_nothing_is_bought_below_the_price_of_a_look(sweep):
    info = price.info(sweep)
    utility, certificate = info.values
    assert (utility.name, certificate.name) == ("accuracy", "certified@0.25")
    assert utility.best.epsilon == certificate.best.epsilon == 13.61
    assert utility.best.value == max(point.values["accuracy"] for point in sweep.points)
    after = [row for row in price.rows(info) if row["way"] == "price"]
    assert [row["epsilon"] for row in after] == [13.61, 13.61]
    on_test = [row for row in price.rows(info) if row["way"] == "on test rows"]
    assert [(row["name"], row["epsilon"]) for row in on_test] == [("accuracy", 13.61), ("certified@0.25", 13.61)]
    assert all(row["epsilon"] <= 10 for row in price.rows(info) if row not in (*after, *on_test))


@pytest.mark.parametrize("epsilon", [None, float("inf")])
def test_a_price_that_is_not_known_or_not_finite_buys_nothing(sweep, epsilon):
    ledger = {} if epsilon is None else {"winner": Price(epsilon=epsilon, delta=1e-4, events=24)}
    info = price.info(replace(sweep, result=replace(sweep.result, ledger=ledger)))
    assert [value.best for value in info.values] == [None, None]
