"""A ranges file to fill in: names of columns, a guess of their kind, and placeholders.

Nothing of the rows enters the text except that guess, unless the caller asks for ranges from the data; the
file then says so, and every data set loaded with it is exploratory.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from numpy.typing import NDArray

from clipless.datasets.tables.declarations import MISSING_MARKERS, UNPAID_SOURCE
from clipless.datasets.tables.encoding import numbers
from clipless.datasets.tables.ranges_file import PLACEHOLDER
from clipless.datasets.tables.table_file import Array, Table, near_or_listed, read_table
from clipless.errors import DataError

MOST_CATEGORIES = 100
_BLANK = json.dumps(PLACEHOLDER)  # YAML reads a bare ??? inside brackets as syntax
_PUBLIC_HEAD = f"""\
# Ranges of {{name}}: replace every {PLACEHOLDER}, from a codebook, a law of nature or a form's fields.
# Numbers taken from the rows themselves would be an unpaid release of private data.
# A column is one of
#   {{{{low: 0, high: 9}}}}           values outside are clamped; `missing: 0` stands in for missing ones
#   {{{{low: 0, high: 9, bins: 12}}}} so many coordinates, of which one layer learns a curve
#   {{{{categories: [A, B]}}}}        unknown and missing ones are all zeros, or `unknown: other`
#   {{{{drop: true}}}}                not used
source: {_BLANK}  # where the numbers below come from, in words
"""
_UNPAID_HEAD = f"""\
# Ranges of {{name}}, computed from its rows: for exploration only. Results are marked as without guarantee.
source: {UNPAID_SOURCE}
"""


def write_ranges_template(path: str | Path, target: str | None = None, *, from_data: bool = False) -> str:
    """Return the text of a ranges file for the table at ``path``.

    Guarantees:
        Unless ``from_data``, the text depends on the rows only through the guess whether a column holds
        numbers.

    Args:
        path: a csv, csv.gz, parquet or npz file.
        target: column of the labels; None leaves a placeholder.
        from_data: fill in the smallest and largest value, the categories and the classes found. The file is
            then marked ``source: data (unpaid)``.

    Raises:
        DataError: the file cannot be read, or has no such column.
    """
    table = read_table(path)
    if target is not None and target not in table.columns:
        remedy = near_or_listed(target, table.columns)
        raise DataError(f"Target column {target!r} is not in {path}; {remedy} (--target)")
    head = (_UNPAID_HEAD if from_data else _PUBLIC_HEAD).format(name=table.name)
    return head + "\n".join(_lines(table, target, from_data=from_data)) + "\n"


def _lines(table: Table, target: str | None, *, from_data: bool) -> Iterator[str]:
    yield "target:"
    yield f"  column: {_BLANK if target is None else _quote(target)}"
    known_classes = _texts(table.columns[target]) if from_data and target is not None else [PLACEHOLDER]
    yield f"  classes: {_list(known_classes)}  # in this order"
    if not from_data:
        yield "  # Not checked against private rows, which would be a release: the spelling of classes and categories."
        yield "  # Compare them with the file's documentation."
        yield '  # unknown: "no"  # of a label that is missing or none of these; refused without it'
        yield "  # largest_share: 0.65  # of the most frequent class, if publicly known: the majority-class baseline"
    yield f"missing_markers: {_list(list(MISSING_MARKERS))}"
    yield "columns:"
    for name, column in table.columns.items():
        if name != target:
            yield f"  {_quote(name)}: {_fill(column) if from_data else _empty(column)}"


def _empty(column: Array) -> str:
    if _numbers(column) is None:
        return f"{{categories: [{_BLANK}]}}"
    return f"{{low: {_BLANK}, high: {_BLANK}}}"


def _fill(column: Array) -> str:
    values = _numbers(column)
    if values is None:
        texts = _texts(column)
        return f"{{categories: {_list(texts)}}}" if len(texts) <= MOST_CATEGORIES else "{drop: true}"
    finite = values[np.isfinite(values)]
    if len(finite) == 0 or finite.min() == finite.max():
        return "{drop: true}"
    missing = f", missing: {float(finite.min())!r}" if len(finite) < len(values) else ""
    return f"{{low: {float(finite.min())!r}, high: {float(finite.max())!r}{missing}}}"


def _numbers(column: Array) -> NDArray[np.float64] | None:
    try:
        return numbers(column, MISSING_MARKERS, "")
    except DataError:
        return None


def _texts(column: Array) -> list[str]:
    texts = pc.unique(pc.cast(column, pa.large_string())).to_pylist()
    return sorted(text for text in texts if text is not None and text not in MISSING_MARKERS)


def _list(texts: list[str]) -> str:
    return f"[{', '.join(json.dumps(text, ensure_ascii=False) for text in texts)}]"


def _quote(name: str) -> str:
    """Return ``name`` as a YAML key, quoted where plain YAML would read something else."""
    plain = name.replace("_", "").replace("-", "").isalnum() and yaml.safe_load(name) == name
    return name if plain else json.dumps(name, ensure_ascii=False)
