"""What a sweep would do, planned but not trained."""

import io
import re
from math import sqrt

import pytest
import torch
from rich.console import Console

import clipless
from clipless.errors import CliplessError, PlanError
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.class_scores import expect_scores
from clipless.privacy.events import Composed
from sweeper.cli.check_tables import render_check
from sweeper.errors import SpecError
from sweeper.planning import configurations as module
from sweeper.planning.configurations import CHECKED_CONFIGURATIONS, can_be_planned, plan_first
from sweeper.planning.make import make_score_noise, make_trial_settings
from sweeper.planning.preview import preview
from sweeper.privacy.pricing import price
from sweeper.rounding import round_up
from sweeper.specification.spec import Spec
from tests.factories import plan_sweep


@pytest.fixture(autouse=True)
def no_training(monkeypatch):
    monkeypatch.setattr(clipless, "fit", lambda *_, **__: pytest.fail("trained"))


@pytest.fixture
def spec(content):
    content["model"] |= {"width": 16}
    content["training"] |= {"batch_size": [128, 256]}
    content["privacy"] = {"noise_multiplier": 1.0, "delta": 1e-4}
    return Spec.from_mapping(content, "digits.yaml")


def look(spec, data, configurations=1):
    """Return the plan of a spec, its first configurations, and what `sweeper check` prints of them."""
    plan, screen = plan_sweep(spec, data), io.StringIO()
    previews = preview(plan, data, configurations)
    Console(file=screen, width=120).print(render_check(plan, data, previews))
    return plan, previews, screen.getvalue()


def estimate_price(plan, previews):
    return plan.expected_price([one.plan for one in previews]).epsilon


