"""Tables that differ in one row: they load or are refused alike, and every other row keeps its example and split."""

import dataclasses
import gzip
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from clipless.datasets import Categorical, Drop, Numeric, Ranges, load
from clipless.datasets.tables.encoding import encode_columns, match_texts, numbers
from clipless.datasets.tables.table_file import as_written, canonical_texts, read_table
from clipless.errors import DataError, DeclarationError

RANGES = Ranges(
    name="people.yaml",
    source="the form",
    target="ill",
    classes=("no", "yes"),
    unknown="no",
    columns={
        "age": Numeric(low=0, high=100, missing=50),
        "ward": Categorical(categories=("A", "B")),
        "left": Categorical(categories=("0", "1"), other=True),
        "id": Drop(),
    },
)
HEADER = "age,ward,left,id,ill\n"
# Nothing that is declared occurs here but the class "no", so that the last row decides about every check.
OTHERS = [f"{i % 90},C,?,p{i},no" for i in range(300)]
LAST_ROWS = {
    "an ordinary row": "44,C,?,q,no",
    "the only row of its class": "44,C,?,q,yes",
    "the only declared category": "44,A,?,q,no",
    "an extreme value": "1e300,C,?,q,no",
    "a value that overflows": "-1e999,C,?,q,no",
    "not a number": "nan,C,?,q,no",
    "a number in a form of its own": "1_0,C,?,q,no",
    "what only some programs take for no number": "nan(7),C,?,q,no",
    "infinity": "inf,C,?,q,no",
    "a blank": ",,,q,no",
    "a marker of a missing value": "?,?,?,q,no",
    "a text where numbers are": "old,C,?,q,no",
    "a label that is missing": "44,C,?,q,",
    "a label of no class": "44,C,?,q,perhaps",
    "a label of another type": "44,C,?,q,1.5",
    "nothing at all": ",,,,",
}


def outcome(path, ranges=RANGES, evaluation="private"):
    """What anybody can see of loading a table: that it loads, or the kind and the sentence of the error."""
    try:
        load(path, ranges=ranges, evaluation=evaluation)
    except DataError as error:
        return f"{type(error).__name__}: {error}"
    return "loaded"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("evaluation", ["private", "public"])
@pytest.mark.parametrize("what", LAST_ROWS)
def test_no_row_decides_whether_a_table_with_private_training_rows_loads(write, what, evaluation):
    path = write(HEADER + "\n".join([*OTHERS, LAST_ROWS[what]]) + "\n")
    assert outcome(path, evaluation=evaluation) == "loaded"


def test_tables_without_any_declared_value_load_as_those_with_one(write):
    every = [f"old,C,?,p{i},perhaps" for i in range(300)]
    path = write(HEADER + "\n".join(every) + "\n")
    data = load(path, ranges=RANGES, evaluation="private")
    assert set(data.train.x[:, 0].tolist()) == {0.0}  # the declared 50 of 0 to 100
    assert set(data.train.y.tolist()) == {0}


def test_open_rows_are_checked_for_mistakes_in_the_declarations(write):
    ranges = dataclasses.replace(RANGES, columns={**RANGES.columns, "left": Drop(), "ward": Drop()})
    constant = write(HEADER + "\n".join(OTHERS) + "\n")
    assert "The target is constant" in outcome(constant, ranges, "exploratory")
    two = [*OTHERS, LAST_ROWS["the only row of its class"]]
    assert "None of the values is a declared category" in outcome(
        write(HEADER + "\n".join(two) + "\n"), evaluation="exploratory"
    )
    two.append(LAST_ROWS["a text where numbers are"])
    assert "Expected a number, got 'old'" in outcome(write(HEADER + "\n".join(two) + "\n"), ranges, "exploratory")


def test_what_the_ranges_file_names_no_value_for_is_refused_as_the_guide_says(write):
    age, label = {"age": Numeric(low=0, high=100)}, {"unknown": None}
    for change, what, said in (
        ({"columns": RANGES.columns | age}, "a blank", "Expected a finite number, got nan in row 301"),
        ({"columns": RANGES.columns | age}, "a text where numbers are", "Expected a number, got 'old' in row 301"),
        (label, "a label of no class", "Unknown label: 'perhaps' in row 301"),
        (label, "a label that is missing", "The label in row 301 is missing"),
    ):
        path = write(HEADER + "\n".join([*OTHERS, LAST_ROWS[what]]) + "\n")
        assert said in outcome(path, dataclasses.replace(RANGES, **change))


