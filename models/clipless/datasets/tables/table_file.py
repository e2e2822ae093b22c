"""Reading a table from a file, cell by cell, without letting one row change how another is read.

Columns of a CSV file are texts until a declaration says what they are: type inference would read the ``1`` of
one row differently when another row says ``n/a``. Parquet and npz files carry the types of their columns, which the
program that wrote them chose by looking at all rows: one missing value makes floats of integers, one text makes texts
of numbers. What leaves this module is either numbers (Arrow integers and floats) or trimmed texts, and what decides a
row's split is the same for both.
"""

import csv
import gzip
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import nan
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from clipless.datasets.splits import row_bytes
from clipless.errors import DataError
from clipless.spelling import LIKENESS_OF_COLUMNS, did_you_mean_file, nearest

Array: TypeAlias = Any  # a pyarrow.Array; pyarrow ships no types

_UNREADABLE = (OSError, EOFError, ValueError, csv.Error, zlib.error, zipfile.BadZipFile, pa.ArrowException)
_CELL_SEPARATOR = "\x1f"
# What stands for a missing value in files that other programs write, which differ in it by the type of the column.
_NO_VALUE = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "None"})
_TRUTH = {"true": 1.0, "false": 0.0}  # in small letters
_LEAST_BLOCK, _MOST_BLOCK = 2**20, 2**26  # bytes
_OTHER_MARKS = ";\t|"  # that other programs put between columns
_LEAST_EXACT = 1e-12  # from here on, a decimal of single precision that is not whole is a quotient of whole doubles
_WHOLE = 2.0**53  # below, double precision holds every whole number
_TIME = re.compile(
    r"(?P<date>\d{4,}-\d\d-\d\d)?(?:(?(date)[ T])(?P<minutes>\d\d:\d\d)(?::(?P<seconds>\d\d)(?:\.(?P<parts>\d+))?)?"
    r"(?P<zone>Z| ?UTC|[+-]\d\d(?::?\d\d)?)?)?"
)
_MIDNIGHT = "00:00:00"


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of one length: Arrow arrays of numbers or trimmed texts, nulls where a cell is missing.

    ``types`` are those in the file of columns that it holds as another one.
    """

    name: str
    columns: Mapping[str, Array]
    types: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {len(column) for column in self.columns.values()}
        if len(lengths) > 1:
            raise DataError(f"Expected columns of one length, got {sorted(lengths)} rows ({self.name})")
        if not lengths or lengths == {0}:
            raise DataError(f"The file holds no rows: nothing to train on ({self.name})")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def contents(self) -> Iterator[bytes]:
        """Yield each row as bytes, from its own cells only, in the order of the columns' names.

        A row of numbers is its doubles, any other one its texts.

        Guarantees:
            The types of the columns do not enter: a cell is the same as a whole number, a double, a text, a truth value
            or an entry of a dictionary, and so is a missing one as null, NaN or text, and a time of any resolution. A
            number of single precision that is not whole is its shortest decimal (`as_written`), also as a double.
        """
        columns = [self.columns[name] for name in sorted(self.columns)]
        cells = [canonical_numbers(column) for column in columns]
        numbers_NF = np.stack([numbers_N for numbers_N, _ in cells], axis=1)
        words_N = np.logical_or.reduce([words_N for _, words_N in cells])
        rows = map(bytes, row_bytes(numbers_NF))
        if not words_N.any():
            return rows
        texts = zip(*map(canonical_texts, columns), strict=True)
        chosen = zip(words_N.tolist(), texts, rows, strict=True)
        return (_CELL_SEPARATOR.join(text).encode() if words else row for words, text, row in chosen)


def canonical_numbers(column: Array) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return each cell as a double, NaN where it is missing or a word, and whether it is a word.

    What a cell is does not depend on the type of the column.
    """
    if is_number(column):
        return as_written(to_floats(column)), np.zeros(len(column), dtype=np.bool_)
    return _read_numbers(column.to_pylist())


