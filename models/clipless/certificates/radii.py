"""Certificate radii as users write them, a number or a fraction, and how many draws a smoothed one may take."""

from fractions import Fraction
from math import inf

MOST_DRAWS = 10**7


def parse_radius(text: str) -> float:
    """Return the radius written as a number or a fraction.

    >>> parse_radius("36/255") == 36 / 255, parse_radius("0.25")
    (True, 0.25)

    Raises:
        ValueError: not a number or fraction, or not positive.
    """
    try:
        radius = float(Fraction(text.strip()) if "/" in text else text)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise ValueError(f"Expected a radius as a number or fraction like 36/255, got {text!r}") from error
    if not 0.0 < radius < inf:
        raise ValueError(f"Expected a radius > 0 as a number or fraction like 36/255, got {text!r}")
    return radius
