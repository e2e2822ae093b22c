"""Tables: a user's own file, or a known one, turned into a data set by public declarations.

Every map from a cell to coordinates is a map of one row made of declared constants (see `declarations`). A
column without a declaration is refused: statistics of the rows would be an unpaid release.
Numbers are scaled to [-1, 1] by their declared range, and radii of certificates are in those units. The input gain is
1, or that of the bins that a declaration asks for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from clipless.datasets.dataset import Blocks, Dataset, RowHashes, Split
from clipless.datasets.metadata import (
    UNPAID_RANGES,
    Evaluation,
    Metadata,
    counts_fact,
    evaluation_facts,
    rows_are_open,
    split_fact,
)
from clipless.datasets.splits import ColumnSplit, HashSplit, Part, Splitting, assign_by_hash, hash_rows
from clipless.datasets.tables.blocks import BlockChoice, choose_blocks, cut_into_blocks
from clipless.datasets.tables.declarations import TEXT_UNIT, Column, Drop, Ranges, Text
from clipless.datasets.tables.encoding import (
    column_widths,
    encode_columns,
    encode_labels,
    input_gain,
    input_norm,
    match_texts,
)
from clipless.datasets.tables.ranges_file import class_names, load_ranges
from clipless.datasets.tables.table_file import Table, list_names, near_or_listed, read_table
from clipless.datasets.tables.units import unit_ids
from clipless.errors import DataError, DeclarationError

RADIUS_UNIT = "columns scaled to [-1, 1] by their declared ranges"
# One published key for users' own files: renaming a file, or adding rows to it, moves no row to another
# split.
OWN_TABLE = "table"
CATEGORY_CHANGES = "Certified radii cover small changes of numbers; another category moves an example by the root of 2."


def radius_unit(declarations: Mapping[str, Column]) -> str:
    """Return the units of radii of a table of these columns."""
    texts = any(isinstance(declaration, Text) for declaration in declarations.values())
    return TEXT_UNIT if texts else RADIUS_UNIT


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts:
    """Facts about a table besides its ranges."""

    name: str
    split_name: str  # enters the key of the split
    evaluation: Evaluation  # whether validation and test rows are public, and ``public_because`` of what
    public_because: str
    unit: str = "row"  # ``"row"``, or the column that identifies the privacy unit, which may have several rows
    splitting: Splitting = field(default_factory=HashSplit)
    blocks: BlockChoice | None = None  # the blocks that are read, of a table that is cut into them
    conditions: tuple[str, ...] = ()
    training_published: bool = False  # whether the training rows are published too


def load_table(
    path: str | Path,
    *,
    evaluation: Evaluation | None,
    ranges: str | Path | Ranges | None = None,
    blocks: Sequence[str] | None = None,
    **declared: Any,
) -> Dataset:
    """Load a user's own table; its rows held back are private where nothing else is declared.

    ``declared`` are ``target``, ``unit``, ``classes``, ``splits`` and ``block``, as `clipless.datasets.load` describes
    them, and ``blocks`` too.

    Raises:
        DataError: a row, or the table, that the declarations do not cover.
    """
    path = Path(path)
    table, ranges = _open(path, ranges, evaluation=evaluation, **declared)
    source = TableFacts(
        name=path.name.split(".")[0],
        split_name=OWN_TABLE,
        evaluation=ranges.evaluation or (Evaluation.EXPLORATORY if ranges.unpaid else Evaluation.PRIVATE),
        public_because="the user declared them so",
        unit=ranges.unit or "row",
        splitting=ranges.splits or HashSplit(),
        blocks=choose_blocks(ranges.block, blocks),
    )
    return encode_table(table, ranges, source)


def load_schema(
    path: Path, *, ranges: str | Path | Ranges | None = None, blocks: object = None, **declared: Any
) -> Ranges:
    """Return the declarations of every column of a user's own table, in its order; no cell enters.

    Takes what `load_table` takes; ``blocks`` are not looked at.

    Raises:
        DataError: a table that cannot be read, or a column that is not declared.
    """
    del blocks
    table, ranges = _open(path, ranges, **declared)
    return schema(table.columns, ranges)


def schema(columns: Iterable[str], ranges: Ranges) -> Ranges:
    """Return the declarations of ``columns`` by name, in their order; bookkeeping is dropped.

    Raises:
        DataError: a column that is not declared.
    """
    split_column = ranges.splits.column if isinstance(ranges.splits, ColumnSplit) else None
    aside = {ranges.unit, split_column, ranges.block} - {None, "row"}
    found: dict[str, Column] = {}
    for name in (name for name in columns if name != ranges.target):
        declaration = Drop() if name in aside else ranges.declaration(name)
        if declaration is None:
            raise DataError(f"Column {name!r} has no declared range in {ranges.name}: declare it")
        found[name] = declaration
    return replace(ranges, columns=found, others=None)


def _open(path: Path, ranges: str | Path | Ranges | None, **declared: Any) -> tuple[Table, Ranges]:
    table = read_table(path)
    if ranges is None:
        raise DataError(
            f"Column {next(iter(table.columns))!r} of {path} has no declared range: write a ranges file with "
            f"`sweeper data ranges {path}`, fill it in and name it (data.ranges)"
        )
    read = ranges if isinstance(ranges, Ranges) else load_ranges(ranges)
    return table, complete_declarations(read, path, table.columns, **declared)


def complete_declarations(ranges: Ranges, path: Path, columns: Iterable[str], **given: Any) -> Ranges:
    """Complete ``ranges`` by settings given elsewhere, which may repeat a declaration and never change it.

    ``given`` are fields of ``ranges``, None where nothing is given; ``columns`` are those of the table.

    Raises:
        DeclarationError: given elsewhere and in the ranges file, differently, or a ranges file for another table.
    """
    if ranges.table is not None and Path(ranges.table).resolve() != path.resolve():
        raise DeclarationError(
            f"Expected a ranges file for {path.name}, got one for {ranges.table} (table in {ranges.name}; data.ranges)"
        )
    if given.get("classes") is not None:
        given["classes"] = class_names(given["classes"], "data.classes")
    settings = {setting: value for setting, value in given.items() if value is not None}
    for setting, value in settings.items():
        declared = getattr(ranges, setting)
        if declared is not None and value != declared:
            there = [name for name in columns if name in (value, declared)]
            remedy = f"; {path.name} has {there[0]!r}" if len(there) == 1 else ""
            raise DeclarationError(
                f"Expected one {setting}, got {value!r} (data.{setting}) and {declared!r} ({ranges.name}){remedy}"
            )
    return replace(ranges, **settings)


def encode_table(table: Table, ranges: Ranges, source: TableFacts) -> Dataset:
    """Encode ``table`` by its declarations and split it.

    Guarantees:
        Each row's example and label depend on that row, and its split on the rows of its unit, and on the arguments
        other than ``table``.

    Raises:
        DataError: a column, label or cell that the declarations do not cover; a row without a unit; of open rows
            also what looks like a mistake in the declarations.
    """
    target, classes = _target(table, ranges)
    contents = list(table.contents())
    table, read_N, codes_N = _read_blocks(table, ranges, source)
    declarations = _declarations(table, ranges, {target, *_bookkeeping(table, source)})
    evaluation = Evaluation.EXPLORATORY if ranges.unpaid else source.evaluation
    open_rows = rows_are_open(evaluation, published=source.training_published)
    labels_N = encode_labels(
        table.columns[target],
        classes,
        ranges.missing_markers,
        f"target {target!r} of {table.name}",
        unknown=ranges.unknown,
        open_rows=open_rows,
    )
    x_NF = encode_columns(table, declarations, ranges.missing_markers, open_rows=open_rows)
    units_N, names = (None, None) if source.unit == "row" else _units(table, source.unit, ranges)
    parts_N = _parts(table, source, units_N, names or list(compress(contents, read_N)))
    rows = [_rows_of(units_N, parts_N == part) for part in (Part.TRAIN, Part.VALIDATION, Part.TEST)]
    train, validation, test = (_split(x_NF, labels_N, units_N, rows_n) for rows_n in rows)
    blocks = None
    if source.blocks is not None and codes_N is not None:
        codes = [torch.from_numpy(codes_N[rows_n]) for rows_n in rows]
        ids = None if units_N is None or names is None else _ids_of_blocks(source.blocks, codes_N, units_N, names)
        blocks = Blocks(source.blocks.column, source.blocks.names, codes[0], codes[1], codes[2], ids)
    hashes_NB = torch.from_numpy(hash_rows(contents))
    read_NB = hashes_NB[read_N]
    hashes = RowHashes(*[*(read_NB[rows_n] for rows_n in rows), hashes_NB[~read_N]])
    metadata = _metadata(x_NF.shape[1], declarations, ranges, classes, source)
    return Dataset(metadata, train, validation, test, blocks, hashes=hashes)


def _read_blocks(
    table: Table, ranges: Ranges, source: TableFacts
) -> tuple[Table, NDArray[np.bool_], NDArray[np.int64] | None]:
    """Return the rows of the blocks that are read, which of all rows these are, and the number of the block of each."""
    if source.blocks is None:
        return table, np.ones(len(table), dtype=np.bool_), None
    has_unit = source.unit != "row" and source.unit in table.columns
    units_N = _units(table, source.unit, ranges)[0] if has_unit else None
    read_N, codes_N = cut_into_blocks(table, source.blocks, units_N)
    mask = pa.array(read_N)
    read = replace(table, columns={name: column.filter(mask) for name, column in table.columns.items()})
    return read, read_N, codes_N


def _ids_of_blocks(
    choice: BlockChoice, codes_N: NDArray[np.int64], units_N: NDArray[np.intp], names: Sequence[bytes]
) -> dict[str, torch.Tensor]:
    """Return the hashes of the ids of the units of each block that is read."""
    hashes_UB = torch.from_numpy(hash_rows(names))
    return {name: hashes_UB[np.unique(units_N[codes_N == code])] for code, name in enumerate(choice.names)}


def _target(table: Table, ranges: Ranges) -> tuple[str, tuple[str, ...]]:
    if ranges.target is not None and ranges.target not in table.columns:
        raise DataError(
            f"Target column {ranges.target!r} is not in {table.name}; {near_or_listed(ranges.target, table.columns)} "
            "(data.target)"
        )
    missing: list[str] = []
    if ranges.target is None:
        missing.append(f"Name the column of the labels of {table.name}: target.column in {ranges.name}, or data.target")
    if ranges.classes is None:
        column = table.name if ranges.target is None else repr(ranges.target)
        missing.append(
            f"The labels of {column} are not listed: list them, they are a public input "
            f"(target.classes in {ranges.name}, or data.classes)"
        )
    if ranges.target is None or ranges.classes is None:
        raise DeclarationError(*missing)
    if ranges.unknown is not None and ranges.unknown not in ranges.classes:
        raise DeclarationError(
            f"Expected unknown to be one of the classes {', '.join(ranges.classes)}, got {ranges.unknown!r} "
            f"(target.unknown in {ranges.name})"
        )
    share, least = ranges.largest_share, 1 / len(ranges.classes)
    if not (share is None or least <= share < 1):
        raise DeclarationError(
            f"Expected {least:.3g} <= largest_share < 1, for one of {len(ranges.classes)} classes has the largest one, "
            f"got {share:g} (target.largest_share in {ranges.name})"
        )
    return ranges.target, ranges.classes


def _bookkeeping(table: Table, source: TableFacts) -> set[str]:
    columns = {} if source.unit == "row" else {source.unit: "data.unit"}
    if isinstance(source.splitting, ColumnSplit):
        columns[source.splitting.column] = "data.splits"
    if source.blocks is not None:
        columns[source.blocks.column] = "data.block"
    for column, setting in columns.items():
        if column not in table.columns:
            remedy = near_or_listed(column, table.columns)
            raise DataError(f"Column {column!r} is not in {table.name}; {remedy} ({setting})")
    return set(columns)


def _declarations(table: Table, ranges: Ranges, not_features: set[str]) -> dict[str, Column]:
    found = {column: ranges.declaration(column) for column in table.columns if column not in not_features}
    declarations = {column: declaration for column, declaration in found.items() if declaration is not None}
    if mistakes := list(_mistaken_columns(table, ranges, not_features, [one for one in found if found[one] is None])):
        raise DataError(*mistakes)
    _check_text_stands_alone(declarations, ranges)
    return declarations


def _mistaken_columns(table: Table, ranges: Ranges, not_features: set[str], undeclared: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each column that the declarations have too much, and one for those that they lack."""
    for column in ranges.columns:
        if column not in table.columns:
            remedy = near_or_listed(column, table.columns)
            yield f"Column {column!r} of {ranges.name} is not in {table.name}; {remedy}"
    for column in ranges.columns:
        if column in not_features and not isinstance(ranges.columns[column], Drop):
            yield (
                f"Column {column!r} is the target, the unit, the block or the split, not a feature: leave it out "
                f"(columns.{column} in {ranges.name})"
            )
    if undeclared:
        several = len(undeclared) > 1
        names = f"Columns {list_names(undeclared)}" if several else f"Column {undeclared[0]!r}"
        yield (
            f"{names} of {table.name} {'have' if several else 'has'} no declared range in {ranges.name}: declare low "
            f"and high, categories, or drop: true (`sweeper data ranges {table.name}` lists all columns)"
        )


