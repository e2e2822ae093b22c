"""MNIST, Fashion-MNIST and CIFAR-10: from a local folder, or through OpenML.

Pixels are divided by 255, channels come first, and the published test split stays the test split; validation
rows are a hashed fraction of the training rows. The norm bound, the square root of the number of pixels, is
true of any image. Shape letters: N images, H rows, W columns, C channels.
"""

import io
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clipless.datasets.dataset import Dataset, Split
from clipless.datasets.metadata import Evaluation
from clipless.datasets.raw_rows import Pixels
from clipless.datasets.sources._base import DataSource, image_metadata, level_shares
from clipless.datasets.sources.openml import Arrays, download, read_or_fetch
from clipless.datasets.splits import HashSplit, Part, assign_by_hash, row_bytes
from clipless.errors import DataError, DeclarationError

_BYTE = 255
_KEYS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True, kw_only=True)
class ImageSet:
    """A published set of images."""

    name: str
    shape: tuple[int, ...]  # of one stored image, (H, W) or (H, W, 3)
    classes: tuple[str, ...]
    data_id: int  # its number at OpenML
    # published number of test images of each class; the last rows at OpenML must have them
    test_counts: tuple[int, ...]
    channels_first: bool = False  # whether OpenML's rows list one channel after the other

    @property
    def files(self) -> tuple[str, ...]:
        """Names under which a local folder may hold it."""
        return (f"{self.name}.npz", f"{self.name}-jpeg.npz") if len(self.shape) == 3 else (f"{self.name}.npz",)

    def raw(self, data_dir: Path | None) -> Pixels:
        """Return the format of an image."""
        return Pixels(self.shape, _BYTE)

    def load(self, *, data_dir: Path | None, evaluation: Evaluation, splitting: HashSplit | None) -> Dataset:
        """Load the set."""
        splitting, raw = splitting or HashSplit(validation=0.1), self.raw(data_dir)
        if splitting.test is not None:
            raise DeclarationError(f"{self.name} has a published test split: leave out the fraction test (data.splits)")
        stored = _fetch(self) if data_dir is None else _local(self, data_dir)
        parts_N = assign_by_hash(stored.contents, self.name, validation=splitting.validation, salt=splitting.salt)
        train_N = parts_N == Part.TRAIN
        return Dataset(
            image_metadata(
                self.name,
                self.classes,
                raw,
                evaluation,
                splitting,
                largest_is="a byte's largest value",
                published_test=True,
            ),
            _split(stored.x_train[train_N], stored.y_train[train_N], raw),
            _split(stored.x_train[~train_N], stored.y_train[~train_N], raw),
            _split(stored.x_test, stored.y_test, raw),
        )


MNIST = ImageSet(
    name="mnist",
    shape=(28, 28),
    classes=tuple("0123456789"),
    data_id=554,
    test_counts=(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
)
FASHION_MNIST = ImageSet(
    name="fashion-mnist",
    shape=(28, 28),
    classes=(
        *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
    data_id=40996,
    test_counts=(1000,) * 10,
)
CIFAR10 = ImageSet(
    name="cifar10",
    shape=(32, 32, 3),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    data_id=40927,
    test_counts=(1000,) * 10,
    channels_first=True,
)
SOURCES: tuple[DataSource, ...] = (MNIST, FASHION_MNIST, CIFAR10)


@dataclass(frozen=True, eq=False)
class _Images:
    """Stored images and labels; ``contents`` are the bytes that each training image's split depends on."""

    x_train: NDArray[np.uint8]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.uint8]
    y_test: NDArray[np.int64]
    contents: Iterable[Any]


def _split(levels: NDArray[np.uint8], y_N: NDArray[np.int64], raw: Pixels) -> Split:
    return Split(level_shares(levels, raw), torch.from_numpy(y_N))


def _local(images: ImageSet, data_dir: Path) -> _Images:
    path = next((data_dir / file for file in images.files if (data_dir / file).is_file()), None)
    if path is None:
        raise DataError(f"Expected {' or '.join(images.files)} in {data_dir} (--data-dir)")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        if "jpeg" in arrays:
            return _decode(images, arrays, path)
    except (OSError, EOFError, ValueError, KeyError, zlib.error, zipfile.BadZipFile):
        raise DataError(f"{path} is damaged or not an archive of {images.name}: fetch it again (--data-dir)") from None
    return _check(images, arrays, str(path))


def _decode(images: ImageSet, arrays: Arrays, path: Path) -> _Images:
    """Decode JPEG-compressed images; a training image's split depends on its compressed bytes."""
    from PIL import Image  # needed for this one format

    jpeg, offsets, n_train = arrays["jpeg"].tobytes(), arrays["offsets"].tolist(), int(arrays["n_train"])
    files = [jpeg[start:end] for start, end in pairwise(offsets)]
    x = np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])
    y = arrays["y"]
    parts = (x[:n_train], y[:n_train], x[n_train:], y[n_train:])
    return _check(images, dict(zip(_KEYS, parts, strict=True)), str(path), contents=files[:n_train])


def _check(images: ImageSet, arrays: Arrays, where: str, contents: Iterable[Any] | None = None) -> _Images:
    for key in _KEYS:
        if key not in arrays:
            raise DataError(f"Expected the arrays {', '.join(_KEYS)}, got {', '.join(arrays) or 'none'} ({where})")
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.dtype != np.uint8 or x.shape[1:] != images.shape:
            raise DataError(f"Expected images uint8 {images.shape}, got {x.dtype} {x.shape[1:]} (x_{part} in {where})")
        if y.dtype.kind not in "iu" or y.shape != x.shape[:1]:
            raise DataError(
                f"Expected a whole number for each of {len(x)} images, got {y.dtype} {y.shape} (y_{part} in {where})"
            )
    x_train, y_train, x_test, y_test = (arrays[key] for key in _KEYS)
    contents = row_bytes(x_train) if contents is None else contents
    return _Images(x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64), contents)


def _fetch(images: ImageSet) -> _Images:
    return _check(images, read_or_fetch(images.name, lambda: _download(images)), f"OpenML {images.data_id}")


def _download(images: ImageSet) -> Arrays:
    remedy = f"pass --data-dir with a folder that holds {' or '.join(images.files)}"
    bunch = download(images.name, images.data_id, remedy, as_frame=False)
    x = np.asarray(bunch.data, dtype=np.float64)
    x = np.rint(x * 255) if x.max() <= 1 else x
    if images.channels_first:
        x = np.moveaxis(x.reshape(-1, images.shape[2], *images.shape[:2]), 1, -1)
    x, y = x.reshape(-1, *images.shape).astype(np.uint8), np.asarray(bunch.target).astype(np.int64)
    n_test = sum(images.test_counts)
    if tuple(np.bincount(y[-n_test:], minlength=10)) != images.test_counts:
        raise DataError(
            f"The last {n_test} rows of {images.name} at OpenML are not its published test split: {remedy} instead"
        )
    return dict(zip(_KEYS, (x[:-n_test], y[:-n_test], x[-n_test:], y[-n_test:]), strict=True))