def _read_numbers(texts: Sequence[str | None]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    values = [_number(text) for text in texts]
    words_N = np.array([value is None for value in values], dtype=np.bool_)
    return as_written(np.array([nan if value is None else value for value in values], dtype=np.float64)), words_N


def canonical_texts(column: Array) -> list[str]:
    """Return each cell as a text that does not depend on the type of the column: numbers as those of their doubles."""
    encoded = column.dictionary_encode()  # rows often repeat one another's values
    cells = [None if cell is None else str(cell) for cell in encoded.dictionary.to_pylist()]
    known = zip(cells, *(one.tolist() for one in _read_numbers(cells)), strict=True)
    texts = [canonical_time(str(cell)) if is_word else _number_text(number) for cell, number, is_word in known]
    return ["" if code is None else texts[code] for code in encoded.indices.to_pylist()]


def _number_text(value: float) -> str:
    if value != value:
        return ""
    return str(int(value)) if abs(value) < _WHOLE and value.is_integer() else repr(value)


def canonical_time(text: str) -> str:
    """Return a date or time without what depends on its resolution and zone, any other text as it is.

    >>> canonical_time("2024-01-01T12:00:00.500000"), canonical_time("2024-01-01 00:00:00.000"), canonical_time("12:30")
    ('2024-01-01 12:00:00.5', '2024-01-01', '12:30:00')
    >>> canonical_time("2024-01-01 00:00:00+02:00"), canonical_time("2023-12-31 22:00 UTC"), canonical_time("twelve")
    ('2023-12-31 22:00:00Z', '2023-12-31 22:00:00Z', 'twelve')
    """
    found = _TIME.fullmatch(text)
    if not found or not found["minutes"]:
        return text
    date, time, zone = found["date"], f"{found['minutes']}:{found['seconds'] or '00'}", (found["zone"] or "").strip()
    if zone:
        date, time = _in_utc(date, time, zone)
    parts = (found["parts"] or "").rstrip("0")
    time += f"{'.' * bool(parts)}{parts}{'Z' * bool(zone)}"
    if not date:
        return time
    return date if time == _MIDNIGHT else f"{date} {time}"


def _in_utc(date: str | None, time: str, zone: str) -> tuple[str | None, str]:
    """Return a date and time of a zone, such as +02:00, in UTC; a time without a date is one of any day."""
    if zone in ("Z", "UTC"):
        return date, time
    digits = zone[1:].replace(":", "").ljust(4, "0")
    shift = timedelta(hours=int(digits[:2]), minutes=int(digits[2:])) * (-1 if zone[0] == "+" else 1)
    try:
        moved = datetime.fromisoformat(f"{date or '2000-01-01'} {time}") + shift
    except (ValueError, OverflowError):  # no time of a calendar
        return date, f"{time}{zone}"
    return date and f"{moved:%Y-%m-%d}", f"{moved:%H:%M:%S}"


def is_missing_text(text: str) -> bool:
    """Whether a text stands for a missing value in every table."""
    value = _number(text)
    return value is not None and value != value


def _number(text: str | None) -> float | None:
    """Read a number or a truth value, NaN for a missing one; None for any other text."""
    if text is None or text in _NO_VALUE:
        return nan
    try:
        return read_number(text)
    except ValueError:
        return None


def read_number(text: str) -> float:
    """Read a number or a truth value.

    Raises:
        ValueError: it is neither.
    """
    return _TRUTH[text.lower()] if text.lower() in _TRUTH else float(text)


def list_names(names: Iterable[object]) -> str:
    """Return the first names in one line."""
    texts = [str(name) for name in names]
    return ", ".join(texts[:8]) + (f" and {len(texts) - 8} more" if len(texts) > 8 else "")


def near_or_listed(column: object, columns: Iterable[object]) -> str:
    """Return what to take in place of a column that is not there: the one of nearest name, otherwise the first."""
    names = [str(name) for name in columns]
    near = nearest(column, names, LIKENESS_OF_COLUMNS)
    return f"it has {list_names(names)}" if near is None else f"did you mean {near!r}?"


def is_number(column: Array) -> bool:
    """Whether a column of a `Table` holds numbers; otherwise it holds texts."""
    return bool(pa.types.is_integer(column.type) or pa.types.is_floating(column.type))


def to_floats(column: Array) -> NDArray[np.float64]:
    """Return a column of numbers as float64, NaN where missing."""
    floats = pc.fill_null(pc.cast(column, pa.float64(), safe=False), float("nan"))
    return np.asarray(floats.to_numpy(zero_copy_only=False), dtype=np.float64)


def as_written(numbers_N: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers, those that single precision holds as the doubles nearest to their shortest decimals.

    A program that writes a table of single precision as text writes these decimals, and one that widens it the number:
    rows are known again in any of these files. Whole numbers stay as they are. Rows are not encoded so: a number would
    move by half a unit in the last place of single precision.

    >>> as_written(np.array([0.1, np.float32(0.1), 0.5, 16777217.0])).tolist()
    [0.1, 0.1, 0.5, 16777217.0]
    """
    with np.errstate(invalid="ignore", over="ignore"):
        single_N = numbers_N.astype(np.float32)
        is_single_N = (single_N == numbers_N) & (np.floor(numbers_N) != numbers_N)
    found_N = numbers_N.copy()
    found_N[is_single_N] = _shortest_decimals(single_N[is_single_N])
    return found_N


def _shortest_decimals(numbers_N: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the double that is nearest to the shortest decimal of each number, none of which is whole."""
    sizes_N = np.abs(numbers_N.astype(np.float64))
    is_odd_N = sizes_N < _LEAST_EXACT
    odd, left, digits = np.flatnonzero(is_odd_N), np.flatnonzero(~is_odd_N), np.finfo(np.float32).precision
    sizes_N[odd] = [float(str(number)) for number in np.abs(numbers_N[odd])]
    while len(left):  # a decimal of so many digits is that of one number at most
        exact = sizes_N[left]
        places = digits - 1 - np.floor(np.log10(exact))
        up, down = (10.0 ** np.maximum(sign * places, 0.0) for sign in (1, -1))  # one of both is 1
        near = np.rint(exact * up / down) * down / up
        is_found = near.astype(np.float32) == exact.astype(np.float32)
        sizes_N[left[is_found]] = near[is_found]
        left, digits = left[~is_found], digits + 1
    sizes_N[np.signbit(numbers_N)] *= -1.0
    return sizes_N


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
        near = "" if path.exists() else did_you_mean_file(path, before="; ")
        raise DataError(f"Expected a file ending in {', '.join(_READERS)}, got {path}{near}")
    try:
        if path.stat().st_size == 0:
            raise DataError(f"The file is empty ({path})")
        columns = reader(path)
    except DataError:
        raise
    except _UNREADABLE as error:
        near = "" if path.exists() else did_you_mean_file(path, before="; ")
        raise DataError(f"Cannot read {path}: {_reason(error)}{near}") from None
    cells = {name: _normalise(column, name, path) for name, column in columns.items()}
    types = {name: _content_type(column) for name, column in columns.items()}
    return Table(path.name, cells, {name: kind for name, kind in types.items() if kind != cells[name].type})


def _read_csv(path: Path) -> dict[str, Array]:
    names = _unique(_header(path), path)
    if len(names) == 1 and any(mark in names[0] for mark in _OTHER_MARKS):
        raise DataError(f"Expected columns separated by commas, got the one column {names[0]!r} ({path})")
    table = pyarrow.csv.read_csv(
        path,
        # one thread, so that errors name the row; no cell is refused for its length up to a large one
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=_block_size(path)),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(_header(path), pa.string()), strings_can_be_null=False
        ),
    )
    return dict(zip(names, table.columns, strict=True))


