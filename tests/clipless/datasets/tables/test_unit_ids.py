"""Ids of privacy units: one person has one, however a program writes it, and no two people share one."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from clipless.datasets.tables.table_file import read_table
from clipless.datasets.tables.units import unit_ids
from clipless.errors import DataError

LONG = [123456789012345678, 123456789012345679]


@pytest.fixture
def ids(tmp_path):
    """Reads ids from a parquet file, as every sweep and party does."""

    def read(cells, *markers):
        column = cells if isinstance(cells, pa.Array) else pa.array(cells)
        pyarrow.parquet.write_table(pa.table({"who": column}), tmp_path / "t.parquet")
        return unit_ids(read_table(tmp_path / "t.parquet"), "who", markers)

    return read


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([1, 0, 39], pa.uint8()),
        pa.array([1.0, -0.0, 39.0]),
        pa.array(["01", "-0", "39.0"]),
        pa.array([" +1", "0.", "\ufeff39"]),
        pa.array(["\u0661", "\uff10", "39\u200b"]),
        pa.array(["1", "0", "39"]).dictionary_encode(),
        pa.array([b"1", b"0", b"39"]),
        pa.array(["1", "0", "39"]).cast(pa.decimal128(20, 3)),
    ],
)
def test_an_id_is_the_same_in_every_type(ids, cells):
    assert ids(cells) == ["1", "0", "39"]


def test_whole_numbers_stay_apart_however_long_they_are(ids):
    for cells in (pa.array(LONG), pa.array([f"0{one}" for one in LONG]), pa.array([f"{one}.0" for one in LONG])):
        assert ids(cells) == [str(one) for one in LONG]


def test_a_number_may_have_any_length(ids):
    assert ids(["0" + "9" * 5000, "-" + "0" * 5000 + "7"]) == ["9" * 5000, "-7"]


def test_texts_are_no_numbers_that_they_look_like(ids):
    """Hexadecimal names and such: as numbers, four of these are 0 and two are infinite."""
    names = ["00e12345", "0e123456", "00000e77", "000e0001", "12e456", "13e456", "1e3", "1_000", "true", "inf", "0.50"]
    assert ids(names) == names


def test_one_name_composed_and_decomposed_is_one_person(ids):
    assert len(set(ids(["Ren\u00e9", "Rene\u0301", "Rene\u200d\u0301", "Ren\u00e9\0"]))) == 1


@pytest.mark.parametrize(
    "missing",
    ["", "NA", "NaN", "NAN", "-nan", "None", "<NA>", "NULL", "#N/A", r"\N", "?\u200b", "\u200b", "who knows", None],
)
def test_every_row_needs_an_id(ids, missing):
    with pytest.raises(DataError, match=r"^The unit of row 2 is missing: every row needs one \(who of t.parquet\)$"):
        ids(["a", missing], "who knows")
    with pytest.raises(DataError, match="row 1 is missing"):
        ids(pa.array([np.nan, 1.0]))


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([1.0, -9.0]),
        pa.array(["1", "-9.0"]),
        pa.array([1, -9]),
        pa.array(["1", "-9"]).cast(pa.decimal128(9, 2)),
    ],
)
@pytest.mark.parametrize("marker", ["-9", "-9.0", "-09"])
def test_a_marker_of_missing_ids_is_a_number_too(ids, cells, marker):
    with pytest.raises(DataError, match="row 2 is missing"):
        ids(cells, marker)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (pa.array([1.0, 2.0**24 + 1], pa.float32()), "float"),
        (pa.array([np.float16(2048), np.float16(2049)], pa.float16()), "halffloat"),
        (pa.array([1.0], pa.float32()).dictionary_encode(), "float"),
        (pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")), r"timestamp\[us, tz=UTC\]"),
        (pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.date32()), r"date32\[day\]"),
        (pa.array([True]), "bool"),
    ],
)
def test_types_that_hold_no_ids_exactly_or_are_written_in_several_ways_are_refused(ids, cells, kind):
    said = rf"whole numbers or texts, got a column of type {kind}; store them as such \(who of t.parquet\)$"
    with pytest.raises(DataError, match=said):
        ids(cells)


@pytest.mark.parametrize("one", [2.0**53, -1e300, np.inf, 0.5])
def test_doubles_that_may_stand_for_several_people_are_refused(ids, one):
    with pytest.raises(
        DataError, match=r"no whole ones below 2\^53, .* store ids as texts or whole numbers \(who of t"
    ):
        ids([1.0, one])


@pytest.mark.parametrize("one", ["1e+16", "1.2345678E+17", "1e+05", "-5e-324", "1.0000001E7", "1.E7"])
def test_texts_of_such_doubles_are_refused(ids, one):
    with pytest.raises(DataError, match=r"numbers with an exponent, .* write ids with all their digits \(who of t"):
        ids(["7", one])


@pytest.mark.parametrize("one", ["1e5", "-2E7", "12e15"])
def test_an_exponent_among_whole_numbers_is_refused_and_among_names_is_a_name(ids, one):
    """R's readr writes 100000 so: in another file the same person would have another id."""
    with pytest.raises(DataError, match=r"numbers with an exponent, .* write ids with all their digits \(who of t"):
        ids(["100001", one, "7"])
    for names in (["7", one, "4f0a"], ["7", "00e12345", "12e4567"], [one, one, "2e5"]):
        assert ids(names) == names


def test_an_array_of_single_precision_holds_no_ids(tmp_path):
    np.savez(tmp_path / "t.npz", who=np.arange(4, dtype=np.float32))
    with pytest.raises(DataError, match="got a column of type float;"):
        unit_ids(read_table(tmp_path / "t.npz"), "who")
