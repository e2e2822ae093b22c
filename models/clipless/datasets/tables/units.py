"""Ids of privacy units: one text for one person, in whatever table, however the program that wrote it spells ids.

Two spellings that are taken for two people would give one person two budgets; two people that are taken for one would
both be what a guarantee for one of them leaves out. So an id is a whole number or a text: what a column of another type
cannot hold exactly, or what programs write in several ways, is refused.
"""

import re
import unicodedata
from collections.abc import Callable, Collection
from typing import Any

import pyarrow as pa

from clipless.datasets.tables.table_file import Table, compose, is_missing_text
from clipless.errors import DataError

_WHOLE_NUMBER = re.compile(r"([+-]?)(\d+)(?:\.0*)?")
# as programs write large numbers; a name such as 12e7 has neither a point nor a sign
_EXPONENT = re.compile(r"[+-]?\d+(?:\.\d*[eE][+-]?|[eE][+-])\d+")
_BARE_EXPONENT = re.compile(r"[+-]?[1-9]\d*[eE]\d{1,2}")  # a large number to some programs, and elsewhere a name
_WHOLE = 2.0**53  # below, double precision holds every whole number
_INVISIBLE = ("Cf", "Cc")  # categories of characters that format a text, such as a byte order mark
# in small letters, beside what is missing in every table
_MISSING = frozenset(("null", "none", "nil", "n/a", "na", "#n/a", "<na>", "nat", r"\n", "?", "-", "."))
_IS_ID: tuple[Callable[[Any], bool], ...] = (
    pa.types.is_integer,
    pa.types.is_float64,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_null,
)


def unit_ids(table: Table, column: str, missing_markers: Collection[str] = ()) -> list[str]:
    """Return the id of the unit of each row: equal whole numbers alike however they are written, texts in NFC.

    Args:
        table: as it was read.
        column: of the ids.
        missing_markers: texts that stand for a missing id, beside those that do in every table.

    Raises:
        DataError: a row without an id, a column of a type that holds no ids exactly, or an id that several programs
            write differently.
    """
    where = f"{column} of {table.name}"
    kind = table.types.get(column, table.columns[column].type)
    if not any(is_id(kind) for is_id in _IS_ID):
        raise DataError(
            f"Expected ids that are whole numbers or texts, got a column of type {kind}; store them as such ({where})"
        )
    markers = {*missing_markers, *map(_text, missing_markers)}
    cells = table.columns[column].to_pylist()
    known: dict[Any, str] = {}
    ids = [known[cell] if cell in known else known.setdefault(cell, _id(cell, where)) for cell in cells]
    missing = next((row for row, id_ in enumerate(ids) if not id_ or {id_, str(cells[row])} & markers), None)
    if missing is not None:
        raise DataError(f"The unit of row {missing + 1} is missing: every row needs one ({where})")
    texts = [id_ for id_ in known.values() if not _WHOLE_NUMBER.fullmatch(id_)]
    if 0 < len(texts) < len(known) and all(map(_BARE_EXPONENT.fullmatch, texts)):
        raise _several_may_be_one(where)
    return ids


def _id(cell: Any, where: str) -> str:
    if isinstance(cell, float) and cell == cell and not (abs(cell) < _WHOLE and cell.is_integer()):
        raise DataError(
            f"Expected ids that differ, got numbers of double precision that are no whole ones below 2^53, of which "
            f"several may be one; store ids as texts or whole numbers ({where})"
        )
    text = "" if cell is None else _text(cell)
    if is_missing_text(text) or text.lower() in _MISSING:
        return ""
    if _EXPONENT.fullmatch(text):
        raise _several_may_be_one(where)
    return text


def _several_may_be_one(where: str) -> DataError:
    return DataError(
        f"Expected ids that differ, got numbers with an exponent, of which several may be one; write ids with all "
        f"their digits ({where})"
    )


def _text(cell: Any) -> str:
    """Return an id in NFC without invisible characters, a whole number without what a type or a program adds to it."""
    text = "".join(c for c in str(cell) if unicodedata.category(c) not in _INVISIBLE).strip()
    text = compose(text)
    whole = _WHOLE_NUMBER.fullmatch(text)
    if whole is None:
        return text
    sign, digits = whole.groups()
    number = "".join(str(unicodedata.digit(digit)) for digit in digits).lstrip("0") or "0"
    return f"-{number}" if sign == "-" and number != "0" else number
