"""Which rows share a budget: blocks of data that grows, sides of a split, and a digest that knows rows again.

A public attribute of the privacy unit cuts the rows into blocks (`clipless.datasets.tables.blocks`), and each block has
its own budget. A new month brings new rows, and with them a new block whose budget nobody has touched (Lecuyer et al.
2019, Sage, arXiv 1909.01502). That holds only while the people of two blocks are different people.

What says the side of each row is one text: two sweeps with the same text have every row on the same side.

Rows are known again by a keyed digest. A plain hash would let anybody who guesses the rows confirm the guess; the key
stays in the store of the account, which its owner alone can read. The digest is a multiset's: the HMAC-SHA256 of every
row, sorted, under the key again. Files that overlap in part have digests that tell nothing of it.
"""

import hmac
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sweeper.account.entries import Opened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from clipless.datasets.dataset import Dataset
    from clipless.datasets.splits import Splitting

_HASH = "sha256"
_CHUNK = 4096  # rows that are copied at a time
_ROW, _ALL = b"row", b"all"


def split_in_text(splitting: "Splitting", name: str) -> str:
    """Return what says the side of each row of the data set of that name.

    The name is part of the key of a split by hash: the same rows under another name are on other sides.
    """
    from clipless.datasets.splits import ColumnSplit

    if isinstance(splitting, ColumnSplit):
        values = {"train": splitting.train, "validation": splitting.validation, "test": splitting.test}
        return _text({"column": splitting.column, **{side: sorted(marks) for side, marks in values.items()}})
    fractions = {"validation": splitting.validation, "test": splitting.test}
    return _text({"salt": splitting.salt, "name": name, **fractions})


def is_declared(opened: Opened, split: str | None) -> bool:
    """Whether a split is one that an account was opened for; without a salt or a column any is."""
    if split is None or (opened.salt is None and opened.column is None):
        return split is not None
    said = json.loads(split)
    return bool(said.get("salt") == opened.salt and said.get("column") == opened.column)


def _text(content: dict[str, object]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def digest_rows(key: bytes, rows: Iterable[bytes | memoryview]) -> str:
    """Return the digest of rows, each in bytes, as hexadecimal digits.

    Guarantees:
        The order of the rows does not count, and how often each occurs does.
    """
    row_key, all_key = (hmac.digest(key, use, _HASH) for use in (_ROW, _ALL))
    digests = sorted(hmac.digest(row_key, row, _HASH) for row in rows)
    return hmac.digest(all_key, b"".join(digests), _HASH).hex()


def digest_blocks(key: bytes, data: "Dataset") -> dict[str, str]:
    """Return the digest of the rows of each block that a data set reads; none where it is not cut into blocks.

    The splits do not count: the same rows on other sides have the same digest.
    """
    data = _before_encoder(data)
    if data.blocks is None:
        return {}
    rows: dict[str, list[bytes]] = {name: [] for name in data.blocks.names}
    sides = ((data.train, data.blocks.train), (data.validation, data.blocks.validation), (data.test, data.blocks.test))
    for split, codes in sides:
        for code, row in zip(codes.tolist(), _labelled_rows(split.x, split.y.numpy()), strict=True):
            rows[data.blocks.names[code]].append(row)
    return {name: digest_rows(key, own) for name, own in rows.items()}


def digest_dataset(key: bytes, data: "Dataset") -> str:
    """Return the digest of all rows of a data set, as they are encoded, with their labels.

    The splits do not count: the same rows on other sides have the same digest. Nor does an encoder: features have the
    digest of the rows that they are features of.
    """
    data = _before_encoder(data)
    splits = (data.train, data.validation, data.test)
    return digest_rows(key, (row for split in splits for row in _labelled_rows(split.x, split.y.numpy())))


def digest_labelled(key: bytes, x: "Tensor", labels: "NDArray[np.int64]") -> str:
    """Return the digest of rows as they are encoded, (n, ...), with their labels, (n,); see `digest_dataset`."""
    return digest_rows(key, _labelled_rows(x, labels))


def _before_encoder(data: "Dataset") -> "Dataset":
    return data if data.raw is None else data.raw


def _labelled_rows(x: "Tensor", labels: "NDArray[np.int64]") -> Iterable[bytes]:
    from clipless.datasets.splits import row_bytes

    for begin in range(0, len(x), _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        for row, label in zip(row_bytes(x[chunk].numpy()), labels[chunk].astype("<i8"), strict=True):
            yield label.tobytes() + row
