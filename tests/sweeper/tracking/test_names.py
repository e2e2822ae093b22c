from dataclasses import replace
from math import inf

import pytest

from clipless.privacy.exposure import Basis, Exposure, GroupCost, Risk
from sweeper.privacy.pricing import Price
from sweeper.records import NoisyScores, Point, SweepStatus, TrialStatus
from sweeper.tracking.names import (
    MAX_KEY_LENGTH,
    MAX_PARAM_LENGTH,
    RUN_STATUS,
    best_metrics,
    clean,
    metric_names,
    mlflow_params,
    model_metrics,
    price_metrics,
)


def test_a_points_numbers_get_the_names_of_the_contract():
    named = metric_names(
        {"epsilon": 1.0, "accuracy": 0.9, "auroc": 0.95, "certified@36/255": 0.5, "certified@0.25": 0.4},
        accountants={"rdp": 1.1, "pld": 1.0},
        sensitivities={"1.weight": 2.5},
    )
    assert named == {
        "epsilon": 1.0,
        "val/accuracy": 0.9,
        "val/auroc": 0.95,
        "val/certified/36_255": 0.5,
        "val/certified/0.25": 0.4,
        "epsilon/rdp": 1.1,
        "epsilon/pld": 1.0,
        "sensitivity/1.weight": 2.5,
    }
    assert [clean(name) for name in named] == list(named)


@pytest.mark.parametrize(
    "name", ["a@b", "../up", "/root", "a//b", "x" * 400, "@", "", ".", "a/../b", "ä+b", "a/", "x" * 249 + "/yy"]
)
def test_a_cleaned_name_is_one_that_mlflow_accepts(name):
    from mlflow.utils.validation import _validate_metric_name

    _validate_metric_name(clean(name))
    assert len(clean(name)) <= MAX_KEY_LENGTH
    assert clean(clean(name)) == clean(name)


def test_parameters_are_flattened_and_every_status_has_a_run_status():
    flat = mlflow_params({"a": {"b": {"c": 1}}, "text": "x" * 9000, "none": None, "flag": True, "empty": {}})
    assert flat == {"a.b.c": "1", "text": "x" * MAX_PARAM_LENGTH, "none": "null", "flag": "true"}


def test_every_status_has_a_run_status_and_none_is_running():
    assert RUN_STATUS.keys() == {*TrialStatus, *(status for status in SweepStatus if status.is_end)}
    assert set(RUN_STATUS.values()) == {"FINISHED", "FAILED", "KILLED"}


def test_the_price_is_a_metric_that_of_the_winner_where_nothing_else_leaves_and_none_where_it_is_not_known():
    prices = {name: Price(epsilon=6.0, delta=1e-5, events=3) for name in ("winner", "front", "everything")}
    assert price_metrics(prices) == {"price": 6.0}
    secret = Price(epsilon=float("inf"), delta=1e-5, events=0)
    assert price_metrics(prices | {"everything": secret}) == {"price": 6.0}
    assert price_metrics(dict.fromkeys(prices, secret)) == price_metrics({}) == {}


def test_what_a_price_means_to_a_person_is_metrics_too_but_for_what_is_infinite():
    group = GroupCost(rows=2, epsilon=inf, shift=0.5, basis=Basis.PAIR, own=False)
    risk = Risk(caught=(0.001, 0.02, 0.2), advantage=0.1, basis=Basis.PAIR)
    price = replace(Price(epsilon=6.0, delta=1e-5, events=3), exposure=Exposure(risk=risk, groups=(group,)))
    named = price_metrics({"winner": price})
    assert named == {
        "price": 6.0,
        "price/caught/0.001": 0.001,
        "price/caught/0.01": 0.02,
        "price/caught/0.1": 0.2,
        "price/advantage": 0.1,
        "price/shift/2-rows": 0.5,
    }
    assert [clean(name) for name in named] == list(named)


def test_a_noisy_best_value_has_the_ends_of_its_interval():
    noisy = NoisyScores(is_final=True, released={"accuracy": 0.83}, intervals={"accuracy": (0.7, 0.9)})
    point = Point(trial="t0001", epoch=3, values={"epsilon": 1.0, "accuracy": 0.8}, noisy=noisy)
    found = best_metrics(point, "accuracy")
    assert (found["best/accuracy/low"], found["best/accuracy/high"]) == (0.7, 0.9)
    assert "best/accuracy/low" not in best_metrics(replace(point, noisy=None), "accuracy")


def test_the_metrics_of_a_model_have_intervals_and_no_epsilon_of_one_training():
    noisy = NoisyScores(is_final=True, released={"accuracy": 0.83}, intervals={"accuracy": (0.7, 0.9)})
    point = Point(trial="t0001", epoch=3, values={"epsilon": 1.0, "accuracy": 0.8}, noisy=noisy, test={"accuracy": 0.7})
    found = model_metrics(replace(point, made_from="slow-midpoint"))
    assert (found["slow-midpoint/low/val/accuracy"], found["slow-midpoint/high/val/accuracy"]) == (0.7, 0.9)
    assert found["slow-midpoint/test/accuracy"] == 0.7
    assert not any("epsilon" in name for name in model_metrics(point)), "a winner may have none of its own"
