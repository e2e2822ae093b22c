import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import clipless.datasets.catalog
import clipless.datasets.sources
from clipless.datasets import ColumnSplit, Evaluation, HashSplit, available, load
from clipless.datasets.catalog import SOURCES, is_table
from clipless.datasets.dataset import RowHashes, Split
from clipless.errors import DataError


def test_every_name_has_one_line():
    names = available()
    assert list(names)[:6] == ["digits", "breast_cancer", "mnist", "fashion-mnist", "cifar10", "adult"]
    assert all(line and "\n" not in line for line in names.values())


def test_the_listed_names_are_those_of_the_sources():
    folder = Path(clipless.datasets.sources.__file__).parent
    modules = sorted(
        path.stem for path in folder.glob("*.py") if not path.stem.startswith("_") and path.stem != "openml"
    )
    assert sorted({listed.module for listed in SOURCES.values()}) == modules
    for module in modules:
        held = [source.name for source in import_module(f"clipless.datasets.sources.{module}").SOURCES]
        assert held == [name for name, listed in SOURCES.items() if listed.module == module]


def test_a_name_of_a_table_is_known_before_its_rows_are():
    assert [is_table(name) for name in ("adult", "Breast-Cancer", "digits", "cifar10", "unknown")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_listing_names_imports_no_torch():
    code = (
        "import sys, clipless.datasets as d; d.available(), d.Evaluation, d.Preparation; print('torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize("name", ["breast_cancer", "breast-cancer", "Breast_Cancer"])
def test_a_name_may_be_written_with_a_hyphen_or_an_underscore(name):
    assert load(name).metadata.name == "breast_cancer"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mnits", r"did you mean 'mnist'\? \(data.name\)"),
        ("fashion", r"did you mean 'fashion-mnist'\?"),
        ("CIFAR-10", r"did you mean 'cifar10'\?"),
        ("zzz", r"known: adult, aloi, breast_cancer"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name, hint):
    with pytest.raises(DataError, match=f"Unknown data set '{name}': {hint}"):
        load(name)


@pytest.mark.parametrize("path", ["nowhere.csv", "some/folder/file", Path("digits")])
def test_a_missing_file_is_refused(path):
    with pytest.raises(DataError, match=f"No such file: {path}"):
        load(path, evaluation="public")


OWN = "source: form\ntarget: {column: b, classes: ['0', '1']}\ncolumns: {a: {low: 0, high: 99}}\n"


@pytest.mark.parametrize(
    ("declared", "evaluation"),
    [("", "private"), ("evaluation: public", "public"), ("evaluation: exploratory", "exploratory")],
)
def test_rows_of_an_own_file_are_private_unless_its_ranges_file_says_otherwise(write, declared, evaluation):
    path = write("a,b\n" + "".join(f"{i},{i % 2}\n" for i in range(99)))
    data = load(path, ranges=write(OWN + declared, "r.yaml"))
    assert data.metadata.evaluation.value == evaluation


def test_rows_of_ranges_that_nobody_paid_for_are_exploratory(write):
    path = write("a,b\n" + "".join(f"{i},{i % 2}\n" for i in range(99)))
    ranges = write(OWN.replace("form", "data (unpaid)"), "r.yaml")
    assert load(path, ranges=ranges).metadata.evaluation is Evaluation.EXPLORATORY


def test_the_evaluation_of_an_own_file_is_one_of_three(write):
    with pytest.raises(DataError, match="got 'yes'"):
        load(write("a,b\n1,2\n"), evaluation="yes")


def test_an_existing_file_with_another_extension_is_refused_by_its_extension(write):
    with pytest.raises(DataError, match="Expected a file ending in"):
        load(str(write("a\n", "t.xlsx")), evaluation="public")


def test_a_relative_path_is_looked_for_in_the_data_folder(write, tmp_path):
    write("a,b\n1,2\n")
    with pytest.raises(DataError, match="no declared range"):
        load("people.csv", data_dir=tmp_path, evaluation="public")
    with pytest.raises(DataError, match=r"No such file: other.csv or .*other.csv"):
        load("other.csv", data_dir=tmp_path, evaluation="public")


def test_a_data_folder_that_is_none_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"Expected a folder, got .*none \(--data-dir\)"):
        load("digits", data_dir=tmp_path / "none")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "y"}, r"digits declares its own target, got 'y': leave it out \(data.target\)"),
        ({"ranges": "r.yaml"}, "declares its own ranges"),
        ({"unit": "person"}, "declares its own unit"),
        ({"classes": ["a", "b"]}, "declares its own classes"),
        (
            {"splits": ColumnSplit(column="fold", train=("1",), validation=("2",), test=("3",))},
            r"digits has no column that declares splits: give fractions \(data.splits\)",
        ),
    ],
)
def test_named_sets_declare_their_own_facts(options, message):
    with pytest.raises(DataError, match=message):
        load("digits", **options)


def test_the_row_is_the_unit_of_every_named_set():
    assert load("digits", unit="row").metadata.unit == "row"


def plugin(monkeypatch, loader):
    entry = SimpleNamespace(name="hospital", value="ward7.data:load", load=lambda: loader)
    monkeypatch.setattr(
        clipless.datasets.catalog.importlib_metadata,
        "entry_points",
        lambda *, group: [entry] if group == "sweeper.datasets" else [],
    )


def test_a_plugin_is_listed_without_being_imported_and_loaded_by_name(monkeypatch, tmp_path):
    seen = []

    def loader(**options):
        seen.append(options)
        return load("digits")

    plugin(monkeypatch, loader)
    assert available()["hospital"] == "plug-in ward7.data:load"
    assert seen == []
    splits = HashSplit(salt="x")
    dataset = load("hospital", data_dir=tmp_path, splits=splits, evaluation="public")
    assert dataset.metadata.evaluation is Evaluation.PUBLIC
    assert seen == [{"data_dir": tmp_path, "evaluation": Evaluation.PUBLIC, "splits": splits}]
    split, hashes = load("digits").validation, dataset.hashes
    assert [len(own) for own in (hashes.train, hashes.test)] == [len(dataset.train), len(dataset.test)]
    changed = RowHashes.of(Split(split.x, (split.y + (split.y == 3)) % 10), split, split)
    assert torch.equal(changed.validation, hashes.validation)
    assert (changed.train == hashes.validation).all(dim=1).tolist() == (split.y != 3).tolist()


def test_a_plugin_that_returns_something_else_is_refused(monkeypatch):
    plugin(monkeypatch, lambda **_: 3)
    with pytest.raises(DataError, match=r"Expected a Dataset from plug-in ward7.data:load, got int \(hospital\)"):
        load("hospital")


def test_a_plugin_that_declares_another_evaluation_is_refused(monkeypatch):
    plugin(monkeypatch, lambda **_: load("digits"))
    with pytest.raises(DataError, match="hospital declares evaluation: public, got private"):
        load("hospital", evaluation="private")


def test_a_plugin_cannot_replace_a_known_name(monkeypatch):
    plugin(monkeypatch, lambda **_: 3)
    entry = clipless.datasets.catalog.importlib_metadata.entry_points(group="sweeper.datasets")[0]
    entry.name = "digits"
    assert load("digits").metadata.name == "digits"
