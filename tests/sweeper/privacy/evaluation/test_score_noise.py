"""The noise of scores of private rows: where it comes from, how far it moves a score, and what is paid for it."""

from dataclasses import replace

import pytest

import clipless
from clipless.datasets import Evaluation
from clipless.errors import AccountingError
from clipless.privacy.events import Relation
from clipless.privacy.noisy_counts import scores_event
from sweeper.adapters import parse
from sweeper.errors import SpecError
from sweeper.planning.make import make_score_noise
from sweeper.privacy.evaluation.paid_scores import PaidScores, planned_scores, scored_by
from sweeper.records import TrialPlan
from sweeper.specification.spec import Spec


@pytest.fixture(scope="module")
def digits():
    return clipless.datasets.load("digits", evaluation="private")


def declared(data, **facts):
    return replace(data, metadata=replace(data.metadata, **facts))


@pytest.fixture
def spec(content):
    content["data"] |= {"evaluation": "private"}
    content["privacy"] |= {"score_noise": 30.0}
    content["search"] = {"objectives": ["certified@1/4", "epsilon"], "metrics": ["certified@1"]}
    return Spec.from_mapping(content, "s.yaml")


@pytest.fixture
def noise(spec, digits):
    return make_score_noise(spec, digits)


def test_all_scores_of_a_spec_are_released_together_accuracy_first(noise, digits):
    assert noise.names == ("accuracy", "certified@1/4", "certified@1")
    assert (noise.noise_multiplier, noise.relation, noise.apart) == (30.0, Relation.ADD_OR_REMOVE_ONE, True)
    assert (noise.validation, noise.test) == (len(digits.validation), len(digits.test))


def test_the_deviation_of_a_score_is_that_of_its_count_over_the_rows(noise):
    count = 30.0 * 3**0.5 / 2
    assert noise.stds == {
        "validation": pytest.approx(count / noise.validation),
        "test": pytest.approx(count / noise.test),
    }


def test_free_scores_have_no_noise(content):
    assert make_score_noise(Spec.from_mapping(content), clipless.datasets.load("digits")) is None


def test_a_data_set_that_declares_its_rows_private_by_itself_is_held_to_the_same_rules(content, digits):
    with pytest.raises(SpecError, match=r"Expected a noise multiplier of .* \(privacy\.score_noise in s\.yaml\); add"):
        make_score_noise(Spec.from_mapping(content, "s.yaml"), digits)
    content["privacy"]["score_noise"] = 2.0
    content["search"] = {"metrics": ["attacked@1"]}
    said = r"paid for, got metrics='attacked@1' \(search\.metrics in s\.yaml\); leave it out, or declare"
    with pytest.raises(SpecError, match=said):
        make_score_noise(Spec.from_mapping(content, "s.yaml"), digits)
    del content["search"]
    with pytest.raises(SpecError, match=r"Expected no score_noise without evaluation: private, .*got score_noise=2\.0"):
        make_score_noise(Spec.from_mapping(content), declared(digits, evaluation=Evaluation.PUBLIC))
    assert make_score_noise(Spec.from_mapping(content), digits).noise_multiplier == 2.0


def test_rows_that_do_not_choose_their_split_alone_are_not_apart(spec, digits):
    assert make_score_noise(spec, declared(digits, split_by_row=False)).apart is False


def test_a_private_selection_needs_rows_that_are_apart(content, digits):
    content["data"] |= {"evaluation": "private"}
    content["privacy"] |= {"score_noise": 30.0}
    content["search"] = {"selection": "private", "sampler": "random"}
    spec = Spec.from_mapping(content, "s.yaml")
    assert make_score_noise(spec, digits).apart
    said = r"Expected no private selection by scores of private rows of digits, .*\(search\.selection in s\.yaml\)"
    with pytest.raises(SpecError, match=said):
        make_score_noise(spec, declared(digits, split_by_row=False))


def test_every_release_is_paid(noise):
    paid = noise.paid(7)
    assert paid == PaidScores(event=scores_event(30.0, 7, Relation.ADD_OR_REMOVE_ONE), apart=True)
    assert PaidScores.from_json(paid.to_json()) == paid
    assert PaidScores.from_json(paid.to_json() | {"apart": "yes"}).apart is False


@pytest.mark.parametrize("changes", [{"event": {}}, {"event": None}])
def test_what_is_no_payment_is_refused(noise, changes):
    with pytest.raises(AccountingError):
        PaidScores.from_json(noise.paid(1).to_json() | changes)


def test_a_trial_plans_one_release_for_each_epoch_of_each_repeat(noise, plan_json):
    plan = parse(TrialPlan, plan_json | {"repeats": 3, "scores": noise.plan(range(1, 11))})
    assert planned_scores(plan) == noise.paid(30)
    assert planned_scores(plan, 12) == replace(noise.paid(18), kept=12)
    assert [scored_by(plan, epoch) for epoch in (0, 1, 10)] == [0, 3, 30]
    replaced = planned_scores(replace(plan, relation=Relation.REPLACE_ONE))
    assert replaced.event.relation is Relation.REPLACE_ONE


def test_a_trial_with_free_scores_plans_none(plan):
    assert planned_scores(plan) is None
    assert scored_by(plan, 5) == 0
