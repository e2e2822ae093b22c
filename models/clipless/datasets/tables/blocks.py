"""Blocks of a table that grows: a public attribute of the privacy unit cuts its rows, and some of them are read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clipless.datasets.tables.declarations import MISSING_MARKERS
from clipless.datasets.tables.table_file import Table, canonical_texts, near_or_listed
from clipless.errors import DataError, DeclarationError


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockChoice:
    """The column of blocks, and the names of those that are read: of 01 and 1.0 it is 1, as cells are compared."""

    column: str
    names: tuple[str, ...]


def choose_blocks(column: str | None, names: Sequence[str] | None) -> BlockChoice | None:
    """Return the blocks that are read, ``None`` where a table has none.

    Raises:
        DeclarationError: names without a column, a column without names, or a name twice.
    """
    if column is None and names is None:
        return None
    if column is None:
        raise DeclarationError(f"Expected the column of blocks, got none for {', '.join(names or ())} (data.block)")
    texts = tuple(map(str, names or ()))
    if not texts or len(set(canonical_names(texts))) < len(texts):
        got = f"got {', '.join(texts)}" if texts else "got none"
        raise DeclarationError(
            f"Expected the blocks of column {column!r} that are read, each once, {got} (data.blocks)"
        )
    return BlockChoice(column=column, names=tuple(canonical_names(texts)))


def cut_into_blocks(
    table: Table, choice: BlockChoice, units_N: NDArray[np.intp] | None
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which rows are read, and the number of the block of each of these.

    Args:
        table: all rows, whatever is read.
        choice: the column, and which blocks.
        units_N: the privacy unit of each row, (N,); ``None`` where each row is one.

    Raises:
        DataError: no such column, a row without a block, a unit with rows in two blocks, or a block without rows.

    Guarantees:
        Every unit is in one block, so that one unit more or less changes one block. No message names a unit.
    """
    if choice.column not in table.columns:
        raise DataError(
            f"Column {choice.column!r} is not in {table.name}; {near_or_listed(choice.column, table.columns)} "
            "(data.block)"
        )
    where = f"({choice.column} of {table.name}; data.block)"
    texts = np.array([str(text) for text in canonical_texts(table.columns[choice.column])])
    check_blocks(texts, units_N, where)
    codes_N = np.full(len(texts), -1, dtype=np.int64)
    for number, name in enumerate(choice.names):
        codes_N[texts == name] = number
    missing = sorted(set(range(len(choice.names))) - set(codes_N.tolist()))
    if missing:
        raise DataError(f"Expected rows of block {choice.names[missing[0]]!r}, found none {where}")
    return codes_N >= 0, codes_N[codes_N >= 0]


def check_blocks(texts_N: NDArray[np.str_], units_N: NDArray[np.intp] | None, where: str) -> None:
    """Refuse rows that are in no block, and units that are in two.

    Args:
        texts_N: the block of each row, (N,).
        units_N: the privacy unit of each row, numbers from 0, (N,); ``None`` where each row is one.
        where: column, file and remedy, for messages.

    Raises:
        DataError: a row without a block, or a unit with rows in two blocks.
    """
    if np.isin(texts_N, list(MISSING_MARKERS)).any():
        raise DataError(f"Expected a block for every row, but a row has none; fill the column {where}")
    numbers_N = np.unique(texts_N, return_inverse=True)[1].reshape(-1)
    if units_N is not None and len(np.unique(np.stack([units_N, numbers_N]), axis=1).T) > units_N.max() + 1:
        raise DataError(
            "Expected every privacy unit in one block, but a unit has rows in two; cut by an attribute of the unit, "
            f"such as the month in which it first came {where}"
        )


def canonical_names(names: Sequence[str]) -> list[str]:
    """Return names of blocks as cells are compared: numbers as those of their doubles."""
    return canonical_texts(pa.array(list(names), pa.large_string()))
