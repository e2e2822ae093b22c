import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.datasets.tables.table_file import Table, is_number, read_table, to_floats
from clipless.errors import DataError

CSV = 'age,ward,"note, long"\n39, A ,"two\nlines"\n,B,"say ""hi"""\n'


def as_lists(table):
    return {name: column.to_pylist() for name, column in table.columns.items()}


def test_csv_cells_are_trimmed_texts_whatever_they_look_like(write):
    table = read_table(write(CSV))
    assert as_lists(table) == {"age": ["39", ""], "ward": ["A", "B"], "note, long": ["two\nlines", 'say "hi"']}
    assert not any(is_number(column) for column in table.columns.values())


def test_compressed_csv_is_the_same_table(tmp_path, write):
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    assert as_lists(read_table(tmp_path / "people.csv.gz")) == as_lists(read_table(write(CSV)))


def test_a_byte_order_mark_is_not_part_of_a_name(write):
    assert list(read_table(write("\ufeffage,ward\n1,2\n")).columns) == ["age", "ward"]


def test_parquet_keeps_numbers_and_turns_the_rest_into_texts(tmp_path):
    columns = {
        "age": pa.array([39, None]),
        "weight": pa.array([1.5, float("nan")]),
        "ward": pa.array([" A", "B"]).dictionary_encode(),
        "ill": pa.array([True, False]),
    }
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert [name for name, column in table.columns.items() if is_number(column)] == ["age", "weight"]
    assert to_floats(table.columns["age"]).tolist() == pytest.approx([39.0, float("nan")], nan_ok=True)
    assert table.columns["ward"].to_pylist() == ["A", "B"]
    assert table.columns["ill"].to_pylist() == ["true", "false"]


def test_npz_matrices_become_numbered_columns(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.arange(6.0).reshape(3, 2), y=np.array([0, 1, 0], dtype=np.int8))
    assert as_lists(read_table(tmp_path / "t.npz")) == {"X0": [0.0, 2.0, 4.0], "X1": [1.0, 3.0, 5.0], "y": [0, 1, 0]}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.text("ab, ", max_size=3), st.floats() | st.none(), st.text("01", max_size=2)),
        min_size=1,
        max_size=8,
    )
)
def test_the_content_of_a_row_depends_on_that_row_only(rows):
    def contents(rows):
        text, number, label = zip(*rows, strict=True)
        columns = {
            "t": pa.array(text, pa.large_string()),
            "n": pa.array(number, pa.float64()),
            "l": pa.array(label, pa.large_string()),
        }
        return list(Table("t", columns).contents())

    assert contents(rows) == [contents([row])[0] for row in rows]
    assert contents(rows[::-1]) == contents(rows)[::-1]


def test_the_content_of_a_row_does_not_depend_on_the_order_of_columns(write):
    one = list(read_table(write("a,b\n1,2\n3,4\n")).contents())
    assert list(read_table(write("b,a\n2,1\n4,3\n")).contents()) == one
    assert len(set(one)) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The file is empty"),
        ("a,b\n", "holds no rows"),
        ("a;b\n1;2\n", "Expected columns separated by commas, got the one column 'a;b'"),
        ("a,b\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("a,b\n1,2\n3,4,5\n", "Expected 2 columns, got 3"),
        (",b\n1,2\n", "Column 1 has no name"),
        ("a,b,a\n1,2,3\n", "Column 'a' occurs twice"),
    ],
)
def test_a_malformed_csv_is_refused_in_one_sentence(write, text, message):
    with pytest.raises(DataError, match=message) as caught:
        read_table(write(text))
    assert "people.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_cell_is_too_long_to_be_read(write):
    long = "x" * 3_000_000
    table = read_table(write(f"a,b\n1,no\n2,{long}\n3,yes\n"))
    assert table.columns["b"].to_pylist() == ["no", long, "yes"]


def test_a_file_of_one_column_is_read(write):
    assert read_table(write("age\n30\n40\n")).columns["age"].to_pylist() == ["30", "40"]


def test_half_floats_are_numbers_beside_texts(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.array([[0.5], [0.25]], dtype=np.float16), y=np.array(["no", "yes"]))
    table = read_table(tmp_path / "t.npz")
    assert is_number(table.columns["X0"])
    assert len(set(table.contents())) == 2


def test_the_error_about_a_ragged_row_names_the_row_without_quoting_it(write):
    with pytest.raises(DataError, match="Row #3: Expected 2 columns, got 3") as caught:
        read_table(write("name,b\nann,2\nsecret,4,5\n"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.npz"])
def test_a_file_that_is_not_what_its_extension_says_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x1f\x8b\xff\xfe not, this\n\xff,2\n")
    with pytest.raises(DataError, match=f"Cannot read .*{name}"):
        read_table(tmp_path / name)


def test_a_truncated_gzip_is_refused(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(CSV.encode() * 100)[:-20])
    with pytest.raises(DataError, match=r"Cannot read .*t.csv.gz"):
        read_table(tmp_path / "t.csv.gz")


def test_a_file_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"Cannot read .*none.csv: No such file"):
        read_table(tmp_path / "none.csv")


def test_another_extension_is_refused(write):
    with pytest.raises(DataError, match=r"Expected a file ending in .csv, .csv.gz, .parquet, .npz, got .*t.xlsx"):
        read_table(write("a,b\n", "t.xlsx"))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros(2), "b": np.zeros(3)}, "columns of one length"),
        ({"a": np.zeros((2, 2, 2))}, r"got float64 \(2, 2, 2\) \(a in"),
        ({"a": np.array(1.0)}, "one or two axes"),
        ({"a": np.zeros(2, dtype=complex)}, "got complex128"),
        ({"a": np.array([1, "x"], dtype=object)}, "Cannot read"),
        ({}, "holds no rows"),
    ],
)
def test_npz_arrays_that_are_no_columns_are_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / "t.npz")


def test_a_parquet_column_of_lists_is_refused(tmp_path):
    pyarrow.parquet.write_table(pa.table({"a": pa.array([[1], [2, 3]])}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"got a column of type list.*\(a in"):
        read_table(tmp_path / "t.parquet")
