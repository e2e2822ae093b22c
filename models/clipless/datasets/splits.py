r"""Assignment of rows to splits: train, validation or test.

A row's split is a function of that row (or of its privacy unit) and of public constants, never of another
row: one row more or less changes one split by one row. A random permutation or a stratified split would move
many. The function is a keyed hash, with a published key, of the row's content::

    u = blake2b(content; key = blake2b(name \0 salt)) / 2^64
    test if u < test;  validation if u < test + validation;  train otherwise

so identical rows fall together, and a larger fraction only adds rows to a split. A column that declares the
split is the other way.

References:
    RFC 7693, The BLAKE2 cryptographic hash.
"""

import enum
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clipless.errors import DeclarationError

_HASH_BYTES = 8
_ROW_HASH_BYTES = 16
_CHUNK = 4096  # rows that are copied at a time


class Part(enum.IntEnum):
    """The three splits."""

    TRAIN = 0
    VALIDATION = 1
    TEST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HashSplit:
    """Assignment by keyed hash; every field is a public parameter.

    Attributes:
        validation: expected fraction of the rows; where the test split is a published one, of the remaining
            rows.
        test: expected fraction of the rows; None for 0.15, or the published test split where there is one.
        salt: any text; another salt, another assignment.
    """

    validation: float = 0.15
    test: float | None = None
    salt: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.validation < 1:
            raise DeclarationError(f"Expected 0 < validation < 1, got validation={self.validation!r} (data.splits)")
        if self.test is not None and not 0 < self.test < 1 - self.validation:
            raise DeclarationError(f"Expected 0 < test < 1 - validation, got test={self.test!r} (data.splits)")

    @property
    def test_fraction(self) -> float:
        """Expected fraction of test rows where no test split is published."""
        if self.test is None:
            return min(0.15, (1 - self.validation) / 2)
        return self.test


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSplit:
    """Assignment by the values of a declared column, which is then no feature: those of each split's rows."""

    column: str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]

    def __post_init__(self) -> None:
        values = [*self.train, *self.validation, *self.test]
        if len(set(values)) != len(values) or not (self.train and self.validation and self.test):
            raise DeclarationError(
                f"Expected different values of column {self.column!r} for train, validation and test, "
                f"got {self.train}, {self.validation}, {self.test} (data.splits)"
            )

    def parts(self) -> dict[str, Part]:
        """Return the split of each value."""
        pairs = ((Part.TRAIN, self.train), (Part.VALIDATION, self.validation), (Part.TEST, self.test))
        return {value: part for part, values in pairs for value in values}


Splitting: TypeAlias = HashSplit | ColumnSplit


def assign_by_hash(
    contents: Iterable[Any], name: str, *, validation: float, test: float = 0.0, salt: str = ""
) -> NDArray[np.int8]:
    """Assign each row, given as bytes, to a `Part`.

    Contents are those of the rows, or of the rows' privacy units; ``name`` and ``salt`` make the published key, and
    ``test`` is 0 where the test split is published.

    Guarantees:
        The i-th entry depends on the i-th content, ``name``, ``salt`` and the fractions only.
    """
    key = hashlib.blake2b(f"sweeper split\0{name}\0{salt}".encode(), digest_size=32).digest()
    digests = b"".join(hashlib.blake2b(row, digest_size=_HASH_BYTES, key=key).digest() for row in contents)
    u_N = np.frombuffer(digests, dtype=">u8").astype(np.float64) / 2.0 ** (8 * _HASH_BYTES)
    parts_N = np.full(len(u_N), Part.TRAIN, dtype=np.int8)
    parts_N[u_N < test + validation] = Part.VALIDATION
    parts_N[u_N < test] = Part.TEST
    return parts_N


def hash_rows(contents: Iterable[bytes]) -> NDArray[np.uint8]:
    """Return the hash of the content of each row, (n, 16), by which rows are compared with those of another file."""
    digests = b"".join(hashlib.blake2b(row, digest_size=_ROW_HASH_BYTES).digest() for row in contents)
    return np.frombuffer(digests, dtype=np.uint8).reshape(-1, _ROW_HASH_BYTES).copy()  # one may write to it


def labelled_bytes(rows: NDArray[Any], labels: NDArray[np.int64]) -> Iterator[bytes]:
    """Yield the bytes of each label and row, of ``labels`` (n,) and ``rows`` (n, ...), the latter as `row_bytes`."""
    for begin in range(0, len(rows), _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        for row, label in zip(row_bytes(rows[chunk]), labels[chunk].astype("<i8"), strict=True):
            yield label.tobytes() + row


def row_bytes(rows: NDArray[Any]) -> Iterator[memoryview]:
    """Yield the bytes of each row of ``rows`` (n, ...), little-endian, with one form for zero and for NaN."""
    if rows.dtype.kind == "f":
        rows = np.where(np.isnan(rows), np.nan, rows + 0.0)  # -0.0 + 0.0 = 0.0
    rows = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("<"))
    width = rows[:1].nbytes
    buffer = rows.reshape(-1).view(np.uint8).data
    return (buffer[i * width : (i + 1) * width] for i in range(len(rows)))
