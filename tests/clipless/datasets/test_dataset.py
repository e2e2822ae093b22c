"""Splits: rows, the units that they belong to, and what is taken of them."""

import pytest
import torch

from clipless.datasets import Split
from clipless.errors import DataError

SIZES = [3, 1, 2]


def split(sizes=SIZES):
    count = sum(sizes)
    return Split(torch.arange(float(count))[:, None], torch.arange(count), torch.tensor([0, *sizes]).cumsum(0))


def test_a_split_is_as_long_as_it_has_units():
    assert len(split()) == 3
    assert len(Split(torch.zeros(6, 1), torch.zeros(6, dtype=torch.int64))) == 6


def test_the_rows_of_a_unit_share_the_weight_of_one():
    assert split().weights().tolist() == pytest.approx([1 / 3] * 3 + [1.0] + [1 / 2] * 2)
    assert Split(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64)).weights().tolist() == [1.0, 1.0]


def test_units_are_taken_with_all_their_rows():
    taken = split().take(torch.tensor([2, 0]))
    assert taken.y.tolist() == [4, 5, 0, 1, 2]
    assert taken.x.flatten().tolist() == [4, 5, 0, 1, 2]
    assert taken.offsets.tolist() == [0, 2, 5]
    rows = Split(torch.zeros(3, 1), torch.arange(3)).take(torch.tensor([2, 1]))
    assert (rows.y.tolist(), rows.offsets) == ([2, 1], None)
    assert len(split().take(torch.tensor([], dtype=torch.int64))) == 0


def test_units_move_to_a_device_with_their_rows():
    moved = split().to("cpu")
    assert moved.offsets.tolist() == split().offsets.tolist()
    assert Split(torch.zeros(2, 1), torch.zeros(2, dtype=torch.int64)).to("cpu").offsets is None


@pytest.mark.parametrize(
    "offsets",
    [[0, 3], [1, 6], [0, 3, 3, 6], [0, 4, 2, 6], [], [0.0, 6.0], [[0, 6]], [0, 6, 7]],
    ids=str,
)
def test_offsets_that_are_none_are_refused(offsets):
    with pytest.raises(DataError, match="Expected increasing int64 offsets of units"):
        Split(torch.zeros(6, 1), torch.zeros(6, dtype=torch.int64), torch.tensor(offsets))
