from dataclasses import replace

import pytest

from clipless.datasets import Evaluation, Metadata
from clipless.privacy.events import Relation
from sweeper.privacy.claims import INJECTED_GENERATOR, SPLITS_TOGETHER, STANDARD_CONDITIONS, Claim
from sweeper.privacy.score_noise import ScoreNoise


@pytest.fixture
def metadata():
    return Metadata(
        name="digits",
        input_shape=(1, 8, 8),
        classes=("0", "1"),
        evaluation=Evaluation.PUBLIC,
        unit="row",
        input_norm=8.0,
        input_gain=1.0,
        radius_unit="pixels in [0, 1]",
        public_facts=("Pixels lie in [0, 16].",),
        conditions=("The split is by hash.",),
    )


def test_a_claim_repeats_what_the_data_declare(metadata):
    claim = Claim.about(metadata, 1438, delta=1e-5)
    assert claim.public == ("The number of training rows, N = 1438.", "Pixels lie in [0, 16].")
    assert claim.conditions == ("The split is by hash.", *STANDARD_CONDITIONS)
    assert (claim.data, claim.population, claim.unit, claim.evaluation) == ("digits", 1438, "row", "public")
    assert not claim.exploratory


def test_every_claim_says_that_lengths_which_results_chose_can_cost_more(metadata):
    (said,) = [sentence for sentence in Claim.about(metadata, 10, delta=1e-5).conditions if "1605.08294" in sentence]
    for fact in (
        "as if their number, noise and length had been fixed",
        "epochs or batch_size",
        "extended after a look",
    ):
        assert fact in said


def test_unpaid_scores_make_it_exploratory(metadata):
    assert Claim.about(replace(metadata, evaluation=Evaluation.EXPLORATORY), 10, delta=1e-5).exploratory


def test_an_injected_generator_makes_it_exploratory(metadata):
    claim = Claim.about(metadata, 10, delta=1e-5, secure_generator=False)
    assert claim.exploratory
    assert claim.conditions[0] == INJECTED_GENERATOR


def test_an_accepted_large_delta_is_told(metadata):
    claim = Claim.about(metadata, 10, delta=0.1)
    assert claim.conditions[0].startswith("The accepted delta = 0.1 is not below 1/N for N = 10")


def test_noisy_scores_are_told_with_their_deviation(metadata):
    noise = ScoreNoise(
        names=("accuracy",),
        noise_multiplier=20.0,
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
