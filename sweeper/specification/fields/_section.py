"""What the sections of a spec share: pydantic models, unknown keys refused, nothing coerced."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict

from sweeper.specification.fields.choices import COUNT, POSITIVE
from sweeper.specification.fields.fields import FieldType, Number
from sweeper.specification.fields.messages import bad_value


class Section(BaseModel):
    """Base of the sections."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, validate_default=True)


def fixed_number(domain: Number, **changes: Any) -> Number:
    """Return a domain of one value for the whole sweep."""
    return Number(**{**domain.__dict__, **changes, "fixed": True})


ONE_COUNT = fixed_number(COUNT)
ONE_POSITIVE = fixed_number(POSITIVE)


_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


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
