import dataclasses

import pytest
import torch

from clipless.datasets import Dataset, Evaluation, Metadata, Split
from clipless.errors import DataError

METADATA = Metadata(
    name="toy",
    input_shape=(2,),
    classes=("a", "b"),
    evaluation=Evaluation.PUBLIC,
    unit="row",
    input_norm=5.0,
    input_gain=1.0,
    radius_unit="metres",
    public_facts=("N is public.",),
    conditions=(),
)
GOOD = Split(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([0, 1]))


def dataset(**splits):
    return Dataset(METADATA, **({"train": GOOD, "validation": GOOD, "test": GOOD} | splits))


def test_a_dataset_whose_largest_example_has_exactly_the_declared_norm_is_accepted():
    assert len(dataset().train) == 2


def test_rows_within_the_bound_are_accepted_however_a_float32_sum_of_them_rounds():
    entries, entry = 200_000, torch.tensor(1.1).item()
    assert torch.linalg.vector_norm(torch.full((entries,), entry)) > entry * entries**0.5 * (1 + 1e-4)
    facts = dataclasses.replace(METADATA, input_shape=(entries,), input_norm=entry * entries**0.5)
    rows = Split(torch.full((2, entries), entry), torch.tensor([0, 1]))
    assert len(Dataset(facts, rows, rows, rows).train) == 2


def test_nothing_can_be_reassigned():
    for thing, field in ((METADATA, "name"), (GOOD, "x"), (dataset(), "train")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, field, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("unit", ""),
        ("radius_unit", None),
        ("input_shape", ()),
        ("input_shape", (0,)),
        ("input_shape", (2.0,)),
        ("input_shape", [2]),
        ("classes", ("a",)),
        ("classes", ("a", "a")),
        ("classes", ("a", 1)),
        ("classes", ["a", "b"]),
        ("evaluation", "public"),
        ("input_norm", float("nan")),
        ("input_norm", float("inf")),
        ("input_norm", 0.0),
        ("input_gain", -1.0),
        ("input_gain", float("nan")),
        ("public_facts", "one sentence"),
        ("conditions", ("",)),
        ("training_published", 1),
        ("split_by_row", None),
        ("column_widths", [1, 1]),
        ("column_widths", (1, 0, 1)),
        ("column_widths", (1, 2)),
        ("largest_share", 0.4),
        ("largest_share", 1.0),
        ("largest_share", float("nan")),
    ],
)
def test_metadata_refuse_what_cannot_be_true(field, value):
    with pytest.raises(DataError, match=f"Expected {field} to be"):
        dataclasses.replace(METADATA, **{field: value})


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, dtype=torch.int64), "float32"),
        (torch.zeros(2, 2), torch.zeros(2), "int64"),
        (torch.zeros(2, 2), torch.zeros(3, dtype=torch.int64), r"y \(n,\)"),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int64), "input_shape"),
    ],
)
def test_a_split_refuses_wrong_types_and_shapes(x, y, message):
    with pytest.raises(DataError, match=message):
        Split(x, y)


@pytest.mark.parametrize("name", ["train", "validation", "test"])
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[3.0, float("nan")]], [0], "not finite or exceeds the declared norm 5"),
        ([[3.0, float("inf")]], [0], "not finite"),
        ([[3.0, 4.01]], [0], "exceeds the declared norm 5"),
        ([[3.0, 4.0]], [2], "labels from 0 to 1"),
        ([[3.0, 4.0]], [-1], "labels from 0 to 1"),
        ([[3.0, 4.0, 0.0]], [1], r"shape \(2,\), got \(3,\)"),
    ],
)
def test_a_dataset_refuses_rows_that_break_its_metadata(name, x, y, message):
    with pytest.raises(DataError, match=f"{message}.*split {name}"):
        dataset(**{name: Split(torch.tensor(x), torch.tensor(y))})


def test_an_empty_split_is_refused():
    empty = Split(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(DataError, match="No rows fall into the test split; enlarge its fraction"):
        dataset(test=empty)


def test_evaluation_is_one_of_three():
    assert Evaluation.parse("private") is Evaluation.PRIVATE
    with pytest.raises(DataError, match=r"public, private or exploratory, got 'open' \(data.evaluation\)"):
        Evaluation.parse("open")
