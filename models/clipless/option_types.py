"""Types of options with their ranges: the one declaration that a builder, a loss and a spec read.

An option is a keyword of an architecture or an attribute of a loss; its annotation says what it may hold. Importing
this module, and whatever declares options, imports no torch: a spec is read without it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le, Lt, MultipleOf

Count = Annotated[int, Ge(1)]
Even = Annotated[int, Ge(2), MultipleOf(2)]
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Lt(1)]


@dataclass(frozen=True, slots=True, init=False)
class OneOf:
    """The names by which a spec chooses the value of an option."""

    names: tuple[str, ...]

    def __init__(self, names: Iterable[str]) -> None:
        object.__setattr__(self, "names", tuple(names))


@dataclass(frozen=True, slots=True)
class Probabilities:
    """One public probability for each class."""


__all__ = ["Count", "Even", "Ge", "Le", "MultipleOf", "NonNegative", "OneOf", "Positive", "Probabilities", "Share"]
