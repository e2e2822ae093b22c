"""Rows are known by a keyed digest, and cut into blocks by an attribute of their unit."""

import json

import pytest
import torch

from clipless.datasets import ColumnSplit, HashSplit
from clipless.datasets.dataset import Split
from sweeper.account.blocks import cut_into_blocks, digest_dataset, digest_rows, is_declared, split_in_text
from sweeper.errors import RecordError

KEY = b"k" * 32
ROWS = [b"one", b"two", b"two"]


def test_the_order_of_rows_does_not_count_and_the_key_and_each_row_do():
    digest = digest_rows(KEY, ROWS)
    assert digest_rows(KEY, ROWS[::-1]) == digest
    for others in (ROWS[:2], [*ROWS, b"two"], [b"one", b"two", b"tow"], []):
        assert digest_rows(KEY, others) != digest
    assert digest_rows(b"l" * 32, ROWS) != digest


class Rows:
    raw = None

    def __init__(self, *splits):
        self.train, self.validation, self.test = splits


def split(*rows):
    return Split(torch.tensor([[float(row)] for row in rows]), torch.tensor([row % 2 for row in rows]))


def test_the_rows_of_a_data_set_have_one_digest_on_whatever_side_they_are():
    digest = digest_dataset(KEY, Rows(split(1, 2), split(3), split(4)))
    assert digest_dataset(KEY, Rows(split(4, 2), split(1), split(3))) == digest
    assert digest_dataset(KEY, Rows(split(1, 2), split(3), split(5))) != digest
    relabelled = Split(torch.tensor([[4.0]]), torch.tensor([1]))
    assert digest_dataset(KEY, Rows(split(1, 2), split(3), relabelled)) != digest


def test_every_unit_is_in_one_block():
    cut = cut_into_blocks(["jan", "feb", "jan"], ["ann", "ben", "ann"])
    assert cut == {"jan": [0, 2], "feb": [1]}
    with pytest.raises(RecordError, match="but a unit has rows in two; cut by an attribute of the unit") as refused:
        cut_into_blocks(["jan", "feb", "feb"], ["ann", "ben", "ann"])
    assert "ann" not in str(refused.value)
    with pytest.raises(RecordError, match="but a row has none"):
        cut_into_blocks(["jan", ""], [1, 2])
    with pytest.raises(RecordError, match="a block for each of the 2 rows, got 1 blocks"):
        cut_into_blocks(["jan"], [1, 2])


def test_two_splits_are_the_same_if_their_texts_are(account):
    columns = ColumnSplit(column="part", train=("b", "a"), validation=("c",), test=("d",))
    again = ColumnSplit(column="part", train=("a", "b"), validation=("c",), test=("d",))
    assert split_in_text(columns, "one") == split_in_text(again, "two")
    salted = {split_in_text(HashSplit(salt=salt), name) for salt in ("", "x") for name in ("one", "two")}
    assert len(salted) == 4
    assert split_in_text(HashSplit(validation=0.2), "one") not in salted
    assert json.loads(split_in_text(HashSplit(salt="x"), "one"))["salt"] == "x"
    assert is_declared(account.balance().opened, split_in_text(columns, "one"))
    assert not is_declared(account.balance().opened, None)
