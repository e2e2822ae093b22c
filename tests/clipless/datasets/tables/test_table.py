import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.datasets import Categorical, ColumnSplit, Drop, Evaluation, HashSplit, Numeric, Ranges, input_format, load
from clipless.datasets.tables.table import TableFacts, encode_table, load_table
from clipless.datasets.tables.table_file import Table
from clipless.errors import DataError, DeclarationError

RANGES = Ranges(
    name="people.yaml",
    source="the form",
    target="ill",
    classes=("no", "yes"),
    columns={"age": Numeric(low=0, high=100, missing=50), "ward": Categorical(categories=("A", "B")), "id": Drop()},
)
ROWS = [(i % 90, "ABC"[i % 3], f"p{i}", ("no", "yes")[i % 2]) for i in range(120)]


def csv(rows, header="age,ward,id,ill"):
    return header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)


def own(path, **options):
    return load(path, **({"ranges": RANGES, "evaluation": Evaluation.PRIVATE} | options))


def rows_of(dataset):
    """Every row as (split, example, label), sorted."""
    parts = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    return sorted(
        (part, tuple(x), y)
        for part, split in parts.items()
        for x, y in zip(split.x.tolist(), split.y.tolist(), strict=True)
    )


def test_a_users_table_becomes_a_dataset_by_declarations_alone(write):
    dataset = own(write(csv(ROWS)))
    facts = dataset.metadata
    assert (facts.name, facts.unit, facts.evaluation) == ("people", "row", Evaluation.PRIVATE)
    assert (facts.input_shape, facts.classes) == ((3,), ("no", "yes"))
    assert (facts.input_norm, facts.input_gain) == (2**0.5, 1.0)
    assert facts.column_widths == (1, 2)
    assert facts.radius_unit == "columns scaled to [-1, 1] by their declared ranges"
    assert "people.yaml; their source: the form" in facts.public_facts[0]
    assert any("Validation and test rows are private" in condition for condition in facts.conditions)
    assert sum(map(len, (dataset.train, dataset.validation, dataset.test))) == len(ROWS)
    expected = sorted(((age / 50 - 1), float(ward == "A"), float(ward == "B")) for age, ward, _, _ in ROWS)
    assert [x for _, x, _ in sorted(rows_of(dataset), key=lambda row: row[1])] == [
        tuple(torch.tensor(row).tolist()) for row in expected
    ]


@pytest.mark.long
@settings(deadline=None)
@given(st.permutations(range(120)), st.integers(1, 20))
def test_a_rows_example_label_and_split_do_not_depend_on_other_rows(order, removed):
    def dataset(rows):
        columns = dict(zip(("age", "ward", "id", "ill"), zip(*rows, strict=True), strict=True))
        texts = {name: pa.array([str(v) for v in column], pa.large_string()) for name, column in columns.items()}
        source = TableFacts(name="t", split_name="t", evaluation=Evaluation.PRIVATE, public_because="")
        return rows_of(encode_table(Table("t", texts), RANGES, source))

    whole = dataset(ROWS)
    assert dataset([ROWS[i] for i in order]) == whole
    kept = dataset([ROWS[i] for i in order[removed:]])
    remaining = list(whole)
    for row in kept:
        remaining.remove(row)
    assert len(remaining) == removed
    extreme = ("-1e9", "?", "new", "no")  # missing, out of range: would change a fitted scaling
    assert len([row for row in dataset([*ROWS, extreme]) if row not in whole]) <= 1


def test_renaming_a_file_or_reordering_its_columns_moves_no_row(write):
    reordered = [(row[3], row[0], row[2], row[1]) for row in ROWS]
    one = own(write(csv(ROWS)))
    other = own(write(csv(reordered, "ill,age,id,ward"), "other-name.csv"))
    assert torch.equal(one.train.y, other.train.y)


