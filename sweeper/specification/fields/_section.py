"""Sections of a spec: pydantic models that refuse unknown keys and coerce nothing.

An option of a trial is declared once, in the configuration that trials read: ``learning_rate: Annotated[float,
Option(POSITIVE, 0.01)]`` is a number for the code that trains. `open_section` makes the section of the spec, where the
same option takes a number, a list or a range, with that default.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, create_model
from pydantic.fields import FieldInfo

from sweeper.records import Scalar
from sweeper.specification.fields.choices import COUNT, POSITIVE
from sweeper.specification.fields.fields import FieldType
from sweeper.specification.fields.messages import bad_value

ONE_COUNT, ONE_POSITIVE = replace(COUNT, fixed=True), replace(POSITIVE, fixed=True)
REQUIRED = ...
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Section(BaseModel):
    """Base of the sections."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, validate_default=True)


class SweepName(FieldType):
    """A name that can be a folder and an experiment."""

    def parse(self, value: Any) -> str:
        """Return the name."""
        if isinstance(value, str) and _FILE_NAME.fullmatch(value):
            return value
        raise bad_value("a {name} of up to 100 letters, digits, '.', '_' and '-', a letter or digit first")

    def json_schema(self) -> dict[str, Any]:
        """Text of that pattern."""
        return {"type": "string", "pattern": f"^{_FILE_NAME.pattern}$"}


@dataclass(frozen=True, slots=True)
class Condition:
    """The dimension ``parent`` holds one of ``values``."""

    parent: str
    values: frozenset[str]

    def holds(self, chosen: Mapping[str, Scalar]) -> bool:
        """Whether it does, given the values chosen so far."""
        return chosen.get(self.parent) in self.values


@dataclass(frozen=True, slots=True)
class Option:
    """What a spec takes for one value of a configuration."""

    field: FieldType | type  # what it may hold; a plain type for one value of that type
    default: Any = None  # what it is if left out, `REQUIRED` if it must not be
    when: Condition | None = None  # the condition under which a trial has it; without one, every trial has


class OpenSection(Section):
    """Base of the sections made by `open_section`, whose fields no type checker sees."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def option_of(field: FieldInfo) -> Option | None:
    """Return the option that a field of a configuration or of a section declares, if any."""
    return next((one for one in field.metadata if isinstance(one, Option)), None)


def open_section(configuration: type[BaseModel]) -> type[OpenSection]:
    """Return the section of a spec that has the options of a configuration, in their order."""
    fields: dict[str, Any] = {}
    for name, declared in configuration.model_fields.items():
        option = option_of(declared)
        if option is not None:
            kind: Any = option.field if isinstance(option.field, type) else Annotated[Any, option.field]
            fields[name] = Annotated[kind | None if option.default is None else kind, option], option.default
    return create_model(f"Open{configuration.__name__}", __base__=OpenSection, __module__=__name__, **fields)
