"""Names of objectives: ``epsilon``, ``accuracy``, ``auroc``, ``certified@R`` and ``certified-auroc@R``.

R is a radius in units of the raw input, written as a number or a fraction and read exactly:
``certified@36/255`` is not rounded to a float before two names are compared.
"""

import re
from collections.abc import Iterable
from fractions import Fraction

from sweeper.errors import SpecError
from sweeper.records import Objective

PLAIN = ("epsilon", "accuracy", "auroc")
_CERTIFIED = "certified@"
_CERTIFIED_AUROC = "certified-auroc@"
_DECIMAL = r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+"
_RADIUS = re.compile(rf"(?:{_DECIMAL})(?:/(?:{_DECIMAL})|[eE][-+]?[0-9]{{1,3}})?")


def radius_text(name: str) -> str | None:
    """Return R of ``certified@R`` as written, ``None`` for another objective."""
    return name.removeprefix(_CERTIFIED) if name.startswith(_CERTIFIED) else None


def auroc_radius_text(name: str) -> str | None:
    """Return R of ``certified-auroc@R`` as written, ``None`` for another objective."""
    return name.removeprefix(_CERTIFIED_AUROC) if name.startswith(_CERTIFIED_AUROC) else None


def needs_two_classes(name: str) -> bool:
    """Whether the objective is one of binary tasks only."""
    return name == "auroc" or auroc_radius_text(name) is not None


def radius(name: str) -> Fraction | None:
    """Return R of ``certified@R`` or ``certified-auroc@R`` exactly, ``None`` for another objective.

    >>> radius("certified@36/255")
    Fraction(12, 85)

    Raises:
        SpecError: R is no positive number or fraction.
    """
    text = _any_radius_text(name)
    if text is None:
        return None
    if len(text) <= 40 and _RADIUS.fullmatch(text):
        numerator, _, denominator = text.partition("/")
        below = Fraction(denominator or 1)
        if below > 0 and Fraction(numerator) > 0:
            return Fraction(numerator) / below
    raise SpecError(f"Expected a radius > 0 such as 0.25 or 36/255, got {name!r}")


def parse(name: str) -> Objective:
    """Return the objective of that name.

    Raises:
        SpecError: no such objective.
    """
    if name not in PLAIN and radius(name) is None:
        raise SpecError(
            f"Expected an objective: {', '.join(PLAIN)}, {_CERTIFIED}R or {_CERTIFIED_AUROC}R, got {name!r}"
        )
    return Objective.named(name)


def same(one: str, other: str) -> bool:
    """Whether two names mean one objective.

    >>> same("certified@0.25", "certified@1/4")
    True
    """
    if one == other:
        return True
    alike = one.partition("@")[0] == other.partition("@")[0]
    return alike and radius(one) is not None and radius(one) == radius(other)


def radii(objectives: Iterable[Objective]) -> tuple[str, ...]:
    """Return the radii to certify, as written."""
    texts = (_any_radius_text(o.name) for o in objectives)
    return tuple(dict.fromkeys(text for text in texts if text is not None))


def _any_radius_text(name: str) -> str | None:
    text = radius_text(name)
    return auroc_radius_text(name) if text is None else text
