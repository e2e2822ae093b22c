from dataclasses import replace

import pytest

from clipless.datasets import Evaluation
from clipless.privacy.events import Relation
from sweeper.adapters import parse
from sweeper.privacy.claims import (
    BUDGET_CONDITIONS,
    CHOSEN_POINT,
    EARLY_ENDS,
    FIXED_COURSE,
    INJECTED_GENERATOR,
    POINT_WITHIN_BUDGET,
    SPLITS_TOGETHER,
    STANDARD_CONDITIONS,
    AccountClaim,
    Claim,
)
from sweeper.privacy.evaluation.paid_scores import ScoreNoise
from sweeper.privacy.pricing import ENDED, EXTENDED, GROWS, OF_COPY, Price
from sweeper.specification.search import SmoothingSettings, plan_smoothing
from tests.factories import make_metadata


@pytest.fixture
def metadata():
    return make_metadata(public_facts=("Pixels lie in [0, 16].",), conditions=("The split is by hash.",))


def test_every_claim_repeats_what_the_data_declare_and_that_chosen_lengths_can_cost_more(metadata):
    claim = Claim.about(metadata, 1438, delta=1e-5)
    assert claim.public == ("The number of training rows, N = 1438.", "Pixels lie in [0, 16].")
    assert claim.conditions == ("The split is by hash.", *STANDARD_CONDITIONS)
    assert (claim.data, claim.population, claim.unit, claim.evaluation) == ("digits", 1438, "row", "public")
    assert not claim.exploratory
    (said,) = [sentence for sentence in Claim.about(metadata, 10, delta=1e-5).conditions if "1605.08294" in sentence]
    for fact in (
        "as if their number, noise and length had been fixed",
        "epochs or batch_size",
        "extended because of its results",
    ):
        assert fact in said


@pytest.mark.parametrize("ends_trials_early", [False, True])
def test_only_a_sweep_with_a_budget_may_use_results_in_any_way(metadata, ends_trials_early):
    given = {"delta": 1e-5, "ends_trials_early": ends_trials_early}
    ordinary = Claim.about(metadata, 1438, **given).conditions
    assert {CHOSEN_POINT, FIXED_COURSE} <= set(ordinary)
    assert (EARLY_ENDS in ordinary) == ends_trials_early
    within = Claim.about(metadata, 1438, **given, has_budget=True).conditions
    assert within == ("The split is by hash.", *BUDGET_CONDITIONS)
    assert not {CHOSEN_POINT, FIXED_COURSE, EARLY_ENDS} & set(within)
    assert set(STANDARD_CONDITIONS) - {CHOSEN_POINT, FIXED_COURSE} == set(within) & set(STANDARD_CONDITIONS)


def test_a_price_that_results_steer_says_so_unless_it_is_fixed(metadata):
    claim = Claim.about(metadata, 1438, delta=1e-5, chosen=["batch_size"])
    price = Price(epsilon=3.0, delta=1e-5, events=2, statement="Price: epsilon 3.")
    ledger = {"open": price, "fixed": replace(price, fixed=True)}
    qualified = claim.qualify(ledger)
    assert "they choose batch_size; fix batch_size" in qualified["open"].in_words
    assert qualified["open"].unproven in qualified["open"].course
    assert qualified["fixed"] == ledger["fixed"]
    assert Claim.about(metadata, 1438, delta=1e-5).qualify(ledger) == ledger
    assert parse(Claim, claim.to_json()) == claim


def test_no_price_of_a_copy_is_proven(metadata):
    """Not even one that was fixed: what the original drew since is in no ledger of the copy."""
    price = Price(epsilon=3.0, delta=1e-5, events=2, statement="Price: epsilon 3.")
    ledger = {"open": price, "fixed": replace(price, fixed=True)}
    plain, steered = (Claim.about(metadata, 1438, delta=1e-5, chosen=chosen) for chosen in ([], ["batch_size"]))
    qualified = plain.of_copy().qualify(ledger)
    assert [one.unproven for one in qualified.values()] == [OF_COPY, OF_COPY]
    assert [one.doubt for one in qualified.values()] == [" (not proven)"] * 2
    assert qualified["fixed"].in_words == f"Price: epsilon 3. {OF_COPY}"
    assert qualified["open"].in_words == f"Price: epsilon 3. {GROWS} {OF_COPY}"
    both = steered.of_copy().qualify(ledger)
    assert both["open"].unproven == f"{OF_COPY} {steered.unproven}"
    assert both["fixed"].unproven == OF_COPY


