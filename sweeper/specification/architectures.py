"""Architectures that a spec may name: those of `clipless.zoo`, plug-ins, and those that the program has declared.

A plug-in is imported when a spec names it. It is an `clipless.zoo.architecture` like the package's own: it declares its
options and returns layers of `clipless.layers`. A layer of any other type is refused, so that every bound, guard and
certificate is of a rule of `clipless`.
"""

from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import create_model

from clipless.errors import UnsupportedError
from clipless.zoo import ARCHITECTURES, Architecture
from sweeper.errors import UnexpectedValueError
from sweeper.specification.fields._section import Section
from sweeper.specification.fields.choices import ARCHITECTURE_OPTIONS, MODEL_OPTIONS, Options, options_of
from sweeper.specification.fields.fields import Variant, Variants
from sweeper.specification.fields.messages import bad_value
from sweeper.specification.fields.ranges import Open
from sweeper.specification.plugins import known_architectures, load_architecture

NO_OPTIONS: Options = MappingProxyType({})


def find_architecture(name: str) -> Architecture:
    """Return the architecture of that name, a plug-in's if it is none of the package's own.

    Raises:
        SpecError: none or several of that name, a name that is taken, or a plug-in that declares no architecture.
    """
    return ARCHITECTURES[name] if name in ARCHITECTURES else load_architecture(name, ARCHITECTURES)


def architecture_options(name: str) -> Options:
    """Return the fields of the options that the architecture of that name takes.

    Raises:
        SpecError: as `find_architecture`, or an option of a type that no spec can hold.
    """
    if name in ARCHITECTURE_OPTIONS:
        return ARCHITECTURE_OPTIONS[name]
    found = find_architecture(name)
    try:
        return options_of(found)
    except (TypeError, UnsupportedError) as error:
        expected = f"options that a spec can hold ({error}) from the architecture {name}"
        raise UnexpectedValueError(expected, "others", "correct the plug-in") from error


class ArchitectureVariants(Variants):
    """One or several architectures, each with options of its own if need be."""

    def one(self, value: Any) -> Variant:
        """Return one variant; a plug-in is imported to know its options."""
        name = value.get("name") if isinstance(value, dict) else value
        if not isinstance(name, str) or name in self.table or not (own := known_architectures()):
            return super().one(value)
        options = {name: _own_options(name, "name" if isinstance(value, dict) else "")} if name in own else {}
        return Variants(table={**self.table, **dict.fromkeys(own, NO_OPTIONS), **options}).one(value)

    def json_schema(self) -> dict[str, Any]:
        """As `Variants`; of a plug-in only the name, for it is not imported."""
        schema = super().json_schema()
        if not (own := known_architectures()):
            return schema
        named = {"type": "object", "properties": {"name": {"enum": list(own)}}, "required": ["name"]}
        one = {"anyOf": [{"enum": [*self.table, *own]}, named, *schema["anyOf"][1:-1]]}
        return {"anyOf": [*one["anyOf"], {"type": "array", "items": one, "minItems": 1}]}


def _own_options(name: str, path: str) -> Options:
    try:
        return architecture_options(name)
    except UnexpectedValueError as error:
        raise bad_value(error.expected, path=path, got=name, remedy=error.remedy) from None


if TYPE_CHECKING:

    class ArchitectureSettings(Section):
        """What is trained: an architecture, or several, and the options that architectures declare."""

        architecture: tuple[Variant, ...]
        bias: Open | None
        bias_norm: Open | None
        constraint: Open | None

else:
    ArchitectureSettings = create_model(
        "ArchitectureSettings",
        __base__=Section,
        architecture=(Annotated[tuple[Variant, ...], ArchitectureVariants(table=ARCHITECTURE_OPTIONS)], ...),
        **{name: (Annotated[Open, field] | None, None) for name, field in MODEL_OPTIONS.items()},
    )
