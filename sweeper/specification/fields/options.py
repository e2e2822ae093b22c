"""An option of a trial, declared once: in the configuration that trials read.

``learning_rate: Annotated[float, Option(POSITIVE, 0.01)]`` in a configuration is a number for the code that trains. The
section of the spec is derived from it, where the same option takes a number, a list or a range, with that default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, create_model
from pydantic.fields import FieldInfo

from sweeper.specification.fields._section import Section
from sweeper.specification.fields.fields import FieldType
from sweeper.specification.fields.ranges import Scalar

REQUIRED = ...


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
