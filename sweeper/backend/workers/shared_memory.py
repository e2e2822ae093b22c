"""Rows in memory without a name, which one process fills and others read without a copy of their own."""

import math
import mmap
import os
import pickle
import tempfile
from typing import IO

from sweeper.backend.trainable import PlacedDataset

ALIGNMENT = 64


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
