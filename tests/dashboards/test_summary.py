from math import inf

import pytest

from dashboards.summary import best_of, budgets, front_rows


def test_the_best_within_a_budget_is_on_the_front_and_a_larger_one_never_buys_less(sweep):
    for budget in budgets(sweep):
        best = budget.best["accuracy"]
        assert best.key in sweep.result.on_front
        assert best.values["epsilon"] <= budget.epsilon
        assert best.values["accuracy"] == max(
            p.values["accuracy"] for p in sweep.points if p.values["epsilon"] <= budget.epsilon
        )
    for name in ("accuracy", "certified@0.25"):
        values = [b.best[name].values[name] for b in budgets(sweep)]
        assert values == sorted(values)
    assert best_of(sweep, "accuracy", 1e-6) is None


def test_points_are_chosen_on_validation_not_on_test(make_front, load):
    front = make_front()
    before = best_of(load(front), "accuracy", 3.0)
    for point in front["points"]:
        if point["on_front"]:
            point["test"]["accuracy"] = 1.0 if point["values"]["accuracy"] < 0.5 else 0.0
    assert best_of(load(front), "accuracy", 3.0).key == before.key


def test_among_equals_the_cheaper_point_is_best(make_front, load):
    front = make_front()
    for point in front["points"]:
        point["values"]["accuracy"] = 0.5
    cheapest = min(p["values"]["epsilon"] for p in front["points"] if p["on_front"])
    assert best_of(load(front), "accuracy", inf).values["epsilon"] == cheapest


def test_every_row_of_the_front_has_the_same_columns_with_test_beside_validation(sweep):
    rows = front_rows(sweep)
    assert len(rows) == len(sweep.result.on_front)
    assert len({tuple(row) for row in rows}) == 1
    columns = list(rows[0])
    assert columns[:8] == [
        "trial",
        "epoch",
        "epsilon",
        "price",
        "accuracy",
        "test accuracy",
        "certified@0.25",
        "test certified@0.25",
    ]
    assert {row["price"] for row in rows} == {13.61}
    assert columns[-1] == "model"
    assert {"epsilon pld", "epsilon rdp", "config training.learning_rate"} <= set(columns)
    assert rows[0]["test accuracy"] == pytest.approx(rows[0]["accuracy"] - 0.012, abs=1e-4)


def test_what_a_point_does_not_have_is_none(sweep):
    rows = front_rows(sweep)
    mlps = [row for row in rows if row["config model.architecture"] == "mlp"]
    assert mlps
    assert all(row["config model.patch"] is None for row in mlps)
