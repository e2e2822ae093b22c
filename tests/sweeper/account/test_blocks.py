"""Rows are known by a keyed digest, and cut into blocks by an attribute of their unit."""

import json

import pytest
import torch

import clipless
from clipless.datasets import ColumnSplit, HashSplit
from clipless.datasets.dataset import Blocks, RowHashes, Split
from sweeper.account.blocks import (
    ALL_ROWS,
    digest_dataset,
    digest_read_blocks,
    digest_rows,
    digest_sides,
    digest_table,
    digest_whole,
    is_declared,
    split_in_text,
)

KEY = b"k" * 32
ROWS = [b"one", b"two", b"two"]


def test_the_order_of_rows_does_not_count_and_the_key_and_each_row_do():
    digest = digest_rows(KEY, ROWS)
    assert digest_rows(KEY, ROWS[::-1]) == digest
    for others in (ROWS[:2], [*ROWS, b"two"], [b"one", b"two", b"tow"], []):
        assert digest_rows(KEY, others) != digest
    assert digest_rows(b"l" * 32, ROWS) != digest


def test_which_rows_are_one_units_counts_and_the_order_of_units_does_not():
    digest = digest_rows(KEY, ROWS, [0, 0, 1])
    assert digest_rows(KEY, [b"two", b"two", b"one"], [7, 3, 3]) == digest
    assert digest not in (digest_rows(KEY, ROWS, [0, 1, 1]), digest_rows(KEY, ROWS))
    assert digest_rows(KEY, ROWS, [2, 1, 0]) == digest_rows(KEY, ROWS)


class Rows:
    raw = blocks = hashes = None

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
    data.blocks = Blocks("month", ("jan", "feb"), torch.tensor([0, 1]), torch.tensor([1]), torch.tensor([0]))
    january, february = Rows(split(1), split(4), split()), Rows(split(3), split(), split(2))
    alone = [digest_dataset(KEY, own)[ALL_ROWS] for own in (january, february)]
    assert list(digest_dataset(KEY, data).items()) == list(zip(("jan", "feb"), alone, strict=True))
    units = Rows(Split(*vars_of(split(1, 1, 2)), offsets=torch.tensor([0, 2, 3])), split(3), split(4))
    units.blocks = Blocks("month", ("jan", "feb"), torch.tensor([0, 0, 1]), torch.tensor([1]), torch.tensor([0]))
    whole = Rows(Split(*vars_of(split(1, 1)), offsets=torch.tensor([0, 2])), split(4), split())
    assert digest_dataset(KEY, units) == {"jan": digest_dataset(KEY, whole)[ALL_ROWS], "feb": alone[1]}


@pytest.mark.parametrize("offsets", [None, torch.tensor([0, 2, 3])], ids=["rows", "units"])
def test_rows_of_several_blocks_have_the_digest_of_the_same_rows_in_one(offsets):
    data = Rows(Split(*vars_of(split(1, 1, 2)), offsets=offsets), split(3), split(4))
    (one,) = digest_dataset(KEY, data).values()
    assert digest_whole(KEY, data) == ()
    data.blocks = Blocks("month", ("q1",), torch.tensor([0, 0, 0]), torch.tensor([0]), torch.tensor([0]))
    assert (digest_dataset(KEY, data), digest_whole(KEY, data)) == ({"q1": one}, ())
    for codes in ([0, 0, 1], [1, 1, 0]):
        data.blocks = Blocks("month", ("jan", "feb"), torch.tensor(codes), torch.tensor([1]), torch.tensor([0]))
        assert digest_whole(KEY, data) == (one,)
    data.hashes = RowHashes(*(torch.arange(len(codes), dtype=torch.uint8)[:, None] for codes in (range(3), [0], [0])))
    assert digest_whole(KEY, data) == (one, digest_table(KEY, data))


def vars_of(split):
    return split.x, split.y


def test_where_a_row_is_and_what_put_it_there_have_a_digest_too():
    one, moved = Rows(split(1, 2), split(3), split(4)), Rows(split(1, 3), split(2), split(4))
    assert digest_sides(KEY, one) != digest_sides(KEY, moved)
    assert digest_sides(KEY, one) == digest_sides(KEY, Rows(split(2, 1), split(3), split(4)))
    assert digest_sides(KEY, one) != digest_dataset(KEY, one)
    alike = [Rows(split(1), split(1), split(4)) for _ in range(2)]  # two people with one encoding change places
    for data, names in zip(alike, ("ab", "ba"), strict=True):
        data.hashes = RowHashes(*(torch.tensor([[ord(name)]], dtype=torch.uint8) for name in (*names, "c")))
    assert digest_dataset(KEY, alike[0]) == digest_dataset(KEY, alike[1])
    assert digest_sides(KEY, alike[0]) != digest_sides(KEY, alike[1])


def test_a_table_has_one_digest_whatever_its_ranges_blocks_and_sides_are(tmp_path):
    (tmp_path / "t.csv").write_text("".join(["a,b,y\n", *(f"{i},{i % 3},{i % 2}\n" for i in range(60))]))

    def load(high, more="", **options):
        columns = f"columns: {{a: {{low: 0, high: {high}}}}}\nothers: {{drop: true}}\n"
        declared = 'source: the form\ntarget: {column: y, classes: ["0", "1"]}\n' + more + columns
        (tmp_path / "r.yaml").write_text(declared)
        return clipless.datasets.load(tmp_path / "t.csv", ranges=tmp_path / "r.yaml", **options)

    one, other = load(60), load(61, splits=HashSplit(salt="x"))
    assert digest_dataset(KEY, one) != digest_dataset(KEY, other)
    assert digest_table(KEY, one) == digest_table(KEY, other) != digest_table(b"l" * 32, one)
    for read in (["0", "1", "2"], ["1"], ["2", "0"]):
        assert digest_table(KEY, load(60, "block: b\n", blocks=read)) == digest_table(KEY, one)
    (tmp_path / "t.csv").write_text((tmp_path / "t.csv").read_text().replace("7,1,1", "7,2,1"))
    assert digest_table(KEY, load(60)) != digest_table(KEY, one), "a column that is dropped"
    assert digest_table(KEY, Rows(split(1, 2), split(3), split(4))) is None


def test_the_rows_of_a_block_have_the_digest_of_a_table_of_these_rows_alone(tmp_path):
    def load(months, high, **options):
        rows = [f"{i},{month},{i % 2}\n" for month in months for i in range(40)]
        (tmp_path / "t.csv").write_text("".join(["a,month,y\n", *rows]))
        columns = f"columns: {{a: {{low: 0, high: {high}}}}}\nothers: {{drop: true}}\n"
        declared = 'source: the form\ntarget: {column: y, classes: ["0", "1"]}\n' + columns
        (tmp_path / "r.yaml").write_text(declared + ("block: month\n" if options else ""))
        return clipless.datasets.load(tmp_path / "t.csv", ranges=tmp_path / "r.yaml", **options)

    both = digest_read_blocks(KEY, load(["jan", "feb"], 40, blocks=["feb", "jan"]))
    assert both["jan"] != both["feb"]
    assert digest_read_blocks(KEY, load(["jan", "feb", "mar"], 41, blocks=["jan"])) == {"jan": both["jan"]}
    alone = load(["feb"], 42)
    assert digest_table(KEY, alone) == both["feb"]
    assert digest_read_blocks(KEY, alone) == {}


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
