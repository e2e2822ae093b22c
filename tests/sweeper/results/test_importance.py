from dataclasses import replace

import numpy as np
import pytest

from sweeper.records import Objective, Point, Trial, TrialStatus
from sweeper.results.front import build_front
from sweeper.results.importance import LEAST_TRIALS, encode, importances

OBJECTIVES = tuple(map(Objective.named, ("epsilon", "accuracy")))


@pytest.fixture
def front_of(claim):
    """Make the front of trials with these configurations and accuracies."""

    def make(configs, accuracies):
        ids = [f"t{i:04d}" for i in range(len(configs))]
        trials = [Trial(id=i, config=c, status=TrialStatus.COMPLETED) for i, c in zip(ids, configs, strict=True)]
        points = [
            Point(trial=i, epoch=e, values={"epsilon": 1.0, "accuracy": a if e == 2 else 0.0})
            for i, a in zip(ids, accuracies, strict=True)
            for e in (1, 2)
        ]
        return build_front(sweep="s", objectives=OBJECTIVES, trials=trials, points=points, ledger={}, claim=claim)

    return make


def test_where_every_trial_reached_the_same_nothing_matters(front_of):
    assert importances(front_of([{"rate": i} for i in range(20)], [0.5] * 20)) == ()


def test_what_matters_is_told_from_what_does_not(front_of):
    generator = np.random.default_rng(0)
    rate, width = generator.uniform(size=(2, 120))
    configs = [{"rate": float(r), "width": float(w), "same": 1} for r, w in zip(rate, width, strict=True)]
    found = {i.target: i for i in importances(front_of(configs, 0.2 + 0.6 * rate))}
    assert set(found) == {"accuracy"}  # epsilon is the same everywhere, and the hypervolume says what accuracy says
    accuracy = found["accuracy"]
    assert accuracy.explained > 0.9
    assert accuracy.losses["rate"] == pytest.approx(2.0, abs=0.4)
    assert accuracy.losses["width"] < 0.02
    assert "same" not in accuracy.losses


def test_a_loss_below_0_stays_what_it_is(front_of):
    generator = np.random.default_rng(1)
    values = generator.uniform(size=(60, 6))
    configs = [{f"x{i}": float(v) for i, v in enumerate(row)} for row in values]
    (found,) = importances(front_of(configs, 0.2 + 0.6 * values[:, 0]))
    assert min(found.losses.values()) < 0.0 < found.losses["x0"]
    assert found.errors.keys() == found.losses.keys()


def test_two_standard_errors_tell_what_matters_from_chance(front_of):
    generator = np.random.default_rng(2)
    found = {"x0": [], "others": []}
    for _ in range(8):
        values = generator.uniform(size=(30, 5))
        configs = [{f"x{i}": float(v) for i, v in enumerate(row)} for row in values]
        (one,) = importances(front_of(configs, 0.2 + 0.6 * values[:, 0] + generator.normal(0.0, 0.05, 30)))
        for name, loss in one.losses.items():
            found["x0" if name == "x0" else "others"].append(loss > 2.0 * one.errors[name])
    assert np.mean(found["x0"]) > 0.9
    assert np.mean(found["others"]) <= 0.05


def test_a_result_that_differs_by_rounding_alone_hides_no_other(front_of):
    rate = np.random.default_rng(3).uniform(size=40)
    front = front_of([{"rate": float(r)} for r in rate], 0.2 + 0.6 * rate)
    rounded = {point.key: 2.975 + 4e-16 * i for i, point in enumerate(front.points)}
    points = [replace(p, values={**p.values, "epsilon": rounded[p.key]}) for p in front.points]
    found = {one.target: one for one in importances(replace(front, points=tuple(points)))}
    assert set(found) == {"accuracy"}
    assert found["accuracy"].explained > 0.8


def test_a_hypervolume_that_says_something_else_has_its_panel_and_trials_can_be_chosen(front_of):
    configs = [{"rate": float(i)} for i in range(20)]
    front = front_of(configs, np.linspace(0.1, 0.9, 20))
    points = [replace(p, values={**p.values, "epsilon": 1.0 + int(p.trial[1:]) % 3}) for p in front.points]
    varied = replace(front, points=tuple(points))
    assert [one.target for one in importances(varied)] == ["epsilon", "accuracy", "hypervolume"]
    assert importances(varied, trials=list(front.trials)[: LEAST_TRIALS - 1]) == ()


def test_eight_trials_are_enough(front_of):
    configs = [{"rate": float(i)} for i in range(8)]
    assert [one.target for one in importances(front_of(configs, np.linspace(0, 1, 8)))] == ["accuracy"]


def test_noise_few_trials_and_what_does_not_vary_explain_nothing(front_of):
    generator = np.random.default_rng(1)
    configs = [{"rate": float(r)} for r in generator.uniform(size=80)]
    assert importances(front_of(configs, generator.uniform(size=80)))[0].explained < 0.1
    few = [{"rate": float(i)} for i in range(LEAST_TRIALS - 1)]
    assert importances(front_of(few, np.linspace(0, 1, len(few)))) == ()
    assert importances(front_of([{"rate": 1.0}] * 30, np.linspace(0, 1, 30))) == ()
    assert importances(front_of([], [])) == ()


def test_a_choice_is_credited_and_not_the_parameter_that_comes_with_it(front_of):
    generator = np.random.default_rng(2)
    configs = [
        {"loss": {"name": "hkr", "alpha": float(generator.uniform())} if i % 2 else {"name": "cce"}} for i in range(80)
    ]
    accuracies = [0.8 if "alpha" in c["loss"] else 0.3 for c in configs]
    shares = importances(front_of(configs, np.array(accuracies) + generator.normal(0, 0.01, 80)))[0].losses
    assert shares["loss.alpha"] < 0.02
    # Whether alpha is there says as much as the name does, so the forest may look at either.
    assert set(shares) == {"loss.name", "loss.alpha"}


def test_a_parameter_of_a_choice_that_matters_there_is_found(front_of):
    generator = np.random.default_rng(3)
    configs = [
        {"loss": {"name": "hkr", "alpha": float(generator.uniform())} if i % 2 else {"name": "cce"}, "x": i % 7}
        for i in range(120)
    ]
    accuracies = [c["loss"].get("alpha", 0.5) for c in configs]
    (importance, *_) = importances(front_of(configs, accuracies))
    assert importance.losses["loss.alpha"] > 0.7
    assert max(importance.losses["x"], importance.losses["loss.name"]) < 0.05


def test_a_configuration_becomes_numbers_and_what_it_lacks_is_nan():
    names, rows = encode(
        [
            {"a": 10, "b": "x", "c": True},
            {"a": 2.5, "b": "y", "c": True},
            {"b": "x", "c": True},
            {"a": 1e300, "c": True},
        ]
    )
    assert names == ("a", "b")
    assert rows.tolist()[:2] == [[1.0, 0.0], [0.0, 1.0]]
    assert np.isnan(rows[2, 0])
    assert np.isnan(rows[3, 1])
    assert encode([])[0] == ()


def test_a_value_that_one_trial_has_and_values_of_any_size_do_no_harm(front_of):
    configs = [{"rate": 10.0 ** (30 * (i % 9)), "mixed": "a" if i % 2 else i} for i in range(30)]
    configs[4]["rare"] = float("inf")
    found = importances(front_of(configs, [i % 9 / 10 for i in range(30)]))
    assert found[0].losses["rate"] > 0.5
    assert found[0].losses["rare"] < 0.1
