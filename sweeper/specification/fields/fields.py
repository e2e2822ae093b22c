"""What a field of a spec may hold: annotations that pydantic reads.

``Number``, ``Name`` and ``Flag`` accept one value or, unless ``fixed``, a list of values or a range to search over.
``Variants`` accepts names that carry parameters of their own. NaN and infinities are never accepted.
"""

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from clipless.spelling import did_you_mean
from sweeper.records import Scalar
from sweeper.specification.fields.messages import bad_value, did_you_mean_or_known, locate, locate_each
from sweeper.specification.fields.ranges import Choices, Open, Range, to_plain

_LARGEST_INTEGER = 2**53
_SCALES = {"uniform": (False, False), "log": (True, False), "int": (False, True), "log_int": (True, True)}


class FieldType(ABC):
    """Base: subclasses say how to parse a value and how an editor may check it."""

    @abstractmethod
    def parse(self, value: Any) -> Any:
        """Return the value as the spec keeps it, or raise a mistake."""

    @abstractmethod
    def json_schema(self) -> JsonSchemaValue:
        """Return the JSON schema of what ``parse`` accepts."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        plain = core_schema.plain_serializer_function_ser_schema(_serialize)
        return core_schema.no_info_plain_validator_function(self.parse, serialization=plain)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return self.json_schema()


@dataclass(frozen=True, kw_only=True)
class Number(FieldType):
    """Numbers from a lower end on, up to an upper one if given; multiples of ``multiple_of`` if given."""

    integer: bool = False
    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None
    multiple_of: int | None = None
    fixed: bool = False
    remedy: str = ""

    def parse(self, value: Any) -> Open:
        """Return a number, ``Choices`` or ``Range``."""
        if isinstance(value, list) and not self.fixed:
            return _choices(self, value)
        if isinstance(value, dict) and not self.fixed:
            return self._range(value)
        return self.one(value)

    def one(self, value: Any) -> int | float:
        """Return one number."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            more = "" if self.fixed else "; or a list of them, or a range such as {log: [a, b]}"
            kind = "" if self.integer or self.multiple_of is not None else "a number, "
            raise bad_value(f"{kind}{self._text()}{more}", remedy=self.remedy)
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise bad_value(f"{{name}} <= {_LARGEST_INTEGER}")
        whole = not self.integer or value == value // 1
        multiple = self.multiple_of is None or value % self.multiple_of == 0
        if not (isfinite(value) and whole and multiple and self._inside(value)):  # NaN fails too
            raise bad_value(self._text(), remedy=self.remedy)
        return int(value) if self.integer else float(value)

    def _inside(self, value: float) -> bool:
        return (
            (self.above is None or value > self.above)
            and (self.at_least is None or value >= self.at_least)
            and (self.below is None or value < self.below)
            and (self.at_most is None or value <= self.at_most)
        )

    def _text(self) -> str:
        low = (self.above, "<", ">") if self.above is not None else (self.at_least, "<=", ">=")
        high = (self.below, "<") if self.below is not None else (self.at_most, "<=")
        kind = "an integer " if self.integer else ""
        kind = f"a multiple of {self.multiple_of}, " if self.multiple_of is not None else kind
        if high[0] is None:
            return f"{kind}{{name}} {low[2]} {low[0]}"
        return f"{kind}{low[0]} {low[1]} {{name}} {high[1]} {high[0]}"

    def _range(self, value: dict[str, Any]) -> Range:
        kinds = [key for key in value if key in _SCALES]
        if len(kinds) != 1 or set(value) - {kinds[0], "step"}:
            raise bad_value("a range {log: [a, b]}, {uniform: [a, b]}, {int: [a, b]} or {log_int: [a, b]}")
        log, integer = _SCALES[kinds[0]]
        ends = value[kinds[0]]
        if not (isinstance(ends, list) and len(ends) == 2):
            raise bad_value("two ends [low, high]", path=kinds[0], got=ends)
        low, high = (locate(self.one, end, kinds[0]) for end in ends)
        if not low < high:
            raise bad_value("low < high", path=kinds[0], got=ends, remedy="give one value if nothing is to be searched")
        if log and not low > 0:
            raise bad_value("low > 0 on a logarithmic scale", path=kinds[0], got=ends)
        integer = integer or self.integer
        if integer and not (low == int(low) and high == int(high)):
            raise bad_value("whole ends", path=kinds[0], got=ends)
        if self.multiple_of is not None and log:
            raise bad_value(
                f"multiples of {self.multiple_of}", path=kinds[0], got=ends, remedy="list the values instead"
            )
        given = value.get("step", self.multiple_of)
        step = None if given is None else self._step(given, high - low, log=log, integer=integer)
        ends_of_kind = (int(low), int(high)) if integer else (float(low), float(high))
        return Range(low=ends_of_kind[0], high=ends_of_kind[1], log=log, integer=integer, step=step)

    def _step(self, step: Any, width: float, *, log: bool, integer: bool) -> float:
        if log:
            raise bad_value("no step on a logarithmic scale", path="step", got=step, remedy="list the values instead")
        multiple_of = self.multiple_of if integer else None
        step = locate(Number(integer=integer, above=0, multiple_of=multiple_of, fixed=True).one, step, "step")
        if not step <= width:
            raise bad_value(f"step <= {width:g}, the width of the range", path="step", got=step)
        return float(step) if not integer else int(step)

    def json_schema(self) -> JsonSchemaValue:
        """One number, a list, or a range."""
        ends = {"exclusiveMinimum": self.above, "minimum": self.at_least}
        ends |= {"exclusiveMaximum": self.below, "maximum": self.at_most}
        ends |= {"multipleOf": self.multiple_of}
        one = {"type": "integer" if self.integer else "number"}
        one |= {key: value for key, value in ends.items() if value is not None}  # type: ignore[misc]
        if self.fixed:
            return one
        two = {"type": "array", "items": one, "minItems": 2, "maxItems": 2}
        ranges: list[JsonSchemaValue] = [
            {
                "type": "object",
                "properties": {kind: two, "step": {"type": "number", "exclusiveMinimum": 0}},
                "required": [kind],
                "additionalProperties": False,
            }
            for kind in _SCALES
        ]
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}, *ranges]}


