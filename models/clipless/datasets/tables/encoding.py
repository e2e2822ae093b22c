"""Maps of one row, made of constants: declared columns to coordinates, labels to class numbers.

``x_NF`` below has one row per example and one column per coordinate. The norm of a row is at most the square
root of the number of columns that are used: each contributes a number in [-1, 1], at most a single one, or the
coordinates of a point on the unit sphere.

Rows that are *open* (published, or marked exploratory) are checked for mistakes in their declarations: a column without
one known category, a target that is the same everywhere, a text among numbers. One row can decide whether such a check
refuses a table, so rows that are not open are not checked: what a declaration does not know takes the value that the
declaration names for it, and only where it names none is the table refused.
"""

import contextlib
from collections.abc import Mapping, Sequence
from math import nan, pi, sqrt
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clipless.datasets.tables.declarations import Categorical, Column, Drop, Numeric, Text, marker_numbers
from clipless.datasets.tables.table_file import Array, Table, as_written, compose, is_number, read_number, to_floats
from clipless.datasets.tables.texts import encode_texts, text_norm
from clipless.errors import DataError

DECLARE = "declare categories, or add it to missing_markers"  # what who trains does about a cell that is no number
UNMATCHED = -1
_BELOW_ONE = 1.0 - 2.0**-23  # norm of a point on the sphere, so that rounding to float32 takes none beyond 1


def input_norm(declarations: Mapping[str, Column]) -> float:
    """Return the bound on the norm of an encoded row that the declarations alone imply."""
    norms = (_norm(declaration) for declaration in declarations.values())
    return sqrt(sum(norm * norm for norm in norms))


def _norm(declaration: Column) -> float:
    return text_norm(declaration.length) if isinstance(declaration, Text) else float(not isinstance(declaration, Drop))


def input_gain(declarations: Mapping[str, Column]) -> float:
    """Return the Lipschitz constant from columns scaled to [-1, 1] to encoded rows: that of the steepest column."""
    return max((_gain(one) for one in declarations.values() if not isinstance(one, Drop)), default=1.0)


def _gain(declaration: Column) -> float:
    return declaration.gain if isinstance(declaration, Numeric) else 1.0


def column_widths(declarations: Mapping[str, Column]) -> tuple[int, ...]:
    """Return how many coordinates each column has that is used, in order; nothing where some are texts or bins."""
    used = [declaration for declaration in declarations.values() if not isinstance(declaration, Drop)]
    if any(isinstance(one, Text) or (isinstance(one, Numeric) and one.bins) for one in used):
        return ()
    return tuple(one.width if isinstance(one, Categorical) else 1 for one in used)


def encode_columns(
    table: Table,
    declarations: Mapping[str, Column],
    missing_markers: Sequence[str],
    *,
    open_rows: bool = True,
    remedy: str = DECLARE,
) -> NDArray[np.float32]:
    """Return ``x_NF``, float32, for the declared columns in their order.

    ``open_rows`` says whether the rows may be checked for mistakes in their declarations, ``remedy`` what is to be done
    about a cell that is no number.

    Raises:
        DataError: every column is dropped; a cell that is no finite number, in a column without a value for missing
            ones. Of open rows also any cell that is no number, or a column without one known category.

    Guarantees:
        If rows are not open and every column of numbers has a value for missing ones, no cell decides whether this
        raises an error.
    """
    blocks = [
        block
        for name, declaration in declarations.items()
        for block in _encode(
            table.columns[name], declaration, missing_markers, f"column {name!r} of {table.name}", open_rows, remedy
        )
    ]
    if not blocks:
        raise DataError(f"Every column is dropped: declare at least one that is used ({table.name})")
    return np.concatenate(blocks, axis=1)


def _encode(
    column: Array, declaration: Column, missing_markers: Sequence[str], where: str, open_rows: bool, remedy: str
) -> list[NDArray[np.float32]]:
    match declaration:
        case Drop():
            return []
        case Numeric():
            strict = open_rows or declaration.missing is None
            values_N = numbers(column, missing_markers, where, strict=strict, remedy=remedy)
            return [_scale(_fill(values_N, declaration, where), declaration)]
        case Categorical():
            return [_one_hot(column, declaration, where, open_rows)]
        case Text():
            return [encode_texts(pc.cast(column, pa.large_string()).to_pylist(), declaration.length)]
    assert_never(declaration)


def numbers(
    column: Array,
    missing_markers: Sequence[str],
    where: str,
    *,
    strict: bool = True,
    remedy: str = DECLARE,
) -> NDArray[np.float64]:
    """Return the cells of ``column`` as float64, NaN where missing and, unless ``strict``, where they are no number.

    Raises:
        DataError: a cell that is neither a number nor a missing-value marker; names the first, and the ``remedy``.
    """
    if is_number(column):
        values_N = to_floats(column)
    else:
        missing = pc.is_in(column, value_set=pa.array([*map(compose, missing_markers)], pa.large_string()))
        known = pc.if_else(missing, None, column).to_pylist()
        # One parser for every cell: with Arrow's for columns that it can read, one row decided how others are read.
        read = [_number(cell, row, where, remedy if strict else None) for row, cell in enumerate(known, start=1)]
        values_N = np.array(read, dtype=np.float64)
    codes = marker_numbers(missing_markers)
    return np.where(np.isin(as_written(values_N), as_written(np.array(codes))), nan, values_N) if codes else values_N


