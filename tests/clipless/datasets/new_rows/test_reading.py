"""New rows are encoded exactly as in training, without labels, by declarations alone."""

import json
from importlib.metadata import EntryPoint
from math import pi

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from clipless.datasets import ColourSpace, ColumnSplit, InputFormat, Preparation, input_format, load
from clipless.datasets import catalog as catalog_module
from clipless.datasets.raw_rows import Pixels, Tensors
from clipless.datasets.tables.declarations import Categorical, Numeric, Ranges
from clipless.errors import DataError

RANGES = """
source: the codebook
target: {column: left, classes: ["no", "yes"]}
missing_markers: ["", "?"]
columns:
  age: {low: 0, high: 120, missing: 60}
  ward: {categories: [A, "2", "Ünit 3: 'b'"]}
  kind: {categories: [x, y], unknown: other}
  patient: {drop: true}
others: {low: -1, high: 1e3}
"""
ROWS = """ward,patient,age,left,weight,fold,kind
A,p1,17,no,3.5,a,x
2.0,p2,?,yes,-7,a,z
?,p3,200,no,1e2,a,
Ünit 3: 'b',p4,60,yes,0,a,y
A,p5,1,no,5,b,x
A,p6,1,yes,5,c,x
"""


@pytest.fixture
def options(write):
    splits = ColumnSplit(column="fold", train=("a",), validation=("b",), test=("c",))
    return {"source": write(ROWS), "ranges": write(RANGES, "ranges.yaml"), "splits": splits}


@pytest.fixture
def form(options):
    return there_and_back(input_format(**options))


def there_and_back(form):
    text = json.dumps(form.to_json())
    read = InputFormat.from_json(json.loads(text), "data.json")
    assert json.dumps(read.to_json()) == text
    return read


@pytest.mark.parametrize("preparation", [None, Preparation(centre=(0.25,), normalise=2.0)])
def test_rows_of_a_table_become_what_they_were_in_training(options, write, preparation):
    data = load(**options, evaluation="exploratory", preparation=preparation)
    form = there_and_back(input_format(**options, preparation=preparation))
    unlabelled = pd.read_csv(options["source"], dtype=str).drop(columns=["left", "patient", "fold"])
    path = write("", "new.csv")
    unlabelled[unlabelled.columns[::-1]].to_csv(path, index=False)
    rows = form.read(path)
    assert torch.equal(rows.x, torch.cat([data.train.x, data.validation.x, data.test.x]))
    assert (rows.input_gain, rows.radius_unit) == (data.metadata.input_gain, data.metadata.radius_unit)
    assert form.classes == data.metadata.classes
    assert torch.equal(
        form.read(options["source"]).x, rows.x
    )  # labels and the rest may be there, and are not looked at


def test_bins_are_part_of_the_format_with_their_gain(write):
    ranges = write(RANGES.replace("missing: 60}", "missing: 60, bins: 7}"), "ranges.yaml")
    splits = ColumnSplit(column="fold", train=("a",), validation=("b",), test=("c",))
    options = {"source": write(ROWS), "ranges": ranges, "splits": splits}
    data, rows = load(**options, evaluation="exploratory"), there_and_back(input_format(**options)).read(write(ROWS))
    assert data.metadata.input_shape == (3 + 7 + 1 + 3,)
    assert torch.equal(rows.x, torch.cat([data.train.x, data.validation.x, data.test.x]))
    assert rows.input_gain == data.metadata.input_gain == pytest.approx(6 * pi / 4)
    assert data.metadata.input_norm == 2.0


def test_a_frame_is_encoded_like_a_file(form, options):
    frame = pd.read_csv(options["source"], dtype=str, keep_default_na=False)
    assert torch.equal(form.of_columns(frame).x, form.read(options["source"]).x)


def test_cells_that_pandas_calls_missing_are_missing(form, options):
    """It reads them as NaN among texts."""
    columns = {name: cells.to_numpy(dtype=object) for name, cells in pd.read_csv(options["source"], dtype=str).items()}
    assert any(isinstance(cell, float) for cell in columns["kind"])
    assert torch.equal(form.of_columns(columns, allow_unknown=True).x, form.read(options["source"]).x)
    columns["ward"][1] = 7.5
    with pytest.raises(DataError, match=r"Expected cells of one type in column 'ward' of the given rows: .*float"):
        form.of_columns(columns)


