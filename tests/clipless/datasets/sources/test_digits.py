import pytest
import torch
from sklearn.datasets import load_digits

from clipless.datasets import Evaluation, HashSplit, load


def test_digits_are_images_in_zero_and_one():
    dataset = load("digits")
    facts = dataset.metadata
    assert (facts.input_shape, facts.classes) == ((1, 8, 8), tuple("0123456789"))
    assert (facts.evaluation, facts.unit) == (Evaluation.PUBLIC, "row")
    assert (facts.input_norm, facts.input_gain, facts.radius_unit) == (8.0, 1.0, "pixels in [0, 1]")
    assert [len(split) for split in (dataset.train, dataset.validation, dataset.test)] == [1276, 261, 260]
    assert (float(dataset.train.x.min()), float(dataset.train.x.max())) == (0.0, 1.0)


def test_digits_hold_every_image_of_scikit_learn_with_its_label():
    dataset, bunch = load("digits"), load_digits()
    x = torch.cat([dataset.train.x, dataset.validation.x, dataset.test.x]).reshape(-1, 64)
    y = torch.cat([dataset.train.y, dataset.validation.y, dataset.test.y])
    ours = sorted(zip(map(tuple, (x * 16).int().tolist()), y.tolist(), strict=True))
    theirs = sorted(zip(map(tuple, bunch.data.astype(int).tolist()), bunch.target.tolist(), strict=True))
    assert ours == theirs


def test_fractions_of_digits_can_be_chosen():
    assert len(load("digits", splits=HashSplit(validation=0.1, test=0.5)).train) < 900


@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_rows_may_be_treated_as_private(name):
    facts = load(name, evaluation="private").metadata
    assert facts.evaluation is Evaluation.PRIVATE
    assert any("private" in condition for condition in facts.conditions)
    assert not any("rows are public" in fact for fact in facts.public_facts)
