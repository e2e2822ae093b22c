"""Which input format a data set has: found from its declarations, and for tables from the names of its columns.

Of a table only the names and the order of its columns enter, its schema, and no cell.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from clipless.datasets.catalog import _name, load
from clipless.datasets.metadata import Metadata
from clipless.datasets.new_rows.raw_rows import Pixels, RawRows, Tensors
from clipless.datasets.new_rows.reading import InputFormat
from clipless.datasets.preparation import Preparation
from clipless.datasets.sources.embedded import _breast_cancer_range
from clipless.datasets.sources.images import CIFAR10, FASHION_MNIST, MNIST, ImageSet
from clipless.datasets.sources.known import KNOWN_TABLES, KnownTable, _fetched, _local
from clipless.datasets.splits import ColumnSplit, Splitting
from clipless.datasets.tables.declarations import Drop, Ranges
from clipless.datasets.tables.ranges_file import load_ranges
from clipless.datasets.tables.table import agreed
from clipless.datasets.tables.table_file import read_table
from clipless.errors import DataError

_DIGITS = Pixels((8, 8), 16)
_BYTE = 255


def input_format(
    source: str | Path,
    *,
    data_dir: str | Path | None = None,
    target: str | None = None,
    ranges: str | Path | Ranges | None = None,
    unit: str | None = None,
    classes: Sequence[Any] | None = None,
    splits: Splitting | None = None,
    preparation: Preparation | None = None,
    evaluation: object = None,
) -> InputFormat:
    """Return how rows of the data set that `clipless.datasets.load` gives for these arguments are encoded.

    Args:
        source: as `clipless.datasets.load` takes it, like everything else here.
        data_dir: local folder to read from.
        target: own table: column of the labels.
        ranges: own table: its declarations.
        unit: own table: column that identifies the privacy unit.
        classes: own table: the labels in order.
        splits: how rows are assigned; a column that says so is no feature.
        preparation: per-example maps.
        evaluation: not looked at: it is the same for rows of every kind.

    Raises:
        DataError: a file that cannot be read.

    Guarantees:
        No cell of a table and no pixel enters.
    """
    del evaluation
    folder, name = None if data_dir is None else Path(data_dir), _name(source)
    if name is not None:
        found = _named(name, folder)
    else:
        if ranges is None:
            raise DataError(f"Expected declared ranges of {source}, got none (data.ranges)")
        declared = ranges if isinstance(ranges, Ranges) else load_ranges(ranges)
        path = _file(Path(source), folder)
        declared = agreed(declared, path, target=target, classes=classes, unit=unit, splits=splits)
        split_column = declared.splits.column if isinstance(declared.splits, ColumnSplit) else None
        table = _ordered(declared, read_table(path).columns, {declared.unit, split_column} - {None, "row"})
        found = path.name.split(".")[0], tuple(table.classes or ()), replace(table, classes=None)
    return InputFormat(name=found[0], classes=found[1], raw=found[2], preparation=preparation or Preparation())


def _named(name: str, folder: Path | None) -> tuple[str, tuple[str, ...], RawRows]:
    """Return name, classes and raw rows of a named data set."""
    images = {images.name: images for images in (MNIST, FASHION_MNIST, CIFAR10)}
    tables = {table.name: table for table in KNOWN_TABLES}
    makers: dict[str, Callable[[], tuple[str, tuple[str, ...], RawRows]]] = {
        "digits": lambda: ("digits", tuple("0123456789"), _DIGITS),
        "breast_cancer": _breast_cancer,
        **{name: lambda name=name: _of_images(images[name]) for name in images},  # type: ignore[misc]
        **{name: lambda name=name: _of_table(tables[name], folder) for name in tables},  # type: ignore[misc]
    }
    return makers[name]() if name in makers else _of_plugin(load(name, data_dir=folder).metadata)


def _of_images(images: ImageSet) -> tuple[str, tuple[str, ...], RawRows]:
    return images.name, images.classes, Pixels(images.shape, _BYTE)


def _of_table(known: KnownTable, folder: Path | None) -> tuple[str, tuple[str, ...], RawRows]:
    table = _fetched(known) if folder is None else _local(known, folder)
    ranges = known.ranges()
    return known.name, tuple(ranges.classes or ()), replace(_ordered(ranges, table.columns, set()), classes=None)


def _breast_cancer() -> tuple[str, tuple[str, ...], RawRows]:
    from sklearn.datasets import load_breast_cancer

    bunch: Any = load_breast_cancer()
    columns = {str(name): _breast_cancer_range(str(name)) for name in bunch.feature_names}
    ranges = Ranges(
        name="clipless/datasets/sources/embedded.py", source="see there", target="diagnosis", columns=columns
    )
    return "breast_cancer", ("benign", "malignant"), ranges


def _of_plugin(declared: Metadata) -> tuple[str, tuple[str, ...], RawRows]:
    facts = (declared.input_norm, declared.input_gain, declared.radius_unit)
    return declared.name, declared.classes, Tensors(declared.input_shape, *facts)


def _ordered(ranges: Ranges, columns: Mapping[str, Any], aside: set[str | None]) -> Ranges:
    """Return the declarations with every column of the table by name, in its order."""
    declared = {
        name: Drop() if name in aside else ranges.declaration(name) for name in columns if name != ranges.target
    }
    unknown = next((name for name, column in declared.items() if column is None), None)
    if unknown is not None:
        raise DataError(f"Column {unknown!r} has no declared range in {ranges.name}: declare it")
    known = {name: column for name, column in declared.items() if column is not None}
    return replace(ranges, columns=known, others=None)


def _file(path: Path, folder: Path | None) -> Path:
    places = [path] if folder is None or path.is_absolute() else [path, folder / path]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise DataError(f"No such file: {' or '.join(map(str, places))} (data.path)")
    return found
