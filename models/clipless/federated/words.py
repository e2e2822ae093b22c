"""Numbers modulo 2^32, in which sums are shared: how counts become words, and that none of them wraps."""

from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from clipless.errors import FederationError
from clipless.federated.primitives import Words

WORD_BITS = 32
_DEVIATIONS = 100.0  # of noise that is taken into account: more has a chance below 1e-40


def to_words(numbers: NDArray[np.int64]) -> Words:
    """Return whole numbers modulo 2^32."""
    words: Words = (numbers & (2**WORD_BITS - 1)).astype(np.uint32)
    return words


def from_words(words: Words) -> NDArray[np.int64]:
    """Return the numbers of least magnitude."""
    return words.astype(np.int32).astype(np.int64)


def check_room(rows: int, deviation: float) -> None:
    """Refuse sums over so many rows, with noise of such a deviation, that might wrap around.

    Raises:
        FederationError: a sum may exceed 2^31.
    """
    largest = rows + _DEVIATIONS * deviation
    if not largest < 2.0 ** (WORD_BITS - 1):
        raise FederationError(
            f"Expected sums below 2^{WORD_BITS - 1}, got up to 2^{ceil(log2(largest))}; fewer rows or a larger epsilon"
        )
