"""Arrays and pictures as rows: read from npz, png and jpg files, checked, and scaled as in training.

Shape letters: N rows, C channels, H height, W width.
"""

import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clipless.datasets.raw_rows import Pixels, Tensors
from clipless.datasets.sources._base import level_shares
from clipless.datasets.tables.table_file import list_names
from clipless.errors import DataError
from clipless.spelling import did_you_mean_file

_PICTURES = (".png", ".jpg", ".jpeg")
_DAMAGED = (OSError, EOFError, ValueError, zlib.error, zipfile.BadZipFile)


def read_array(path: Path, raw: Pixels | Tensors, name: str) -> NDArray[Any]:
    """Read an npz file, a picture or a folder of pictures; ``name`` is that of the data that the model was trained on.

    Raises:
        DataError: unreadable, or of another kind or size.
    """
    file = path.name.lower()
    if not path.exists():
        raise DataError(f"Expected rows to predict, found no file {path}; {did_you_mean_file(path) or 'give its path'}")
    try:
        if file.endswith(".npz"):
            return _read_npz(path)
        if isinstance(raw, Pixels) and (file.endswith(_PICTURES) or path.is_dir()):
            return _read_pictures(path, raw)
    except DataError:
        raise
    except _DAMAGED as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DataError(f"Cannot read {path}: {reason}; is it what its name says?") from None
    if isinstance(raw, Pixels):
        expected = "pictures"
        remedy = f"save them with {_size(raw.shape)} pixels as .npz, .png or .jpg, or name a folder of them"
    else:
        expected, remedy = "an array", "save it as .npz"
    raise DataError(f"Expected {expected} for a model of {name}, got {path}; {remedy}")


def _read_npz(path: Path) -> NDArray[Any]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        names = list(archive.files)
        chosen = names[0] if len(names) == 1 else "x"
        if chosen not in names:
            raise DataError(f"Expected one array in {path}, or one named x, got {list_names(names) or 'none'}")
        return np.asarray(archive[chosen])


def _read_pictures(path: Path, raw: Pixels) -> NDArray[Any]:
    """Read pictures in the order of their names."""
    from PIL import Image  # needed for these formats only

    files = sorted(p for p in path.iterdir() if p.suffix.lower() in _PICTURES) if path.is_dir() else [path]
    if not files:
        raise DataError(f"Expected pictures ({', '.join(_PICTURES)}) in {path}, found none")
    pictures = []
    for file in files:
        with Image.open(file) as picture:
            pixels = np.asarray(picture.convert("RGB" if len(raw.shape) == 3 else "L"))
        if pixels.shape != raw.shape:
            raise DataError(f"Expected a picture of {_size(raw.shape)} pixels, got {_size(pixels.shape)} ({file})")
        pictures.append(pixels)
    return np.stack(pictures)


def scale_levels(array: NDArray[Any], raw: Pixels, where: str) -> Tensor:
    """Return images, levels divided by the largest one, channels first.

    Raises:
        DataError: another shape or type, or a level out of range; names the row.
    """
    if array.dtype.kind not in "iu" or array.shape[1:] != raw.shape or len(array) == 0:
        raise DataError(
            f"Expected images of whole levels from 0 to {raw.largest}, shape (rows, {list_names(raw.shape)}), got "
            f"{array.dtype} {array.shape}{_largest(array)} ({where})"
        )
    wrong_N = ((array < 0) | (array > raw.largest)).reshape(len(array), -1).any(axis=1)
    if wrong_N.any():
        raise DataError(
            f"Expected levels from 0 to {raw.largest}, got values from {array.min()} to {array.max()}, the first wrong "
            f"one in row {int(wrong_N.argmax()) + 1} ({where})"
        )
    return level_shares(array, raw)


def _largest(array: NDArray[Any]) -> str:
    return f" with values up to {array.max()}" if array.size and array.dtype.kind in "iuf" else ""


def as_tensors(array: NDArray[Any], raw: Tensors, where: str) -> Tensor:
    """Return the tensors of a plug-in as they are.

    Raises:
        DataError: another shape or type, or a number that is not finite; names the row.
    """
    if array.dtype.kind != "f" or array.shape[1:] != raw.shape or len(array) == 0:
        raise DataError(
            f"Expected numbers of shape (rows, {list_names(raw.shape)}), got {array.dtype} {array.shape} ({where})"
        )
    wrong_N = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if wrong_N.any():
        raise DataError(f"Expected finite numbers, got others in row {int(wrong_N.argmax()) + 1} ({where})")
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))


def _size(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape[1::-1]))
