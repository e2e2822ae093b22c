from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import clipless.datasets
from clipless.datasets import Evaluation, Numeric, load
from clipless.datasets.sources.known import SOURCES
from clipless.errors import DataError

CODEBOOKS = Path(clipless.datasets.__file__).parent / "codebooks"
PERSON = {
    "age": 39,
    "workclass": "State-gov",
    "fnlwgt": 77516,
    "education": "Bachelors",
    "education-num": 13,
    "marital-status": "Never-married",
    "occupation": "Adm-clerical",
    "relationship": "Not-in-family",
    "race": "White",
    "sex": "Male",
    "capital-gain": 2174,
    "capital-loss": 0,
    "hours-per-week": 40,
    "native-country": "?",
}


def people(n=80):
    return [
        PERSON | {"age": 17 + i % 70, "native-country": ("?", "Cuba")[i % 3 == 0], "label": ("<=50K", ">50K")[i % 2]}
        for i in range(n)
    ]


def adult_csv(folder):
    frame = pd.DataFrame(people()).rename(columns={"label": "income-per-year"})
    folder.mkdir(exist_ok=True)
    frame.to_csv(folder / "adult.csv.gz", index=False)


@pytest.mark.parametrize("place", [".", "tabular"])
def test_adult_is_read_from_a_local_folder_with_its_own_declarations(tmp_path, place):
    adult_csv(tmp_path / place)
    facts = load("adult", data_dir=tmp_path).metadata
    assert (facts.classes, facts.evaluation, facts.unit) == (("<=50K", ">50K"), Evaluation.PUBLIC, "row")
    assert facts.input_norm == pytest.approx(12**0.5)


def test_adult_from_openml_is_the_same_rows_in_the_same_splits(tmp_path, monkeypatch):
    adult_csv(tmp_path)
    frame = pd.DataFrame(people()).rename(columns={"label": "class"}).astype({"age": "float64", "fnlwgt": "int64"})
    frame["native-country"] = frame["native-country"].replace("?", None)
    frame["race"] = frame["race"].astype("category")
    fetched = []

    def fetch(**options):
        fetched.append(options["data_id"])
        return SimpleNamespace(frame=frame)

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    local = load("adult", data_dir=tmp_path)
    for _ in range(2):
        remote = load("adult")
        for part in ("train", "validation", "test"):
            assert getattr(remote, part).x.tolist() == getattr(local, part).x.tolist()
            assert getattr(remote, part).y.tolist() == getattr(local, part).y.tolist()
    assert fetched == [1590]


def test_the_ranges_file_of_the_example_sweep_is_the_codebook_of_adult():
    here = Path(__file__)
    example = here.parents[4] / "sweeps" / "adult.ranges.yaml"
    assert example.read_text() == (CODEBOOKS / "adult.yaml").read_text()


@pytest.mark.parametrize("known", SOURCES, ids=lambda known: known.name)
def test_every_known_table_has_declarations(known):
    ranges = known.ranges()
    assert ranges.target
    assert len(ranges.classes) >= 2
    assert not ranges.unpaid
    assert ranges.columns or ranges.others


def test_a_table_of_adbench_has_one_range_for_all_columns(tmp_path):
    x = np.linspace(-400, 400, 180, dtype=np.float32).reshape(60, 3)
    np.savez(tmp_path / "shuttle.npz", X=x, y=np.arange(60, dtype=np.int8) % 2)
    dataset = load("shuttle", data_dir=tmp_path)
    assert dataset.metadata.classes == ("0", "1")
    assert SOURCES[8].ranges().others == Numeric(low=-150, high=150)
    assert dataset.metadata.input_norm == pytest.approx(3**0.5)
    assert (dataset.train.x.min(), dataset.train.x.max()) == (-1, 1)


def test_a_table_standardised_by_its_publisher_says_so(tmp_path):
    np.savez(tmp_path / "yeast.npz", X=np.arange(60.0)[:, None], y=np.arange(60) % 2)
    conditions = load("yeast", data_dir=tmp_path).metadata.conditions
    assert any("standardised with statistics of all rows" in condition for condition in conditions)


def test_a_folder_without_the_table_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"Expected adbench/ALOI.npz or ALOI.npz in .* \(--data-dir\)"):
        load("aloi", data_dir=tmp_path)


def test_a_table_that_openml_does_not_have_asks_for_a_folder():
    with pytest.raises(DataError, match="yeast is read from a local folder: pass --data-dir with a folder that holds"):
        load("yeast")
