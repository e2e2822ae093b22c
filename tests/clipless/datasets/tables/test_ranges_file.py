import dataclasses

import pytest

from clipless.datasets import Categorical, ColumnSplit, Drop, Evaluation, HashSplit, Numeric, load_ranges
from clipless.datasets.tables.declarations import MISSING_MARKERS
from clipless.datasets.tables.ranges_file import class_names, parse_ranges
from clipless.errors import DataError, DeclarationError

GOOD = """
source: codebook of the survey
target: {column: ill, classes: [no thanks, "yes"]}
missing_markers: ["", "-"]
columns:
  age: {low: 0, high: 1e2, missing: 40}
  income: {low: 0, high: 9, bins: 12}
  ward: {categories: [A, 2, B], unknown: other}
  name: {drop: true}
others: {low: -1, high: 1}
"""


def test_a_ranges_file_is_read_into_frozen_declarations(write):
    ranges = load_ranges(write(GOOD, "survey.yaml"))
    assert (ranges.name, ranges.source) == ("survey.yaml", "codebook of the survey")
    assert (ranges.target, ranges.classes) == ("ill", ("no thanks", "yes"))
    assert ranges.missing_markers == ("", "-")
    assert ranges.declaration("age") == Numeric(low=0.0, high=100.0, missing=40.0)
    assert ranges.declaration("income") == Numeric(low=0.0, high=9.0, bins=12)
    assert ranges.declaration("ward") == Categorical(categories=("A", "2", "B"), other=True)
    assert ranges.declaration("name") == Drop()
    assert ranges.declaration("anything") == Numeric(low=-1.0, high=1.0)
    assert not ranges.unpaid
    with pytest.raises(dataclasses.FrozenInstanceError):
        ranges.source = "elsewhere"


def test_a_class_may_stand_for_unknown_labels():
    text = "source: form\ntarget: {column: ill, classes: ['no', 'yes'], unknown: 'no'}"
    assert parse_ranges(text, "r.yaml").unknown == "no"


def test_the_share_of_the_most_frequent_class_may_be_declared():
    text = "source: form\ntarget: {column: ill, classes: ['no', 'yes'], largest_share: 0.65}"
    assert parse_ranges(text, "r.yaml").largest_share == 0.65
    with pytest.raises(DataError, match=r"Expected a number, got 'most' \(target.largest_share in r.yaml\)"):
        parse_ranges(text.replace("0.65", "most"), "r.yaml")


def test_what_is_optional_has_safe_defaults():
    ranges = parse_ranges("source: form", "r.yaml")
    assert (ranges.target, ranges.classes, ranges.declaration("age")) == (None, None, None)
    assert ranges.missing_markers == MISSING_MARKERS


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("source: [", "r.yaml is not valid YAML"),
        ("- a", r"Expected names with declarations, got \['a'\] \(top level of r.yaml\)"),
        ("", "Expected names with declarations, got None"),
        ("source: s\ncolumns: {age: {missing: 1}}", r"such as \{low: 0, .*, got \{'missing': 1\} \(columns.age in"),
        ("columns: {}", r"Expected source to say where the ranges come from, got None \(source in r.yaml\)"),
        ("source: ' '", "Expected source"),
        ("source: s\ncolums: {}", "Unknown key 'colums' .top level of r.yaml.; did you mean 'columns'"),
        ("source: s\ntarget: ill", r"got 'ill' \(target in r.yaml\)"),
        ("source: s\ntarget: {name: ill}", r"Unknown key 'name'.*\(target in r.yaml\)"),
        ("source: s\ntarget: {column: true}", r"Expected a text, got True: quote it \(target.column in r.yaml\)"),
        ("source: s\ncolumns: [age]", r"\(columns in r.yaml\)"),
        ("source: s\ncolumns: {on: {drop: true}}", r"got True: quote it \(columns in r.yaml\)"),
        ("source: s\ncolumns: {age: {low: 1}}", r"Expected a number, got None \(columns.age.high in r.yaml\)"),
        ("source: s\ncolumns: {age: {low: 1, high: x}}", r"Expected a number, got 'x'"),
        ("source: s\ncolumns: {age: {low: true, high: 2}}", r"Expected a number, got True"),
        (
            "source: s\ncolumns: {age: {low: 3, high: 2}}",
            r"low < high, got low=3, high=2; exchange them \(columns.age in",
        ),
        ("source: s\ncolumns: {age: {low: 2, high: 2}}", "low < high"),
        ("source: s\ncolumns: {age: {low: .nan, high: 2}}", "low < high, got low=nan"),
        ("source: s\ncolumns: {age: {low: 0, high: .inf}}", "finite numbers low < high"),
        ("source: s\ncolumns: {age: {low: -1e308, high: 1e308}}", "finite numbers low < high"),
        ("source: s\ncolumns: {age: {low: 0, high: 1, missing: 2}}", "low <= missing <= high, got missing=2.0"),
        ("source: s\ncolumns: {age: {low: 0, high: 1, missing: .nan}}", "low <= missing <= high"),
        ("source: s\ncolumns: {age: {low: 0, high: 1, bins: 1}}", r"bins from 2 to 256, got bins=1 \(columns.age in"),
        ("source: s\ncolumns: {age: {low: 0, high: 1, bins: 2.5}}", "whole number of bins from 2 to 256, got bins=2.5"),
        ("source: s\ncolumns: {age: {low: 0, hihg: 1}}", r"Unknown key 'hihg'.*\(columns.age in r.yaml\)"),
        ("source: s\ncolumns: {w: {categories: A}}", r"Expected a list, got 'A' \(columns.w.categories in"),
        ("source: s\ncolumns: {w: {categories: []}}", "at least one category and none twice"),
        ("source: s\ncolumns: {w: {categories: [A, A]}}", "at least one category and none twice"),
        ("source: s\ncolumns: {w: {categories: [no]}}", "Expected a text, got False: quote it"),
        ("source: s\ncolumns: {w: {categories: [A], low: 1}}", "Unknown key 'low'"),
        ("source: s\ncolumns: {w: {categories: [A], unknown: x}}", r"zeros or other, got 'x' \(columns.w.unknown"),
        ("source: s\ncolumns: {w: {drop: false}}", r"Expected true, or .*, got False \(columns.w.drop in r.yaml\)"),
        ("source: s\ncolumns: {w: {drop: true, low: 1}}", "Unknown key 'low'"),
        ("source: s\nothers: {low: 1, high: 0}", r"\(others in r.yaml\)"),
        ("source: s\nmissing_markers: '?'", r"Expected a list, got '\?' \(missing_markers in r.yaml\)"),
        ("source: s\ncolumns: {a: {drop: true}, a: {low: 0, high: 1}}", "key 'a' twice"),
        ("source: s\nsource: t", "key 'source' twice"),
    ],
)
def test_a_ranges_file_that_cannot_be_right_is_refused_in_one_sentence(text, message):
    with pytest.raises(DataError, match=message) as caught:
        parse_ranges(text, "r.yaml")
    assert "\n" not in str(caught.value)
    assert "r.yaml" in str(caught.value)


