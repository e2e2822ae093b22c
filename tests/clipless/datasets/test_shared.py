import time
from pathlib import Path

import numpy as np
import pytest
import torch

from clipless.datasets import Evaluation, load, write_ranges_template

pytestmark = pytest.mark.shared

RANGES = Path(__file__).parents[3] / "sweeps" / "adult.ranges.yaml"


@pytest.fixture(scope="module")
def mnist(shared):
    load("digits")  # imports
    start = time.process_time()
    dataset = load("mnist", data_dir=shared)
    return dataset, time.process_time() - start


@pytest.mark.long
def test_mnist_is_read_within_seconds(mnist):
    dataset, seconds = mnist
    assert seconds < 15
    assert len(dataset.train) + len(dataset.validation) == 60_000
    assert len(dataset.test) == 10_000
    assert torch.bincount(dataset.test.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_cifar10_is_decoded(shared, tmp_path):
    """On the first and the last images: all 60,000 take seconds."""
    with np.load(shared / "cifar10-jpeg.npz") as archive:
        jpeg, offsets, y, n_train = (archive[key] for key in ("jpeg", "offsets", "y", "n_train"))
    assert (len(y), int(n_train), len(offsets)) == (60_000, 50_000, 60_001)
    cut, middle = offsets[1500], offsets[-501]
    few = {
        "jpeg": np.concatenate([jpeg[:cut], jpeg[middle:]]),
        "offsets": np.concatenate([offsets[:1500], offsets[-501:] - middle + cut]),
        "y": np.concatenate([y[:1500], y[-500:]]),
        "n_train": 1500,
    }
    np.savez(tmp_path / "cifar10-jpeg.npz", **few)
    dataset = load("cifar10", data_dir=tmp_path)
    assert [len(dataset.train) + len(dataset.validation), len(dataset.test)] == [1500, 500]
    # The published means of the channels are 0.491, 0.482, 0.447.
    assert dataset.train.x.mean((0, 2, 3)).tolist() == pytest.approx([0.491, 0.482, 0.447], abs=0.02)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["adult", "german", "nursery", "default-credit", "campaign"])
def test_known_tables_are_read(shared, name):
    dataset = load(name, data_dir=shared)
    assert dataset.metadata.evaluation is Evaluation.PUBLIC
    assert len(dataset.train.y.unique()) == len(dataset.metadata.classes)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name", [pytest.param("donors", marks=pytest.mark.long), "shuttle", "magic.gamma", "skin", "yeast"]
)
def test_no_row_of_the_larger_tables_is_in_two_splits(shared, name):
    dataset = load(name, data_dir=shared)
    train, held_out = ({row.tobytes() for row in split.x.numpy()} for split in (dataset.train, dataset.test))
    assert len(train & held_out) <= 0.02 * len(held_out)  # equal after clamping, or with another label


@pytest.mark.long
def test_a_users_table_with_a_ranges_file_runs_end_to_end(shared):
    own = load(shared / "tabular" / "adult.csv.gz", ranges=RANGES, evaluation="private")
    assert own.metadata.evaluation is Evaluation.PRIVATE
    assert own.metadata.classes == ("<=50K", ">50K")
    assert sum(len(split) for split in (own.train, own.validation, own.test)) == 32_561
    relative = load("tabular/adult.csv.gz", data_dir=shared, ranges=RANGES, evaluation="private")
    assert torch.equal(relative.train.x, own.train.x)


def test_a_template_of_a_real_table_lists_every_column(shared):
    text = write_ranges_template(shared / "tabular" / "adult.csv.gz", "income-per-year")
    assert text.count('low: "???"') == 6
    assert text.count("categories:") - 1 == 8
    assert "39" not in text