def _check_text_stands_alone(declarations: Mapping[str, Column], ranges: Ranges) -> None:
    """Refuse other columns beside a text, of which an encoder makes all features."""
    used = [name for name, declaration in declarations.items() if not isinstance(declaration, Drop)]
    text = next((name for name in used if isinstance(declarations[name], Text)), None)
    other = next((name for name in used if name != text), None)
    if text is not None and other is not None:
        raise DeclarationError(
            f"Expected no other column beside the text {text!r}, of which an encoder makes all features, got "
            f"{other!r}: declare drop: true (columns.{other} in {ranges.name})"
        )


def _parts(table: Table, source: TableFacts, units_N: NDArray[np.intp] | None, names: list[bytes]) -> NDArray[np.int8]:
    """Return the split of each row, which is that of its unit; ``names`` are those of units, else contents of rows.

    A unit whose rows a column declares for several splits is in the first one of training, validation and test: what
    was to stay private stays so.
    """
    match source.splitting:
        case ColumnSplit(column=column):
            parts_N = _declared_splits(table, column, source.splitting.parts())
            if units_N is None:
                return parts_N
            parts_U = np.full(len(names), Part.TEST, dtype=np.int8)
            np.minimum.at(parts_U, units_N, parts_N)
            return parts_U[units_N]
        case HashSplit(validation=validation, salt=salt) as split:
            fractions = {"validation": validation, "test": split.test_fraction}
            parts = assign_by_hash(names, source.split_name, salt=salt, **fractions)
            return parts if units_N is None else parts[units_N]