def test_csv_parquet_and_npz_hold_the_same_dataset(write, tmp_path):
    age, ward, person, ill = (list(column) for column in zip(*ROWS, strict=True))
    pyarrow.parquet.write_table(pa.table({"age": age, "ward": ward, "id": person, "ill": ill}), tmp_path / "p.parquet")
    np.savez(tmp_path / "p.npz", age=np.array(age), ward=np.array(ward), id=np.array(person), ill=np.array(ill))
    from_csv = [row[1:] for row in rows_of(own(write(csv(ROWS))))]
    from_parquet, from_npz = (rows_of(own(tmp_path / name)) for name in ("p.parquet", "p.npz"))
    assert from_parquet == from_npz
    assert sorted(row[1:] for row in from_parquet) == sorted(from_csv)


def test_salt_and_fractions_are_public_parameters(write):
    path = write(csv(ROWS))
    assert len(own(path, splits=HashSplit(validation=0.4, test=0.3)).train) < 60
    salted = own(path, splits=HashSplit(salt="2"))
    assert rows_of(salted) != rows_of(own(path))


def test_identical_rows_fall_together(write):
    parts = {part for part, x, _ in rows_of(own(write(csv([*ROWS, *[ROWS[7]] * 50])))) if x == X_7}
    assert len(parts) == 1


X_7 = (torch.tensor(7 / 50 - 1).item(), 0.0, 1.0)


def test_a_column_may_declare_the_split_and_is_no_feature(write):
    split = ColumnSplit(column="year", train=("2021", "2022"), validation=("2023",), test=("2024",))
    rows = [(*row, 2021 + i % 4) for i, row in enumerate(ROWS)]
    dataset = own(write(csv(rows, "age,ward,id,ill,year")), splits=split)
    assert [len(s) for s in (dataset.train, dataset.validation, dataset.test)] == [60, 30, 30]
    assert dataset.metadata.input_shape == (3,)
    assert "Column 'year' declares each row's split" in dataset.metadata.public_facts[1]


def test_a_value_that_names_no_split_is_refused(write):
    split = ColumnSplit(column="ward", train=("A",), validation=("B",), test=("D",))
    ranges = dataclasses.replace(RANGES, columns={k: v for k, v in RANGES.columns.items() if k != "ward"})
    with pytest.raises(DataError, match=r"Value 'C' in row 3 names no split; known: A, B, D \(ward of people.csv"):
        own(write(csv(ROWS)), splits=split, ranges=ranges)


def test_rows_of_a_unit_are_split_by_the_unit(write):
    changed = [(1, "A", person, ill) for _, _, person, ill in ROWS]
    one, other = (own(write(csv(rows), f"{i}.csv"), unit="id") for i, rows in enumerate((ROWS, changed)))
    assert one.metadata.unit == "id"
    assert torch.equal(one.train.y, other.train.y)
    with pytest.raises(DataError, match=r"The unit of row 2 is missing.*\(id of people.csv\)"):
        own(write(csv([ROWS[0], (1, "A", "?", "no"), *ROWS[2:]])), unit="id")


def test_a_unit_that_is_a_number_may_be_missing_too(tmp_path):
    person = pa.array([None if i == 3 else i for i in range(len(ROWS))])
    columns = dict(zip(("age", "ward", "ill"), [pa.array([r[i] for r in ROWS]) for i in (0, 1, 3)], strict=True))
    pyarrow.parquet.write_table(pa.table(columns | {"id": person}), tmp_path / "p.parquet")
    with pytest.raises(DataError, match="The unit of row 4 is missing"):
        own(tmp_path / "p.parquet", unit="id")


def test_target_and_classes_may_be_given_beside_the_ranges(write):
    path, bare = write(csv(ROWS)), dataclasses.replace(RANGES, target=None, classes=None)
    dataset = own(path, ranges=bare, target="ill", classes=["yes", "no"])
    assert dataset.metadata.classes == ("yes", "no")
    assert own(path, target="ill", classes=("no", "yes")).metadata.classes == ("no", "yes")
    for options, message in (
        ({"target": "ward"}, r"Expected one target, got 'ward' \(data.target\) and 'ill' \(people.yaml\)"),
        ({"classes": ["yes", "no"]}, r"Expected one classes, got \('yes', 'no'\) \(data.classes\)"),
        ({"ranges": bare}, r"Name the column of the labels of people.csv: target.column in people.yaml, or data.ta"),
        ({"ranges": bare, "target": "ill"}, r"The labels of 'ill' are not listed.*target.classes in people.yaml"),
    ):
        with pytest.raises(DataError, match=message):
            own(path, **options)