def test_a_class_for_unknown_labels_is_one_of_the_classes(write):
    path = write(HEADER + "\n".join(OTHERS) + "\n")
    said = outcome(path, dataclasses.replace(RANGES, unknown="maybe"))
    assert "Expected unknown to be one of the classes no, yes, got 'maybe' (target.unknown in people.yaml)" in said


# The rows of the table that neighbours share: whole numbers, numbers, truth values and texts.
PEOPLE = 60
SHARED = pd.DataFrame(
    {
        "whole": [i * 7 for i in range(PEOPLE)],
        "number": [i / 8 + 0.1 for i in range(PEOPLE)],
        "large": [2**40 + i for i in range(PEOPLE)],
        "small": [i % 2 for i in range(PEOPLE)],
        "text": [("A", "B", "C")[i % 3] for i in range(PEOPLE)],
        "target": [("no", "yes")[i % 2] for i in range(PEOPLE)],
    }
)
ROW = {"whole": 5, "number": 0.5, "large": 3, "small": 1, "text": "B", "target": "no"}
CHANGES = {
    "a missing whole number": {"whole": None},
    "a missing number": {"number": None},
    "a missing value everywhere": dict.fromkeys(ROW),
    "a broken number among whole ones": {"whole": 0.5, "large": 1.5},
    "a large whole number": {"whole": 2**62, "small": 2**40},
    "a number that no whole one holds": {"whole": 1e200},
    "a text among whole numbers": {"whole": "unknown"},
    "a text among numbers": {"number": "unknown", "small": "?"},
    "a number among texts": {"text": 7, "target": 1},
}


def _parquet(frame, path):
    columns = {}
    for name in frame:
        cells = [None if pd.isna(cell) else cell for cell in frame[name].tolist()]
        try:
            columns[name] = pa.array(cells)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):  # of several kinds: texts hold them all
            columns[name] = pa.array([None if cell is None else str(cell) for cell in cells])
    pyarrow.parquet.write_table(pa.table(columns), path)


def _dictionaries(frame, path):
    _parquet(frame, path)
    table = pyarrow.parquet.read_table(path)
    pyarrow.parquet.write_table(pa.table({name: table[name].dictionary_encode() for name in table.column_names}), path)


def _npz(frame, path):
    def cells(name):
        if any(isinstance(cell, str) for cell in frame[name]):
            return np.array(["" if pd.isna(cell) else str(cell) for cell in frame[name]])
        return np.array(frame[name].tolist(), dtype=float if frame[name].isna().any() else None)

    np.savez(path, **{name: cells(name) for name in frame})


def _zipped(frame, path):
    path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))


WRITERS = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "csv.gz": _zipped,
    "parquet": _parquet,
    "dictionaries.parquet": _dictionaries,
    "npz": _npz,
}


def contents(frame, kind, folder):
    path = folder / f"t.{kind}"
    WRITERS[kind](frame, path)
    return list(read_table(path).contents())


NUMBERS = SHARED[["whole", "number", "large", "small"]].astype({"number": object})
NUMBERS.loc[3, "number"] = None


@pytest.mark.sampled(7)
@pytest.mark.parametrize("shared", [SHARED, NUMBERS], ids=["with texts", "numbers"])
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("change", CHANGES)
def test_one_row_changes_what_decides_the_split_of_no_other(tmp_path, kind, change, shared):
    changed = {name: value for name, value in {**ROW, **CHANGES[change]}.items() if name in shared}
    ordinary = {name: ROW[name] for name in changed}
    neighbours = [
        contents(pd.DataFrame([*shared.to_dict("records"), row]), kind, tmp_path) for row in (ordinary, changed)
    ]
    alone = contents(shared, kind, tmp_path)
    assert neighbours[0][:PEOPLE] == neighbours[1][:PEOPLE] == alone
    assert len(set(alone)) == PEOPLE
    assert (neighbours[0][PEOPLE] == neighbours[1][PEOPLE]) == (changed == ordinary)


