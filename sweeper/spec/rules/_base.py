"""What a broken rule is."""

from typing import Any, NamedTuple


class BrokenRule(NamedTuple):
    """A field that breaks a rule.

    Attributes:
        field: its dotted path; empty where several fields together break it.
        got: its value, ``None`` where it says nothing.
        expected: what should stand there; ``{name}`` becomes the name of the field.
        remedy: what to do.
    """

    field: str
    got: Any
    expected: str
    remedy: str
