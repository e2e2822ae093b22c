from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from clipless.datasets import Evaluation, Split
from clipless.datasets.dataset import Blocks, RowHashes
from sweeper.errors import SpecError
from sweeper.specification.spec import Spec
from sweeper.trials.build import build_loss, build_model, build_plan
from sweeper.trials.rehearsal import rehearsal_config, rehearsal_halves


@pytest.fixture
def config(content):
    content["training"]["batch_size"] = 256
    content["privacy"] = {"noise_multiplier": 4.0, "delta": 1e-4}
    return Spec.from_mapping(content, "s.yaml").space.resolve({})


def rows(*splits):
    return {
        (row.numpy().tobytes(), int(label)) for split in splits for row, label in zip(split.x, split.y, strict=True)
    }


def test_a_rehearsal_sees_validation_rows_alone_each_on_one_side(digits):
    first, second = rehearsal_halves(digits)
    assert len(first.train) + len(first.validation) == len(digits.validation)
    assert abs(len(first.train) - len(second.train)) <= 1
    for half in (first, second):
        assert rows(half.train, half.validation, half.test) == rows(digits.validation)
        assert not rows(half.train) & rows(half.validation)
    assert torch.equal(first.train.x, second.validation.x)
    assert torch.equal(first.train.x, rehearsal_halves(digits)[0].train.x)


def test_blocks_and_hashes_of_all_rows_are_none_of_a_half(digits):
    blocks = Blocks("month", ("a",), *(torch.zeros(len(part), dtype=torch.int64) for part in splits_of(digits)))
    whole = replace(digits, blocks=blocks, hashes=RowHashes.of(*splits_of(digits)), raw=digits)
    assert {(half.blocks, half.hashes, half.raw) for half in rehearsal_halves(whole)} == {(None, None, None)}


def splits_of(data):
    return data.train, data.validation, data.test


@pytest.mark.parametrize("evaluation", [Evaluation.PRIVATE, Evaluation.EXPLORATORY])
def test_rows_that_are_not_public_are_not_rehearsed_on(digits, evaluation):
    closed = replace(digits, metadata=replace(digits.metadata, evaluation=evaluation))
    with pytest.raises(SpecError, match=f"Expected public validation rows .* got evaluation='{evaluation.value}'"):
        rehearsal_halves(closed)


def test_a_mean_over_a_batch_is_as_noisy_as_on_the_training_rows(digits, config):
    (half, _), loss = rehearsal_halves(digits), build_loss(config)
    smaller = rehearsal_config(config, len(half.train), len(digits.train))
    stage = build_plan(config, build_model(config, digits, loss, 0), loss, len(digits.train))
    rehearsed = build_plan(smaller, build_model(smaller, half, loss, 0), loss, len(half.train))
    assert rehearsed.sampling_rate == pytest.approx(stage.sampling_rate, rel=0.05)
    assert rehearsed.steps_per_epoch == stage.steps_per_epoch
    for name, std in stage.noise_stds.items():
        assert rehearsed.noise_stds[name] / rehearsed.batch_size == pytest.approx(std / stage.batch_size)


def test_a_rehearsal_needs_the_noise_of_a_stage(content):
    config = Spec.from_mapping(content, "s.yaml").space.resolve({})
    with pytest.raises(SpecError, match="Expected a noise multiplier"):
        rehearsal_config(config, 100, 1000)


def test_the_rows_of_a_unit_are_in_one_half(digits):
    count = len(digits.validation)
    offsets = torch.tensor([*range(0, count, 3), count])
    units = Split(digits.validation.x, digits.validation.y, offsets)
    first, second = rehearsal_halves(replace(digits, validation=units))
    assert len(first.train) + len(second.train) == len(units)
    assert rows(first.train, second.train) == rows(units)
    whole = {units.x[a:b].numpy().tobytes() for a, b in pairwise(offsets.tolist())}
    for half in (first.train, second.train):
        assert {half.x[a:b].numpy().tobytes() for a, b in pairwise(half.offsets.tolist())} <= whole
