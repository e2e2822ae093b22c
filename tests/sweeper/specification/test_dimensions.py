import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.specification.dimensions import grid_size
from sweeper.specification.fields.ranges import Choices, Range
from sweeper.specification.spec import Spec


def slots_of(content, **changes):
    for section, values in changes.items():
        content[section] = content.get(section, {}) | values
    return {dimension.name: dimension for dimension in Spec.from_mapping(content).dimensions}


def test_a_choice_carries_its_own_parameters(content):
    loss = [{"name": "tau-cce", "temperature": {"log": [0.1, 10]}}, {"name": "tau-bce", "temperature": [1, 2]}]
    dimensions = slots_of(content, training={"loss": loss})
    assert dimensions["training.loss"].space == Choices(("tau-cce", "tau-bce"))
    for name, space in (("tau-cce", Range(low=0.1, high=10.0, log=True)), ("tau-bce", Choices((1.0, 2.0)))):
        dimension = dimensions[f"training.loss.{name}.temperature"]
        assert dimension.space == space
        assert dimension.key == "training.loss.temperature"
        assert dimension.when.values == {name}


def test_every_loss_has_its_parameters_or_their_defaults(content):
    loss = ["hinge", "kr", {"name": "hkr", "alpha": {"log": [0.01, 2000]}, "reduction": ["sum", "mean"]}, "k-cosine"]
    dimensions = slots_of(content, training={"loss": loss})
    of_losses = {
        name.removeprefix("training.loss."): dimension.value
        for name, dimension in dimensions.items()
        if ".loss." in name
    }
    assert of_losses == {
        "hinge.margin": 1.0,
        "hinge.reduction": "mean",
        "kr.reduction": "mean",
        "hkr.alpha": Range(low=0.01, high=2000.0, log=True),
        "hkr.margin": 1.0,
        "hkr.reduction": Choices(("sum", "mean")),
        "k-cosine.floor": 1.0,
    }


def test_names_stay_when_there_is_one_choice_only(content):
    dimensions = slots_of(content, training={"loss": {"name": "tau-cce", "temperature": {"log": [0.1, 10]}}})
    assert dimensions["training.loss.tau-cce.temperature"].when is None
    assert dimensions["training.loss"].space is None


def test_the_quantile_belongs_to_the_adaptive_norm(content):
    training = {"gradient_clip": 1.0, "clip_quantile": {"uniform": [0.5, 0.95]}}
    dimensions = slots_of(content, training=training | {"gradient_clip_schedule": ["constant", "adaptive"]})
    assert dimensions["training.clip_quantile"].when.values == {"adaptive"}
    assert "training.gradient_clip_schedule" not in slots_of(content, training={"method": "dp-sgd"})


def test_momentum_belongs_to_sgd(content):
    momentum = {"uniform": [0, 0.9]}
    assert "training.momentum" not in slots_of(content, training={"optimizer": "adam", "momentum": momentum})
    assert slots_of(content, training={"optimizer": "sgd"})["training.momentum"].when is None
    assert slots_of(content, training={"optimizer": ["sgd", "adam"]})["training.momentum"].when.values == {"sgd"}


def test_an_option_belongs_to_the_architectures_that_take_it(content):
    architecture = ["mlp", "convnet", {"name": "patch-net", "hidden": [64, 128]}]
    dimensions = slots_of(
        content, model={"architecture": architecture, "hidden": [32, 64], "patch": [2, 4], "width": [16, 32]}
    )
    assert dimensions["model.width"].when.values == {"mlp", "convnet", "patch-net"}
    assert dimensions["model.hidden"].when.values == {"convnet"}
    assert dimensions["model.patch"].when.values == {"patch-net"}
    assert dimensions["model.architecture.patch-net.hidden"].key == "model.hidden"


def test_an_option_that_every_architecture_overrides_is_no_slot(content):
    dimensions = slots_of(content, model={"architecture": {"name": "mlp", "width": 32}, "width": [16, 64]})
    assert "model.width" not in dimensions
    assert dimensions["model.architecture.mlp.width"].value == 32


@pytest.mark.parametrize(
    ("training", "size"),
    [
        ({}, 1),
        ({"batch_size": [64, 128, 256]}, 3),
        ({"batch_size": {"int": [10, 20], "step": 5}}, 3),
        ({"batch_size": {"log": [10, 20]}}, 11),
        ({"learning_rate": {"uniform": [0.1, 0.5], "step": 0.1}}, 5),
        ({"learning_rate": {"uniform": [0.1, 0.5]}}, None),
        ({"learning_rate": {"uniform": [0.1, 0.5]}, "batch_size": [1, 2]}, None),
        ({"optimizer": ["sgd", "adam"]}, 2),
        ({"optimizer": ["sgd", "adam"], "momentum": [0, 0.5, 0.9]}, 4),
        ({"optimizer": ["sgd", "adam"], "momentum": {"uniform": [0, 0.5]}}, None),
        ({"optimizer": "adam", "momentum": {"uniform": [0, 0.5]}}, 1),
        ({"loss": [{"name": "tau-cce", "temperature": [1, 2, 3]}, "tau-bce"], "batch_size": [1, 2]}, 8),
    ],
)
def test_the_size_of_the_space_counts_each_configuration_once(content, training, size):
    content["training"] |= training
    assert grid_size(Spec.from_mapping(content).dimensions) == size


@settings(deadline=None)
@given(low=st.integers(1, 50), width=st.integers(1, 50), step=st.integers(1, 10))
def test_a_range_holds_as_many_values_as_it_says(low, width, step):
    values = Range(low=low, high=low + width, integer=True, step=step)
    members = [n for n in range(low - 5, low + width + 6) if n in values]
    assert members == list(range(low, low + width + 1, step))
    assert values.size() == len(members)


def test_membership_is_by_type_and_grid():
    assert 0.30000000000000004 in Range(low=0.1, high=0.5, step=0.1)
    assert 0.35 not in Range(low=0.1, high=0.5, step=0.1)
    assert float("nan") not in Range(low=0.1, high=0.5)
    assert True not in Range(low=0, high=2)
    assert "1" not in Range(low=0, high=2)
    assert 1.5 not in Range(low=0, high=2, integer=True)
    assert 1 in Choices((1.0, 2.0))
    assert True not in Choices((1, 2))
    assert 1 not in Choices((True,))
