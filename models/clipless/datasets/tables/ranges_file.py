"""Reading a ranges file: the public declarations that stand beside a user's own table.

::

    source: codebook of the 2024 survey   # where the numbers come from, in words; never the rows themselves
    target: {column: readmitted, classes: ["no", "yes"], unknown: "no", largest_share: 0.65}   # the last two: optional
    missing_markers: ["", "?"]            # optional
    columns:
      age: {low: 0, high: 120, missing: 60}
      income: {low: 0, high: 100000, bins: 12}
      ward: {categories: [A, B, C], unknown: other}
      patient_id: {drop: true}
    others: {low: 0, high: 1}             # optional: every column not listed
    table: patients.csv                   # optional, beside this file: these declarations are for no other
    evaluation: private                   # optional, like the next three: a spec may repeat them, not change them
    unit: patient_id
    splits: {validation: 0.2, test: 0.2}  # or a column, and its values for train, validation and test
    block: month                          # likewise: a public attribute of the unit, which cuts a growing table

A file that still holds a placeholder, an unknown key or the same key twice is refused.
"""

import contextlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from clipless.datasets.metadata import Evaluation
from clipless.datasets.splits import ColumnSplit, HashSplit, Splitting
from clipless.datasets.tables.declarations import MISSING_MARKERS, Categorical, Column, Drop, Numeric, Ranges, Text
from clipless.errors import DataError
from clipless.spelling import did_you_mean, did_you_mean_file

T = TypeVar("T")

PLACEHOLDER = "???"
_PARTS = ("train", "validation", "test")
_KEYS = {"source", "target", "missing_markers", "columns", "others", "table", "evaluation", "unit", "block", "splits"}


