"""Which rows share a budget: blocks of data that grows, sides of a split, and a digest that knows rows again.

A public attribute of the privacy unit cuts the rows into blocks (`clipless.datasets.tables.blocks`), and each block has
its own budget. A new month brings new rows, and with them a new block whose budget nobody has touched (Lecuyer et al.
2019, Sage, arXiv 1909.01502). That holds only while the people of two blocks are different people.

What says the side of each row is one text, and what it says of these rows a digest: a column that is dropped, a
pseudonym or the value of a split column decides the side too, and another export of the same file may have others.
Two sweeps with the same text and the same digest have every row on the same side.

Rows are known again by a keyed digest. A plain hash would let anybody who guesses the rows confirm the guess; the key
stays in the store of the account, which its owner alone can read. The digest is a multiset's: the HMAC-SHA256 of every
row, sorted, under the key again; the rows of one privacy unit are one item of it. Blocks are bound to their rows as
they are encoded. Files, and the rows of each block in them, are known as they were read too, whatever their ranges and
whichever of their blocks are used, so that no other account of the store takes them anew; and rows that are read
together, however they are cut into blocks. Files that overlap in part
have digests that tell nothing of it. Of the privacy units of a block the store keeps a keyed hash each: a unit that
comes again in the file of another block would have a budget there too.
"""

import hmac
import json
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from sweeper.account.entries import Bound, Opened
from sweeper.errors import AccountError, RecordError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from clipless.datasets.dataset import Dataset, Split
    from clipless.datasets.splits import Splitting

ALL_ROWS = "all"  # the block of data that is not cut into blocks
_HASH = "sha256"
_ROW, _UNIT, _ALL, _SIDE, _TABLE, _ID = b"row", b"unit", b"all", b"side", b"table", b"id"
_SPELLING = "2:"  # before hashes of ids as `clipless.datasets.tables.units` has them; other versions had other texts
_ID_DIGITS = 16  # hexadecimal, of each unit: among a million of them two are alike by chance once in 10^7


def split_in_text(splitting: "Splitting", name: str) -> str:
    """Return what says the side of each row of the data set of that name.

    The name is part of the key of a split by hash, but for that of a file; see `is_same_split`.
    """
    from clipless.datasets.splits import ColumnSplit

    if isinstance(splitting, ColumnSplit):
        values = {"train": splitting.train, "validation": splitting.validation, "test": splitting.test}
        return _text({"column": splitting.column, **{side: sorted(marks) for side, marks in values.items()}})
    fractions = {"validation": splitting.validation, "test": splitting.test}
    return _text({"salt": splitting.salt, "name": name, **fractions})


def is_same_split(one: str | None, other: str | None) -> bool:
    """Whether two texts of `split_in_text` are alike but for the name of the data set.

    That of a table of one's own is the name of its file, which is not part of the key of its split. Of other data sets
    it is; then `digest_sides` says that rows have moved.
    """
    return one == other or (one is not None and other is not None and _without_name(one) == _without_name(other))


def _without_name(split: str) -> dict[str, object]:
    return {key: value for key, value in json.loads(split).items() if key != "name"}


def is_declared(opened: Opened, split: str | None) -> bool:
    """Whether a split is one that an account was opened for; without a salt or a column any is."""
    if split is None or (opened.salt is None and opened.column is None):
        return split is not None
    said = json.loads(split)
    return bool(said.get("salt") == opened.salt and said.get("column") == opened.column)


def _text(content: dict[str, object]) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def digest_rows(key: bytes, rows: Iterable[bytes | memoryview], units: Iterable[int] | None = None) -> str:
    """Return the digest of rows, each in bytes, as hexadecimal digits.

    ``units`` has the number of the privacy unit of each row; ``None`` where each row is one.

    Guarantees:
        Neither the order of rows counts nor that of units; how often each row occurs does, and which rows are one
        unit's.
    """
    return _digest_all(key, _digest_units(key, rows, units))


def digest_dataset(key: bytes, data: "Dataset") -> dict[str, str]:
    """Return the digest of the rows of each block that a data set reads, `ALL_ROWS` where it is not cut into blocks.

    Rows are taken as they are encoded, with their labels. The splits do not count: the same rows on other sides have
    the same digest. Nor does an encoder: features have the digest of the rows that they are features of.

    Raises:
        AccountError: a block has the name of all rows.
    """
    from clipless.datasets.splits import labelled_bytes

    data = _before_encoder(data)
    rows = [labelled_bytes(split.x.numpy(), split.y.numpy()) for split in _splits(data)]
    return _digest_blocks(key, data, rows)


