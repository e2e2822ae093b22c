"""Numbers as people are shown them: what is claimed is never rounded down, what an attack attained never up."""

from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from math import isfinite


def round_up(epsilon: float, digits: int = 4) -> str:
    """Return epsilon with a few significant digits, never less than it is.

    >>> round_up(1.23401), round_up(3.0), round_up(float("inf"))
    ('1.235', '3', 'inf')
    """
    if not isfinite(epsilon):
        return f"{epsilon:g}"
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(epsilon)
    return f"{rounded.normalize():f}"


def round_down(attained: float, digits: int = 4) -> str:
    """Return a lower bound with a few significant digits, never more than its shortest decimal.

    >>> round_down(1.23499), round_down(1.17), round_down(float("inf"))
    ('1.234', '1.17', 'inf')
    """
    if not isfinite(attained):
        return f"{attained:g}"
    rounded = Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(repr(float(attained)))
    return f"{rounded.normalize():f}"


def exactly(declared: float) -> str:
    """Return a declared number with all its digits, as its user would write it.

    >>> exactly(3.0), exactly(3.0000049), exactly(1e-05), exactly(1.0000049e-5)
    ('3', '3.0000049', '1e-05', '1.0000049e-05')
    """
    return repr(float(declared)).removesuffix(".0")


def number_of(number: int, one: str, more: str | None = None) -> str:
    """Return a number of things; ``more`` is their plural where it is not ``one`` with an s.

    >>> number_of(1, "trial"), number_of(2, "trial"), number_of(0, "entry", "entries")
    ('1 trial', '2 trials', '0 entries')
    """
    return f"{number} {one if number == 1 else more or f'{one}s'}"


def in_brackets(interval: Sequence[float] | None) -> str:
    """Return what stands behind a score for its interval, empty without one.

    >>> in_brackets((0.8, 0.8842)), in_brackets(None)
    (' [0.800, 0.884]', '')
    """
    return "" if interval is None else f" [{interval[0]:.3f}, {interval[1]:.3f}]"
