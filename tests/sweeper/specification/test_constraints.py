"""Constraints on outcomes: read as written, told to the sampler as violations, steering what it proposes."""

import re
from math import inf, nan

import pytest

from sweeper.errors import SpecError
from sweeper.records import Objective, Point
from sweeper.search.optuna_search import Search
from sweeper.specification.constraints import FARTHEST, OutcomeConstraint, parse_constraint
from sweeper.specification.search import Sampler
from sweeper.specification.spec import Spec
from tests.factories import spec_error

RECORDED = ("epsilon", "accuracy", "certified@36/255")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("certified@36/255 >= 0.3", OutcomeConstraint("certified@36/255", True, 0.3)),
        ("epsilon<=8", OutcomeConstraint("epsilon", False, 8.0)),
        ("  accuracy  >=  1e-1 ", OutcomeConstraint("accuracy", True, 0.1)),
        ("certified@12/85 >= .5", OutcomeConstraint("certified@36/255", True, 0.5)),
    ],
)
def test_constraints_are_read(text, expected):
    assert parse_constraint(text, RECORDED) == expected
    assert parse_constraint(str(expected), RECORDED) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accuracy > 0.3", "such as"),
        ("accuracy", "such as"),
        ("certified@0.5 >= 0.3", "or one listed in search.metrics"),
        ("epsilon <= many", "finite number"),
        ("epsilon <= nan", "finite number"),
        ("accuracy >= 90", "a share from 0 to 1 as the bound of accuracy, got 90; did you mean 0.9?"),
        ("certified@36/255 >= 300", "a share from 0 to 1 as the bound of certified@36/255, got 300$"),
    ],
)
def test_what_cannot_be_read_is_refused(text, words):
    with pytest.raises(SpecError, match=words):
        parse_constraint(text, RECORDED)


@pytest.mark.parametrize(
    ("constraint", "value", "violation"),
    [
        (OutcomeConstraint("accuracy", True, 0.5), 0.3, 0.2),
        (OutcomeConstraint("accuracy", True, 0.5), 0.7, -0.2),
        (OutcomeConstraint("epsilon", False, 8.0), 10.0, 2.0),
        (OutcomeConstraint("epsilon", False, 8.0), inf, FARTHEST),
        (OutcomeConstraint("epsilon", False, 8.0), nan, FARTHEST),
        (OutcomeConstraint("epsilon", False, 8.0), None, FARTHEST),
    ],
)
def test_a_violation_is_by_how_much_the_bound_is_missed(constraint, value, violation):
    values = {} if value is None else {constraint.name: value}
    assert constraint.violation(values) == pytest.approx(violation)


def space(trial):
    """One value that matters, and two that keep evolution from mutating it every time."""
    idle = {name: trial.suggest_float(name, 0, 1) for name in ("y", "z")}
    return {"x": trial.suggest_float("x", 0, 1), **idle}


def search(sampler, constraints=(), seed=0):
    objectives = [Objective.named("epsilon"), Objective.named("accuracy")]
    return Search(space, objectives, sampler=sampler, seed=seed, constraints=constraints)


def proposals(made, count):
    """Tell the search of a front along x: more epsilon, more accuracy; return what it proposed."""
    found = []
    for _ in range(count):
        trial = made.ask()
        x = made.open[trial]["x"]
        found.append(x)
        made.report(Point(trial=trial, epoch=1, values={"epsilon": 0.1 + x, "accuracy": x}))
        made.finish(trial)
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "sampler", [Sampler.TPE, pytest.param(Sampler.GP, marks=pytest.mark.long), Sampler.NSGA2, Sampler.NSGA3]
)
def test_a_constraint_steers_proposals(sampler):
    """Every x is on the front; a floor on accuracy makes the larger ones the better part of it."""
    floor = [OutcomeConstraint("accuracy", True, 0.8)]
    count, seeds = {Sampler.TPE: (25, 3), Sampler.GP: (16, 1)}.get(sampler, (64, 3))
    steered, free = (
        [x for seed in range(seeds) for x in proposals(search(sampler, constraints, seed), count)[-6:]]
        for constraints in (floor, ())
    )
    assert sum(steered) / len(steered) > sum(free) / len(free) + 0.1


def test_a_grid_tries_every_configuration_once_conditional_ones_included():
    def space(trial):
        loss = trial.suggest_categorical("loss", ["a", "b"])
        return {"x": trial.suggest_int("x", 0, 2) if loss == "a" else -1.0}

    made = Search(space, [Objective.named("epsilon"), Objective.named("accuracy")], sampler=Sampler.GRID, seed=0)
    assert sorted(proposals(made, 4)) == [-1.0, 0, 1, 2]


def test_a_spec_carries_constraints_under_recorded_names(content):
    content["search"] = {
        "objectives": ["epsilon", "accuracy", "certified@0.25"],
        "metrics": ["certified@0.5"],
        "constraints": ["certified@1/4 >= 0.3", "certified@0.5 >= 0.1", "epsilon <= 8"],
    }
    outcomes = Spec.from_mapping(content).search.outcomes
    assert [str(one) for one in outcomes] == ["certified@0.25 >= 0.3", "certified@0.5 >= 0.1", "epsilon <= 8"]


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({"constraints": ["accuracy > 1"]}, r"such as .*got constraints='accuracy > 1' \(search\.constraints\.0 in"),
        (
            {"constraints": ["epsilon <= 8", "certified@2 >= 0.5"]},
            r"listed in search\.metrics.*\(search\.constraints\.1 in",
        ),
        ({"sampler": "grid"}, r"a list or whole numbers.*\(training\.learning_rate in .*or use quasi-random"),
    ],
)
def test_mistakes_are_one_sentence(content, search, said):
    content["training"]["learning_rate"] = {"log": [0.001, 0.1]}
    assert re.search(said, spec_error(content, search=search))
