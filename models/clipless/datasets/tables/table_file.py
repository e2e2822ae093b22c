"""Reading a table from a file, cell by cell, without letting one row change how another is read.

Columns of a CSV file are texts until a declaration says what they are: type inference would read the ``1`` of
one row differently when another row says ``n/a``. Parquet and npz files carry the types of their columns.
What leaves this module is either numbers (Arrow integers and floats) or trimmed texts.
"""

import csv
import gzip
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from clipless.datasets.splits import row_bytes
from clipless.errors import DataError

Array: TypeAlias = Any  # a pyarrow.Array; pyarrow ships no types

_UNREADABLE = (OSError, EOFError, ValueError, csv.Error, zlib.error, zipfile.BadZipFile, pa.ArrowException)
_CELL_SEPARATOR = pa.scalar("\x1f", pa.large_string())


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of one length: Arrow arrays of numbers or trimmed texts, nulls where a cell is missing."""

    name: str
    columns: Mapping[str, Array]

    def __post_init__(self) -> None:
        lengths = {len(column) for column in self.columns.values()}
        if len(lengths) > 1:
            raise DataError(f"Expected columns of one length, got {sorted(lengths)} rows ({self.name})")
        if not lengths or lengths == {0}:
            raise DataError(f"The file holds no rows: nothing to train on ({self.name})")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def contents(self) -> Iterator[bytes]:
        """Yield each row as bytes, from its own cells only, in the order of the columns' names."""
        names = sorted(self.columns)
        numbers = [to_floats(self.columns[n]) for n in names if is_number(self.columns[n])]
        texts = [self.columns[n] for n in names if not is_number(self.columns[n])]
        cells = [b""] * len(self)
        if texts:
            joined = pc.binary_join_element_wise(
                *texts, _CELL_SEPARATOR, null_handling="replace", null_replacement="\0"
            )
            cells = pc.cast(joined, pa.large_binary()).to_pylist()
        if not numbers:
            return iter(cells)
        floats = row_bytes(np.stack(numbers, axis=1))
        return (cell + bytes(row) for cell, row in zip(cells, floats, strict=True))


def listed(names: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return the first names in one line."""
    texts = [str(name) for name in names]
    return ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")


def is_number(column: Array) -> bool:
    """Whether a column of a `Table` holds numbers; otherwise it holds texts."""
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def to_floats(column: Array) -> NDArray[np.float64]:
    """Return a column of numbers as float64, NaN where missing."""
    floats = pc.fill_null(pc.cast(column, pa.float64(), safe=False), float("nan"))
    return np.asarray(floats.to_numpy(zero_copy_only=False), dtype=np.float64)


def read_table(path: str | Path) -> Table:
    """Read a csv, csv.gz, parquet or npz file.

    An npz file holds arrays of one length: one-dimensional ones are columns of their name, the columns of a
    two-dimensional ``X`` are ``X0``, ``X1``, ...

    Raises:
        DataError: missing, unreadable, empty or ragged file, another extension, a column of another type.
    """
    path = Path(path)
    reader = next((reader for suffix, reader in _READERS.items() if path.name.lower().endswith(suffix)), None)
    if reader is None:
        raise DataError(f"Expected a file ending in {', '.join(_READERS)}, got {path} (data.path)")
    try:
        if path.stat().st_size == 0:
            raise DataError(f"The file is empty ({path})")
        columns = reader(path)
    except DataError:
        raise
    except _UNREADABLE as error:
        raise DataError(f"Cannot read {path}: {_reason(error)} (data.path)") from None
    return Table(path.name, {name: _normalised(column, name, path) for name, column in columns.items()})


def _read_csv(path: Path) -> dict[str, Array]:
    names = _unique(_header(path), path)
    if len(names) == 1:
        raise DataError(f"Expected columns separated by commas, got the one column {names[0]!r} ({path})")
    table = pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(use_threads=False),  # so that errors name the row
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(_header(path), pa.string()), strings_can_be_null=False
        ),
    )
    return dict(zip(names, table.columns, strict=True))


def _header(path: Path) -> list[str]:
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        return next(csv.reader(file), [])


def _read_parquet(path: Path) -> dict[str, Array]:
    table = pyarrow.parquet.read_table(path)
    return dict(zip(_unique(table.column_names, path), table.columns, strict=True))


def _read_npz(path: Path) -> dict[str, Array]:
    columns: dict[str, Array] = {}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        for name in archive.files:
            array = archive[name]
            if array.ndim not in (1, 2) or array.dtype.kind not in "biufU":
                raise DataError(
                    f"Expected arrays of numbers or texts with one or two axes, "
                    f"got {array.dtype} {array.shape} ({name} in {path})"
                )
            named = {name: array} if array.ndim == 1 else {f"{name}{j}": column for j, column in enumerate(array.T)}
            columns |= {key: pa.array(column) for key, column in named.items()}
    return columns


_READERS: dict[str, Callable[[Path], dict[str, Array]]] = {
    ".csv": _read_csv,
    ".csv.gz": _read_csv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}


def _unique(names: list[str], path: Path) -> list[str]:
    names = [name.strip() for name in names]
    for position, name in enumerate(names):
        if not name:
            raise DataError(f"Column {position + 1} has no name: name it, or leave it out ({path})")
        if names.count(name) > 1:
            raise DataError(f"Column {name!r} occurs twice: rename one ({path})")
    return names


def _normalised(column: Array, name: str, path: Path) -> Array:
    """Turn what is not a number into trimmed texts, each cell by itself."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if is_number(column):
        return column
    try:
        return pc.utf8_trim_whitespace(pc.cast(column, pa.large_string()))
    except pa.ArrowException:
        raise DataError(f"Expected numbers or texts, got a column of type {column.type} ({name} in {path})") from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    ragged = re.search(r"(Row #\d+: )?Expected \d+ columns, got \d+", str(error))  # what follows quotes the row
    return ragged.group() if ragged else str(error).splitlines()[0]
