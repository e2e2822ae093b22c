"""New rows without labels, turned into the tensor that a model was trained on, by public declarations alone.

An `InputFormat` says how cells or pixels of one row become its tensor: declared columns in the order of training, or
the shape and largest level of an image, and what is done to each example after that. It holds no value of any row, so
it may travel with a model. Here nothing is split, no label is needed and nothing is learned.

Shape letters: N rows, F coordinates, C channels, H height, W width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from clipless.datasets.catalog import raw_rows_of
from clipless.datasets.dataset import Dataset, Split
from clipless.datasets.features.declaration import Features, find_file
from clipless.datasets.features.encode import open_features
from clipless.datasets.features.encoders import RowKind
from clipless.datasets.maps import prepare
from clipless.datasets.metadata import FEATURE_UNIT, ColourSpace, Evaluation, Metadata, Preparation
from clipless.datasets.new_rows.arrays import as_tensors, read_array, scale_levels
from clipless.datasets.raw_rows import Pixels, RawRows, Tensors, raw_facts, raw_from_json, raw_to_json
from clipless.datasets.splits import hash_rows
from clipless.datasets.tables.declarations import Categorical, Column, Drop, Numeric, Ranges
from clipless.datasets.tables.encoding import UNMATCHED, encode_columns, match_texts, numbers
from clipless.datasets.tables.table_file import Array, Table, _normalise, list_names, near_or_listed, read_table
from clipless.datasets.tables.units import unit_ids
from clipless.errors import DataError

INPUT_VERSION = 1


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows as the model takes them.

    Attributes:
        x: float32, (N, ...).
        input_gain: Lipschitz constant of the fixed maps from the units of radii to ``x``.
        radius_unit: the units in which radii are given.
        ids: columns of the file that only tell rows apart, as they are there.
        raw: the rows that ``x`` are features of, None where rows are as they were read.
        units: id of the privacy unit of each row, as `unit_ids` compares them; None where nobody asked for it.
        hashes: uint8, (N, 16), of the rows of a table, as `RowHashes` has them; None where nobody asked for them.
        not_taken: bool, (N,), the rows that the encoder does not take, which are zeros in ``x``; None if there is none.
    """

    x: Tensor
    input_gain: float
    radius_unit: str
    ids: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    raw: Tensor | None = None
    units: Sequence[str] | None = None
    hashes: Tensor | None = None
    not_taken: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFormat:
    """How a row becomes the tensor of a model; public declarations only.

    Attributes:
        classes: names of the classes in the order of the logits.
        raw: the declared columns in the order of training, every one of them by name; or images; or tensors.
        preparation: what is done to each example after that.
        features: the encoder that makes the examples of the rows, with its digest; None without one.
    """

    name: str
    classes: tuple[str, ...]
    raw: RawRows
    preparation: Preparation = field(default_factory=Preparation)
    features: Features | None = None

    def read(
        self,
        path: str | Path,
        *,
        allow_unknown: bool = False,
        ids: Sequence[str] = (),
        unit: str | None = None,
        hashed: bool = False,
    ) -> NewRows:
        """Read the rows of a file: a table; or for images an npz file, a picture or a folder of pictures.

        Args:
            path: csv, csv.gz, parquet or npz; png or jpg.
            allow_unknown: encode what the declarations do not know as training did, instead of refusing it: unknown
                categories as zeros, texts that are no number as missing ones.
            ids: columns of a table to keep beside the rows; the model sees them only if it was trained with them.
            unit: one of these columns, of privacy units: every row needs one.
            hashed: hash the rows of a table, with every column of the file.

        Raises:
            DataError: unreadable, or a column, cell or pixel that the declarations do not cover; names the row.
        """
        if isinstance(self.raw, Ranges):
            whole = read_table(path)
            table, kept = _without_ids(whole, self.raw, ids)
            hashes = torch.from_numpy(hash_rows(whole.contents())) if hashed else None
            units = None if unit is None else unit_ids(whole, unit, self.raw.missing_markers)
            rows = self._encode_table(self.raw, table, allow_unknown=allow_unknown)
            return replace(rows, ids=kept, units=units, hashes=hashes)
        if ids:
            raise DataError(f"Expected no column to keep, got {ids[0]!r}: {self.name} is no table; leave it out")
        return self.of_array(read_array(Path(path), self.raw, self.name), str(path))

    def of_columns(self, columns: Mapping[str, Any], *, allow_unknown: bool = False) -> NewRows:
        """Encode columns by name, such as those of a data frame, as `read` does those of a file.

        Raises:
            DataError: as `read`, or the model takes no table.
        """
        where = Path("the given rows")
        if not isinstance(self.raw, Ranges):
            raise DataError(
                f"Expected an array of shape (rows, {list_names(self.raw.shape)}), got columns ({self.name})"
            )
        read = {str(name): _normalise(_as_arrow(str(name), cells), str(name), where) for name, cells in columns.items()}
        return self._encode_table(self.raw, Table(where.name, read), allow_unknown=allow_unknown)

    def of_array(self, array: NDArray[Any], where: str = "the given array") -> NewRows:
        """Encode an array of images, or of a plug-in's tensors.

        Raises:
            DataError: another shape or type, a value out of range; or the model takes a table.
        """
        match self.raw:
            case Ranges():
                raise DataError(f"Expected columns by name, got an array ({where}); {self.name} is a table")
            case Pixels():
                return self._prepare(scale_levels(array, self.raw, where))
            case Tensors():
                return self._prepare(as_tensors(array, self.raw, where))
            case _:
                assert_never(self.raw)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; `from_json` reads them back."""
        made, features = self.preparation, self.features
        return {
            "input_version": INPUT_VERSION,
            "name": self.name,
            "classes": list(self.classes),
            "rows": raw_to_json(self.raw),
            "preparation": {"colour": made.colour.value, "centre": list(made.centre), "normalise": made.normalise},
            **({} if features is None else {"features": features.to_json()}),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], where: str) -> "InputFormat":
        """Read what `to_json` wrote; ``where`` names it in messages.

        Raises:
            DataError: another version, or not such a content.
        """
        if content.get("input_version") != INPUT_VERSION:
            raise DataError(f"Expected input_version {INPUT_VERSION}, got {content.get('input_version')!r} ({where})")
        try:
            made, features = content["preparation"], content.get("features")
            found = None if features is None else Features.from_json(features)
            return cls(
                name=str(content["name"]),
                classes=tuple(map(str, content["classes"])),
                raw=raw_from_json(content["rows"], where),
                preparation=Preparation(
                    colour=ColourSpace(made["colour"]), centre=tuple(made["centre"]), normalise=made["normalise"]
                ),
                features=None if found is None else find_file(found, Path(where).parent),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"Expected how rows are encoded in {where}, got something else: {error!r}") from None

    def _encode_table(self, ranges: Ranges, table: Table, *, allow_unknown: bool) -> NewRows:
        used = {name: column for name, column in ranges.columns.items() if not isinstance(column, Drop)}
        _check_columns(table, ranges, used)
        blocks = [
            _encode(table, name, column, ranges.missing_markers, allow_unknown=allow_unknown)
            for name, column in used.items()
        ]
        return self._prepare(torch.from_numpy(np.concatenate(blocks, axis=1)))

    def _prepare(self, x: Tensor) -> NewRows:
        """Apply the preparation of training to the rows and to the public facts, or its encoder."""
        if self.features is not None:
            opened = open_features(self.features, RowKind.of(self._facts()))
            encoded, not_taken = opened.encode_new(x)
            unit = FEATURE_UNIT + self.features.name
            return NewRows(encoded, 1.0, unit, raw=x, not_taken=not_taken if bool(not_taken.any()) else None)
        labels_N = torch.zeros(len(x), dtype=torch.int64)
        rows, one = Split(x, labels_N), Split(x[:1], labels_N[:1])
        ready = prepare(Dataset(self._facts(), rows, one, one), self.preparation)
        return NewRows(ready.train.x, ready.metadata.input_gain, ready.metadata.radius_unit)

    def _facts(self) -> Metadata:
        shape, norm, gain, unit = raw_facts(self.raw)
        return Metadata(
            name=self.name,
            input_shape=shape,
            classes=self.classes,
            evaluation=Evaluation.PUBLIC,
            unit="row",
            input_norm=norm,
            input_gain=gain,
            radius_unit=unit,
            public_facts=(),
            conditions=(),
        )


def input_format(
    source: str | Path,
    *,
    preparation: Preparation | None = None,
    features: Features | None = None,
    evaluation: object = None,
    **declared: Any,
) -> InputFormat:
    """Return how rows of the data set that `clipless.datasets.load` gives for these arguments are encoded.

    ``evaluation`` is not looked at: the format is the same for rows of every kind.

    Raises:
        DataError: a file that cannot be read, or an encoder that cannot be used.

    Guarantees:
        No cell of a table and no pixel enters.
    """
    del evaluation
    name, classes, raw = raw_rows_of(source, **declared)
    form = InputFormat(name=name, classes=classes, raw=raw, preparation=preparation or Preparation())
    if features is None:
        return form
    return replace(form, features=open_features(features, RowKind.of(form._facts())).encoder.features)


def _as_arrow(name: str, cells: Any) -> pa.Array:
    """Return the cells of a column; objects that are missing in pandas, NaN too, are missing."""
    try:
        return pa.array(cells, from_pandas=getattr(getattr(cells, "dtype", None), "kind", "") == "O")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        why = str(error).partition("\n")[0]
        raise DataError(f"Expected cells of one type in column {name!r} of the given rows: {why}") from None


def _without_ids(table: Table, ranges: Ranges, ids: Sequence[str]) -> tuple[Table, dict[str, list[Any]]]:
    """Return the table without columns that the model does not know, and those that are to be kept."""
    missing = next((name for name in ids if name not in table.columns), None)
    if missing is not None:
        raise DataError(
            f"Expected the column {missing!r} in {table.name}, found none; {near_or_listed(missing, table.columns)}"
        )
    known = {*ranges.columns, ranges.target}
    columns = {name: column for name, column in table.columns.items() if name in known or name not in ids}
    return replace(table, columns=columns), {name: table.columns[name].to_pylist() for name in ids}


def _check_columns(table: Table, ranges: Ranges, used: Mapping[str, Column]) -> None:
    missing = next((name for name in used if name not in table.columns), None)
    if missing is not None:
        raise DataError(
            f"Expected the column {missing!r} in {table.name}, found none; {near_or_listed(missing, table.columns)}"
        )
    known = {*ranges.columns, ranges.target}
    unknown = next((name for name in table.columns if name not in known), None)
    if unknown is not None:
        raise DataError(
            f"Expected only columns that the model was trained with, got {unknown!r} in {table.name}; leave it out, or "
            f"correct its name: {list_names(used)}"
        )


def _encode(
    table: Table, name: str, column: Column, missing_markers: Sequence[str], *, allow_unknown: bool
) -> NDArray[np.float32]:
    where = f"column {name!r} of {table.name}"
    cells = table.columns[name]
    if isinstance(column, Categorical):
        return _one_hot(cells, column, missing_markers, where, allow_unknown=allow_unknown)
    remedy = "correct it"
    if isinstance(column, Numeric) and column.missing is None:
        _refuse_missing(numbers(cells, missing_markers, where, remedy=remedy), where)
    else:
        remedy += ", or allow what is not declared (--allow-unknown), which is taken as missing, as in training"
    one = Table(table.name, {name: cells})
    return encode_columns(one, {name: column}, missing_markers, open_rows=not allow_unknown, remedy=remedy)


def _refuse_missing(values_N: NDArray[np.float64], where: str) -> None:
    gaps_N = ~np.isfinite(values_N)
    if gaps_N.any():
        raise DataError(
            f"Expected a finite number, got a missing value in row {int(gaps_N.argmax()) + 1} ({where}); nothing was "
            f"declared to stand in for it: fill it in, or leave the row out"
        )


def _one_hot(
    cells: Array, column: Categorical, missing_markers: Sequence[str], where: str, *, allow_unknown: bool
) -> NDArray[np.float32]:
    codes_N = match_texts(cells, column.categories)
    if column.other:
        codes_N = np.where(codes_N == UNMATCHED, len(column.categories), codes_N)
    elif not allow_unknown:
        _refuse_unknown(cells, codes_N, column, missing_markers, where)
    return np.asarray(codes_N[:, None] == np.arange(column.width), dtype=np.float32)


def _refuse_unknown(
    cells: Array, codes_N: NDArray[np.int64], column: Categorical, missing_markers: Sequence[str], where: str
) -> None:
    """Refuse the first text that is neither a category nor a declared way to say that there is none."""
    for row in np.flatnonzero(codes_N == UNMATCHED):
        cell = cells[int(row)].as_py()
        if cell is not None and cell == cell and str(cell) not in missing_markers:
            raise DataError(
                f"Expected a category among {list_names(column.categories)}, got {str(cell)[:40]!r} in row {row + 1} "
                f"({where}); correct it, or allow unknown categories (--allow-unknown), which are zeros as in training"
            )
