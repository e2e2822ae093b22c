"""Authenticated, encrypted messages between two who know each other's public keys, each to be read once and in order.

The key of a direction comes from both static keys, the session, and both names, so that a message of another session,
sender or receiver is no message here. Each carries its number in its direction. Whoever does not hold one of the two
private keys can neither read, alter, repeat, reorder nor invent one; only that a message is lost cannot be prevented.
Who learns a private key later can read what was recorded (no forward secrecy).
"""

from dataclasses import dataclass, field

from clipless.errors import FederationError
from clipless.federated.primitives import SEAL_BYTES, Identity, derive, seal, unseal

SESSION_BYTES = 16
_COUNTER_BYTES = 8
OVERHEAD_BYTES = _COUNTER_BYTES + SEAL_BYTES


@dataclass(slots=True)
class Channel:
    """One end of a channel."""

    own: str  # the name of this end
    other: str  # the name of the other end
    _outgoing: bytes = field(repr=False)
    _incoming: bytes = field(repr=False)
    _sent: int = 0
    _received: int = 0

    @classmethod
    def between(cls, identity: Identity, own: str, other: str, public: bytes, session: bytes) -> "Channel":
        """Return this end of the channel to the owner of a public key.

        Args:
            identity: of this end.
            own: its name.
            other: the name of the other end.
            public: the public key of the other end.
            session: bytes of which each end that is to be protected from repetitions has drawn a part freshly.

        Raises:
            FederationError: no such public key.
        """
        secret = agree(identity, public, other)
        directions = ((own, other), (other, own))
        outgoing, incoming = (
            derive(secret, b"channel", session, *(name.encode() for name in names)) for names in directions
        )
        return cls(own, other, outgoing, incoming)

    def seal(self, kind: str, message: bytes) -> bytes:
        """Return a message as it is sent, `OVERHEAD_BYTES` longer."""
        counter = self._sent.to_bytes(_COUNTER_BYTES, "big")
        self._sent += 1
        return counter + seal(self._outgoing, message, counter + kind.encode())

    def open(self, kind: str, sealed: bytes) -> bytes:
        """Return the message of the other end.

        Raises:
            FederationError: altered, cut, repeated, out of order, of another kind, session or sender.
        """
        counter, expected = sealed[:_COUNTER_BYTES], self._received.to_bytes(_COUNTER_BYTES, "big")
        message = unseal(self._incoming, sealed[_COUNTER_BYTES:], counter + kind.encode())
        if message is None:
            raise FederationError(f"Expected its sealed message {kind!r}, got one that it did not make", self.other)
        if counter < expected:
            raise FederationError(f"Expected its next message {kind!r}, got one that is repeated", self.other)
        if counter > expected:
            raise FederationError(f"Expected its next message {kind!r}, got a later one: one is missing", self.other)
        self._received += 1
        return message


def agree(identity: Identity, public: bytes, other: str) -> bytes:
    """Return the secret shared with another.

    Raises:
        FederationError: no such public key.
    """
    try:
        return identity.agree(public)
    except ValueError:
        raise FederationError("Expected a public key of X25519, got another value", other) from None