def _block_size(path: Path) -> int:
    """Return how much of a file is read at a time: the longest row that can be read; compressed ones may be larger."""
    return (
        _MOST_BLOCK if path.name.lower().endswith(".gz") else min(max(path.stat().st_size, _LEAST_BLOCK), _MOST_BLOCK)
    )


def _header(path: Path) -> list[str]:
    opener: Any = gzip.open if path.name.lower().endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        return next(csv.reader(file), [])


def _read_parquet(path: Path) -> dict[str, Array]:
    table = pyarrow.parquet.read_table(path)
    return dict(zip(_unique(table.column_names, path), table.columns, strict=True))


def parquet_columns(file: BinaryIO) -> list[str]:
    """Return the names of the columns of a parquet file.

    Raises:
        ValueError: it is none.
    """
    return list(pyarrow.parquet.read_schema(file).names)


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


def _normalise(column: Array, name: str, path: Path) -> Array:
    """Turn every cell that is not a number into a trimmed text in NFC, by itself."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if pa.types.is_float16(column.type) or pa.types.is_float32(column.type):
        floats_N = column.to_numpy(zero_copy_only=False).astype(np.float64)
        return pa.array(floats_N, mask=np.asarray(column.is_null()))
    if is_number(column):
        return column
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = pc.cast(column, pa.timestamp(column.type.unit, "UTC"))
    try:
        if pa.types.is_duration(column.type):  # its numbers depend on its unit
            raise pa.ArrowInvalid
        texts = _map_texts(compose, pc.utf8_trim_whitespace(pc.cast(column, pa.large_string())))
    except pa.ArrowException:
        raise DataError(f"Expected numbers or texts, got a column of type {column.type} ({name} in {path})") from None
    return _map_texts(canonical_time, texts) if pa.types.is_temporal(column.type) else texts


def compose(text: str) -> str:
    """Return a text in NFC: its accents may have been written as letters and marks.

    `pyarrow.compute.utf8_normalize` decomposes, whichever form it is asked for.

    References:
        Unicode Standard Annex 15: normalization form C.
    """
    return unicodedata.normalize("NFC", text)


def _map_texts(function: Callable[[str], str], texts: Array) -> Array:
    encoded = texts.dictionary_encode()
    known = pa.array([function(text) for text in encoded.dictionary.to_pylist()], pa.large_string())
    return known.take(encoded.indices)


def _content_type(column: Array) -> Any:
    return column.type.value_type if pa.types.is_dictionary(column.type) else column.type


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    ragged = re.search(r"(Row #\d+: )?Expected \d+ columns, got \d+", str(error))  # what follows quotes the row
    return ragged.group() if ragged else str(error).splitlines()[0]
