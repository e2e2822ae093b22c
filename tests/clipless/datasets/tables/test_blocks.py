"""Tables that grow: rows are cut into blocks by a public attribute of their unit, and the blocks that are named read."""

from dataclasses import replace

import pytest

from clipless.datasets import Categorical, Drop, Evaluation, HashSplit, Numeric, Ranges, load
from clipless.datasets.dataset import Blocks, Dataset
from clipless.datasets.splits import hash_rows
from clipless.datasets.tables.blocks import choose_blocks
from clipless.errors import DataError, DeclarationError

RANGES = Ranges(
    name="visits.yaml",
    source="the form",
    target="ill",
    classes=("no", "yes"),
    columns={"age": Numeric(low=0, high=500, missing=50), "ward": Categorical(categories=("A", "B"))},
    block="month",
)
WITHOUT = replace(RANGES, block=None)
WITH_PERSON = replace(RANGES, columns={**RANGES.columns, "person": Drop()})
MONTHS = ("2026-01", "2026-02", "3")


def visits(count=90, months=MONTHS):
    """Rows (age, ward, month, person, ill); ages tell them apart, two rows are one person's."""
    return [(i, "AB"[i % 2], months[i // 2 % len(months)], f"p{i // 2}", ("no", "yes")[i % 2]) for i in range(count)]


def own(path, rows=None, *, blocks=MONTHS[:1], **changes):
    cells = [("age", "ward", "month", "person", "ill"), *(visits() if rows is None else rows)]
    path.write_text("\n".join(",".join(map(str, row)) for row in cells) + "\n")
    ranges = changes.pop("ranges", RANGES)
    unit = {"unit": "person"} | changes
    return load(path, ranges=ranges, evaluation=Evaluation.PRIVATE, blocks=blocks, **unit)


def ages(data):
    return sorted(
        round(250 * x + 250) for part in (data.train, data.validation, data.test) for x in part.x[:, 0].tolist()
    )


def test_only_the_rows_of_the_blocks_that_are_named_are_read(tmp_path):
    data = own(tmp_path / "t.csv")
    assert ages(data) == [row[0] for row in visits() if row[2] == "2026-01"]
    assert data.metadata.block == "month"
    (fact,) = [fact for fact in data.metadata.public_facts if "blocks" in fact]
    assert fact == (
        "Column 'month' cuts rows into blocks, a public attribute of each value of 'person'. Read are 2026-01; the "
        "number of rows of each block is public."
    )
    assert len(data.train.x) + len(data.validation.x) + len(data.test.x) == 30


def test_the_units_of_each_block_that_is_read_are_known_by_their_ids(tmp_path):
    units = own(tmp_path / "t.csv", blocks=("3", "2026-01")).blocks.units
    ids = {month: {person for _, _, of, person, _ in visits() if of == month} for month in ("3", "2026-01")}
    for month, names in ids.items():
        assert {bytes(one) for one in units[month].numpy()} == {
            bytes(one) for one in hash_rows(name.encode() for name in names)
        }
        assert len(units[month]) == 15
    assert own(tmp_path / "t.csv", unit=None, ranges=WITH_PERSON).blocks.units is None, "each row is one"


@pytest.mark.parametrize("unit", ["person", "row"])
def test_every_row_keeps_its_block_through_splits_and_units(tmp_path, unit):
    changes = {} if unit == "person" else {"unit": None, "ranges": WITH_PERSON}
    data = own(tmp_path / "t.csv", blocks=("3", "2026-01"), **changes)
    month_of = {row[0]: row[2] for row in visits()}
    for name in ("train", "validation", "test"):
        split, codes = getattr(data, name), getattr(data.blocks, name)
        found = [data.blocks.names[code] for code in codes.tolist()]
        assert found == [month_of[round(250 * x + 250)] for x in split.x[:, 0].tolist()]
    assert {*data.blocks.train.tolist()} == {0, 1}


def test_a_new_month_moves_no_row_of_another(tmp_path):
    data = own(tmp_path / "t.csv")
    more = own(tmp_path / "u.csv", [*visits(), *((400 + i, "A", "2026-04", f"n{i}", "no") for i in range(9))])
    assert [data.train.x.tolist(), data.test.x.tolist()] == [more.train.x.tolist(), more.test.x.tolist()]
    salted = own(tmp_path / "t.csv", splits=HashSplit(salt="other"))
    assert data.train.x.tolist() != salted.train.x.tolist()


def test_a_number_is_a_name_however_it_is_written(tmp_path):
    rows = visits(months=("1", "2"))
    assert ages(own(tmp_path / "t.csv", rows, blocks=("01",))) == ages(own(tmp_path / "t.csv", rows, blocks=("1.0",)))


def test_one_block_has_one_name_however_it_is_written():
    assert choose_blocks("ward", ["1.0", "02", "2026-03"]).names == ("1", "2", "2026-03")


def test_a_unit_in_two_blocks_is_refused_and_not_named(tmp_path):
    moved = (0, "A", "2026-02", "p0", "no")  # of whom the first block has a row, even if only a third one is read
    with pytest.raises(DataError, match="but a unit has rows in two; cut by an attribute of the unit") as refused:
        own(tmp_path / "t.csv", [*visits(), moved], blocks=("3",))
    assert "p0" not in str(refused.value)


@pytest.mark.parametrize(
    ("rows", "changes", "sentence"),
    [
        ([*visits(), (1, "A", "", "q", "no")], {}, "but a row has none; fill the column"),
        (None, {"blocks": ("2026-09",)}, "Expected rows of block '2026-09', found none"),
        (None, {"block": "year", "ranges": WITHOUT}, "Column 'year' is not in t.csv"),
    ],
)
def test_what_a_column_of_blocks_does_not_have_is_refused(tmp_path, rows, changes, sentence):
    with pytest.raises(DataError, match=sentence):
        own(tmp_path / "t.csv", rows, **changes)


@pytest.mark.parametrize(
    ("block", "blocks", "sentence"),
    [
        ("month", None, "blocks of column 'month' that are read, each once, got none"),
        ("month", ("1", "01"), "each once, got 1, 01"),
        (None, ("1",), "Expected the column of blocks, got none for 1"),
    ],
)
def test_a_column_and_the_names_that_are_read_belong_together(tmp_path, block, blocks, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        own(tmp_path / "t.csv", blocks=blocks, block=block, ranges=WITHOUT)


def test_a_data_set_has_the_block_of_every_row(tmp_path):
    data = own(tmp_path / "t.csv")
    blocks = Blocks("month", data.blocks.names, data.blocks.train[1:], data.blocks.validation, data.blocks.test)
    with pytest.raises(DataError, match="Expected a block for each row of the train split, got another number"):
        Dataset(data.metadata, data.train, data.validation, data.test, blocks)