def test_a_sweep_that_goes_on_was_not_ended_early_but_stays_extended(metadata):
    claim = Claim.about(metadata, 1438, delta=1e-5)
    ended = claim.with_chosen(EXTENDED, ENDED)
    assert "it was extended and ended early, perhaps because of them; set privacy.sweep_epsilon." in ended.unproven
    assert claim.resumed_from(ended).chosen == (EXTENDED,)


def test_an_account_that_was_raised_has_one_claim_which_says_that_it_may_be_raised_again(metadata):
    claim = Claim.about(metadata, 1438, delta=1e-5)
    of = {epsilon: AccountClaim("clinic", epsilon, 1e-5) for epsilon in (3.0, 30.0, 7.0)}
    first, raised = (replace(claim, account=of[one], conditions=("a mark", of[one].condition)) for one in (3.0, 7.0))
    found = raised.resumed_from(first)
    assert (found.conditions, found.account) == (("a mark", of[7.0].condition), of[7.0])
    assert "epsilon 7 at delta 1e-05 together, unless its owner raises it" in of[7.0].condition
    earlier = of[3.0].condition.replace(", unless its owner raises it, which it records", "")  # of an earlier version
    assert raised.resumed_from(replace(first, conditions=(earlier,))).conditions == found.conditions
    for conditions, is_stated in (
        (first.conditions, True),
        ((earlier,), True),
        (("a mark",), False),
        ((first.conditions[1].replace("which it records", "whoever reads it"),), False),
        ((of[30.0].condition,), False),
        ((of[3.0].condition, of[7.0].condition), False),
    ):
        assert of[3.0].is_stated(conditions) == is_stated, conditions


def test_a_budget_says_what_its_price_holds_for_and_what_is_not_in_it():
    for fact in ("that of one training", "which its budget fixed before any row was read", "however results were used"):
        assert fact in POINT_WITHIN_BUDGET
    assert (
        "outside this sweep (earlier sweeps on the same data, ranges tried by hand) are not in it"
        in POINT_WITHIN_BUDGET
    )


def test_a_budget_lifts_no_other_mark(metadata):
    claim = Claim.about(metadata, 10, delta=0.1, secure_generator=False, reads_training_rows=True, has_budget=True)
    assert claim.exploratory
    assert [sentence.partition(" ")[0] for sentence in claim.conditions[:3]] == ["No", "Membership", "The"]


def test_unpaid_scores_and_an_injected_generator_make_it_exploratory(metadata):
    assert Claim.about(replace(metadata, evaluation=Evaluation.EXPLORATORY), 10, delta=1e-5).exploratory
    claim = Claim.about(metadata, 10, delta=1e-5, secure_generator=False)
    assert claim.exploratory
    assert claim.conditions[0] == INJECTED_GENERATOR
    claim = Claim.about(metadata, 10, delta=0.1)
    assert claim.conditions[0].startswith("The accepted delta = 0.1 is not below 1/N for N = 10")


def test_noisy_scores_are_told_with_their_deviation(metadata):
    noise = ScoreNoise(
        names=("accuracy",),
        noise_multiplier=20.0,
        test_noise_multiplier=20.0,
        relation=Relation.ADD_OR_REMOVE_ONE,
        apart=True,
        validation=100,
        test=50,
    )
    claim = Claim.about(replace(metadata, evaluation=Evaluation.PRIVATE), 1438, delta=1e-5, noise=noise)
    assert "of standard deviation 0.1 on validation rows and 0.2 on test rows" in claim.conditions[0]
    assert claim.conditions[1:] == ("The split is by hash.", *STANDARD_CONDITIONS)
    assert not claim.exploratory
    together = Claim.about(metadata, 1438, delta=1e-5, noise=replace(noise, apart=False))
    assert together.conditions[1] == SPLITS_TOGETHER


def test_a_claim_says_that_smoothed_certificates_are_another_kind_and_may_be_wrong(metadata):
    smoothing = plan_smoothing(["smoothed@0.5"], SmoothingSettings(test_draws=10_000), 0)
    (said,) = (one for one in Claim.about(metadata, 1438, delta=1e-5, smoothing=smoothing).conditions if "0.001" in one)
    for fact in ("another kind of certificate than certified@R", "deviation 0.5", "10000 for each", "at most 0.001 N"):
        assert fact in said
