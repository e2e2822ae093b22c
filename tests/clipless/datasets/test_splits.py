import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.datasets import ColumnSplit, HashSplit
from clipless.datasets.splits import Part, assign_by_hash, row_bytes
from clipless.errors import DataError

ROWS = st.lists(st.binary(max_size=6), max_size=30)
NUMBERED = [str(i).encode() for i in range(20_000)]


def assign(contents, name="toy", validation=0.3, test=0.2, **options):
    return assign_by_hash(contents, name, validation=validation, test=test, **options)


@settings(deadline=None)
@given(rows=ROWS, others=ROWS, position=st.integers(0, 30))
def test_a_row_keeps_its_split_when_other_rows_come_and_go(rows, others, position):
    alone = [int(assign([row])[0]) for row in rows]
    together = assign([*others[:position], *rows, *others[position:]])
    start = len(others[:position])
    assert together[start : start + len(rows)].tolist() == alone


def test_the_published_assignment_never_changes():
    assert assign(NUMBERED[:12]).tolist() == [2, 0, 1, 0, 0, 0, 0, 0, 1, 0, 2, 0]


def test_fractions_are_met_in_expectation():
    counts = np.bincount(assign(NUMBERED), minlength=3) / len(NUMBERED)
    assert counts == pytest.approx([0.5, 0.3, 0.2], abs=0.012)  # 3.5 standard deviations


def test_a_larger_fraction_only_adds_rows():
    small, large = assign(NUMBERED, validation=0.1), assign(NUMBERED, validation=0.3)
    assert ((small == Part.TEST) == (large == Part.TEST)).all()
    assert (large[small == Part.VALIDATION] == Part.VALIDATION).all()


@pytest.mark.parametrize("change", [{"name": "other"}, {"salt": "other"}])
def test_another_key_is_another_independent_assignment(change):
    agreement = (assign(NUMBERED) == assign(NUMBERED, **change)).mean()
    assert agreement == pytest.approx(0.5**2 + 0.3**2 + 0.2**2, abs=0.02)


def test_name_and_salt_cannot_be_confused():
    assert not (assign(NUMBERED, name="ab", salt="c") == assign(NUMBERED, name="a", salt="bc")).all()


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), max_size=6))
def test_row_bytes_depend_on_the_numbers_of_the_row_only(rows):
    array = np.array(rows, dtype=np.float32).reshape(-1, 3)
    together = [bytes(row) for row in row_bytes(array)]
    assert together == [bytes(next(row_bytes(array[i : i + 1]))) for i in range(len(array))]
    for j in range(len(array)):
        equal = np.array_equal(array[0], array[j], equal_nan=True)
        assert (together[0] == together[j]) == equal


def test_row_bytes_do_not_depend_on_byte_order_or_memory_order():
    array = np.arange(12.0).reshape(3, 4)
    expected = [bytes(row) for row in row_bytes(array)]
    assert [bytes(row) for row in row_bytes(array.astype(">f8"))] == expected
    assert [bytes(row) for row in row_bytes(np.asfortranarray(array))] == expected


@pytest.mark.long
def test_six_hundred_thousand_rows_take_seconds():
    rows = np.arange(6_000_000, dtype=np.float64).reshape(600_000, 10)
    start = time.process_time()
    assert len(assign(row_bytes(rows))) == 600_000
    assert time.process_time() - start < 30


@pytest.mark.parametrize("validation", [0.0, 1.0, -0.1, float("nan")])
def test_a_validation_fraction_outside_zero_and_one_is_refused(validation):
    with pytest.raises(DataError, match=r"Expected 0 < validation < 1.*data.splits"):
        HashSplit(validation=validation)


@pytest.mark.parametrize("test", [0.0, 0.7, float("nan")])
def test_a_test_fraction_that_leaves_no_training_rows_is_refused(test):
    with pytest.raises(DataError, match="Expected 0 < test < 1 - validation"):
        HashSplit(validation=0.3, test=test)


def test_the_default_test_fraction_leaves_training_rows():
    assert HashSplit().test_fraction == 0.15
    assert 0 < HashSplit(validation=0.9).test_fraction < 0.1
    assert HashSplit(test=0.4).test_fraction == 0.4


def test_a_column_split_maps_each_value_to_one_split():
    split = ColumnSplit(column="year", train=("2021", "2022"), validation=("2023",), test=("2024",))
    assert split.parts() == {"2021": Part.TRAIN, "2022": Part.TRAIN, "2023": Part.VALIDATION, "2024": Part.TEST}


@pytest.mark.parametrize("values", [(("a",), ("a",), ("b",)), (("a",), (), ("b",))])
def test_a_column_split_without_three_different_parts_is_refused(values):
    with pytest.raises(DataError, match="Expected different values of column 'fold'"):
        ColumnSplit(column="fold", train=values[0], validation=values[1], test=values[2])