MISTAKEN = """
colums: {}
source: "???"
target: {column: ill, clases: [a, b], largest_share: most}
columns:
  age: numeric
  weight: {min: 0, max: 200}
  height: {low: 200, hihg: 100}
  depth: {low: 9, high: 1}
  ward: {categories: [A, B, A, C]}
  sex: {categories: [on, off], unknwon: other}
  x: {low: "???", high: "???"}
  z: {low: few, high: many}
others: {low: 3, high: 2}
unit: [a]
splits: {validation: a, tset: 0.2}
"""


def test_all_mistakes_of_a_ranges_file_are_said_at_once_in_a_sentence_each():
    with pytest.raises(DataError, match=r"^17 mistakes:\n\(1\) r.yaml is not .*\n\(2\) Unknown key") as caught:
        parse_ranges(MISTAKEN, "r.yaml")
    such = "Expected a declaration such as {low: 0, high: 120}, {categories: [A, B]} or {drop: true}, got"
    splits = "(splits in r.yaml); did you mean 'test'?"
    assert caught.value.mistakes == (
        "r.yaml is not filled in: replace ??? at source, columns.x.low, columns.x.high",
        "Unknown key 'colums' (top level of r.yaml); did you mean 'columns'?",
        "Unknown key 'clases' (target in r.yaml); did you mean 'classes'?",
        "Expected a number, got 'most' (target.largest_share in r.yaml)",
        f"{such} 'numeric' (columns.age in r.yaml)",
        f"{such} {{'min': 0, 'max': 200}} (columns.weight in r.yaml)",
        "Unknown key 'hihg' (columns.height in r.yaml); did you mean 'high'?",
        "Expected finite numbers low < high, got low=9, high=1; exchange them (columns.depth in r.yaml)",
        "Expected at least one category and none twice, got 'A' twice (columns.ward in r.yaml)",
        "Unknown key 'unknwon' (columns.sex in r.yaml); did you mean 'unknown'?",
        "Expected a text, got True, False: quote each (columns.sex.categories in r.yaml)",
        "Expected a number, got 'few' (columns.z.low in r.yaml)",
        "Expected a number, got 'many' (columns.z.high in r.yaml)",
        "Expected finite numbers low < high, got low=3, high=2; exchange them (others in r.yaml)",
        "Expected a text, got ['a']: quote it (unit in r.yaml)",
        f"Unknown key 'tset' {splits}",
        "Expected a number, got 'a' (splits.validation in r.yaml)",
    )


