"""What a broken rule is."""

from typing import Any, NamedTuple


class BrokenRule(NamedTuple):
    """A field that breaks a rule."""

    field: str  # its dotted path; empty where several fields together break it
    got: Any  # its value, ``None`` where it says nothing
    expected: str  # what should stand there; ``{name}`` becomes the name of the field
    remedy: str  # what to do