def load_ranges(path: str | Path) -> Ranges:
    """Read and check a ranges file.

    Raises:
        DataError: unreadable, not YAML, unfilled, or a declaration that cannot be right.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        near = "" if path.exists() else did_you_mean_file(path, before="; ")
        raise DataError(f"Cannot read ranges file {path}: {_reason(error)} (data.ranges){near}") from None
    ranges = parse_ranges(text, path.name)
    return ranges if ranges.table is None else replace(ranges, table=str(path.parent / ranges.table))


def parse_ranges(text: str, name: str) -> Ranges:
    """Check the text of a ranges file; ``name`` is for messages."""
    try:
        content = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise DataError(f"{name} is not valid YAML: {' '.join(str(error).split())} (data.ranges)") from None
    content = _mapping(content, f"top level of {name}")
    _refuse_placeholders(content, name)
    _refuse_unknown_keys(content, _KEYS, f"top level of {name}")
    target, classes, unknown, largest_share = _target(content.get("target"), name)
    source = content.get("source")
    if not isinstance(source, str) or not source.strip():
        raise DataError(f"Expected source to say where the ranges come from, got {source!r} (source in {name})")
    columns = _mapping(content.get("columns", {}), f"columns in {name}")
    others = content.get("others")
    return Ranges(
        name=name,
        source=source.strip(),
        target=target,
        classes=classes,
        unknown=unknown,
        largest_share=largest_share,
        columns={_text(key, f"columns in {name}"): _column(columns[key], f"columns.{key}", name) for key in columns},
        others=None if others is None else _column(others, "others", name),
        missing_markers=_texts(content.get("missing_markers", MISSING_MARKERS), f"missing_markers in {name}"),
        table=_optional_text(content, "table", name),
        evaluation=None if content.get("evaluation") is None else Evaluation.parse(content["evaluation"]),
        unit=_optional_text(content, "unit", name),
        splits=_splits(content.get("splits"), name),
        block=_optional_text(content, "block", name),
    )


def _optional_text(content: Mapping[Any, Any], key: str, name: str) -> str | None:
    return None if content.get(key) is None else _text(content[key], f"{key} in {name}")


def _splits(value: Any, name: str) -> Splitting | None:
    if value is None:
        return None
    where = f"splits in {name}"
    value = _mapping(value, where)
    if "column" in value:
        _refuse_unknown_keys(value, {"column", *_PARTS}, where)
        parts = {part: _texts(value.get(part), f"splits.{part} in {name}") for part in _PARTS}
        return _check(ColumnSplit, where, column=_text(value["column"], where), **parts)
    _refuse_unknown_keys(value, {"validation", "test", "salt"}, where)
    salt = {"salt": _text(value["salt"], where)} if "salt" in value else {}
    shares = {part: _number(value[part], f"splits.{part} in {name}") for part in _PARTS if part in value}
    return _check(HashSplit, where, **shares, **salt)


def _target(value: Any, name: str) -> tuple[str | None, tuple[str, ...] | None, str | None, float | None]:
    value = {} if value is None else _mapping(value, f"target in {name}")
    _refuse_unknown_keys(value, {"column", "classes", "unknown", "largest_share"}, f"target in {name}")
    column, classes, unknown = value.get("column"), value.get("classes"), value.get("unknown")
    share = value.get("largest_share")
    return (
        None if column is None else _text(column, f"target.column in {name}"),
        None if classes is None else class_names(classes, f"target.classes in {name}"),
        None if unknown is None else _text(unknown, f"target.unknown in {name}"),
        None if share is None else _number(share, f"target.largest_share in {name}"),
    )


def class_names(values: Any, where: str) -> tuple[str, ...]:
    """Return declared classes as texts.

    Raises:
        DataError: not a list, fewer than two, one twice, or numbers mixed with texts.
    """
    names = _texts(values, where)
    if len({isinstance(value, str) for value in values}) > 1:
        raise DataError(f"Expected classes of one type, got numbers and texts {list(values)}: quote all ({where})")
    if len(names) < 2 or len(set(names)) != len(names) or "" in names:
        raise DataError(f"Expected at least two classes, none twice or empty, got {list(names)} ({where})")
    return names


def _column(value: Any, path: str, name: str) -> Column:
    where = f"{path} in {name}"
    value = _mapping(value, where)
    if "drop" in value:
        _refuse_unknown_keys(value, {"drop"}, where)
        return _drop(value["drop"], f"{path}.drop in {name}")
    if "categories" in value:
        _refuse_unknown_keys(value, {"categories", "unknown"}, where)
        categories = _texts(value["categories"], f"{path}.categories in {name}")
        other = _unknown_is_other(value.get("unknown", "zeros"), f"{path}.unknown in {name}")
        return _check(Categorical, where, categories=categories, other=other)
    if "text" in value:
        _refuse_unknown_keys(value, {"text"}, where)
        if type(value["text"]) is not int:
            raise DataError(f"Expected text to be a number of bytes such as 2000, got {value['text']!r} ({where})")
        return _check(Text, where, length=value["text"])
    _refuse_unknown_keys(value, {"low", "high", "missing", "bins"}, where)
    low, high = (_number(value.get(key), f"{path}.{key} in {name}") for key in ("low", "high"))
    missing = _number(value["missing"], f"{path}.missing in {name}") if "missing" in value else None
    return _check(Numeric, where, low=low, high=high, missing=missing, bins=value.get("bins"))


def _check(kind: Callable[..., T], where: str, **fields: Any) -> T:
    try:
        return kind(**fields)
    except DataError as error:
        raise DataError(f"{error} ({where})") from None


def _unknown_is_other(value: Any, where: str) -> bool:
    if value not in ("zeros", "other"):
        raise DataError(f"Expected zeros or other, got {value!r} ({where})")
    return bool(value == "other")


def _drop(value: Any, where: str) -> Drop:
    if value is not True:
        raise DataError(f"Expected true, or a declaration instead of drop, got {value!r} ({where})")
    return Drop()


def _number(value: Any, where: str) -> float:
    if isinstance(value, str):  # YAML 1.1 reads 1e5 as a text
        with contextlib.suppress(ValueError):
            return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"Expected a number, got {value!r} ({where})")
    return float(value)


def _text(value: Any, where: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"Expected a text, got {value!r}: quote it ({where})")
    return str(value).strip()


def _texts(values: Any, where: str) -> tuple[str, ...]:
    if not isinstance(values, list | tuple):
        raise DataError(f"Expected a list, got {values!r} ({where})")
    return tuple(_text(value, where) for value in values)


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise DataError(f"Expected names with declarations, got {value!r} ({where})")
    return value


def _refuse_unknown_keys(value: Mapping[Any, Any], known: set[str], where: str) -> None:
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        remedy = did_you_mean(unknown[0], known) or f"known: {', '.join(sorted(known))}"
        raise DataError(f"Unknown key {unknown[0]!r} ({where}); {remedy}")


def _refuse_placeholders(content: Any, name: str) -> None:
    unfilled = list(_placeholders(content, ""))
    if unfilled:
        more = f" and {len(unfilled) - 3} more" if len(unfilled) > 3 else ""
        raise DataError(f"{name} is not filled in: replace {PLACEHOLDER} at {', '.join(unfilled[:3])}{more}")


def _placeholders(content: Any, where: str) -> list[str]:
    if isinstance(content, Mapping):
        return [p for key, value in content.items() for p in _placeholders(value, f"{where}.{key}".strip("."))]
    if isinstance(content, list):
        return [p for value in content for p in _placeholders(value, where)]
    return [where] if content == PLACEHOLDER else []


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


class _StrictLoader(yaml.SafeLoader):
    """Refuses a mapping that holds a key twice, of which YAML would silently keep the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"key {twice[0]!r} twice", node.start_mark)
        return super().construct_mapping(node, deep)