def test_one_row_keeps_the_split_of_every_other_where_units_are_numbers(tmp_path):
    ranges = Ranges(name="r", source="s", target="target", classes=("no", "yes"), others=Drop(), unit="unit")
    ranges = dataclasses.replace(ranges, columns={"whole": Numeric(low=0, high=100, missing=0)})
    found = []
    for last in (5_000, 5_000.0, "x"):
        units = [*range(PEOPLE), last]
        frame = pd.DataFrame([*SHARED.to_dict("records"), ROW]).assign(unit=units)
        _parquet(frame, tmp_path / "t.parquet")
        data = load(tmp_path / "t.parquet", ranges=ranges, evaluation="private")
        kept = data.train.x[:, 0].tolist()
        found.append({x for x in kept if abs(x - (5 / 50 - 1)) > 1e-6})  # without the last row
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([1, 0, 39], pa.int8()),
        pa.array([1, 0, 39], pa.uint64()),
        pa.array([1.0, -0.0, 39.0], pa.float32()),
        pa.array([1.0, 0.0, 39.0], pa.float64()),
        pa.array(["1", "0", "39"], pa.large_string()),
        pa.array(["1.0", "-0", "3.9e1"], pa.large_string()),
        pa.array([1, 0, 39]).dictionary_encode(),
        pa.array(["true", "False", "039"]),
    ],
)
def test_a_value_is_the_same_in_every_type(cells):
    assert canonical_texts(cells) == ["1", "0", "39"]


def test_a_number_of_single_precision_is_the_decimal_that_programs_write_of_it():
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32)
    edges = np.arange(1, 2**24, 1_001) * 2.0 ** np.arange(-50, 50)[np.arange(1, 2**24, 1_001) % 100]
    edges = np.concatenate([edges, *(2.0 ** -np.arange(1, 149) * near for near in (1, 1 - 2.0**-24, 1 + 2.0**-23))])
    decimals = np.round(np.linspace(0, 1, 10_001), 4)
    numbers = np.concatenate([bits.view(np.float32), edges.astype(np.float32), decimals.astype(np.float32)])
    numbers = numbers[~np.isnan(numbers)]
    is_whole = np.floor(numbers) == numbers
    written = np.array([float(str(number)) for number in numbers])
    found = as_written(numbers.astype(np.float64))
    np.testing.assert_array_equal(found, np.where(is_whole, numbers, written))
    assert (np.signbit(found) == np.signbit(numbers)).all()
    np.testing.assert_array_equal(as_written(decimals), decimals)


CELLS = [0.1, None, -2.5, 1e-3, 0.30004883, 7.0, 0.51182002, 3.1415927]


@pytest.mark.parametrize(
    ("kinds", "cells", "texts"),
    [
        (("float32", "float64"), CELLS, True),
        (("float16", "float32", "float64"), CELLS, False),  # in a text, the half of 0.1 is the double 0.1
        (("float32", "float64", "int64"), [2.0**24, 123456792.0, -(2.0**40)], False),
    ],
    ids=["single", "half", "whole"],
)
def test_a_table_of_less_precision_is_the_same_as_one_of_more(tmp_path, kinds, cells, texts):
    least = np.array([np.nan if cell is None else cell for cell in cells]).astype(kinds[0])
    for kind in kinds:
        frame = pd.DataFrame({"a": least.astype(kind)})
        pyarrow.parquet.write_table(pa.table({"a": least.astype(kind)}), tmp_path / f"{kind}.parquet")
        np.savez(tmp_path / f"{kind}.npz", a=least.astype(kind))
        frame.to_csv(tmp_path / f"{kind}.csv", index=False)
    suffixes = ("parquet", "npz", "csv") if texts else ("parquet", "npz")
    tables = [read_table(tmp_path / f"{kind}.{suffix}") for kind in kinds for suffix in suffixes]
    assert [one.types.get("a") for one in tables[:2]] == [pa.array(least).type] * 2, "they hold no ids exactly"
    assert len({tuple(table.contents()) for table in tables}) == 1
    assert len({tuple(canonical_texts(table.columns["a"])) for table in tables}) == 1


