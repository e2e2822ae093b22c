"""What a spec declares class by class: public numbers, checked, and carried into the loss that is trained."""

import json

import pytest

from clipless.losses import HKR, KR, ClassWeighted, TauCCE, loss_lipschitz
from sweeper.errors import SpecError
from sweeper.specification.fields.nested import flatten
from sweeper.specification.spec import Spec
from sweeper.specification.trial_config import TrialConfig
from sweeper.trials.build import build_loss

FILE = "mnist.yaml"
TENTHS = [0.1] * 10


def loss_of(content, **training):
    content["training"] |= training
    spec = Spec.from_mapping(content, FILE)
    return build_loss(
        TrialConfig.from_json(json.loads(json.dumps(spec.space.resolve(spec.space.suggest(None)).to_json())))
    )


def test_class_weights_multiply_the_loss_of_their_class(content):
    loss = loss_of(content, class_weights=[1, 4.5], loss={"name": "tau-cce", "temperature": 0.5})
    assert loss == ClassWeighted(TauCCE(0.5), (1.0, 4.5))
    assert loss_lipschitz(loss, 2) == 4.5 * loss_lipschitz(TauCCE(0.5), 2)


def test_without_class_weights_a_loss_is_itself(content):
    assert loss_of(content) == TauCCE()


@pytest.mark.parametrize(("name", "kind"), [("kr", KR), ("hkr", HKR)])
def test_priors_reach_the_losses_that_take_them(content, name, kind):
    assert loss_of(content, loss={"name": name, "priors": [0.9, 0.1]}) == kind(priors=(0.9, 0.1))
    assert loss_of(content, loss=name) == kind()


@pytest.mark.parametrize(
    ("training", "sentence"),
    [
        ({"class_weights": [1, -1]}, "Expected a public weight >= 0 for each class, not all 0, such as [1, 4], got class_weights=[1, -1] (training.class_weights in mnist.yaml)"),
        ({"class_weights": [1, float("nan")]}, "Expected a public weight >= 0 for each class, not all 0, such as [1, 4], got class_weights=[1, nan] (training.class_weights in mnist.yaml)"),
        ({"loss": {"name": "kr", "priors": [0.5, 0.6]}}, "Expected a public prior between 0 and 1 for each class, summing to 1, such as [0.9, 0.1], got priors=[0.5, 0.6] (training.loss.priors in mnist.yaml)"),
    ],
)  # fmt: skip
def test_numbers_that_are_none_are_refused(content, training, sentence):
    content["training"] |= training
    with pytest.raises(SpecError) as caught:
        Spec.from_mapping(content, FILE)
    assert str(caught.value) == sentence


def test_there_is_one_number_for_each_class_of_the_data(content):
    content["training"] |= {"class_weights": [1, 2], "loss": [{"name": "kr", "priors": TENTHS}, "tau-cce"]}
    spec = Spec.from_mapping(content, FILE)
    for classes, said in (
        (10, r"Expected 10 numbers, one for each class of the data, got class_weights=\[1.0, 2.0\] \(training.class_w"),
        (2, r"Expected 2 numbers, one for each class of the data, got priors=.* \(training.loss.kr.priors in mnist"),
    ):
        with pytest.raises(SpecError, match=said):
            spec.validate_against(1000, classes)


def test_they_are_fixed_for_the_sweep_and_survive_every_form_of_the_spec(content):
    content["training"] |= {"class_weights": [1, 2], "loss": {"name": "kr", "priors": [0.5, 0.5]}}
    content["search"] = {"first": [{"training": {"class_weights": [1.0, 2.0]}}]}
    spec = Spec.from_mapping(content, FILE)
    assert spec.space.suggest(None) == {}
    plain = json.loads(json.dumps(spec.to_plain()))
    assert Spec.from_mapping(plain).to_plain() == plain == spec.with_search(seed=0).to_plain()
    assert "priors" in spec.to_yaml()
    flat = flatten(spec.space.resolve({}).to_json())
    assert flat["training.loss.class_weights"] == "[1.0, 2.0]"
    assert flat["training.loss.priors"] == "[0.5, 0.5]"
