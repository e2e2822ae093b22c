import pytest
import yaml

from clipless.datasets import Evaluation, load, write_ranges_template
from clipless.datasets.tables.ranges_file import load_ranges, parse_ranges
from clipless.datasets.tables.template import MOST_CATEGORIES
from clipless.errors import DataError

HEADER = 'age,ward,on,"a: b",ill\n'
ROWS = "39,A,1,x,no\n25,B,2,?,yes\n?,A,3,x,no\n"


def test_the_template_lists_columns_with_a_guess_of_their_kind_and_nothing_of_the_rows(write):
    text = write_ranges_template(write(HEADER + ROWS), "ill")
    content = yaml.safe_load(text)
    blank = "???"
    assert content["source"] == blank
    assert content["target"] == {"column": "ill", "classes": [blank]}
    assert content["columns"] == {
        "age": {"low": blank, "high": blank},
        "ward": {"categories": [blank]},
        "on": {"low": blank, "high": blank},
        "a: b": {"categories": [blank]},
    }
    with pytest.raises(DataError, match="is not filled in"):
        parse_ranges(text, "r.yaml")


def test_other_rows_give_the_same_template(write):
    one = write_ranges_template(write(HEADER + ROWS), "ill")
    other = write_ranges_template(write(HEADER + "1,Z,0,q,maybe\n" * 3), "ill")
    assert one == other


def test_without_a_target_it_is_a_placeholder(write):
    content = yaml.safe_load(write_ranges_template(write(HEADER + ROWS)))
    assert content["target"]["column"] == "???"
    assert "ill" in content["columns"]


def test_ranges_from_the_data_are_complete_but_marked_unpaid(write):
    rows = "".join(f"{20 + i},{'AB'[i % 2]},{i},x,{('no', 'yes')[i % 2]}\n" for i in range(200))
    data = write(HEADER + rows + ROWS)
    path = write(write_ranges_template(data, "ill", from_data=True), "r.yaml")
    ranges = load_ranges(path)
    assert ranges.unpaid
    assert ranges.classes == ("no", "yes")
    assert (ranges.columns["age"].low, ranges.columns["age"].high, ranges.columns["age"].missing) == (20, 219, 20)
    assert ranges.columns["ward"].categories == ("A", "B")
    dataset = load(data, ranges=path, evaluation="public")
    assert dataset.metadata.evaluation is Evaluation.EXPLORATORY


def test_columns_that_say_nothing_or_too_much_are_dropped(write):
    rows = "".join(f"7,name{i},?,{i % 2}\n" for i in range(MOST_CATEGORIES + 1))
    text = write_ranges_template(write("constant,name,empty,y\n" + rows), "y", from_data=True)
    assert set(map(str, yaml.safe_load(text)["columns"].values())) == {"{'drop': True}"}


def test_a_target_that_is_not_there_is_refused(write):
    with pytest.raises(DataError, match=r"'warning' is not in .*people.csv; it has age, ward"):  # not "did you mean"
        write_ranges_template(write(HEADER + ROWS), "warning")
    with pytest.raises(DataError, match=r"'wart' is not in .*people.csv; did you mean 'ward'"):
        write_ranges_template(write(HEADER + ROWS), "wart")
    with pytest.raises(DataError, match=r"Target column 'sick' is not in .*people.csv; it has age, ward"):
        write_ranges_template(write(HEADER + ROWS), "sick")


def test_a_file_that_is_no_table_is_refused_without_a_key_that_nobody_wrote(tmp_path):
    with pytest.raises(DataError, match=r"Expected a file ending in .*, got .*shot\.py$"):
        write_ranges_template(tmp_path / "shot.py", None)