def test_what_a_number_is_encoded_as_is_next_to_what_its_neighbours_are():
    days = np.arange(2_460_000.0, 2_460_010.0, 0.25)  # single precision holds them, and their decimals are others
    for column in (pa.array(days), pa.array([str(day) for day in days])):
        np.testing.assert_array_equal(numbers(column, [""], "day"), days)
    assert (as_written(days) != days).any()


def test_a_text_is_the_same_however_its_accents_are_encoded(tmp_path):
    composed, apart = "Jos\u00e9", "Jose\u0301"
    for name, text in (("nfc", composed), ("nfd", apart)):
        (tmp_path / f"{name}.csv").write_text(f"who,x\n{text},1\n", encoding="utf-8")
        pyarrow.parquet.write_table(pa.table({"who": [text], "x": [1]}), tmp_path / f"{name}.parquet")
    tables = [read_table(tmp_path / f"{name}.{suffix}") for name in ("nfc", "nfd") for suffix in ("csv", "parquet")]
    assert len({tuple(table.contents()) for table in tables}) == 1
    assert {match_texts(table.columns["who"], [text])[0] for table in tables for text in (composed, apart)} == {0}
    assert {cell for table in tables for cell in table.columns["who"].to_pylist()} == {composed}
    assert all(np.isnan(numbers(table.columns["who"], [text], "who")) for table in tables for text in (composed, apart))


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([99, 98]),
        pa.array([99.0, 98.0]),
        pa.array(["99", "98"]),
        pa.array(["99.0", "98.0"]),
        pa.array(["+9.9e1", "98"]),
        pa.array(np.array([99.0, 98.0], np.float32)),
    ],
)
def test_a_number_that_stands_for_missing_ones_does_so_however_it_is_written(cells, tmp_path):
    pyarrow.parquet.write_table(pa.table({"age": cells}), tmp_path / "t.parquet")
    column = read_table(tmp_path / "t.parquet").columns["age"]
    for marker in ("99", "99.0", " 99"):
        np.testing.assert_array_equal(numbers(column, ["", marker], "age"), [np.nan, 98.0])
    np.testing.assert_array_equal(numbers(column, ["", "?"], "age"), [99.0, 98.0])
    tenth = pa.array(np.array([0.1, 0.2], np.float32).astype(np.float64))
    for marker in ("0.1", "0.10000000149011612"):
        np.testing.assert_array_equal(np.isnan(numbers(tenth, [marker], "x")), [True, False])


def test_no_number_within_a_range_stands_for_another_one():
    def declare(column, *markers):
        return Ranges(name="r.yaml", source="x", columns={"age": column}, missing_markers=("", *markers))

    age = Numeric(low=0.0, high=120.0, missing=18.0)
    for marker in ("99", "0", "120.0"):
        with pytest.raises(
            DeclarationError, match=r"^Expected missing_markers beyond the ranges .* in age \(0 to 120, "
        ):
            declare(age, marker)
    with pytest.raises(DeclarationError, match=r"got 0\.1 in age"):  # that of single precision lies within
        declare(Numeric(low=0.100000001, high=1.0, missing=0.5), "0.1")
    with pytest.raises(DeclarationError, match="in others"):
        Ranges(name="r.yaml", source="x", others=age, missing_markers=("7",))
    for marker in ("-9", "999", "18", "who knows", "nan", "inf"):
        assert declare(age, marker).missing_markers[-1] == marker
    assert declare(dataclasses.replace(age, missing=None), "99"), "a missing one is refused then"


def test_truth_values_are_the_numbers_that_they_are_known_as(tmp_path):
    found = []
    for cells in (pa.array([1, 0]), pa.array([True, False]), pa.array(["True", "false"]), pa.array(["1", "0"])):
        pyarrow.parquet.write_table(pa.table({"x": cells}), tmp_path / "t.parquet")
        table = read_table(tmp_path / "t.parquet")
        encoded = encode_columns(table, {"x": Numeric(low=0.0, high=1.0, missing=0.0)}, [""], open_rows=False)
        found.append((tuple(table.contents()), encoded.flatten().tolist()))
    assert found == [found[0]] * 4
    assert found[0][1] == [1.0, -1.0]


def test_no_range_ends_where_double_precision_does():
    with pytest.raises(DeclarationError, match="Expected numbers up to 1e\\+300"):
        Numeric(low=-8e307, high=8e307, missing=0.0)
    assert Numeric(low=-1e300, high=1e300).width == 1


