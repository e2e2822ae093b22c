"""Records as JSON values and back, by one pydantic adapter for each type, which is made when it is first needed."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter, ValidationError

from clipless.privacy.events import PoissonGaussian
from sweeper.errors import RecordError

T = TypeVar("T")


def _event(content: Any) -> Any:
    return PoissonGaussian.from_json(content) if isinstance(content, Mapping) else content


EventValue = Annotated[PoissonGaussian, BeforeValidator(_event), PlainSerializer(PoissonGaussian.to_json)]
WHEN_KNOWN = Field(exclude_if=lambda value: value is None)
"""Of a field that is in the JSON only if it is not ``None``."""


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def dump(record: Any) -> dict[str, Any]:
    """Return a record, a dataclass, as JSON values; numbers that are not finite stay numbers."""
    content: dict[str, Any] = _adapter(type(record)).dump_python(record, mode="json", warnings=False)
    return content


def parse(kind: type[T], content: Any) -> T:
    """Return the record that JSON values say; keys that it does not have are left out.

    Raises:
        pydantic.ValidationError: a value is missing or wrong.
    """
    record: T = _adapter(kind).validate_python(content)
    return record


def read(kind: type[T], content: Any, where: str, remedy: str, under: str = "") -> T:
    """Return the record that JSON values say, as `parse`; ``where`` they are, and ``under`` which name, are for errors.

    Raises:
        RecordError: a value is missing or wrong; the first of them is named.
    """
    try:
        return parse(kind, content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, ([under] if under else []) + list(first["loc"])))
        raise RecordError(f"{first['msg']} ({field} {where}); {remedy}") from None
