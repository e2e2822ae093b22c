import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.datasets import Categorical, Drop, Numeric
from clipless.datasets.tables.encoding import column_widths, encode_columns, encode_labels, input_gain, input_norm
from clipless.datasets.tables.table_file import Table
from clipless.errors import DataError, DeclarationError

MARKERS = ("", "?")


def text(*cells):
    return pa.array(cells, pa.large_string())


def encode(column, declaration):
    return encode_columns(Table("t.csv", {"c": column}), {"c": declaration}, MARKERS)


def labels(column, classes):
    return encode_labels(column, classes, MARKERS, "target 'y' of t.csv").tolist()


def test_numbers_are_scaled_to_minus_one_and_one_and_clamped():
    x = encode(text("0", "25", "100", "-7", "1e9", "+50"), Numeric(low=0, high=100))
    assert x.dtype == np.float32
    assert x[:, 0].tolist() == [-1.0, -0.5, 1.0, -1.0, 1.0, 0.0]


def test_missing_and_non_finite_numbers_take_the_declared_value():
    declaration = Numeric(low=0, high=100, missing=75)
    assert encode(text("?", "", "inf", "-inf", "nan", "0"), declaration)[:, 0].tolist() == [0.5] * 5 + [-1.0]
    assert encode(pa.array([None, float("nan"), 0.0]), declaration)[:, 0].tolist() == [0.5, 0.5, -1.0]
    assert encode(pa.array([None, 0]), declaration)[:, 0].tolist() == [0.5, -1.0]


@pytest.mark.parametrize("gap", ["?", "", "nan", "inf", "-Infinity", "1e999"])
def test_without_a_declared_value_they_are_refused(gap):
    with pytest.raises(DataError, match=r"finite number, got .* in row 2: .*missing: 0 \(column 'c' of t.csv\)"):
        encode(text("1", gap), Numeric(low=0, high=1))


def test_a_text_among_numbers_is_refused_by_row_and_value():
    with pytest.raises(DataError, match=r"Expected a number, got 'old' in row 3.*\(column 'c' of t.csv\)"):
        encode(text("1", "?", "old"), Numeric(low=0, high=1, missing=0))


def test_categories_are_one_hot_and_unknown_ones_all_zeros():
    column = text("B", "A", "x", "?", None)
    assert encode(column, Categorical(categories=("A", "B"))).tolist() == [[0, 1], [1, 0], [0, 0], [0, 0], [0, 0]]
    other = encode(column, Categorical(categories=("A", "B"), other=True))
    assert other.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]


def test_a_declared_category_is_a_category_even_if_it_looks_missing():
    assert encode(text("?", "A"), Categorical(categories=("A", "?"))).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("column", [text("1", "2.0", "1.00"), pa.array([1, 2, 1]), pa.array([1.0, 2.0, 1.0])])
def test_equal_numbers_are_the_same_category(column):
    assert encode(column, Categorical(categories=("1", "2"))).argmax(1).tolist() == [0, 1, 0]


def test_misspelled_categories_are_noticed():
    with pytest.raises(DataError, match=r"None of the values is a declared category.*\(column 'c' of t.csv\)"):
        encode(text("A", "B"), Categorical(categories=("a", "b")))


def test_a_table_of_dropped_columns_is_refused():
    with pytest.raises(DataError, match=r"Every column is dropped.*t.csv"):
        encode(text("A"), Drop())


@pytest.mark.parametrize(
    ("low", "high", "bins"),
    [(1764374400000000000, 1764374400000010000, None), (-1e300, -1e300 + 1e285, None), (1.7e9, 1.7e9 + 150, 256)],
)
def test_a_range_that_doubles_do_not_resolve_is_refused(low, high, bins):
    with pytest.raises(
        DeclarationError, match=r"that numbers of double precision resolve, got low=.*subtract a public"
    ):
        Numeric(low=low, high=high, bins=bins)


def test_cells_of_the_narrowest_range_are_off_by_less_than_certificates_allow_for():
    low = 2.0**60
    column = Numeric(low=low, high=low + 2.0**31)
    wanted = np.arange(2**31 - 2**20, 2**31, 2**9 - 1)  # beyond what doubles resolve there, a grid of 2^8
    cells = [str(2**60 + int(offset)) for offset in wanted]
    exact = 2.0 * wanted / 2.0**31 - 1.0
    assert np.abs(encode(text(*cells), column)[:, 0].astype(np.float64) - exact).max() <= 8 * 2.0**-24


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(), st.sampled_from("ABC?")), min_size=1, max_size=10),
    st.floats(-4e299, 4e299),
    st.floats(1e-3, 5e299),
    st.sampled_from([None, 2, 3, 12]),
)
def test_no_row_exceeds_the_norm_that_the_declarations_imply_nor_depends_on_another(rows, low, width, bins):
    declarations = {
        "n": Numeric(low=low, high=low + max(width, abs(low) * 1e-7), missing=low, bins=bins),
        "w": Categorical(categories=("A", "B", "C"), other=True),
        "id": Drop(),
    }

    def encoded(rows):
        n, w = zip(*rows, strict=True)
        table = Table("t", {"n": pa.array(n), "w": text(*w, "A")[:-1], "id": text(*w)})
        return encode_columns(table, declarations, MARKERS)

    rows = [*rows, (0.0, "A")]  # at least one known category
    x = encoded(rows)
    assert (np.linalg.norm(x.astype(np.float64), axis=1) <= input_norm(declarations)).all()
    for i, row in enumerate(rows):
        alone = encoded([row, (0.0, "A")])[0]
        assert np.array_equal(x[i], alone)


