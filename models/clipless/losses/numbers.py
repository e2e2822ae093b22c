"""Checks of the numbers that losses take."""

from math import inf


def check_positive(name: str, value: float) -> None:
    """Refuse anything but a positive, finite number.

    Raises:
        ValueError: naming the number.
    """
    if not 0 < value < inf:
        raise ValueError(f"Expected 0 < {name} < inf, got {name}={value!r}")
