import dataclasses
import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from clipless.datasets import Evaluation, HashSplit, load
from clipless.datasets.sources.images import CIFAR10, FASHION_MNIST, MNIST
from clipless.datasets.sources.openml import cache_dir
from clipless.errors import DataError

GENERATOR = np.random.default_rng(0)


def arrays(shape=(28, 28), n_train=60, n_test=20):
    return {
        "x_train": GENERATOR.integers(0, 256, (n_train, *shape), dtype=np.uint8),
        "y_train": GENERATOR.integers(0, 10, n_train).astype(np.uint8),
        "x_test": GENERATOR.integers(0, 256, (n_test, *shape), dtype=np.uint8),
        "y_test": GENERATOR.integers(0, 10, n_test).astype(np.uint8),
    }


FETCHED = {"data_dir": None, "evaluation": Evaluation.PUBLIC, "splitting": None}


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_local_images_keep_their_published_test_split(tmp_path, name):
    stored = arrays()
    np.savez(tmp_path / f"{name}.npz", **stored)
    dataset = load(name, data_dir=tmp_path)
    facts = dataset.metadata
    assert (facts.name, facts.input_shape, len(facts.classes)) == (name, (1, 28, 28), 10)
    assert (facts.input_norm, facts.radius_unit) == (28.0, "pixels in [0, 1]")
    assert facts.evaluation is Evaluation.PUBLIC
    assert torch.equal(dataset.test.x[:, 0], torch.from_numpy(stored["x_test"]).float() / 255)
    assert dataset.test.y.tolist() == stored["y_test"].tolist()
    together = torch.cat([dataset.train.x, dataset.validation.x]) * 255
    assert sorted(together.sum((1, 2, 3)).tolist()) == sorted(stored["x_train"].sum((1, 2)).tolist())
    assert len(dataset.validation) < 20


def test_an_image_keeps_its_split_when_others_are_removed(tmp_path):
    stored = arrays(n_train=80)

    def split(kept):
        kept_arrays = stored | {"x_train": stored["x_train"][kept], "y_train": stored["y_train"][kept]}
        np.savez(tmp_path / "mnist.npz", **kept_arrays)
        dataset = load("mnist", data_dir=tmp_path, splits=HashSplit(validation=0.3))
        return ({tuple(x.flatten().tolist()) for x in part.x} for part in (dataset.train, dataset.validation))

    train, validation = split(np.arange(80))
    fewer_train, fewer_validation = split(np.arange(79, 0, -2))
    assert fewer_train < train
    assert fewer_validation < validation


def jpeg(x):
    buffer = io.BytesIO()
    Image.fromarray(x).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def jpeg_archive(x, y, n_train):
    files = [jpeg(image) for image in x]
    return {
        "jpeg": np.frombuffer(b"".join(files), dtype=np.uint8),
        "offsets": np.cumsum([0, *map(len, files)]),
        "y": y,
        "n_train": n_train,
    }


def test_colour_images_are_decoded_and_channels_come_first(tmp_path):
    red = np.zeros((70, 32, 32, 3), dtype=np.uint8)
    red[..., 0] = np.arange(70)[:, None, None] + 180
    np.savez(tmp_path / "cifar10-jpeg.npz", **jpeg_archive(red, np.arange(70) % 10, 60))
    dataset = load("cifar10", data_dir=tmp_path)
    assert dataset.metadata.input_shape == (3, 32, 32)
    assert dataset.metadata.input_norm == pytest.approx(3072**0.5)
    assert len(dataset.test) == 10
    mean_C = dataset.test.x.mean((0, 2, 3))
    assert mean_C[0] > 0.9
    assert mean_C[1:].max() < 0.05