def test_one_row_alone_is_encoded_as_among_others(form, options):
    every = form.read(options["source"]).x
    frame = pd.read_csv(options["source"], dtype=str, keep_default_na=False)
    for i in range(len(frame)):
        assert torch.equal(form.of_columns(frame[i : i + 1]).x[0], every[i])


def test_the_format_holds_the_schema_and_no_cell(form):
    text = json.dumps(form.to_json())
    assert list(form.raw.columns) == ["ward", "patient", "age", "weight", "fold", "kind"]
    assert not any(cell in text for cell in ("p1", "p4", "3.5", "17"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.drop(columns="age"), r"Expected the column 'age' in the given rows, found none; it has "),
        (lambda f: f.rename(columns={"age": "Age"}), r"Expected the column 'age'"),
        (lambda f: f.assign(extra="1"), r"only columns that the model was trained with, got 'extra'.*leave it out"),
        (
            lambda f: f.assign(weight=["1", "2", "", "3", "4", "5"]),
            r"got a missing value in row 3 \(column 'weight' of",
        ),
        (
            lambda f: f.assign(weight=["1", "2", "x", "3", "4", "5"]),
            r"Expected a number, got 'x' in row 3: correct it \(",
        ),
        (lambda f: f.assign(ward=["A", "A", "B", "A", "A", "A"]), r"Expected a category among .*, got 'B' in row 3 "),
        (lambda f: f[:0], "no rows"),
    ],
)
def test_what_the_declarations_do_not_cover_is_refused_with_its_row(form, options, change, said):
    frame = pd.read_csv(options["source"], dtype=str, keep_default_na=False)
    with pytest.raises(DataError, match=said) as refused:
        form.of_columns(change(frame))
    assert "\n" not in str(refused.value)


def test_unknown_categories_are_zeros_where_that_is_allowed(form, options):
    frame = pd.read_csv(options["source"], dtype=str, keep_default_na=False)
    spoiled = frame.assign(ward=["B", "A", "A", "A", "A", "A"])
    assert form.of_columns(spoiled, allow_unknown=True).x[0, :3].tolist() == [0, 0, 0]


def test_texts_among_numbers_are_missing_ones_where_that_is_allowed(form, options):
    frame = pd.read_csv(options["source"], dtype=str, keep_default_na=False)
    spoiled, missing = (frame.assign(age=[cell, *frame["age"][1:]]) for cell in ("old", ""))
    assert torch.equal(form.of_columns(spoiled, allow_unknown=True).x, form.of_columns(missing).x)
    with pytest.raises(
        DataError, match=r"Expected a number, got 'old' in row 1: correct it, or allow .* \(--allow-unknown\)"
    ):
        form.of_columns(spoiled)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=5))
def test_no_number_leaves_the_declared_ranges(values):
    raw = Ranges(
        name="r", source="s", target="y", columns={"a": Numeric(low=-3, high=7), "b": Categorical(categories=("u",))}
    )
    form = InputFormat(name="t", classes=("0", "1"), raw=raw)
    frame = {"a": np.clip(values, -1e30, 1e30), "b": ["u"] * len(values)}
    x = form.of_columns(frame).x
    assert bool(((x >= -1) & (x <= 1)).all())
    np.testing.assert_allclose(x[:, 0], (np.clip(values, -3, 7) + 3) / 5 - 1, atol=1e-6)


# Images


def test_digits_become_what_they_were_in_training(tmp_path):
    from sklearn.datasets import load_digits

    preparation = Preparation(centre=(0.5,))
    data, form = (
        load("digits", preparation=preparation),
        there_and_back(input_format("digits", preparation=preparation)),
    )
    images = load_digits().images.astype(np.uint8)
    np.savez(tmp_path / "new.npz", images)
    rows = form.read(tmp_path / "new.npz").x
    assert sorted(map(tuple, rows.flatten(1).tolist())) == sorted(
        tuple(row) for split in (data.train, data.validation, data.test) for row in split.x.flatten(1).tolist()
    )
    with pytest.raises(
        DataError, match=r"Expected levels from 0 to 16, got values from \d+ to \d+, the first wrong one in row 2"
    ):
        form.of_array(np.stack([images[0], images[1] + 2]))
    with pytest.raises(DataError, match=r"shape \(rows, 8, 8\), got float64"):
        form.of_array(images / 16)
    with pytest.raises(DataError, match="Expected an array of shape"):
        form.of_columns({"a": [1]})


