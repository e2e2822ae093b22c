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

A file that still holds a placeholder, an unknown key or the same key twice is refused; all its mistakes are said at
once, but for the syntax of YAML, which comes first.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from clipless.datasets.metadata import Evaluation
from clipless.datasets.splits import ColumnSplit, HashSplit, Splitting
from clipless.datasets.tables.declarations import MISSING_MARKERS, Categorical, Column, Drop, Numeric, Ranges, Text
from clipless.errors import DataError
from clipless.spelling import did_you_mean, did_you_mean_file, nearest

T = TypeVar("T")

PLACEHOLDER = "???"
_PARTS = ("train", "validation", "test")
_EXAMPLES = "{low: 0, high: 120}, {categories: [A, B]} or {drop: true}"
_KEYS = {"source", "target", "missing_markers", "columns", "others", "table", "evaluation", "unit", "block", "splits"}


def load_ranges(path: str | Path) -> Ranges:
    """Read and check a ranges file.

    Raises:
        DataError: unreadable, not YAML, unfilled, or declarations that cannot be right, a sentence for each mistake.
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
    """Check the text of a ranges file; ``name`` is for messages.

    Raises:
        DataError: not YAML, or what is wrong with it, a sentence for each mistake.
    """
    try:
        content = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise DataError(f"{name} is not valid YAML: {' '.join(str(error).split())} (data.ranges)") from None
    content = _mapping(content, f"top level of {name}")
    filled = _filled(content)
    others, evaluation = filled.get("others"), filled.get("evaluation")
    read = _read_all(
        lambda: _refuse_placeholders(content, name),
        lambda: _refuse_unknown_keys(content, _KEYS, f"top level of {name}"),
        source=lambda: _source(filled.get("source"), name),
        target=lambda: _target(filled.get("target"), name),
        columns=lambda: _columns(filled.get("columns", {}), name),
        others=lambda: None if others is None else _column(others, "others", name),
        missing_markers=lambda: _texts(filled.get("missing_markers", MISSING_MARKERS), f"missing_markers in {name}"),
        table=lambda: _optional_text(filled, "table", name),
        evaluation=lambda: None if evaluation is None else _evaluation(evaluation, name),
        unit=lambda: _optional_text(filled, "unit", name),
        splits=lambda: _splits(filled.get("splits"), name),
        block=lambda: _optional_text(filled, "block", name),
    )
    return Ranges(name=name, **read.pop("target"), **read)


def _read_all(*checks: Callable[[], object], **reads: Callable[[], Any]) -> dict[str, Any]:
    """Return what each of ``reads`` returns, by its name.

    Raises:
        DataError: the mistakes that these and ``checks`` find, all of them.
    """
    found: dict[str, Any] = {}
    mistakes: list[str] = []
    for name, read in [*(("", check) for check in checks), *reads.items()]:
        try:
            found[name] = read()
        except DataError as error:
            mistakes += error.mistakes
    if mistakes:
        raise DataError(*mistakes)
    return {name: found[name] for name in reads}


def _read_fields(
    value: Mapping[Any, Any],
    path: str,
    name: str,
    readers: Mapping[str, Callable[[Any, str], Any]],
    needed: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what ``readers`` return of their keys that are given, or ``needed``.

    Raises:
        DataError: the mistakes that they find, and the keys that none of them reads.
    """
    misspelled = {nearest(key, readers) for key in value if key not in readers}
    wanted = [key for key in readers if key in value or (key in needed and key not in misspelled)]
    reads = {key: partial(readers[key], value.get(key), f"{path}.{key} in {name}") for key in wanted}
    return _read_all(lambda: _refuse_unknown_keys(value, set(readers), f"{path} in {name}"), **reads)