def test_markers_within_several_ranges_are_said_at_once():
    columns = "columns: {a: {low: 0, high: 120, missing: 1}, b: {low: 50, high: 100, missing: 60}}"
    with pytest.raises(DeclarationError) as caught:
        parse_ranges(f"source: s\nmissing_markers: ['99']\n{columns}", "r.yaml")
    assert [f"got 99 in {name}" in one for name, one in zip("ab", caught.value.mistakes, strict=True)] == [True, True]


def test_unfilled_placeholders_are_refused_by_name():
    text = """
    source: ???
    target: {column: y, classes: ["???"]}
    columns: {a: {low: "???", high: "???"}}
    """
    message = r"r.yaml is not filled in: replace \?\?\? at source, target.classes, columns.a.low and 1 more"
    with pytest.raises(DataError, match=message):
        parse_ranges(text, "r.yaml")


def test_an_unreadable_ranges_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"Cannot read ranges file .*none.yaml: No such file"):
        load_ranges(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match=r"Cannot read ranges file .*binary.yaml"):
        load_ranges(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a"], "at least two classes"),
        (["a", "a"], "none twice"),
        (["a", ""], "none twice or empty"),
        ([0, "yes"], r"one type, got numbers and texts \[0, 'yes'\]: quote all"),
        ([True, "b"], "got True: quote it"),
        ([True, False], "got True, False: quote each"),
        ("ab", "Expected a list"),
    ],
)
def test_classes_that_cannot_be_labels_are_refused(values, message):
    with pytest.raises(DataError, match=rf"{message}.*\(data.classes\)"):
        class_names(values, "data.classes")


def test_classes_may_be_numbers_or_texts():
    assert class_names([0, 1], "c") == ("0", "1")
    assert class_names(("no", "yes"), "c") == ("no", "yes")


SERVED = """
source: codebook of the survey
table: people.csv
evaluation: private
unit: name
"""


def test_a_ranges_file_may_say_of_which_table_whose_rows_and_how_they_are_split(write):
    path = write(SERVED + "splits: {validation: 0.2, test: 0.1, salt: 7}", "survey.yaml")
    ranges = load_ranges(path)
    assert ranges.table == str(path.parent / "people.csv")
    assert (ranges.evaluation, ranges.unit) == (Evaluation.PRIVATE, "name")
    assert ranges.splits == HashSplit(validation=0.2, test=0.1, salt="7")
    by_column = "splits: {column: fold, train: [1, 2], validation: [3], test: [4]}"
    assert load_ranges(write(SERVED + by_column, "survey.yaml")).splits == ColumnSplit(
        column="fold", train=("1", "2"), validation=("3",), test=("4",)
    )
    plain = parse_ranges("source: form", "r.yaml")
    assert (plain.table, plain.evaluation, plain.unit, plain.splits, plain.largest_share) == (None,) * 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("evaluation: secret", r"Expected evaluation to be public, .*, got 'secret' .*\(evaluation in r.yaml\)"),
        ("table: [a]", r"Expected a text, got \['a'\]: quote it \(table in r.yaml\)"),
        ("unit: true", r"Expected a text, got True: quote it \(unit in r.yaml\)"),
        ("splits: 0.2", r"Expected names with declarations, got 0.2 \(splits in r.yaml\)"),
        ("splits: {validation: 2}", r"Expected 0 < validation < 1.*\(splits in r.yaml\)"),
        ("splits: {validation: x}", r"Expected a number, got 'x' \(splits.validation in r.yaml\)"),
        ("splits: {train: 0.2}", r"Unknown key 'train'.*\(splits in r.yaml\)"),
        ("splits: {column: a, salt: x}", r"Unknown key 'salt'.*\(splits in r.yaml\)"),
        ("splits: {column: a, train: [x]}", r"Expected a list, got None \(splits.validation in r.yaml\)"),
        ("splits: {column: a, train: [x], validation: [x], test: [y]}", r"Expected different values of column 'a'"),
    ],
)
def test_what_a_ranges_file_says_of_a_table_is_checked(text, message):
    with pytest.raises(DataError, match=message):
        parse_ranges(f"source: s\n{text}", "r.yaml")


@pytest.mark.parametrize("other", ["'1'", "' 1'"])
def test_keys_that_are_one_column_are_refused(other):
    text = f"source: book\ncolumns: {{1: {{low: 0, high: 1}}, {other}: {{low: 0, high: 100}}}}\n"
    with pytest.raises(DataError, match=r"Expected each column once, got '1' twice: declare it once \(columns in r\)"):
        parse_ranges(text, "r")


def test_an_unknown_key_without_a_value_and_a_number_beyond_floats_are_refused():
    text = f"source: book\ntarget: {{largest_shre: }}\ncolumns: {{a: {{low: 0, high: 1{'0' * 400}}}}}\n"
    with pytest.raises(DataError) as refused:
        parse_ranges(text, "r")
    unknown, large = refused.value.mistakes
    assert "Unknown key 'largest_shre'" in unknown
    assert large == "Expected a number below 1e308, got one of 401 digits (columns.a.high in r)"
