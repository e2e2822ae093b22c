"""``rows.json``: by what a sweep knows its rows again when it goes on; its owner alone can read it.

A row is on one side of the split, and the price of a sweep rests on that: a row pays for trainings or for scores, not
for both. What decides the side stands in the row, also in columns that are dropped, so that another export of the same
file may move rows whose features have not changed. The digest has a key, as in an account: a plain hash would let
anybody who guesses the rows confirm the guess.
"""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clipless.datasets import Dataset
from sweeper.account.blocks import digest_sides
from sweeper.adapters import dump, read
from sweeper.errors import RecordError
from sweeper.store.jsonl import read_object, replace_file, to_text

ROWS_NAME = "rows.json"
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowDigests:
    """The content of the file: a key, in hexadecimal digits, and `digest_sides` under it."""

    key: str
    sides: Mapping[str, str]


def note_rows(folder: Path, data: Dataset) -> None:
    """Note the rows of a table or of a plug-in, unless the folder of the sweep knows its rows already.

    Raises:
        RecordError: not written.
    """
    path = folder / ROWS_NAME
    if path.exists() or not _are_read(data):
        return
    key = secrets.token_bytes(_KEY_BYTES)
    replace_file(path, to_text(dump(_RowDigests(key=key.hex(), sides=digest_sides(key, data)))) + "\n", owner_only=True)


def check_rows(folder: Path, data: Dataset) -> None:
    """Refuse other rows than those that a sweep was begun with, and rows on other sides.

    One of an earlier version, which has noted none, goes on.

    Raises:
        RecordError: likewise, a file that cannot be read, or that of another user.
    """
    path = folder / ROWS_NAME
    if not path.exists() or not _are_read(data):
        return
    if not os.access(path, os.R_OK):
        raise RecordError(
            f"Expected the user who began {folder} to go on with it, for {ROWS_NAME}, which knows its rows again, can "
            "be read by its owner alone; ask them to"
        )
    known = read(_RowDigests, read_object(path), f"in {path}", "restore the file")
    if digest_sides(bytes.fromhex(known.key), data) != known.sides:
        raise RecordError(
            f"Expected the rows that {folder} was begun with, each on its side of the split, got others: a cell has "
            "changed, and a column that is dropped decides the side of a row too; restore the data, or start another "
            "sweep"
        )


def _are_read(data: Dataset) -> bool:
    """Whether rows are known as they were read; encoded ones may differ between machines in their last bits."""
    return (data.raw or data).hashes is not None