@dataclass(frozen=True, kw_only=True)
class Name(FieldType):
    """Names out of a list."""

    names: type[Enum] | tuple[str, ...]  # what may stand there; an enumeration makes a fixed field hold its member
    fixed: bool = False  # no list of them

    def parse(self, value: Any) -> Open | Enum:
        """Return a name, the enumeration's member, or ``Choices``."""
        if isinstance(self.names, type):
            value = value.value if isinstance(value, self.names) else value
            return self.names(self.one(value)) if self.fixed else _one_or_choices(self, value)
        return self.one(value) if self.fixed else _one_or_choices(self, value)

    def one(self, value: Any) -> str:
        """Return one name."""
        known = self.known()
        if isinstance(value, str) and value in known:
            return value
        expected = f"{{name}} {' or '.join(known)}"
        raise bad_value(expected, got=value, remedy=did_you_mean(value, known))

    def known(self) -> tuple[str, ...]:
        """Return the names."""
        return tuple(member.value for member in self.names) if isinstance(self.names, type) else self.names

    def json_schema(self) -> JsonSchemaValue:
        """One name, or a list of them."""
        one = {"enum": list(self.known())}
        return one if self.fixed else {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


@dataclass(frozen=True, kw_only=True)
class Flag(FieldType):
    """True or false, or a list of both."""

    def parse(self, value: Any) -> Open:
        """Return a truth value or ``Choices``."""
        return _one_or_choices(self, value)

    def one(self, value: Any) -> bool:
        """Return one truth value."""
        if not isinstance(value, bool):
            raise bad_value("{name} true or false", got=value)
        return value

    def json_schema(self) -> JsonSchemaValue:
        """A truth value, or a list of them."""
        one = {"type": "boolean"}
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


@dataclass(frozen=True, slots=True)
class Variant:
    """A name with parameters of its own; each may be open."""

    name: str
    parameters: Mapping[str, Open] = field(default_factory=dict)

    def to_plain(self) -> Any:
        """Return the variant as a spec writes it."""
        if not self.parameters:
            return self.name
        return {"name": self.name, **{key: to_plain(value) for key, value in self.parameters.items()}}


@dataclass(frozen=True, kw_only=True)
class Variants(FieldType):
    """One or several names, each alone or with parameters of its own: ``{name: tau-cce, temperature: 2}``."""

    table: Mapping[str, Mapping[str, FieldType]]
    fixed: ClassVar[bool] = False

    def parse(self, value: Any) -> tuple[Variant, ...]:
        """Return the variants, at least one."""
        if isinstance(value, tuple) and all(isinstance(v, Variant) for v in value):
            return value
        if value == []:
            raise bad_value("at least one name")
        variants = locate_each(self.one, value) if isinstance(value, list) else (self.one(value),)
        names = [variant.name for variant in variants]
        if len(set(names)) < len(names):
            raise bad_value("each name once in a list", remedy="give one entry and open its parameters")
        return variants

    def one(self, value: Any) -> Variant:
        """Return one variant."""
        names = Name(names=tuple(self.table))
        if not isinstance(value, dict):
            return Variant(names.one(value))
        if "name" not in value:
            raise bad_value("a mapping with the key 'name'", got=value)
        name = locate(names.one, value["name"], "name")
        known = self.table[name]
        parameters = {}
        for key, given in value.items():
            if key == "name":
                continue
            if key not in known:
                raise bad_value(f"parameters of {name}", path=key, got=given, remedy=did_you_mean_or_known(key, known))
            parameters[key] = locate(known[key].parse, given, key)
        return Variant(name, parameters)

    def json_schema(self) -> JsonSchemaValue:
        """One variant, or a list of them."""
        detailed: list[JsonSchemaValue] = [
            {
                "type": "object",
                "properties": {"name": {"const": name}, **{k: d.json_schema() for k, d in parameters.items()}},
                "required": ["name"],
                "additionalProperties": False,
            }
            for name, parameters in self.table.items()
        ]
        one = {"anyOf": [{"enum": list(self.table)}, *detailed]}
        return {"anyOf": [*one["anyOf"], {"type": "array", "items": one, "minItems": 1}]}


@dataclass(frozen=True)
class NumberPerClass(FieldType):
    """One public number for each class, declared by the user and never computed from the training rows."""

    expected: str
    fits: Callable[[Sequence[float]], bool]  # whether finite numbers are what is expected

    def parse(self, value: Any) -> tuple[float, ...]:
        """Return the numbers, at least two."""
        several = isinstance(value, list | tuple) and len(value) >= 2
        if not (several and all(type(n) in (int, float) and isfinite(n) for n in value) and self.fits(value)):
            raise bad_value(self.expected)
        return tuple(map(float, value))

    def json_schema(self) -> JsonSchemaValue:
        """Two or more numbers."""
        return {"type": "array", "items": {"type": "number", "minimum": 0}, "minItems": 2}


CLASS_WEIGHTS = NumberPerClass(
    "a public weight >= 0 for each class, not all 0, such as [1, 4]",
    lambda numbers: all(n >= 0 for n in numbers) and any(n > 0 for n in numbers),
)
PRIORS = NumberPerClass(
    "a public prior between 0 and 1 for each class, summing to 1, such as [0.9, 0.1]",
    lambda numbers: all(0 < n < 1 for n in numbers) and abs(sum(numbers) - 1.0) <= 1e-6,
)


def _one_or_choices(domain: Number | Name | Flag, value: Any) -> Open:
    return _choices(domain, value) if isinstance(value, list) else domain.one(value)


def _choices(domain: Number | Name | Flag, values: list[Any]) -> Choices:
    if not values:
        raise bad_value("at least one value in a list")
    parsed: tuple[Scalar, ...] = locate_each(domain.one, values)
    if len(set(parsed)) < len(parsed):
        raise bad_value("each value once in a list")
    return Choices(parsed)


def _serialize(value: Any) -> Any:
    if isinstance(value, tuple):
        plain = [to_plain(item) for item in value]
        return plain[0] if len(value) == 1 and isinstance(value[0], Variant) else plain
    return value.value if isinstance(value, Enum) else to_plain(value)


_LONGEST_NAME, _LONGEST_PATH = 255, 4095  # bytes, on Linux


class FreeText(FieldType):
    """Words for people."""

    def parse(self, value: Any) -> str:
        """Return the words."""
        if isinstance(value, str) and value.strip():
            return value.strip()
        raise bad_value("a {name} in words")

    def json_schema(self) -> dict[str, Any]:
        """Text that is not empty."""
        return {"type": "string", "minLength": 1}


class FileName(FieldType):
    """Where a file is: names that a file system can have."""

    def parse(self, value: Any) -> str:
        """Return the path as it is."""
        if not isinstance(value, str) or not value:
            raise bad_value("the path of a file")
        longest = max(len(os.fsencode(part)) for part in Path(value).parts or ("",))
        if "\0" in value or longest > _LONGEST_NAME or len(os.fsencode(value)) > _LONGEST_PATH:
            expected = f"a path of names of at most {_LONGEST_NAME} bytes, {_LONGEST_PATH} in all, and no NUL"
            raise bad_value(expected, got=None)
        return value

    def json_schema(self) -> dict[str, Any]:
        """Text that is not empty."""
        return {"type": "string", "minLength": 1, "maxLength": _LONGEST_PATH}


class Day(FieldType):
    """A day, which YAML reads as one."""

    def parse(self, value: Any) -> str:
        """Return the day as a text, YYYY-MM-DD."""
        with contextlib.suppress(TypeError, ValueError):
            return date.fromisoformat(str(value)).isoformat()
        raise bad_value("a day, YYYY-MM-DD")

    def json_schema(self) -> dict[str, Any]:
        """Text of that format."""
        return {"type": "string", "format": "date"}