def digest_whole(key: bytes, data: "Dataset") -> tuple[str, ...]:
    """Return the digests of all rows that a data set reads together, none where they are in one block.

    They are those of `digest_dataset` and of `digest_read_blocks` for the same rows in one block.
    """
    from clipless.datasets.splits import labelled_bytes

    data = _before_encoder(data)
    if data.blocks is None or len(data.blocks.names) < 2:
        return ()
    rows = [labelled_bytes(split.x.numpy(), split.y.numpy()) for split in _splits(data)]
    encoded = _digest_all(key, chain(*_units_of(key, data, rows)))
    hashes = data.hashes
    return (encoded,) if hashes is None else (encoded, digest_hashes(key, hashes.train, hashes.validation, hashes.test))


def digest_sides(key: bytes, data: "Dataset") -> dict[str, str]:
    """Return the digest of what puts each row of a block on its side; blocks, errors as of `digest_dataset`.

    Guarantees:
        Where two are equal, every row is on the same side in both data sets: what decides it is in the hash of the
        whole row. Of published images, whose pixels decide it, it has their encoded rows.
    """
    from clipless.datasets.dataset import RowHashes

    data = _before_encoder(data)
    hashes = data.hashes or RowHashes.of(*_splits(data))
    rows = [map(bytes, own.numpy()) for own in (hashes.train, hashes.validation, hashes.test)]
    on_sides = [map(bytes([side]).__add__, own) for side, own in enumerate(rows)]
    return _digest_blocks(hmac.digest(key, _SIDE, _HASH), data, on_sides)


def digest_table(key: bytes, data: "Dataset") -> str | None:
    """Return the digest of all rows of a file as they were read, ``None`` of a data set that is no table.

    Guarantees:
        Neither blocks nor units, sides, ranges and columns that are left out count: one file is one table, also where
        only some of its blocks are used.
    """
    hashes = _before_encoder(data).hashes
    if hashes is None:
        return None
    return digest_hashes(key, hashes.train, hashes.validation, hashes.test, hashes.unread)


def digest_read_blocks(key: bytes, data: "Dataset") -> dict[str, str]:
    """Return the digest of the rows of each block as they were read, as `digest_table` has it; none without blocks.

    Guarantees:
        A file of the rows of a block alone, as a table, has the digest of that block, in whatever file it was read.
    """
    data = _before_encoder(data)
    if data.blocks is None or data.hashes is None:
        return {}
    pairs = [(getattr(data.blocks, side), getattr(data.hashes, side)) for side in ("train", "validation", "test")]
    return {
        name: digest_hashes(key, *(hashes[codes == code] for codes, hashes in pairs))
        for code, name in enumerate(data.blocks.names)
    }


def digest_hashes(key: bytes, *hashes: "Tensor") -> str:
    """Return the digest of rows as they were read, each of ``hashes`` uint8, (n, 16), as `RowHashes` has them."""
    rows = chain(*(map(bytes, own.numpy()) for own in hashes))
    return digest_rows(hmac.digest(key, _TABLE, _HASH), rows)


def digest_units(key: bytes, data: "Dataset") -> dict[str, str]:
    """Return `digest_ids` of the units of each block; none without blocks, or where each row is a unit."""
    blocks = _before_encoder(data).blocks
    units = {} if blocks is None or blocks.units is None else blocks.units
    return {name: digest_ids(key, hashes) for name, hashes in units.items()}


def digest_ids(key: bytes, hashes: "Tensor") -> str:
    """Return the keyed hashes of ids of units, of their ``hashes`` uint8, (n, 16), each once, sorted."""
    own = hmac.digest(key, _ID, _HASH)
    return _SPELLING + "".join(
        sorted({hmac.digest(own, bytes(one), _HASH).hex()[:_ID_DIGITS] for one in hashes.numpy()})
    )


