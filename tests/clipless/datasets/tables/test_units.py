"""Units of several rows: which rows belong together, where they go, and that no unit moves another."""

import random
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from clipless.datasets import Categorical, ColumnSplit, Drop, Evaluation, HashSplit, Numeric, Ranges, load
from clipless.errors import DataError

RANGES = Ranges(
    name="visits.yaml",
    source="the form",
    target="ill",
    classes=("no", "yes"),
    columns={"age": Numeric(low=0, high=5000, missing=50), "ward": Categorical(categories=("A", "B")), "part": Drop()},
    unit="person",
)
SIZES = [1, 2, 3, 8, 9, 40] * 12
SPLITS = ("train", "validation", "test")


def visits(sizes=SIZES, first=0):
    """Rows (age, ward, person, ill, part); ages tell them apart."""
    people = [person for person, size in enumerate(sizes, first) for _ in range(size)]
    return [(50 * i % 3999, "ABC"[i % 3], f"p{person}", ("no", "yes")[i % 2], "t") for i, person in enumerate(people)]


def write(rows, path, names=("age", "ward", "person", "ill", "part")):
    path.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]) + "\n")
    return path


def own(path, **options):
    return load(path, **({"ranges": RANGES, "evaluation": Evaluation.PRIVATE} | options))


def units_of(dataset):
    """By split, the set of units, each the sorted rows (example, label) that stand together."""
    found = {}
    for name in SPLITS:
        split = getattr(dataset, name)
        bounds = split.offsets.tolist()
        rows = list(zip(map(tuple, split.x.tolist()), split.y.tolist(), strict=True))
        units = [tuple(sorted(rows[a:b])) for a, b in pairwise(bounds)]
        assert len(units) == len(split)
        found[name] = units
    return found


def test_the_rows_of_a_unit_stand_together_in_one_split(tmp_path):
    rows = visits()
    data = own(write(rows, tmp_path / "t.csv"))
    found = units_of(data)
    sizes = sorted(len(unit) for units in found.values() for unit in units)
    assert sizes == sorted(SIZES)
    ages = {round(2 * row[0] / 5000 - 1, 5): row[2] for row in rows}
    for units in found.values():
        for unit in units:
            assert len({ages[round(x[0], 5)] for x, _ in unit}) == 1
    assert sum(map(len, found.values())) == len(SIZES)
    assert data.metadata.unit == "person"
    assert "with all its rows" in " ".join(data.metadata.public_facts)
    assert "no unit's split depends on another" in " ".join(data.metadata.public_facts)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("splits", [HashSplit(), None], ids=["hash", "column"])
@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 1000])
def test_a_table_without_a_unit_differs_in_that_unit_alone(tmp_path, size, splits):
    if splits is None:
        splits = ColumnSplit(column="part", train=("t",), validation=("v",), test=("e",))
    rows = [(*row[:4], "tve"[int(row[2][1:]) % 3]) for row in visits()]
    extra = [(*row[:2], "other", row[3], random.Random(i).choice("tve")) for i, row in enumerate(visits([size]))]
    mixed = [*rows, *extra]
    random.Random(size).shuffle(mixed)
    without, whole = (
        units_of(own(write(some, tmp_path / f"{i}.csv"), splits=splits)) for i, some in enumerate((rows, mixed))
    )
    added = []
    for name in SPLITS:
        left = list(whole[name])
        for unit in without[name]:
            left.remove(unit)
        added += left
    assert [len(unit) for unit in added] == [size]


def test_the_order_of_rows_changes_no_unit_and_no_split(tmp_path):
    rows = visits()
    mixed = random.Random(0).sample(rows, len(rows))
    one, other = (units_of(own(write(some, tmp_path / f"{i}.csv"))) for i, some in enumerate((rows, mixed)))
    for name in SPLITS:
        assert sorted(one[name]) == sorted(other[name])


@pytest.mark.parametrize(
    ("marks", "part"), [("tv", "train"), ("vt", "train"), ("ve", "validation"), ("evt", "train"), ("ee", "test")]
)
def test_a_unit_that_a_column_puts_into_several_splits_is_in_the_first_of_them(tmp_path, marks, part):
    """What one row declares private stays private; and nothing is refused, which would show."""
    splits = ColumnSplit(column="part", train=("t",), validation=("v",), test=("e",))
    others = [(*row[:4], "tve"[int(row[2][1:]) % 3]) for row in visits()]
    torn = [(4500 + i, "A", "torn", "no", mark) for i, mark in enumerate(marks)]
    for evaluation in (Evaluation.PRIVATE, Evaluation.PUBLIC):
        found = units_of(own(write([*others, *torn], tmp_path / "t.csv"), splits=splits, evaluation=evaluation))
        places = {
            name for name in SPLITS for unit in found[name] if any(round((x[0] + 1) * 2500) >= 4500 for x, _ in unit)
        }
        assert places == {part}
        (unit,) = (u for u in found[part] if any(round((x[0] + 1) * 2500) >= 4500 for x, _ in u))
        assert len(unit) == len(marks)


def test_a_unit_is_the_same_however_its_column_is_written(tmp_path):
    people = [1, 2, 2, 3, *range(10, 70)]
    table = {"age": range(len(people)), "ward": ["A"] * len(people), "part": ["t"] * len(people)}
    table |= {"ill": ["no", "yes"] * (len(people) // 2)}
    written = (
        pa.array(people),
        pa.array([float(p) for p in people]),
        pa.array([str(p) if i % 2 else f"{p}.0" for i, p in enumerate(people)]),
        pa.array([str(p) for p in people]).dictionary_encode(),
    )
    found = []
    for i, column in enumerate(written):
        pyarrow.parquet.write_table(pa.table(table | {"person": column}), tmp_path / f"{i}.parquet")
        found.append(units_of(own(tmp_path / f"{i}.parquet")))
    assert all(one == found[0] for one in found)
    assert sum(map(len, found[0].values())) == len(set(people))


def test_a_row_without_a_unit_is_refused(tmp_path):
    rows = visits()
    rows[5] = (1, "A", "NA", "no", "t")
    with pytest.raises(DataError, match=r"The unit of row 6 is missing: every row needs one \(person of t.csv\)"):
        own(write(rows, tmp_path / "t.csv"))


def test_units_of_one_row_are_loaded_as_rows_are_but_for_their_split(tmp_path):
    path = write(visits([1] * 80), tmp_path / "t.csv")
    data = own(path)
    assert all(torch.equal(s.offsets, torch.arange(len(s.y) + 1)) for s in (data.train, data.validation, data.test))
    assert sum(len(getattr(data, name)) for name in SPLITS) == 80
