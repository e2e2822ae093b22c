"""The raw format of a row, before any preparation: declared columns, an image of whole levels, or a tensor.

Public declarations only, and their JSON form.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, TypeAlias, assert_never

from clipless.datasets.tables.declarations import Categorical, Column, Drop, Numeric, Ranges, Text
from clipless.datasets.tables.encoding import input_gain, input_norm
from clipless.datasets.tables.ranges_file import parse_ranges
from clipless.datasets.tables.table import radius_unit
from clipless.errors import DataError

PIXEL_UNIT = "pixels in [0, 1]"


@dataclass(frozen=True, slots=True)
class Pixels:
    """Images of whole levels from 0 on."""

    shape: tuple[int, ...]  # of one stored image, (H, W) or (H, W, 3)
    largest: int  # level that becomes 1


@dataclass(frozen=True, slots=True)
class Tensors:
    """Tensors as a plug-in's loader gives them: float32, one per row."""

    shape: tuple[int, ...]  # of one row
    norm: float  # largest norm of a row
    gain: float  # Lipschitz constant from ``radius_unit`` to the tensor
    radius_unit: str  # the units in which radii are given


RawRows: TypeAlias = Ranges | Pixels | Tensors


def raw_facts(raw: RawRows) -> tuple[tuple[int, ...], float, float, str]:
    """Return shape, bound of the norm, gain and unit of radii of rows before the preparation."""
    match raw:
        case Ranges():
            shape = (sum(map(_width, raw.columns.values())),)
            return shape, input_norm(raw.columns), input_gain(raw.columns), radius_unit(raw.columns)
        case Pixels():
            height, width, channels = (*raw.shape, 1)[:3]
            return (channels, height, width), sqrt(channels * height * width), 1.0, PIXEL_UNIT
        case Tensors():
            return raw.shape, raw.norm, raw.gain, raw.radius_unit
        case _:
            assert_never(raw)


def _width(column: Column) -> int:
    if isinstance(column, Text):
        return column.length
    return 0 if isinstance(column, Drop) else column.width


def raw_to_json(raw: RawRows) -> dict[str, Any]:
    """Return JSON values; `raw_from_json` reads them back."""
    match raw:
        case Ranges():
            columns = {name: _column_to_json(column) for name, column in raw.columns.items()}
            unknown = {} if raw.unknown is None else {"unknown": raw.unknown}
            return {
                "kind": "table",
                "source": raw.source,
                "target": {"column": raw.target, **unknown},
                "missing_markers": list(raw.missing_markers),
                "columns": columns,
            }
        case Pixels():
            return {"kind": "images", "shape": list(raw.shape), "largest": raw.largest}
        case Tensors():
            facts = {"norm": raw.norm, "gain": raw.gain, "radius_unit": raw.radius_unit}
            return {"kind": "tensors", "shape": list(raw.shape), **facts}
        case _:
            assert_never(raw)


def _column_to_json(column: Column) -> dict[str, Any]:
    match column:
        case Drop():
            return {"drop": True}
        case Numeric():
            missing = {} if column.missing is None else {"missing": float(column.missing)}
            bins = {} if column.bins is None else {"bins": column.bins}
            return {"low": float(column.low), "high": float(column.high), **missing, **bins}
        case Categorical():
            return {"categories": list(column.categories), "unknown": "other" if column.other else "zeros"}
        case Text():
            return {"text": column.length}
        case _:
            assert_never(column)


def raw_from_json(content: Mapping[str, Any], where: str) -> RawRows:
    """Read what `raw_to_json` wrote.

    Raises:
        DataError: not such a content.
    """
    match content["kind"]:
        case "table":
            declared = {key: value for key, value in content.items() if key != "kind"}
            return replace(parse_ranges(json.dumps(declared, ensure_ascii=False), where), classes=None)
        case "images":
            return Pixels(tuple(map(int, content["shape"])), int(content["largest"]))
        case "tensors":
            numbers_of_it = (float(content["norm"]), float(content["gain"]))
            return Tensors(tuple(map(int, content["shape"])), *numbers_of_it, str(content["radius_unit"]))
        case other:
            raise DataError(f"Expected table, images or tensors, got {other!r} (rows.kind in {where})")