def test_what_the_ranges_file_declares_of_the_rows_may_be_repeated_and_not_changed(write):
    path = write(csv(ROWS))
    split = HashSplit(validation=0.3, test=0.3)
    declared = dataclasses.replace(RANGES, table=str(path), evaluation=Evaluation.PRIVATE, unit="id", splits=split)
    dataset = own(path, ranges=declared)
    assert dataset.metadata.unit == "id"
    assert rows_of(dataset) == rows_of(own(path, ranges=declared, unit="id", splits=split))
    assert rows_of(dataset) == rows_of(own(path, unit="id", splits=split))
    for options, message in (
        (
            {"evaluation": Evaluation.PUBLIC},
            r"Expected one evaluation, got .*PUBLIC.* \(data.evaluation\) and .*PRIVATE",
        ),
        ({"unit": "ward"}, r"Expected one unit, got 'ward' \(data.unit\) and 'id' \(people.yaml\)"),
        ({"splits": HashSplit(salt="mine")}, r"Expected one splits, got HashSplit.*mine.* \(data.splits\)"),
        (
            {"ranges": dataclasses.replace(declared, table="other.csv")},
            r"Expected a ranges file for people.csv, got one for other.csv \(table in people.yaml; data.ranges\)",
        ),
    ):
        with pytest.raises(DeclarationError, match=message):
            own(path, **({"ranges": declared} | options))


def test_new_rows_are_encoded_as_the_ranges_file_declares(write):
    path = write(csv(ROWS))
    split = ColumnSplit(column="ward", train=("A",), validation=("B",), test=("C",))
    bare = dataclasses.replace(RANGES, columns={"age": RANGES.columns["age"]})
    form = input_format(path, ranges=dataclasses.replace(bare, unit="id", splits=split))
    assert form == input_format(path, ranges=bare, unit="id", splits=split)
    assert form.raw.columns == {"age": RANGES.columns["age"], "ward": Drop(), "id": Drop()}


def columns(**changed):
    return dataclasses.replace(RANGES, columns={**RANGES.columns, **changed})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranges": None}, r"Column 'age' of .*people.csv has no declared range: .*`sweeper data ranges .*people.csv`"),
        (
            {"ranges": dataclasses.replace(RANGES, target="sick")},
            "Target column 'sick' is not in people.csv; it has age",
        ),
        ({"ranges": columns(weight=Drop())}, "Column 'weight' of people.yaml is not in people.csv; it has age, ward"),
        ({"ranges": columns(ill=Numeric(low=0, high=1))}, r"'ill' is the target, .*\(columns.ill in people.yaml\)"),
        ({"unit": "ward"}, r"'ward' is the target, the unit, the block or the split, not a feature"),
        ({"unit": "ssn"}, r"Column 'ssn' is not in people.csv; it has age, ward, id, ill \(data.unit\)"),
        (
            {"splits": ColumnSplit(column="fold", train=("1",), validation=("2",), test=("3",))},
            r"Column 'fold' is not in people.csv.*\(data.splits\)",
        ),
        (
            {"ranges": dataclasses.replace(RANGES, columns={})},
            r"Columns age, ward, id of people.csv have no declared range in people.yaml: .*drop: true .*data ranges",
        ),
    ],
)
def test_declarations_that_do_not_fit_the_file_are_refused_in_one_sentence(write, options, message):
    with pytest.raises(DataError, match=message) as caught:
        own(write(csv(ROWS)), **options)
    assert "\n" not in str(caught.value)


