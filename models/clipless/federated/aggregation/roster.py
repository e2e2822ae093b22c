"""The parties of a secure aggregation, how many are trusted, and the messages of its five rounds.

| round | party to server | server to party |
|---|---|---|
| ``keys`` | a fresh public key | those of all |
| ``shares`` | for each other party, sealed shares of two secrets, and digests of them | what the others sealed for it |
| ``words`` | its words behind masks | who is left |
| ``agreements`` | for each other party a tag of who is left, as it was told | the tags that the others made for it |
| ``reveals`` | for each party one share: of its own mask if it is left, of its fresh key if it is not | |

Lists are in the order of the roster; who is absent has zeros.
"""

from dataclasses import dataclass
from typing import Final

from clipless.errors import FederationError
from clipless.federated.channel import OVERHEAD_BYTES
from clipless.federated.primitives import KEY_BYTES, SEAL_BYTES, digest
from clipless.federated.shamir import SHARE_BYTES

OF_ROWS: Final = "words"  # the first round in which a party sends something of its rows
ROUNDS: Final = ("keys", "shares", OF_ROWS, "agreements", "reveals")
DIGEST_BYTES: Final = 16
TAG_BYTES: Final = 16
SEALED_BYTES: Final = 2 * SHARE_BYTES + SEAL_BYTES
RECORD_BYTES: Final = SEALED_BYTES + 2 * DIGEST_BYTES
SELF_MASK, FRESH_KEY = b"self mask", b"fresh key"  # the two secrets of a party that are shared


@dataclass(frozen=True, slots=True)
class Roster:
    """The parties, public.

    Raises:
        FederationError: names that repeat, or t and c that cannot keep the secrets of n parties: 2 t > n + c.
    """

    names: tuple[str, ...]  # of the parties
    keys: tuple[bytes, ...]  # their static public keys
    colluding: int = 0  # c, of how many parties the server may know everything
    needed: int = 0  # t, how many must stay to the end; by default as few as c allows

    def __post_init__(self) -> None:
        count = len(self.names)
        if not self.needed:
            object.__setattr__(self, "needed", (count + self.colluding) // 2 + 1)
        if len(set(self.names)) != count or len(self.keys) != count:
            raise FederationError("Expected parties of different names with one key each, got others")
        if not (self.colluding >= 0 and count + self.colluding < 2 * self.needed <= 2 * count):
            raise FederationError(
                f"Expected needed <= {count} parties, more than half of parties and colluding together, got "
                f"needed={self.needed!r}, colluding={self.colluding!r}"
            )

    def __len__(self) -> int:
        """Return the number of parties: n."""
        return len(self.names)

    @property
    def enough(self) -> int:
        """How many parties' noise hides a row: of those left at least so many do not collude, t - c."""
        return self.needed - self.colluding

    def index(self, name: str) -> int:
        """Return the place of a party.

        Raises:
            FederationError: there is no such party.
        """
        if name not in self.names:
            raise FederationError("Expected a party of the roster, got another", name)
        return self.names.index(name)

    def check_remaining(self, left: frozenset[str], moment: str) -> None:
        """Refuse to go on with too few.

        Raises:
            FederationError: fewer than are needed; names those that are absent.
        """
        if len(left) < self.needed:
            absent = ", ".join(name for name in self.names if name not in left)
            raise FederationError(
                f"Expected {self.needed} parties or more after {moment}, got {len(left)}; absent: {absent}"
            )


def communication_bits(parties: int, words: int) -> int:
    """Return the bits that all parties and the server send for sums of so many words, if nobody drops out."""
    up = KEY_BYTES + parties * (RECORD_BYTES + TAG_BYTES + SHARE_BYTES) + 4 * words
    down = parties * (KEY_BYTES + RECORD_BYTES + TAG_BYTES) + bitmap_bytes(parties)
    return 8 * parties * (up + down + (2 * len(ROUNDS) - 1) * OVERHEAD_BYTES)


def bitmap_bytes(parties: int) -> int:
    """Return the length of a list of the parties that are left."""
    return -(-parties // 8)


def pieces(content: bytes, size: int, count: int, sender: str, what: str) -> list[bytes]:
    """Cut a message into records.

    Raises:
        FederationError: it has another length.
    """
    if len(content) != size * count:
        raise FederationError(f"Expected {what} of {size * count} bytes, got {len(content)}", sender)
    return [content[start : start + size] for start in range(0, len(content), size)]


def share_digest(session: bytes, owner: str, holder: str, secret: bytes, share: bytes) -> bytes:
    """Return the digest of a share that is not revealed yet; shares have 256 random bits, so that it hides them."""
    return digest(session, owner.encode(), holder.encode(), secret, share)
