"""A data set in memory that all processes of a node read without a copy of their own; none can write to it."""

import math
import mmap
import os
import pickle
import tempfile
import warnings
from dataclasses import dataclass
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray

from clipless.datasets import Dataset, Metadata, Split

ALIGNMENT = 64

Arrays = tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64] | None]


@dataclass(frozen=True, eq=False)
class PlacedDataset:
    """A data set as it is carried without copying: arrays and public facts."""

    metadata: Metadata
    train: Arrays
    validation: Arrays
    test: Arrays

    @classmethod
    def of(cls, data: Dataset) -> "PlacedDataset":
        """Return the arrays of a data set, which share its memory."""
        train, validation, test = map(_arrays, (data.train, data.validation, data.test))
        return cls(metadata=data.metadata, train=train, validation=validation, test=test)

    def dataset(self) -> Dataset:
        """Return the data set, which shares the memory of the arrays."""
        train, validation, test = (_split(*arrays) for arrays in (self.train, self.validation, self.test))
        return Dataset(metadata=self.metadata, train=train, validation=validation, test=test)


def _arrays(split: Split) -> Arrays:
    return split.x.numpy(), split.y.numpy(), None if split.offsets is None else split.offsets.numpy()


def _split(x: NDArray[np.float32], y: NDArray[np.int64], offsets: NDArray[np.int64] | None) -> Split:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # nor is it written to
        units = None if offsets is None else torch.from_numpy(offsets)
        return Split(torch.from_numpy(x), torch.from_numpy(y), units)


def in_memory(rows: PlacedDataset) -> IO[bytes]:
    """Write rows into memory without a name, from which other processes read them without a copy."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(rows, protocol=5, buffer_callback=buffers.append)
    pieces = [one.raw() for one in buffers]
    places, end = [], 0
    for piece in pieces:
        places.append((end, piece.nbytes))
        end += _aligned(piece.nbytes)
    index = pickle.dumps((head, places))
    file = _nameless()
    file.write(len(index).to_bytes(8, "little") + index)
    start = _aligned(8 + len(index))
    for piece, (offset, _) in zip(pieces, places, strict=True):
        file.seek(start + offset)
        file.write(piece)
    file.flush()
    return file


def _nameless() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("rows"), "w+b")
    return tempfile.TemporaryFile()


def from_memory(handle: int) -> PlacedDataset:
    """Return rows that another process has written; they cannot be written to."""
    content = memoryview(mmap.mmap(handle, 0, prot=mmap.PROT_READ))
    size = 8 + int.from_bytes(content[:8], "little")
    head, places = pickle.loads(content[8:size])
    start = _aligned(size)
    buffers = [content[start + offset : start + offset + length] for offset, length in places]
    found: PlacedDataset = pickle.loads(head, buffers=buffers)
    return found


def _aligned(size: int) -> int:
    return ALIGNMENT * math.ceil(size / ALIGNMENT)
