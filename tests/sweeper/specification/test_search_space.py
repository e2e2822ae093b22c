import optuna
import pytest

from clipless.plans.method import Method
from clipless.privacy.allocation import NoiseAllocation
from clipless.privacy.events import Relation
from sweeper.errors import SpecError
from sweeper.search.space import sample
from sweeper.specification.fields.nested import flatten, unflatten
from sweeper.specification.spec import Spec
from sweeper.specification.trial_config import Optimizer, TrialConfig

WIDE = {
    "batch_size": {"log": [64, 512]},
    "learning_rate": {"log": [1e-3, 1.0]},
    "optimizer": ["sgd", "adam"],
    "momentum": {"uniform": [0.0, 0.9], "step": 0.1},
    "sensitivity_fraction": {"uniform": [0.1, 1.0]},
    "loss": [{"name": "tau-cce", "temperature": {"log": [0.05, 100]}}, "tau-bce"],
}


@pytest.fixture
def spec(content):
    content["training"] |= WIDE
    content["model"] = {
        "architecture": ["mlp", "convnet"],
        "width": [16, 32],
        "hidden": {"int": [32, 64]},
        "input_clip": 5,
    }
    content["privacy"]["epsilon"] = {"log": [0.5, 10]}
    return Spec.from_mapping(content, "s.yaml")


@pytest.fixture
def study():
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.RandomSampler(seed=0)
    return optuna.create_study(directions=["minimize", "maximize"], sampler=sampler)


def test_what_optuna_proposes_becomes_a_configuration(spec, study):
    seen = set()
    for _ in range(60):
        trial = study.ask()
        suggested = spec.space.suggest(trial)
        assert suggested == trial.params
        config = spec.space.resolve(suggested)
        assert isinstance(config.training.batch_size, int)
        assert 0.5 <= config.privacy.epsilon <= 10
        assert (config.training.momentum is None) == (config.training.optimizer is Optimizer.ADAM)
        assert ("hidden" in config.model.options) == (config.model.architecture == "convnet")
        assert ("training.loss.tau-cce.temperature" in suggested) == (config.training.loss.name == "tau-cce")
        assert TrialConfig.from_json(config.to_json()) == config
        assert unflatten(flatten(config.to_json())) == config.to_json()
        seen.add((config.training.optimizer, config.model.architecture, config.training.loss.name))
    assert len(seen) == 8


def test_a_configuration_says_everything(spec):
    suggested = {
        "model.architecture": "convnet",
        "model.width": 32,
        "model.hidden": 34,
        "training.batch_size": 100,
        "training.learning_rate": 0.1,
        "training.optimizer": "sgd",
        "training.momentum": 0.5,
        "training.sensitivity_fraction": 0.3,
        "training.loss": "tau-bce",
        "privacy.epsilon": 2.0,
    }
    config = spec.space.resolve(suggested)
    assert config.to_json() == {
        "model": {"architecture": "convnet", "input_clip": 5.0, "width": 32, "hidden": 34},
        "training": {
            "method": "clipless",
            "epochs": 10,
            "batch_size": 100,
            "learning_rate": 0.1,
            "optimizer": "sgd",
            "momentum": 0.5,
            "schedule": "constant",
            "follow_weights": False,
            "loss": {"name": "tau-bce", "temperature": 1.0},
            "sensitivity_fraction": 0.3,
        },
        "privacy": {
            "epsilon": 2.0,
            "delta": 1e-4,
            "noise": "min-variance",
            "relation": "add-or-remove-one",
            "accept_large_delta": False,
        },
    }
    assert config.training.method is Method.CLIPLESS
    assert config.privacy.noise is NoiseAllocation.MIN_VARIANCE
    assert config.privacy.relation is Relation.ADD_OR_REMOVE_ONE
    assert config.model.options == {"width": 32, "hidden": 34}
    assert config.training.loss.options == {"temperature": 1.0}
    assert flatten(config.to_json())["training.loss.name"] == "tau-bce"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"training.learning_rate": 7.0}, r"Expected a value within \{'log': \[0.001, 1.0\]\}, got learning_rate=7.0 \(training.learning_rate in s.yaml\)"),
        ({"training.learning_rate": ...}, r"Expected a suggested value, got none \(training.learning_rate in s.yaml\)"),
        ({"training.momentum": 0.5}, r"Expected an open hyperparameter, got momentum=0.5 \(training.momentum in s.yaml\)"),
        ({"training.epochs": 3}, r"Expected an open hyperparameter, got epochs=3"),
    ],
)  # fmt: skip
def test_a_wrong_suggestion_is_named(spec, study, change, said):
    suggested = {"training.optimizer": "adam"}
    while "training.momentum" in suggested or not suggested.get("training.learning_rate"):
        suggested = spec.space.suggest(study.ask())
    for name, value in change.items():
        if value is ...:
            del suggested[name]
        else:
            suggested[name] = value
    with pytest.raises(SpecError, match=said):
        spec.space.resolve(suggested)


def test_first_configurations_can_be_enqueued(content, study):
    content["training"] |= WIDE
    content["search"] = {"first": [{"training": {"learning_rate": 0.25, "optimizer": "sgd", "momentum": 0.5}}]}
    spec = Spec.from_mapping(content)
    study.enqueue_trial(spec.first[0])
    config = spec.space.resolve(spec.space.suggest(study.ask()))
    assert (config.training.learning_rate, config.training.momentum) == (0.25, 0.5)


def test_a_broken_configuration_is_named():
    with pytest.raises(SpecError, match="Expected a value for training, got none"):
        TrialConfig.from_json(
            {"model": {"architecture": "mlp"}, "privacy": {"delta": 1e-5, "noise": "global", "relation": "replace-one"}}
        )


def test_a_sample_starts_with_the_first_configurations_and_repeats_for_its_seed(content):
    content["training"] |= WIDE
    content["search"] = {"first": [{"training": {"learning_rate": 0.25}}], "seed": 3}
    spec = Spec.from_mapping(content)
    drawn = sample(spec.space, 4)
    assert drawn[0]["training.learning_rate"] == 0.25
    assert len({one["training.batch_size"] for one in drawn}) > 1
    assert drawn == sample(spec.space, 4)
    for one in drawn:
        spec.space.resolve(one)


def test_ends_of_costs_have_every_method_that_may_cost_another_and_what_belongs_to_it(content):
    content["training"] |= {"method": ["non-private", "clipless"], "sensitivity_fraction": {"uniform": [0.1, 1.0]}}
    content["model"] |= {"standardise": [False, True]}
    space = Spec.from_mapping(content).space
    assert space.open_costs == ("standardise", "method")
    ends = space.ends(sample(space, 1)[0])
    assert len(ends) == 4
    assert {space.resolve(one).training.method for one in ends} == {Method.NON_PRIVATE, Method.CLIPLESS}
    assert {"training.sensitivity_fraction" in one for one in ends} == {True, False}


def test_choices_that_cost_the_same_are_no_costs(content):
    content["training"] |= {"method": ["lip-dp-sgd", "clipless"]}
    content["model"] |= {"input_quantile": [0.5, 0.9]}
    assert Spec.from_mapping(content).space.open_costs == ()
