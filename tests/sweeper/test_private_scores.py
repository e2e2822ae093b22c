"""Paid scores of private rows: what is one, that each row answers for itself, and that noise is all that leaves."""

import pytest
import torch

import clipless
from clipless.datasets import Split
from clipless.privacy.events import Relation
from clipless.testing import RecordingSource, SeededSource
from sweeper.errors import SpecError
from sweeper.private_scores import PrivateScores, answers_of_rows, score_names

NAMES = ("accuracy", "certified@0.1", "certified@1/2")


@pytest.fixture(scope="module")
def model():
    generator = torch.Generator().manual_seed(0)
    return clipless.zoo.build("mlp", (6,), 3, input_norm=2.0, width=8, generator=generator)


@pytest.fixture
def split(model):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(60, 6, generator=generator)
    y = model(x).argmax(dim=1)
    y[::4] = (y[::4] + 1) % 3
    return Split(x=x, y=y)


def test_scores_are_accuracy_and_certificates_each_once():
    assert score_names(["epsilon", "certified@1/2", "accuracy", "certified@0.1"]) == (
        "accuracy",
        "certified@1/2",
        "certified@0.1",
    )
    assert score_names(["epsilon", "certified@1/2"])[0] == "accuracy"


@pytest.mark.parametrize(
    "name", ["auroc", "certified-auroc@0.1", "attacked@0.1", "autoattacked@0.1", "membership-auroc", "my-metric"]
)
def test_what_is_no_count_of_rows_is_refused_by_name(name):
    with pytest.raises(SpecError, match=rf"accuracy and certified@R only .* got {name} \(search in s\.yaml\); leave"):
        score_names(["epsilon", "accuracy", name], "s.yaml")


def test_answers_are_those_that_public_rows_are_scored_by(model, split):
    shares = answers_of_rows(model, split, NAMES, 0.3).double().mean(dim=0).tolist()
    scores = clipless.evaluate(model, split, ["0.1", "1/2"], 0.3)
    assert shares == pytest.approx([scores[name] for name in NAMES])
    assert 0.0 < shares[2] < shares[1] < shares[0] < 1.0


def test_a_row_answers_for_itself(model, split):
    """Whatever is done to one row, also to make it undefined, no other row's answers move."""
    whole = answers_of_rows(model, split, NAMES, 1.0)
    for value in (0.0, 1e3, torch.inf, torch.nan):
        x = split.x.clone()
        x[7] = value
        moved = answers_of_rows(model, Split(x=x, y=split.y), NAMES, 1.0)
        others = torch.arange(60) != 7
        assert torch.equal(moved[others], whole[others])
    fewer = Split(x=split.x[1:], y=split.y[1:])
    assert torch.equal(answers_of_rows(model, fewer, NAMES, 1.0), whole[1:])


def test_one_release_is_one_noisy_vector_of_the_declared_rows(model, split):
    source = RecordingSource(4)
    scores = PrivateScores(NAMES, population=60, noise_multiplier=2.0, source=source)
    released = scores.release(model, split, 1.0)
    (noise,) = source.normals
    exact = answers_of_rows(model, split, NAMES, 1.0).double().mean(dim=0)
    expected = exact + 2.0 * 3**0.5 / 2 / 60 * noise.double()
    assert tuple(released) == NAMES
    assert list(released.values()) == pytest.approx(expected.clamp(0, 1).tolist(), abs=1e-6)


def test_as_many_releases_are_charged_as_are_made(model, split):
    scores = PrivateScores(NAMES, population=60, noise_multiplier=5.0, source=SeededSource(0))
    event = scores.event(30, Relation.ADD_OR_REMOVE_ONE)
    assert (event.noise_multiplier, event.sampling_rate, event.steps) == (5.0, 1.0, 30)
    assert scores.release(model, split, 1.0) != scores.release(model, split, 1.0)