def _units(table: Table, unit: str, ranges: Ranges) -> tuple[NDArray[np.intp], list[bytes]]:
    """Return the number of each row's unit, and the names of units in the order of their first rows."""
    numbers: dict[str, int] = {}
    units = [numbers.setdefault(id_, len(numbers)) for id_ in unit_ids(table, unit, ranges.missing_markers)]
    return np.array(units, dtype=np.intp), [name.encode() for name in numbers]


def _declared_splits(table: Table, column: str, parts: Mapping[str, Part]) -> NDArray[np.int8]:
    codes_N = match_texts(table.columns[column], tuple(parts))
    if (codes_N < 0).any():
        row = int((codes_N < 0).argmax())
        raise DataError(
            f"Value {str(table.columns[column][row].as_py())[:40]!r} in row {row + 1} names no split; known: "
            f"{', '.join(parts)} ({column} of {table.name}; data.splits)"
        )
    return np.array(list(parts.values()), dtype=np.int8)[codes_N]


def _rows_of(units_N: NDArray[np.intp] | None, chosen_N: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the numbers (n,) of the rows that are chosen, those of each unit one behind the other."""
    rows_n = np.flatnonzero(chosen_N)
    return rows_n if units_N is None else rows_n[np.argsort(units_N[rows_n], kind="stable")]


def _split(
    x_NF: NDArray[np.float32],
    labels_N: NDArray[np.int64],
    units_N: NDArray[np.intp] | None,
    rows_n: NDArray[np.intp],
) -> Split:
    x, y = torch.from_numpy(x_NF[rows_n]), torch.from_numpy(labels_N[rows_n])
    if units_N is None:
        return Split(x, y)
    ends = np.flatnonzero(np.diff(units_N[rows_n], append=-1)) + 1
    return Split(x, y, torch.from_numpy(np.concatenate([[0], ends]).astype(np.int64)))


def _metadata(
    width: int, declarations: Mapping[str, Column], ranges: Ranges, classes: tuple[str, ...], source: TableFacts
) -> Metadata:
    evaluation = Evaluation.EXPLORATORY if ranges.unpaid else source.evaluation
    facts, conditions = evaluation_facts(source.evaluation, public_because=source.public_because)
    return Metadata(
        name=source.name,
        input_shape=(width,),
        classes=classes,
        evaluation=evaluation,
        unit=source.unit,
        input_norm=input_norm(declarations),
        input_gain=input_gain(declarations),
        radius_unit=radius_unit(declarations),
        public_facts=(
            f"Ranges, categories and classes are declared in {ranges.name}; their source: {ranges.source}.",
            split_fact(source.splitting, unit=source.unit),
            counts_fact(source.unit),
            *_block_fact(source),
            *_share_fact(ranges),
            *facts,
        ),
        conditions=(
            *_changes(declarations),
            *source.conditions,
            *((UNPAID_RANGES,) if ranges.unpaid else ()),
            *conditions,
        ),
        training_published=source.training_published,
        split_by_row=True,
        column_widths=column_widths(declarations),
        block=None if source.blocks is None else source.blocks.column,
        largest_share=ranges.largest_share,
    )


def _changes(declarations: Mapping[str, Column]) -> tuple[str, ...]:
    return () if radius_unit(declarations) == TEXT_UNIT else (CATEGORY_CHANGES,)


def _block_fact(source: TableFacts) -> tuple[str, ...]:
    if source.blocks is None:
        return ()
    of_whom = "row" if source.unit == "row" else f"value of {source.unit!r}"
    return (
        f"Column {source.blocks.column!r} cuts rows into blocks, a public attribute of each {of_whom}. Read are "
        f"{', '.join(source.blocks.names)}; the number of rows of each block is public.",
    )


def _share_fact(ranges: Ranges) -> tuple[str, ...]:
    share = ranges.largest_share
    return () if share is None else (f"The most frequent class has a share of {share:g}, as {ranges.name} declares.",)