def test_bins_put_a_number_between_its_two_nearest_places_on_the_unit_sphere():
    x = encode(pa.array([0.0, 2.0, 3.0, 4.0, 9.0, -1.0]), Numeric(low=0, high=8, bins=5))
    half = 0.5**0.5
    places = [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, half, half, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0],
    ]
    assert x == pytest.approx(np.array(places), abs=1e-6)
    assert np.linalg.norm(x.astype(np.float64), axis=1) == pytest.approx(np.ones(6), abs=1e-6)


@pytest.mark.parametrize("bins", [2, 3, 12])
def test_no_pair_of_numbers_moves_apart_by_more_than_the_gain_of_bins(bins):
    declaration = Numeric(low=-3, high=5, bins=bins)
    values = np.sort(np.random.default_rng(0).uniform(-3, 5, 400))
    x, scaled = (encode(pa.array(values), one).astype(np.float64) for one in (declaration, Numeric(low=-3, high=5)))
    ratios = np.linalg.norm(x[:, None] - x, axis=2) / np.maximum(np.abs(scaled - scaled[:, 0]), 1e-3)
    gain = input_gain({"n": declaration})
    assert 0.99 * gain <= ratios.max() <= gain * (1 + 1e-4)


def test_the_gain_of_a_table_is_that_of_its_steepest_column():
    plain, steep, flat = Numeric(low=0, high=1), Numeric(low=0, high=1, bins=12), Numeric(low=0, high=1, bins=2)
    words = Categorical(categories=("A", "B"))
    assert input_gain({"a": plain, "b": steep, "c": Drop()}) == pytest.approx(11 * np.pi / 4)
    assert input_gain({"a": flat, "b": words}) == 1.0  # another category still moves an example by the root of 2
    assert input_gain({"a": flat}) == pytest.approx(np.pi / 4)
    assert input_norm({"a": plain, "b": steep, "c": Drop()}) == pytest.approx(2**0.5)
    assert column_widths({"a": plain, "b": words}) == (1, 2)
    assert column_widths({"a": plain, "b": steep}) == ()  # a sketch must not take places for categories


def test_labels_are_positions_in_the_declared_classes():
    assert labels(text("yes", "no", "yes"), ("no", "yes")) == [1, 0, 1]
    assert labels(text("1", "0.0", "1.0"), ("0", "1")) == [1, 0, 1]
    assert labels(pa.array([2, 1]), ("1", "2")) == [1, 0]
    assert labels(text("NA", "a"), ("a", "NA")) == [1, 0]


@pytest.mark.parametrize("gap", ["", "?", None])
def test_a_missing_label_is_refused(gap):
    with pytest.raises(DataError, match=r"The label in row 2 is missing.*\(target 'y' of t.csv\)"):
        labels(text("a", gap, "b"), ("a", "b"))


def test_a_missing_number_as_label_is_refused():
    for column in (pa.array([1.0, float("nan")]), pa.array([1, None])):
        with pytest.raises(DataError, match="The label in row 2 is missing"):
            labels(column, ("0", "1"))


def test_a_label_outside_the_declared_classes_is_refused():
    with pytest.raises(DataError, match=r"Unknown label: 'maybe' in row 2 is not among the declared classes no, yes"):
        labels(text("no", "maybe"), ("no", "yes"))
    with pytest.raises(DataError, match=r"Unknown label: '7' in row 1"):
        labels(text("7", "1"), ("0", "1"))


def test_labels_of_mixed_types_are_refused():
    with pytest.raises(DataError, match="Labels are of mixed types: 'yes' in row 2"):
        labels(text("0", "yes", "1"), ("0", "1"))


def test_a_constant_target_is_refused():
    with pytest.raises(DataError, match="The target is constant, every label is 'a'"):
        labels(text("a", "a"), ("a", "b"))


@pytest.mark.parametrize("cells", [[None, None], [None, "A"], ["B", None]])
def test_whether_a_column_has_a_cell_at_all_decides_nothing(cells):
    column = pa.array(cells, pa.large_string())
    wards = {"ward": Categorical(categories=("A", "7"), other=True)}
    x_NF = encode_columns(Table("t", {"ward": column}), wards, (), open_rows=False)
    assert x_NF.tolist() == [[1.0, 0.0, 0.0] if cell == "A" else [0.0, 0.0, 1.0] for cell in cells]