def _filled(content: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return a file without what is not filled in, whose other mistakes are to be found too."""
    columns = content.get("columns")
    if isinstance(columns, Mapping):
        content = {**content, "columns": {key: one for key, one in columns.items() if not _placeholders(one, "")}}
    whole = {"source", "columns"}  # any text is a source
    return {key: value for key, value in content.items() if key in whole or not _placeholders(value, "")}


def _source(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"Expected source to say where the ranges come from, got {value!r} (source in {name})")
    return value.strip()


def _evaluation(value: Any, name: str) -> Evaluation:
    return _check(Evaluation.parse, f"evaluation in {name}", value=value)


def _columns(value: Any, name: str) -> dict[str, Column]:
    where = f"columns in {name}"
    columns = _mapping(value, where)
    read = _read_all(
        lambda: _refuse_same_names(_texts(list(columns), where), where),
        **{repr(key): partial(_column, columns[key], f"columns.{key}", name) for key in columns},
    )
    return {_text(key, where): read[repr(key)] for key in columns}


def _refuse_same_names(columns: Sequence[str], where: str) -> None:
    """Refuse keys that are one column, such as 1 and "1", of which one declaration would be lost."""
    if twice := [repr(column) for column, count in Counter(columns).items() if count > 1]:
        raise DataError(f"Expected each column once, got {', '.join(twice)} twice: declare it once ({where})")


def _optional_text(content: Mapping[Any, Any], key: str, name: str) -> str | None:
    return None if content.get(key) is None else _text(content[key], f"{key} in {name}")


def _splits(value: Any, name: str) -> Splitting | None:
    if value is None:
        return None
    where = f"splits in {name}"
    value = _mapping(value, where)
    readers: dict[str, Callable[[Any, str], Any]]
    if "column" in value:
        readers = {"column": _text, **dict.fromkeys(_PARTS, _texts)}
        return _check(ColumnSplit, where, **_read_fields(value, "splits", name, readers, _PARTS))
    readers = {"validation": _number, "test": _number, "salt": _text}
    return _check(HashSplit, where, **_read_fields(value, "splits", name, readers))


def _target(value: Any, name: str) -> dict[str, Any]:
    """Return the fields of `Ranges` that the target has."""
    value = {} if value is None else _mapping(value, f"target in {name}")
    readers = {"column": _text, "classes": class_names, "unknown": _text, "largest_share": _number}
    given = {key: one for key, one in value.items() if one is not None or key not in readers}
    read = _read_fields(given, "target", name, readers)
    return {"target" if key == "column" else key: one for key, one in read.items()}


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
    if not isinstance(value, Mapping):
        raise DataError(f"Expected a declaration such as {_EXAMPLES}, got {value!r} ({where})")
    if "drop" in value:
        _read_fields(value, path, name, {"drop": _drop})
        return Drop()
    if "categories" in value:
        read = _read_fields(value, path, name, {"categories": _texts, "unknown": _unknown_is_other})
        return _check(Categorical, where, categories=read["categories"], other=read.get("unknown", False))
    if "text" in value:
        return _check(Text, where, length=_read_fields(value, path, name, {"text": _bytes})["text"])
    if not value.keys() & {"low", "high"}:
        raise DataError(f"Expected a declaration such as {_EXAMPLES}, got {dict(value)!r} ({where})")
    readers = {"low": _number, "high": _number, "missing": _number, "bins": _as_it_is}
    return _check(Numeric, where, **_read_fields(value, path, name, readers, needed=("low", "high")))


def _check(kind: Callable[..., T], where: str, **fields: Any) -> T:
    try:
        return kind(**fields)
    except DataError as error:
        raise DataError(f"{error} ({where})") from None


def _unknown_is_other(value: Any, where: str) -> bool:
    if value not in ("zeros", "other"):
        raise DataError(f"Expected zeros or other, got {value!r} ({where})")
    return bool(value == "other")


def _drop(value: Any, where: str) -> None:
    if value is not True:
        raise DataError(f"Expected true, or a declaration instead of drop, got {value!r} ({where})")


def _bytes(value: Any, where: str) -> int:
    if type(value) is not int:
        raise DataError(f"Expected text to be a number of bytes such as 2000, got {value!r} ({where})")
    return value


def _as_it_is(value: Any, where: str) -> Any:
    del where
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, str):  # YAML 1.1 reads 1e5 as a text
        with contextlib.suppress(ValueError):
            return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"Expected a number, got {value!r} ({where})")
    try:
        return float(value)
    except OverflowError:
        raise DataError(f"Expected a number below 1e308, got one of {len(str(value))} digits ({where})") from None


def _text(value: Any, where: str) -> str:
    return _texts([value], where)[0]


def _texts(values: Any, where: str) -> tuple[str, ...]:
    if not isinstance(values, list | tuple):
        raise DataError(f"Expected a list, got {values!r} ({where})")
    wrong = [repr(one) for one in values if isinstance(one, bool) or not isinstance(one, str | int | float)]
    if wrong:
        remedy = "quote it" if len(wrong) == 1 else "quote each"
        raise DataError(f"Expected a text, got {', '.join(wrong)}: {remedy} ({where})")
    return tuple(str(value).strip() for value in values)


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise DataError(f"Expected names with declarations, got {value!r} ({where})")
    return value


def _refuse_unknown_keys(value: Mapping[Any, Any], known: set[str], where: str) -> None:
    listed = f"known: {', '.join(sorted(known))}"
    unknown = [str(key) for key in value if key not in known]
    if unknown:
        raise DataError(*(f"Unknown key {key!r} ({where}); {did_you_mean(key, known) or listed}" for key in unknown))


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
