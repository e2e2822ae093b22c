"""Checks of the numbers that losses take."""

from math import inf


def check_positive(name: str, value: float) -> None:
    """Raise ValueError, naming the number, unless it is positive and finite."""
    if not 0 < value < inf:
        raise ValueError(f"Expected 0 < {name} < inf, got {name}={value!r}")