def test_uncompressed_colour_images_are_read_too(tmp_path):
    stored = arrays((32, 32, 3))
    np.savez(tmp_path / "cifar10.npz", **stored)
    test = load("cifar10", data_dir=tmp_path).test
    assert torch.equal(test.x.permute(0, 2, 3, 1), torch.from_numpy(stored["x_test"]).float() / 255)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y_test": None}, r"Expected the arrays x_train, y_train, x_test, y_test, got .*mnist.npz"),
        ({"x_test": np.zeros((20, 28, 27), dtype=np.uint8)}, r"uint8 \(28, 28\), got uint8 \(28, 27\) \(x_test in"),
        ({"x_train": np.zeros((60, 28, 28))}, "got float64"),
        ({"y_train": np.zeros(59, dtype=np.uint8)}, r"whole number for each of 60 images, .*\(59,\) \(y_train in"),
        ({"y_train": np.zeros(60)}, "got float64"),
        ({"y_test": np.full(20, 10)}, r"labels from 0 to 9.*split test"),
        ({"x_test": np.array([None])}, r"mnist.npz is damaged or not an archive of mnist"),
    ],
)
def test_an_archive_that_is_not_what_its_name_says_is_refused(tmp_path, change, message):
    members = {name: array for name, array in (arrays() | change).items() if array is not None}
    np.savez(tmp_path / "mnist.npz", **members)
    with pytest.raises(DataError, match=message):
        load("mnist", data_dir=tmp_path)


@pytest.mark.parametrize("change", [{"jpeg": np.zeros(50, dtype=np.uint8)}, {"y": None}])
def test_a_damaged_archive_of_jpegs_is_refused(tmp_path, change):
    good = jpeg_archive(np.zeros((2, 32, 32, 3), dtype=np.uint8), np.zeros(2, dtype=np.uint8), 1)
    members = {name: array for name, array in (good | change).items() if array is not None}
    np.savez(tmp_path / "cifar10-jpeg.npz", **members)
    with pytest.raises(DataError, match=r"cifar10-jpeg.npz is damaged or not an archive of cifar10"):
        load("cifar10", data_dir=tmp_path)


def test_a_folder_without_the_file_is_refused_and_nothing_is_fetched(tmp_path):
    with pytest.raises(DataError, match=r"Expected cifar10.npz or cifar10-jpeg.npz in .* \(--data-dir\)"):
        load("cifar10", data_dir=tmp_path)
    with pytest.raises(DataError, match=r"Expected mnist.npz in"):
        load("mnist", data_dir=tmp_path)


def test_a_published_test_split_is_not_drawn_again():
    with pytest.raises(DataError, match=r"mnist has a published test split: leave out the fraction test"):
        load("mnist", splits=HashSplit(validation=0.1, test=0.1))


def openml(monkeypatch, images, x, y):
    fetched = []

    def fetch(**options):
        fetched.append(options["data_id"])
        return SimpleNamespace(data=x, target=y.astype(str))

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    return fetched, dataclasses.replace(images, test_counts=(2,) * 10)


@pytest.mark.parametrize("images", [MNIST, FASHION_MNIST])
def test_openml_is_asked_once_and_its_last_rows_are_the_test_split(monkeypatch, images):
    stored = arrays()
    x, y = np.concatenate([stored["x_train"], stored["x_test"]]), np.arange(80) % 10
    fetched, images = openml(monkeypatch, images, x.reshape(80, -1).astype(float), y)
    for _ in range(2):
        dataset = images.load(**FETCHED)
        assert torch.equal(dataset.test.x[:, 0], torch.from_numpy(stored["x_test"]).float() / 255)
    assert fetched == [images.data_id]
    assert (cache_dir() / f"{images.name}.npz").is_file()


@pytest.mark.parametrize("scale", [1, 255])
def test_openml_lists_the_channels_of_cifar10_one_after_the_other(monkeypatch, scale):
    x_NCHW = GENERATOR.integers(0, 256, (80, 3, 32, 32)).astype(float)
    _, images = openml(monkeypatch, CIFAR10, x_NCHW.reshape(80, -1) / scale, np.arange(80) % 10)
    test = images.load(**FETCHED).test
    assert torch.equal(test.x, torch.from_numpy(x_NCHW[60:]).to(torch.float32) / 255)


def test_rows_of_openml_in_another_order_are_refused(monkeypatch):
    _, images = openml(monkeypatch, MNIST, np.zeros((80, 784)), np.sort(np.arange(80) % 10))
    with pytest.raises(
        DataError, match="last 20 rows of mnist at OpenML are not its published test split: pass --data"
    ):
        images.load(**FETCHED)
    assert not cache_dir().exists()


@pytest.mark.parametrize("images", [MNIST, FASHION_MNIST, CIFAR10])
def test_published_counts_add_up(images):
    assert sum(images.test_counts) == 10_000
    assert len(images.classes) == len(set(images.classes)) == 10
