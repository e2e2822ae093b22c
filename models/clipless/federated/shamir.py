"""Shares of a secret (Shamir 1979): so many of them give it back, and fewer say nothing about it.

Secrets are 32 bytes; shares are numbers modulo the smallest prime above 2^256.
"""

import secrets
from collections.abc import Mapping
from typing import Final

from clipless.errors import FederationError

_PRIME = 2**256 + 297
SHARE_BYTES: Final = 33
_SECRET_BYTES = 32


def split(secret: bytes, needed: int, holders: int) -> list[bytes]:
    """Return the shares of holders 1, 2, .., of which ``needed`` give the secret back.

    Guarantees:
        Any ``needed - 1`` shares are uniform and independent of the secret.

    Raises:
        FederationError: more are needed than there are.
    """
    if not 1 <= needed <= holders:
        raise FederationError(f"Expected 1 to {holders} shares to be needed, got {needed!r}")
    polynomial = [int.from_bytes(secret, "big"), *(secrets.randbelow(_PRIME) for _ in range(needed - 1))]
    return [_value(polynomial, holder).to_bytes(SHARE_BYTES, "big") for holder in range(1, holders + 1)]


def _value(polynomial: list[int], x: int) -> int:
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * x + coefficient) % _PRIME
    return value


def weights(holders: tuple[int, ...]) -> tuple[int, ...]:
    """Return the weights of some holders' shares in the secret (Lagrange, at 0)."""
    found = []
    for own in holders:
        top = bottom = 1
        for other in holders:
            if other != own:
                top, bottom = top * other % _PRIME, bottom * (other - own) % _PRIME
        found.append(top * pow(bottom, -1, _PRIME) % _PRIME)
    return tuple(found)


def join(shares: Mapping[int, bytes], weighted: Mapping[int, int]) -> bytes | None:
    """Return the secret from the shares of holders with their `weights`; None if they do not fit together."""
    secret = sum(weight * int.from_bytes(shares[holder], "big") for holder, weight in weighted.items()) % _PRIME
    return secret.to_bytes(_SECRET_BYTES, "big") if secret < 2 ** (8 * _SECRET_BYTES) else None