def test_a_category_of_single_precision_is_its_decimal():
    cells = pa.array(np.array([0.1, 0.3, 2.0], np.float32).astype(np.float64))
    assert match_texts(cells, ["0.3", "0.1", "2"]).tolist() == [1, 0, 2]
    assert match_texts(pa.array(["0.30000001192092896", "0.3"]), ["0.30000001192092896"]).tolist() == [0, 0]


@pytest.mark.parametrize(
    "cells", [pa.array([None], pa.int64()), pa.array([np.nan]), pa.array([""]), pa.array(["NA"]), pa.nulls(1)]
)
def test_a_missing_value_is_the_same_in_every_type(cells):
    assert canonical_texts(cells) == [""]


MOMENTS = [datetime(2024, 2, 3, 4, 5, 6, 500_000, tzinfo=UTC), datetime(2024, 2, 3, tzinfo=UTC), None]


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_a_time_is_the_same_in_every_type(tmp_path, zone):
    column = pa.array([one and one.replace(tzinfo=None) for one in MOMENTS], pa.timestamp("us"))
    spelled = ["2024-02-03 04:05:06.500000", "2024-02-03T00:00:00", ""]
    if zone:
        column = column.cast(pa.timestamp("us", "UTC"))
        spelled = [
            ["2024-02-03 13:05:06.500000+09:00", "2024-02-03T09:00+09", ""],
            [text and f"{text}Z" for text in spelled],
        ][zone == "UTC"]
    columns = [column.cast(pa.timestamp(unit, zone)) for unit in ("ms", "us", "ns")]
    found = []
    for cells in (*columns, pa.array(spelled)):
        pyarrow.parquet.write_table(pa.table({"when": cells, "x": [1, 2, 3]}), tmp_path / "t.parquet")
        found.append((read_table(tmp_path / "t.parquet"), cells))
    assert len({tuple(table.contents()) for table, _ in found}) == 1
    assert len({tuple(table.columns["when"].to_pylist()) for table, _ in found[:3]}) == 1, "of categories, too"
    assert len(set(canonical_texts(found[0][0].columns["when"]))) == 3


def test_a_day_is_the_same_as_its_midnight_and_a_length_of_time_is_refused(tmp_path):
    midnight = pa.array([datetime(2024, 2, 3)], pa.timestamp("ns"))
    for column in (midnight, midnight.cast(pa.date32()), midnight.cast(pa.date64())):
        pyarrow.parquet.write_table(pa.table({"when": column}), tmp_path / "t.parquet")
        assert read_table(tmp_path / "t.parquet").columns["when"].to_pylist() == ["2024-02-03"]
    pyarrow.parquet.write_table(pa.table({"long": pa.array([7], pa.duration("ms"))}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"numbers or texts, got a column of type duration\[ms\] \(long in .*t.parquet"):
        read_table(tmp_path / "t.parquet")


def test_numbers_that_differ_stay_different():
    assert canonical_texts(pa.array([0.1, np.nextafter(0.1, 1.0), np.inf, -np.inf, 1e300])) == [
        "0.1",
        "0.10000000000000002",
        "inf",
        "-inf",
        "1e+300",
    ]


def test_a_truth_value_is_the_same_category_as_its_number(tmp_path):
    ranges = Ranges(
        name="r",
        source="s",
        target="target",
        classes=("no", "yes"),
        columns={"small": Categorical(categories=("true", "false"))},
        others=Drop(),
    )
    shared = SHARED["small"].astype(bool).tolist()
    found = []
    for column in (pa.array([*shared, True]), pa.array([*map(float, shared), None])):
        table = {"small": column, "target": pa.array([*SHARED["target"], "no"]), "n": pa.array(range(PEOPLE + 1))}
        pyarrow.parquet.write_table(pa.table(table), tmp_path / "t.parquet")
        data = load(tmp_path / "t.parquet", ranges=ranges, evaluation="private")
        found.append(sum(split.x.sum(0) for split in (data.train, data.validation, data.test)))
    assert found[0].tolist() == [31.0, 30.0]
    assert found[1].tolist() == [30.0, 30.0]