def test_breast_cancer_becomes_what_it_was_in_training():
    from sklearn.datasets import load_breast_cancer

    data, form = load("breast_cancer"), there_and_back(input_format("breast_cancer"))
    bunch = load_breast_cancer()
    rows = form.of_columns(dict(zip(bunch.feature_names, bunch.data.T, strict=True))).x
    known = torch.cat([data.train.x, data.validation.x, data.test.x])
    assert torch.equal(torch.tensor(sorted(rows.tolist())), torch.tensor(sorted(known.tolist())))
    assert form.classes == data.metadata.classes


def test_pictures_are_read_by_name_and_prepared(tmp_path):
    form = input_format("cifar10", preparation=Preparation(colour=ColourSpace.GRAY))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    for i, name in enumerate(["b.png", "a.png"]):
        Image.fromarray(pixels[i]).save(tmp_path / name)
    rows = there_and_back(form).read(tmp_path)
    assert torch.equal(rows.x, form.of_array(pixels[::-1]).x)
    assert rows.x.shape == (2, 1, 32, 32)
    assert rows.input_gain == pytest.approx(0.669, abs=1e-3)
    with pytest.raises(DataError, match=r"Expected a picture of 28 x 28 pixels, got 32 x 32 .*a\.png"):
        input_format("mnist").read(tmp_path / "a.png")


def test_files_that_hold_something_else_are_refused(tmp_path):
    form = input_format("mnist")
    np.savez(tmp_path / "two.npz", a=np.zeros(1), b=np.zeros(1))
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 28, 28), np.uint8), y=np.zeros(1))
    assert form.read(tmp_path / "x.npz").x.shape == (1, 1, 28, 28)
    with pytest.raises(DataError, match="one named x, got a, b"):
        form.read(tmp_path / "two.npz")
    with pytest.raises(DataError, match=r"Expected rows to predict, found no file .*nofile.csv; give its path"):
        form.read(tmp_path / "nofile.csv")
    (tmp_path / "rows.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match=r"Expected pictures for a model of mnist, got .*rows\.csv; .* 28 x 28"):
        form.read(tmp_path / "rows.csv")
    (tmp_path / "torn.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"Cannot read .*torn\.npz"):
        form.read(tmp_path / "torn.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="Expected pictures"):
        form.read(tmp_path / "empty")


# Plug-ins and the file


def test_a_plug_ins_rows_are_taken_as_its_loader_gives_them(monkeypatch):
    raw = load("digits")
    entry = EntryPoint("mine", "nowhere:mine", catalog_module.ENTRY_POINTS)
    monkeypatch.setattr(catalog_module, "_plugins", lambda: (entry,))
    monkeypatch.setattr(catalog_module, "_load_plugin", lambda *_: raw)
    form = there_and_back(input_format("mine", preparation=Preparation(centre=(0.5,))))
    assert isinstance(form.raw, Tensors)
    rows = form.of_array(raw.train.x[:3].numpy())
    assert torch.equal(rows.x, raw.train.x[:3] - 0.5)
    with pytest.raises(DataError, match="Expected finite numbers, got others in row 2"):
        form.of_array(np.stack([np.zeros((1, 8, 8)), np.full((1, 8, 8), np.nan)]))
    with pytest.raises(DataError, match="exceeds the declared norm"):
        form.of_array(np.full((1, 1, 8, 8), 2.0))
    with pytest.raises(DataError, match="got int64"):
        form.of_array(np.zeros((1, 1, 8, 8), int))


@pytest.mark.parametrize(
    "change",
    [
        {"input_version": 2},
        {"rows": {"kind": "sounds"}},
        {"rows": {}},
        {"preparation": {"colour": "mauve"}},
        {"classes": 3},
    ],
)
def test_a_file_that_says_something_else_is_refused(change):
    good = InputFormat(name="t", classes=("0", "1"), raw=Pixels((8, 8), 16)).to_json()
    with pytest.raises(DataError, match=r"data\.json"):
        InputFormat.from_json(good | change, "data.json")


def test_a_table_without_declarations_has_no_format(write):
    with pytest.raises(DataError, match=r"Column 'ward' of .*people\.csv has no declared range: write a ranges file"):
        input_format(write(ROWS))


def test_a_table_takes_no_array(form):
    assert isinstance(form, InputFormat)
    with pytest.raises(DataError, match="is a table"):
        form.of_array(np.zeros((1, 3)))
