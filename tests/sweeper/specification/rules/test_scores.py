"""What a spec has to say, and may not ask for, where rows held back are private."""

import pytest

from sweeper.errors import SpecError
from sweeper.specification.spec import Spec


@pytest.fixture
def private(content):
    content["data"] |= {"evaluation": "private"}
    content["privacy"] |= {"score_noise": 30.0}
    content["search"] = {"objectives": ["epsilon", "accuracy", "certified@1/4"], "metrics": ["certified@1"]}
    return content


def test_accuracy_and_certificates_with_noise_are_accepted(private):
    assert Spec.from_mapping(private).privacy.score_noise == 30.0


@pytest.mark.parametrize("name", ["auroc", "balanced_accuracy"])
def test_scores_by_class_are_objectives_that_noise_pays_for(private, name):
    private["search"]["objectives"].append(name)
    assert name in Spec.from_mapping(private).search.objectives


@pytest.mark.parametrize("evaluation", ["public", None])
def test_scores_of_training_rows_choose_nothing_where_an_epsilon_is_claimed(content, evaluation):
    content["search"] = {"metrics": ["membership-auroc"], "constraints": ["membership-auroc <= 0.55"]}
    content["data"] = {**content["data"], "evaluation": "exploratory"}
    assert Spec.from_mapping(content).search.constraints
    content["data"] = {name: value for name, value in content["data"].items() if name != "evaluation"}
    content["data"] |= {} if evaluation is None else {"evaluation": evaluation}
    with pytest.raises(SpecError, match=r"Expected no constraint on scores of training rows: they choose what is"):
        Spec.from_mapping(content)


def test_scores_of_training_rows_do_not_stand_beside_an_account(content):
    content["data"] |= {"evaluation": "public"}
    content["search"] = {"metrics": ["certified@1", "membership-advantage"]}
    assert Spec.from_mapping(content)
    content["privacy"] = {**content["privacy"], "account": "accounts.db#clinic"}
    with pytest.raises(SpecError, match=r"Expected no metric of training rows with privacy.account, .*metrics.1"):
        Spec.from_mapping(content)


def test_curves_have_no_recalls(private):
    private["search"]["objectives"].append("balanced_accuracy")
    private["privacy"]["curve_noise"] = 4.0
    with pytest.raises(SpecError, match=r"Expected no balanced_accuracy with privacy.curve_noise"):
        Spec.from_mapping(private)


def test_recalls_of_very_many_classes_are_refused(private):
    private["search"]["objectives"].append("balanced_accuracy")
    spec = Spec.from_mapping(private)
    spec.validate_against(5000, 100)
    with pytest.raises(SpecError, match=r"Expected at most 100 classes for the objective balanced_accuracy, the data"):
        spec.validate_against(5000, 101)


@pytest.mark.parametrize("name", ["certified-auroc@0.1"])
def test_an_objective_that_is_no_count_of_rows_is_refused_by_name(private, name):
    private["search"]["objectives"].append(name)
    said = (
        r"Expected accuracy, balanced_accuracy, auroc and certified@R only with evaluation: private, whose scores are paid for, got "
        rf"objectives='{name}' \(search\.objectives\.3 in s\.yaml\); leave it out, or declare the rows public if they are"
    )
    with pytest.raises(SpecError, match=said):
        Spec.from_mapping(private, "s.yaml")


@pytest.mark.parametrize("name", ["attacked@0.1", "autoattacked@0.1", "membership-auroc", "certified-auroc@0.1"])
def test_a_metric_that_is_no_count_of_rows_is_refused_by_name(private, name):
    private["search"]["metrics"].append(name)
    with pytest.raises(SpecError, match=rf"paid for, got metrics='{name}' \(search\.metrics\.1 in s\.yaml"):
        Spec.from_mapping(private, "s.yaml")


@pytest.mark.parametrize("evaluation", ["public", "exploratory"])
def test_noise_for_scores_that_are_free_is_refused(private, evaluation):
    private["data"]["evaluation"] = evaluation
    said = r"Expected no score_noise without evaluation: private, whose scores it is about, got score_noise=30.0 \("
    with pytest.raises(SpecError, match=said):
        Spec.from_mapping(private)


def test_a_selection_may_be_private_on_private_rows(private):
    private["search"] |= {"selection": "private", "sampler": "random"}
    assert Spec.from_mapping(private).search.repetitions is not None


def test_curves_are_released_where_scores_are(private):
    private["privacy"]["curve_noise"] = 4.0
    assert Spec.from_mapping(private).privacy.curve_noise == 4.0
    private["privacy"]["curve_noise"] = 0
    with pytest.raises(SpecError, match=r"Expected curve_noise > 0, got curve_noise=0"):
        Spec.from_mapping(private)


@pytest.mark.parametrize("evaluation", ["public", "exploratory"])
def test_noise_for_curves_of_rows_that_are_free_is_refused(private, evaluation):
    private["data"]["evaluation"] = evaluation
    private["privacy"] = {name: value for name, value in private["privacy"].items() if name != "score_noise"}
    private["privacy"]["curve_noise"] = 4.0
    with pytest.raises(SpecError, match=r"Expected no curve_noise without evaluation: private"):
        Spec.from_mapping(private)


def test_epochs_of_finals_are_chosen_only_where_there_are_explorers_and_finals(private):
    private["privacy"]["final_scores"] = 3
    with pytest.raises(SpecError, match=r"Expected no final_scores without a sweep_epsilon that is divided"):
        Spec.from_mapping(private)


def test_a_selection_in_a_budget_needs_the_noise_of_its_scores(private):
    private["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4}
    private["search"] = {"objectives": ["epsilon", "accuracy"], "selection": "private", "sampler": "random"}
    with pytest.raises(SpecError, match=r"Expected score_noise, the noise multiplier of the scores, where a private"):
        Spec.from_mapping(private)
