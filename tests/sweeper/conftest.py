import copy

import pytest

from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.claims import Claim
from sweeper.records import Objective, Point, Trial, TrialStatus

CONTENT = {
    "name": "digits",
    "data": {"name": "digits"},
    "model": {"architecture": "mlp"},
    "training": {"epochs": 10},
    "privacy": {"epsilon": 3.0, "delta": 1e-4},
}


@pytest.fixture
def content():
    """A small valid spec as a nested mapping, to be changed freely."""
    return copy.deepcopy(CONTENT)


@pytest.fixture
def event():
    """What the plan of ``plan_json`` spends."""
    return PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.2, steps=50, relation=Relation.ADD_OR_REMOVE_ONE)


@pytest.fixture
def plan_json(event):
    """``Plan.to_json()`` of a plan for 1000 rows, expected batch 200, 10 epochs of 5 steps."""
    return {
        "population": 1000,
        "batch_size": 200,
        "sampling_rate": 0.2,
        "steps_per_epoch": 5,
        "epochs": 10,
        "noise_multiplier": 2.0,
        "delta": 1e-4,
        "relation": "add-or-remove-one",
        "allocation": "min-variance",
        "sensitivity_fraction": 0.3,
        "sensitivities": {"1.weight": 2.5, "3.weight": 1.25},
        "noise_stds": {"1.weight": 7.5, "3.weight": 3.75},
        "event": event.to_json(),
    }


@pytest.fixture
def trial(plan_json):
    """A completed trial."""
    config = {
        "training": {"loss": {"name": "tau-cce", "temperature": 0.25}},
        "model": {"architecture": "mlp"},
    }
    return Trial(id="t0001", config=config, plan=plan_json, run_id="abc", status=TrialStatus.COMPLETED)


@pytest.fixture
def claim():
    """The claim of a sweep on public data."""
    return Claim(
        data="digits",
        population=1000,
        unit="row",
        evaluation="public",
        radius_unit="pixels in [0, 1]",
        exploratory=False,
        secure_generator=True,
        public=("N is public.",),
        conditions=("The split.",),
    )


@pytest.fixture
def objectives():
    """Epsilon, accuracy and one radius."""
    return tuple(Objective.named(name) for name in ("epsilon", "accuracy", "certified@1/4"))


@pytest.fixture
def make_point():
    """Make a point from epsilon, accuracy and certified accuracy."""

    def make(trial, epoch, epsilon, accuracy, certified=0.0, **more):
        values = {"epsilon": epsilon, "accuracy": accuracy, "certified@1/4": certified}
        return Point(trial=trial, epoch=epoch, values=values, **more)

    return make