def _number(cell: str | None, row: int, where: str, remedy: str | None) -> float:
    """Return the number that a cell is; NaN for what is none, or an error where that has a remedy."""
    try:
        return nan if cell is None else read_number(cell)
    except ValueError:
        if remedy is None:
            return nan
        raise DataError(f"Expected a number, got {str(cell)[:40]!r} in row {row}: {remedy} ({where})") from None


def _fill(values_N: NDArray[np.float64], declaration: Numeric, where: str) -> NDArray[np.float64]:
    gaps_N = ~np.isfinite(values_N)
    if not gaps_N.any():
        return values_N
    if declaration.missing is None:
        row = int(gaps_N.argmax())
        raise DataError(
            f"Expected a finite number, got {values_N[row]} in row {row + 1}: declare what stands "
            f"in for it, such as missing: {declaration.low:g} ({where})"
        )
    return np.where(gaps_N, declaration.missing, values_N)


def _scale(values_N: NDArray[np.float64], declaration: Numeric) -> NDArray[np.float32]:
    width = declaration.high - declaration.low
    unit_N = (np.clip(values_N, declaration.low, declaration.high) - declaration.low) / width
    if declaration.bins is not None:
        return _place(np.clip(unit_N, 0.0, 1.0), declaration.bins)
    return np.clip(2.0 * unit_N - 1.0, -1.0, 1.0).astype(np.float32)[:, None]


def _place(unit_N: NDArray[np.float64], bins: int) -> NDArray[np.float32]:
    """Return the points (N, bins) of numbers in [0, 1] on the curve of quarter circles."""
    place_N = unit_N * (bins - 1)
    before_N = np.minimum(place_N.astype(np.int64), bins - 2)
    angle_N, rows_N = (place_N - before_N) * (pi / 2), np.arange(len(unit_N))
    x_NK = np.zeros((len(unit_N), bins), dtype=np.float32)
    x_NK[rows_N, before_N], x_NK[rows_N, before_N + 1] = _BELOW_ONE * np.cos(angle_N), _BELOW_ONE * np.sin(angle_N)
    return x_NK


def _one_hot(column: Array, declaration: Categorical, where: str, open_rows: bool) -> NDArray[np.float32]:
    codes_N = match_texts(column, declaration.categories)
    if open_rows and (codes_N == UNMATCHED).all():
        raise DataError(f"None of the values is a declared category: check their spelling ({where})")
    if declaration.other:
        codes_N = np.where(codes_N == UNMATCHED, len(declaration.categories), codes_N)
    return np.asarray(codes_N[:, None] == np.arange(declaration.width), dtype=np.float32)


def match_texts(column: Array, texts: Sequence[str]) -> NDArray[np.int64]:
    """Return each cell's position in ``texts``, by text or as an equal number; `UNMATCHED` for others."""
    cells = pc.cast(column, pa.large_string())
    codes_N = _positions(cells, texts)
    if (codes_N != UNMATCHED).all():
        return codes_N
    unique = pc.unique(cells)
    numbers = pa.array([canonical(cell) for cell in unique.to_pylist()], pa.large_string())  # none may be there
    same_number = _positions(numbers, [*map(canonical, texts)])
    loose_N = same_number[_positions(cells, unique)]
    return np.where(codes_N == UNMATCHED, loose_N, codes_N)


def _positions(cells: Array, texts: Sequence[str] | Array) -> NDArray[np.int64]:
    positions = pc.index_in(cells, value_set=pa.array(texts, pa.large_string()))
    return np.asarray(pc.fill_null(positions, UNMATCHED).to_numpy(zero_copy_only=False), dtype=np.int64)


def canonical(text: str | None) -> str | None:
    """Write what is equal equally: another program may have saved the class 1 as 1.0, or the 0.3 of single precision.

    A text is in NFC, as cells are.
    """
    if text is None:
        return None
    with contextlib.suppress(ValueError):
        return repr(float(as_written(np.array([read_number(text)]))[0]))
    return compose(text)


def encode_labels(
    column: Array,
    classes: Sequence[str],
    missing_markers: Sequence[str],
    where: str,
    *,
    unknown: str | None = None,
    open_rows: bool = True,
) -> NDArray[np.int64]:
    """Return the class number of every label; ``unknown`` is the class of a label that is none of the classes.

    Raises:
        DataError: a label that is missing, of another type, or of no declared class, and ``unknown`` is None; of open
            rows also the same label everywhere.
    """
    labels_N = match_texts(column, classes)
    if unknown is not None:
        labels_N = np.where(labels_N == UNMATCHED, classes.index(unknown), labels_N)
    if (labels_N == UNMATCHED).any():
        _refuse_label(column, int((labels_N == UNMATCHED).argmax()), classes, missing_markers, where)
    if open_rows and labels_N.min() == labels_N.max():
        raise DataError(f"The target is constant, every label is {classes[labels_N[0]]!r}: nothing to learn ({where})")
    return labels_N


def _refuse_label(column: Array, row: int, classes: Sequence[str], missing_markers: Sequence[str], where: str) -> None:
    label = column[row].as_py()
    if label is None or label != label or label in missing_markers:
        raise DataError(f"The label in row {row + 1} is missing: leave out unlabelled rows ({where})")
    kind = "Labels are of mixed types" if all(map(_is_number, classes)) and not _is_number(label) else "Unknown label"
    raise DataError(
        f"{kind}: {str(label)[:40]!r} in row {row + 1} is not among the declared classes {', '.join(classes)} ({where})"
    )


def _is_number(text: object) -> bool:
    try:
        return float(str(text)) == float(str(text))
    except ValueError:
        return False
