"""Rows are known by a keyed digest, and cut into blocks by an attribute of their unit."""

import json

import torch

from clipless.datasets import ColumnSplit, HashSplit
from clipless.datasets.dataset import Blocks, Split
from sweeper.account.blocks import digest_blocks, digest_dataset, digest_rows, is_declared, split_in_text

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
    x = torch.tensor([float(row) for row in rows], dtype=torch.float32)[:, None]
    return Split(x, torch.tensor([row % 2 for row in rows], dtype=torch.int64))


def test_the_rows_of_a_data_set_have_one_digest_on_whatever_side_they_are():
    digest = digest_dataset(KEY, Rows(split(1, 2), split(3), split(4)))
    assert digest_dataset(KEY, Rows(split(4, 2), split(1), split(3))) == digest
    assert digest_dataset(KEY, Rows(split(1, 2), split(3), split(5))) != digest
    relabelled = Split(torch.tensor([[4.0]]), torch.tensor([1]))
    assert digest_dataset(KEY, Rows(split(1, 2), split(3), relabelled)) != digest


def test_each_block_has_a_digest_of_its_own_rows_on_whatever_side_they_are():
    data = Rows(split(1, 2), split(3), split(4))
    data.blocks = Blocks(("jan", "feb"), torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([0]))
    january = digest_dataset(KEY, Rows(split(1), split(4), split()))
    assert digest_blocks(KEY, data) == {"jan": january, "feb": digest_dataset(KEY, Rows(split(3), split(), split(2)))}


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