class BoundUnits:
    """The units of the blocks that an account is bound to, each of which is in one block.

    The rows of a block may come again under other ids, such as pseudonyms that are renewed: all ids are those of it.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, str] = {}  # by the keyed hash of the unit's id
        self.known: set[str] = set()  # blocks of which an entry has the units; those of an earlier version have none

    def note(self, bound: Bound) -> None:
        """Take the units of a block.

        Raises:
            RecordError: one is in another block.
        """
        if bound.units is None or not bound.units.startswith(_SPELLING):
            return
        if self.find_other(bound.block, bound.units) is not None:
            raise RecordError(f"Expected units of block {bound.block!r} in no other block, got one; restore the store")
        self._blocks |= dict.fromkeys(_split_ids(bound.units), bound.block)
        self.known.add(bound.block)

    def missing(self, block: str, units: str) -> str:
        """Return those of a block, as `digest_ids` has them, that no entry has yet; empty where there are none."""
        if not units.startswith(_SPELLING):
            return ""
        new = "".join(one for one in _split_ids(units) if self._blocks.get(one) != block)
        return _SPELLING + new if new else ""

    def find_other(self, block: str, units: str) -> str | None:
        """Return another block that one of these units is in, as `digest_ids` has them; ``None`` if none is."""
        return next((own for one in _split_ids(units) if (own := self._blocks.get(one, block)) != block), None)


def _split_ids(units: str) -> Iterable[str]:
    return (units[begin : begin + _ID_DIGITS] for begin in range(len(_SPELLING), len(units), _ID_DIGITS))


def digest_labelled(
    key: bytes, x: "Tensor", labels: "NDArray[np.int64]", units: "NDArray[np.int64] | None" = None
) -> str:
    """Return the digest of rows as they are encoded, (n, ...), with their labels, (n,), as `digest_dataset` has it.

    ``units`` are the numbers of their privacy units, (n,); ``None`` where each row is one.
    """
    from clipless.datasets.splits import labelled_bytes

    return digest_rows(key, labelled_bytes(x.numpy(), labels), None if units is None else units.tolist())


def check_block_names(names: Iterable[str], field: str) -> None:
    """Refuse a block with the name of all rows.

    Raises:
        AccountError: likewise.
    """
    if ALL_ROWS in names:
        raise AccountError(f"Expected blocks of other names than {ALL_ROWS!r}, which is all rows, got it ({field})")


def _digest_blocks(key: bytes, data: "Dataset", rows: Sequence[Iterable[bytes]]) -> dict[str, str]:
    """Return the digest of each block of a data set, of whose splits ``rows`` are the rows."""
    blocks, units = data.blocks, _units_of(key, data, rows)
    if blocks is None:
        return {ALL_ROWS: _digest_all(key, chain(*units))}
    check_block_names(blocks.names, "data.blocks")
    found: dict[str, list[bytes]] = {name: [] for name in blocks.names}
    codes = (blocks.train, blocks.validation, blocks.test)
    for split, of_rows, digests in zip(_splits(data), codes, units, strict=True):
        of_units = of_rows if split.offsets is None else of_rows[split.offsets[:-1]]  # one unit is in one block
        for code, digest in zip(of_units.tolist(), digests, strict=True):
            found[blocks.names[code]].append(digest)
    return {name: _digest_all(key, own) for name, own in found.items()}


def _units_of(key: bytes, data: "Dataset", rows: Sequence[Iterable[bytes]]) -> list[list[bytes]]:
    """Return one digest of each unit of each split of a data set, of which ``rows`` are the rows."""
    return [
        _digest_units(key, own, None if split.offsets is None else _numbers(split.offsets))
        for split, own in zip(_splits(data), rows, strict=True)
    ]


def _digest_units(key: bytes, rows: Iterable[bytes | memoryview], units: Iterable[int] | None) -> list[bytes]:
    """Return one digest of each unit, in the order of their first rows; that of its row, where it has one."""
    row_key, unit_key = (hmac.digest(key, use, _HASH) for use in (_ROW, _UNIT))
    digests = [hmac.digest(row_key, row, _HASH) for row in rows]
    if units is None:
        return digests
    together: dict[int, list[bytes]] = {}
    for unit, digest in zip(units, digests, strict=True):
        together.setdefault(unit, []).append(digest)
    return [
        own[0] if len(own) == 1 else hmac.digest(unit_key, b"".join(sorted(own)), _HASH) for own in together.values()
    ]


def _digest_all(key: bytes, digests: Iterable[bytes]) -> str:
    return hmac.digest(hmac.digest(key, _ALL, _HASH), b"".join(sorted(digests)), _HASH).hex()


def _numbers(offsets: "Tensor") -> list[int]:
    """Return the number of the unit of each row, of offsets as `Split` has them."""
    counts = offsets.diff()
    numbers: list[int] = counts.new_ones(len(counts)).cumsum(0).repeat_interleave(counts).tolist()
    return numbers


def _before_encoder(data: "Dataset") -> "Dataset":
    return data if data.raw is None else data.raw


def _splits(data: "Dataset") -> "tuple[Split, Split, Split]":
    return data.train, data.validation, data.test