def test_every_column_that_does_not_fit_the_file_is_named_at_once(write):
    ranges = dataclasses.replace(RANGES, columns={"agge": Drop(), "weight": Drop(), "ill": Numeric(low=0, high=1)})
    with pytest.raises(DataError, match=r"^4 mistakes:") as caught:
        own(write(csv(ROWS)), ranges=ranges)
    assert [one.split(";")[0].split(":")[0] for one in caught.value.mistakes] == [
        "Column 'agge' of people.yaml is not in people.csv",
        "Column 'weight' of people.yaml is not in people.csv",
        "Column 'ill' is the target, the unit, the block or the split, not a feature",
        "Columns age, ward, id of people.csv have no declared range in people.yaml",
    ]
    one = dataclasses.replace(RANGES, columns={"age": Drop(), "ward": Drop()})
    with pytest.raises(DataError, match=r"^Column 'id' of people.csv has no declared range in people.yaml"):
        own(write(csv(ROWS)), ranges=one)


def test_a_target_without_its_column_and_its_labels_lacks_two_things(write):
    with pytest.raises(DeclarationError, match=r"^2 mistakes:") as caught:
        own(write(csv(ROWS)), ranges=dataclasses.replace(RANGES, target=None, classes=None))
    first, second = caught.value.mistakes
    assert first.startswith("Name the column of the labels of people.csv: target.column in people.yaml")
    assert second.startswith("The labels of people.csv are not listed")


def test_a_declaration_for_other_columns_covers_the_rest(write):
    ranges = dataclasses.replace(RANGES, columns={}, others=Drop())
    ranges = dataclasses.replace(ranges, columns={"age": Numeric(low=0, high=100)})
    assert own(write(csv(ROWS)), ranges=ranges).metadata.input_shape == (1,)


def test_a_long_list_of_columns_is_cut_in_messages(write):
    names = ",".join(f"c{i}" for i in range(12))
    with pytest.raises(DataError, match="it has c0, c1, c2, c3, c4, c5, c6, c7 and 4 more"):
        own(write(f"{names}\n" + ",".join("0" * 12) + "\n"))


@pytest.mark.parametrize("evaluation", list(Evaluation))
def test_ranges_from_the_data_make_a_dataset_exploratory_whatever_its_rows_are(write, evaluation):
    facts = own(
        write(csv(ROWS)), ranges=dataclasses.replace(RANGES, source="data (unpaid)"), evaluation=evaluation
    ).metadata
    assert facts.evaluation is Evaluation.EXPLORATORY
    assert any("No guarantee: the declared ranges were computed from the data" in c for c in facts.conditions)


def test_what_public_and_exploratory_rows_mean_is_said(write):
    path = write(csv(ROWS))
    assert (
        "public, and their scores free: the user declared them so"
        in own(path, evaluation="public").metadata.public_facts[-1]
    )
    assert any("No guarantee" in c for c in own(path, evaluation="exploratory").metadata.conditions)


def test_ranges_are_read_from_a_file(write):
    ranges = write("source: form\ntarget: {column: ill, classes: ['no', 'yes']}\nothers: {drop: true}", "r.yaml")
    ranges.write_text(ranges.read_text() + "\ncolumns: {age: {low: 0, high: 90}}")
    assert load_table(write(csv(ROWS)), evaluation=Evaluation.PUBLIC, ranges=ranges).metadata.input_norm == 1.0


def test_a_declared_share_of_the_most_frequent_class_is_a_public_fact(write):
    path = write(csv(ROWS))
    facts = own(path, ranges=dataclasses.replace(RANGES, largest_share=0.65)).metadata
    assert facts.largest_share == 0.65
    assert "The most frequent class has a share of 0.65, as people.yaml declares." in facts.public_facts
    assert own(path).metadata.largest_share is None
    for share in (0.49, 1.0, float("nan")):
        with pytest.raises(
            DeclarationError, match=r"0.5 <= largest_share < 1, .*\(target.largest_share in people.yaml"
        ):
            own(path, ranges=dataclasses.replace(RANGES, largest_share=share))
