"""Texts as rows of numbers: the bytes of UTF-8, cut or filled up with zeros to a declared length."""

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

LARGEST_BYTE = 255


def text_norm(length: int) -> float:
    """Return the bound on the norm of a text's row."""
    return LARGEST_BYTE * sqrt(length)


def encode_texts(texts: Sequence[str | None], length: int) -> NDArray[np.float32]:
    """Return (N, length) rows; a missing text is an empty one.

    Guarantees:
        Every cell has a row, which depends on that cell alone.
    """
    rows = np.zeros((len(texts), length), dtype=np.uint8)
    for row, text in zip(rows, texts, strict=True):
        content = (text or "").encode("utf-8", errors="ignore")[:length]
        row[: len(content)] = np.frombuffer(content, dtype=np.uint8)
    return rows.astype(np.float32)


def decode_text(row_L: Tensor) -> str:
    """Return the text of a row, without zero bytes and without a character that was cut."""
    return bytes(row_L.byte().tolist()).replace(b"\0", b"").decode("utf-8", errors="ignore")
