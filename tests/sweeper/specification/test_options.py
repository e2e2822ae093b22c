"""An option of a trial is declared once: a field of a configuration is a field of the spec and of the search space."""

from typing import Annotated

import pytest
from pydantic import TypeAdapter, ValidationError

from sweeper.errors import SpecError
from sweeper.specification.dimensions import OF_THE_SWEEP, list_dimensions
from sweeper.specification.fields._section import REQUIRED, Condition, Option, open_section, option_of
from sweeper.specification.fields.fields import Name, Number
from sweeper.specification.settings import ModelSettings, PrivacySettings, TrainingSettings
from sweeper.specification.spec import Spec
from sweeper.specification.trial_config import TrialConfig, TrialPrivacy, TrialTraining

DP_SGD = Condition("training.method", frozenset({"dp-sgd"}))


class More(TrialTraining):
    """The training options and one more: this line is all that adds it."""

    warm_up: Annotated[float | None, Option(Number(at_least=0, below=1), 0.1, DP_SGD)] = None


class MoreSettings(open_section(More)):
    loss: TrainingSettings.__annotations__["loss"] = TrainingSettings.model_fields["loss"].default
    class_weights: None = None


class MoreSpec(Spec):
    training: MoreSettings = MoreSettings()


class MoreConfig(TrialConfig):
    training: More


@pytest.fixture
def more(content, monkeypatch):
    """Read a spec and propose its configuration, where one more option is declared."""
    monkeypatch.setattr("sweeper.specification.search_space.TrialConfig", MoreConfig)

    def read(suggested=(), **training):
        spec = MoreSpec.from_mapping(content | {"training": {"epochs": 10} | training}, "f.yaml")
        return spec, spec.space.resolve(dict(suggested)).training

    return read


def test_one_line_adds_an_option_to_the_spec_its_schema_the_search_space_and_the_configuration(more):
    spec, training = more(method="dp-sgd")
    assert spec.to_plain()["training"]["warm_up"] == 0.1
    assert training.warm_up == 0.1
    assert more(method="dp-sgd", warm_up=0.5)[1].warm_up == 0.5
    assert more()[1].warm_up is None, "no such method"
    assert "warm_up" in MoreSpec.model_json_schema()["$defs"]["MoreSettings"]["properties"]
    assert "warm_up" not in TrainingSettings.model_fields


def test_an_added_option_may_be_open(more):
    spec, training = more([("training.warm_up", 0.25)], method="dp-sgd", warm_up={"uniform": [0, 0.5]})
    (dimension,) = [one for one in spec.dimensions if one.name == "training.warm_up"]
    assert (dimension.space.low, dimension.space.high, dimension.when) == (0, 0.5, None)
    assert training.warm_up == 0.25
    suggested = [("training.warm_up", 0.25), ("training.method", "dp-sgd")]
    spec, training = more(suggested, method=["dp-sgd", "clipless"], warm_up={"uniform": [0, 0.5]})
    (dimension,) = [one for one in spec.dimensions if one.name == "training.warm_up"]
    assert dimension.when == DP_SGD


def test_an_added_option_is_refused_in_a_sentence(more):
    with pytest.raises(SpecError) as error:
        more(warm_up=1)
    assert str(error.value) == "Expected 0 <= warm_up < 1, got warm_up=1 (training.warm_up in f.yaml)"
    with pytest.raises(SpecError, match=r"'warm_upp' .*did you mean 'warm_up'"):
        more(warm_upp=1)


@pytest.mark.parametrize(
    ("settings", "configuration", "own"),
    [(TrainingSettings, TrialTraining, {"loss", "class_weights"}), (PrivacySettings, TrialPrivacy, {*OF_THE_SWEEP})],
)
def test_every_option_of_a_trial_is_declared_in_its_configuration(settings, configuration, own):
    options = {name for name, field in configuration.model_fields.items() if option_of(field) is not None}
    assert set(settings.model_fields) == options | own
    assert set(configuration.model_fields) - options <= {"loss"}


@pytest.mark.parametrize("effort", ["none", "cheap", "thorough"])
def test_what_is_of_the_sweep_reaches_no_trial(content, effort):
    content["privacy"]["audit"] = effort
    assert Spec.from_mapping(content).space.resolve({}).privacy.epsilon == content["privacy"]["epsilon"]


def test_what_an_option_takes_has_the_type_that_the_code_reads():
    """Each default of the spec, if it has one, is a value of the configuration."""
    for configuration in (TrialTraining, TrialPrivacy):
        for field in configuration.model_fields.values():
            option = option_of(field)
            if option is not None and option.default not in (None, REQUIRED):
                assert TypeAdapter(field.annotation).validate_python(option.default) is not None


def test_conditions_name_dimensions():
    dimensions = list_dimensions(
        ModelSettings(architecture="mlp"),
        TrainingSettings(
            method=["dp-sgd", "clipless", "non-private"], gradient_clip=1, gradient_clip_schedule="adaptive"
        ),
        PrivacySettings(epsilon=1, delta=1e-5),
    )
    names = {dimension.name for dimension in dimensions}
    for section, configuration in (("training", TrialTraining), ("privacy", TrialPrivacy)):
        for name, field in configuration.model_fields.items():
            option = option_of(field)
            assert option is None or option.when is None or option.when.parent in names, f"{section}.{name}"


def test_an_option_without_a_default_has_to_be_given():
    class Needed(TrialPrivacy):
        kind: Annotated[str, Option(Name(names=("a", "b")), REQUIRED)]

    section = open_section(Needed)
    assert section(delta=0.1, kind="a").kind == "a"
    with pytest.raises(ValidationError, match="kind"):
        section(delta=0.1)