def test_a_gpu_that_this_machine_has_not_is_said(spec, digits, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert "GPU" not in look(spec, digits)[2]
    asking = Spec.from_mapping(spec.to_plain() | {"resources": {"gpus": 0.5}}, "digits.yaml")
    assert "Expected a GPU for resources.gpus: 0.5 in digits.yaml, but this machine has" in look(asking, digits)[2]


def test_each_parameter_has_its_sensitivity_noise_and_ratio(spec, digits):
    (one,) = preview(plan_sweep(spec, digits), digits)
    assert [p.name for p in one.parameters] == list(one.plan.sensitivities)
    for p in one.parameters:
        assert (p.sensitivity, p.noise_std) == (one.plan.sensitivities[p.name], one.plan.noise_stds[p.name])
        assert p.noise_to_gradient == p.noise_std * sqrt(p.size) / (one.plan.batch_size * p.sensitivity)
    assert [p.size for p in one.parameters] == [64 * 16, 16 * 10]


def test_epsilon_is_given_per_epoch_and_as_a_claim(spec, digits):
    (one,) = preview(plan_sweep(spec, digits), digits)
    assert one.claims == tuple(claim(one.plan.event(epochs), 1e-4) for epochs in range(1, 11))


@pytest.mark.long
def test_the_configurations_to_try_first_come_first(content, digits):
    content["training"] |= {"batch_size": {"int": [100, 1000]}}
    content["search"] = {"first": [{"training": {"batch_size": 123}}]}
    one, _ = preview(plan_sweep(Spec.from_mapping(content), digits), digits, 2)
    assert one.plan.batch_size == 123


def test_the_sweep_costs_the_composition_of_its_trials(spec, digits):
    plan = plan_sweep(spec, digits)
    previews = preview(plan, digits)
    answer = plan.expected_price([one.plan for one in previews])
    event = previews[0].plan.event()
    assert spec.trials == 2
    assert answer.events == 2
    assert (
        answer.epsilon == price([event, event], 1e-4, tight=True).epsilon < rdp_epsilon(Composed((event, event)), 1e-4)
    )


def test_the_estimate_is_that_of_the_dearest_configuration(content, digits):
    del content["privacy"]["epsilon"]
    content["privacy"]["noise_multiplier"] = [2.0, 4.0, 8.0]
    content["search"] = {"trials": 3}
    plan = plan_sweep(Spec.from_mapping(content), digits)
    previews = preview(plan, digits, 3)
    alone = [plan.expected_price([one.plan]).epsilon for one in previews]
    assert len(set(alone)) > 1
    assert estimate_price(plan, previews) == estimate_price(plan, previews[::-1]) == max(alone)


def test_a_spec_is_validated_against_its_data(content, digits):
    content["privacy"]["delta"] = 0.01
    with pytest.raises(SpecError, match="delta < 1/N"):
        plan_sweep(Spec.from_mapping(content), digits)


def test_a_spec_that_asks_for_a_gpu_is_not_called_valid_for_a_machine_without(content, digits, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    _, _, shown = look(Spec.from_mapping(content | {"resources": {"gpus": 1}}), digits, 1)
    assert "digits: valid, but not for this machine." in shown
    assert "Expected a GPU for resources.gpus: 1" in shown


def test_the_text_names_everything_that_matters(spec, digits):
    plan, previews, shown = look(spec, digits, 2)
    headings = ["digits: valid.", "Price: ", "Data: digits, N = 1276 training rows", "A configuration that the search"]
    assert sorted(headings, key=shown.index) == headings
    assert "2 trials; 1 hyperparameter to search." in shown
    for one in previews:
        assert f"epsilon {round_up(one.claims[-1].epsilon)} at delta 0.0001" in shown
        assert f"noise multiplier {one.plan.noise_multiplier:.4f}; neighbours" in " ".join(shown.split())
        assert f"epoch 10: {round_up(one.claims[-1].epsilon)}" in shown
        for p in one.parameters:
            assert f"{p.sensitivity:.4g}" in shown
            assert f"{p.noise_to_gradient:.3g}" in shown
    assert f"about epsilon {round_up(estimate_price(plan, previews))} at delta 0.0001" in shown


def test_a_relation_that_one_accountant_cannot_price_says_so(content, digits):
    content["privacy"] = {"noise_multiplier": 4.0, "delta": 1e-4, "relation": "replace-one"}
    spec = Spec.from_mapping(content)
    assert "RDP absent" in look(spec, digits)[2]


def test_a_sweep_may_begin_if_one_of_its_configurations_can_be_planned(content, digits):
    content["model"] = {"architecture": ["convnet", "mlp"], "depth": [5, 6]}
    content["search"] = {"first": [{"model": {"architecture": "convnet"}}, {"model": {"architecture": "mlp"}}]}
    _, (shown,), said = look(Spec.from_mapping(content), digits)
    assert shown.config.model.architecture == "mlp"
    said = " ".join(said.split())
    assert "1 configuration before this one cannot be planned; a trial of it fails and costs nothing: " in said
    assert "architecture=convnet" in said


def test_a_sweep_of_which_no_configuration_can_be_planned_is_refused(content, digits, monkeypatch):
    tried = []
    real = module.plan_configuration
    monkeypatch.setattr(module, "plan_configuration", lambda *args: tried.append(args) or real(*args))
    content["model"] = {"architecture": "convnet", "depth": {"int": [5, 60]}}
    with pytest.raises(SpecError, match="maps of at least"):
        plan_sweep(Spec.from_mapping(content), digits)
    assert len(tried) == CHECKED_CONFIGURATIONS


def test_a_budget_for_less_than_one_epoch_is_refused(content, digits):
    content["training"] = {}
    content["privacy"] = {"epsilon": 6.5, "noise_multiplier": 0.5, "delta": 1e-4}
    with pytest.raises(PlanError, match="at least one epoch") as caught:
        plan_sweep(Spec.from_mapping(content), digits)
    assert isinstance(caught.value, CliplessError)


def test_a_private_selection_costs_what_its_winner_does_and_shows_no_number_of_trials(content, digits):
    content["privacy"] = {"noise_multiplier": 1.0, "delta": 1e-4}
    content["training"]["learning_rate"] = {"log": [0.01, 0.1]}
    content["search"] = {"sampler": "random", "selection": "private", "selection_mean": 7}
    selecting = Spec.from_mapping(content, "digits.yaml")
    _, (shown,), words = look(selecting, digits)
    repetitions = selecting.search.repetitions
    epsilon = float(round_up(selection_epsilon(shown.plan.event(), repetitions, 1e-4)))
    words = " ".join(words.split())
    assert f"Price: epsilon {epsilon:g} at delta 0.0001, for the winner and nothing else." in words
    assert "a secret number of trials, 7 on average" in words
    assert "one model or all" not in words


@pytest.mark.long
@pytest.mark.slow
def test_the_cut_of_a_budget_between_a_selection_and_its_final_is_shown_before_anything_is_spent(content, digits):
    content["training"] |= {"learning_rate": {"log": [0.01, 0.1]}, "epochs": 2}
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4}
    content["search"] = {"selection": "private", "selection_mean": 7, "selection_share": 0.3}
    selecting = Spec.from_mapping(content, "digits.yaml")
    plan, (shown,), words = look(selecting, digits)
    budget, words = plan.spending, " ".join(words.split())
    assert shown.plan.event() == budget.selection.event
    assert f"Price: epsilon {round_up(budget.price)} at delta 0.0001" in words
    assert "a secret number of trials, 7 on average, then one final" in words
    assert f"selection 7 on average 30 % {budget.selection.event.noise_multiplier:.4g}" in words
    assert f"final 1 70 % {budget.final.slot.noise_multiplier:.4g}" in words
    assert "candidates with half the share" in words
    assert "sweep_epsilon: 6" in words
    assert can_be_planned(plan.shared, digits, {"training.learning_rate": 0.05}, budget.selection.event)


def test_whether_a_configuration_can_be_planned_is_said_without_training(content, digits):
    content["model"] = {"architecture": "convnet", "depth": [1, 6]}
    settings = make_trial_settings(Spec.from_mapping(content, "digits.yaml"), digits)
    assert [can_be_planned(settings, digits, {"model.depth": depth}) for depth in (1, 6)] == [True, False]


# --- scores of private rows


@pytest.fixture
def private(content):
    content["data"] |= {"evaluation": "private"}
    content["model"] |= {"width": 16}
    content["training"] |= {"batch_size": 256}
    content["privacy"] = {"noise_multiplier": 3.0, "delta": 1e-4, "score_noise": 2.0}
    content["search"] = {"objectives": ["epsilon", "accuracy", "certified@1/4"], "repeats": 3, "trials": 1}
    return content


@pytest.fixture(scope="module")
def hidden():
    return clipless.datasets.load("digits", evaluation="private")


def test_scores_by_class_are_shown_with_how_well_they_will_be_known(private, hidden):
    private["search"] |= {"objectives": ["epsilon", "balanced_accuracy"], "repeats": 1}
    spec = Spec.from_mapping(private)
    (_, _, shown), noise = look(spec, hidden), make_score_noise(spec, hidden)
    rows = len(hidden.validation)
    error = expect_scores(noise.form, rows, 2.0, [rows / 10] * 10, 0.8).recall_errors[0]
    half = 100 * 1.96 * sqrt(error.std**2 + 0.8 * 0.2 / (rows / 10))
    (told,) = re.findall(
        r"With a class of 10 % of the rows, of 80 % likewise a balanced accuracy to \+-[0-9.]+, the recall of such a "
        r"class to \+-([0-9.]+) points\.",
        " ".join(shown.split()),
    )
    assert float(told) == pytest.approx(half, rel=0.2)  # it is cut off at 1


def test_scores_of_private_rows_are_shown_with_their_noise_and_their_price(private, hidden):
    spec = Spec.from_mapping(private)
    (plan, previews, shown), noise = look(spec, hidden), make_score_noise(spec, hidden)
    one, all_ = (price([noise.paid(releases).event], 1e-4).epsilon for releases in (1, 30))
    shown = " ".join(shown.split())
    std = 2.0 * sqrt(2) / 2 / len(hidden.validation)
    assert f"validation: {len(hidden.validation)} rows, noise multiplier" in shown
    half = 1.96 * sqrt(std**2 + 0.8 * 0.2 / len(hidden.validation))
    known = f"standard deviation {std:.3g}; an accuracy of 80 % is known to +-{100 * half:.1f} points test: "
    assert known in shown
    assert (
        f"One release costs epsilon {round_up(one)}, the 30 of validation rows that a trial makes {round_up(all_)},"
        in (shown)
    )
    assert f"all 30 of the sweep {round_up(all_)}. Each point of the front is one release of test rows more." in shown
    assert f"Price: about epsilon {round_up(all_)}" in shown
    of_training = price(plan.expected_events([previews[0].plan])[0], 1e-4).epsilon
    assert of_training < all_


def test_every_repeat_is_in_the_cost(private, hidden):
    spec = Spec.from_mapping(private)
    plan = plan_sweep(spec, hidden)
    (one,) = preview(plan, hidden)
    whole = one.plan.event()
    assert plan.expected_events([one.plan])[0] == [whole.with_steps(3 * whole.steps)]


@pytest.mark.long
def test_a_private_selection_by_private_scores_is_priced_with_them(private, hidden):
    private["search"] = {"selection": "private", "sampler": "random", "selection_mean": 5}
    spec = Spec.from_mapping(private)
    plan, _, shown = look(spec, hidden)
    terms = plan.spending.selection
    assert terms.scores == make_score_noise(spec, hidden).paid(10).event
    expected = selection_epsilon(terms.scores, spec.search.repetitions, 1e-4)
    assert expected > selection_epsilon(terms.event, spec.search.repetitions, 1e-4)
    shown = " ".join(shown.split())
    assert f"Price: epsilon {round_up(expected)}" in shown
    assert "of the sweep" not in shown.partition("Price:")[0]


def test_scores_that_the_spec_leaves_out_cost_what_one_training_does(spec, hidden):
    plan = plan_sweep(spec, hidden)
    every, delta = plan.expected_events(plan_first(plan.shared, 1, hidden)), plan.privacy.delta
    one, scores = price(every[0][:1], delta).epsilon, price(every[1], delta, tight=True).epsilon
    assert 0.98 * one < scores <= one
