"""The server of a secure aggregation: it passes on the parties' messages, and takes the masks off the sum.

Shape letters: V words.
"""

from collections.abc import Mapping

import numpy as np

from clipless.errors import FederationError
from clipless.federated import shamir
from clipless.federated.aggregation.party import pair_mask
from clipless.federated.aggregation.roster import (
    DIGEST_BYTES,
    FRESH_KEY,
    RECORD_BYTES,
    ROUNDS,
    SEALED_BYTES,
    SELF_MASK,
    TAG_BYTES,
    Roster,
    pieces,
    share_digest,
)
from clipless.federated.primitives import KEY_BYTES, Identity, Words, keystream


class AggregationServer:
    """One aggregation, round by round: `take` what parties send, then `close` the round for their answers.

    Who sends nothing in a round has dropped out: the words of those who sent them are summed, whoever drops out
    afterwards, as long as ``needed`` parties answer to the end.

    Args:
        roster: of all parties.
        session: bytes that belong to this aggregation alone.
        size: V, the number of words of each party.
    """

    def __init__(self, roster: Roster, session: bytes, size: int) -> None:
        self._roster, self._session, self._size = roster, session, size
        self._round = 0
        self._taken: tuple[dict[str, bytes], ...] = ({}, {}, {}, {}, {})  # by round, by party

    @property
    def round(self) -> str:
        """The name of the round that is open; empty after the last."""
        return ROUNDS[self._round] if self._round < len(ROUNDS) else ""

    @property
    def expected(self) -> frozenset[str]:
        """The parties whose messages the open round waits for."""
        if self._round == 0:
            return frozenset(self._roster.names)
        return frozenset(self._taken[self._round - 1])

    @property
    def included(self) -> tuple[str, ...]:
        """The parties whose words are in the sum, in the order of the roster."""
        return tuple(name for name in self._roster.names if name in self._taken[2])

    @property
    def waits(self) -> bool:
        """Whether an expected party has sent nothing yet."""
        return self._round < len(ROUNDS) and self.expected != frozenset(self._taken[self._round])

    def take(self, party: str, message: bytes) -> None:
        """Take a party's message of the open round.

        Raises:
            FederationError: a party that is not expected or has sent one already, or a message of another length.
        """
        self._roster.index(party)
        if not self.round or party not in self.expected:
            raise FederationError("Expected no message of it any more: it is not expected in this round", party)
        taken = self._taken[self._round]
        if party in taken:
            raise FederationError(f"Expected one message of the round {self.round!r}, got a second", party)
        count = len(self._roster)
        sizes = (KEY_BYTES, RECORD_BYTES * count, 4 * self._size, TAG_BYTES * count, shamir.SHARE_BYTES * count)
        pieces(message, sizes[self._round], 1, party, self.round)
        if self._round == len(ROUNDS) - 1:
            self._check_reveals(party, message)
        taken[party] = message

    def close(self) -> dict[str, bytes]:
        """End the open round and return the message for each party that sent one; nothing after the last.

        Raises:
            FederationError: fewer parties than are needed sent something.
        """
        taken = self._taken[self._round]
        self._roster.check_remaining(frozenset(taken), self.round)
        broadcast = (self._all_keys, self._pass_shares, self._who_is_left, self._pass_tags, dict)[self._round]()
        self._round += 1
        return broadcast

    def _all_keys(self) -> dict[str, bytes]:
        listed = b"".join(self._taken[0].get(name, bytes(KEY_BYTES)) for name in self._roster.names)
        return dict.fromkeys(self._taken[0], listed)

    def _pass_shares(self) -> dict[str, bytes]:
        return {name: self._address(name, self._taken[1], RECORD_BYTES) for name in self._taken[1]}

    def _pass_tags(self) -> dict[str, bytes]:
        return {name: self._address(name, self._taken[3], TAG_BYTES) for name in self._taken[3]}

    def _address(self, holder: str, taken: Mapping[str, bytes], size: int) -> bytes:
        at, empty = self._roster.index(holder) * size, bytes(size * len(self._roster))
        listed = (taken.get(owner, empty) for owner in self._roster.names)
        return b"".join(content[at : at + size] for content in listed)

    def _who_is_left(self) -> dict[str, bytes]:
        bits = np.packbits([name in self._taken[2] for name in self._roster.names]).tobytes()
        return dict.fromkeys(self._taken[2], bits)

    def _check_reveals(self, holder: str, message: bytes) -> None:
        listed = pieces(message, shamir.SHARE_BYTES, len(self._roster), holder, "reveals")
        for owner, share in zip(self._roster.names, listed, strict=True):
            if owner in self._taken[1] and self._announce(owner, holder) != share_digest(
                self._session, owner, holder, self._secret(owner), share
            ):
                raise FederationError(f"Expected the share that {owner!r} gave it, got another", holder)

    def _announce(self, owner: str, holder: str) -> bytes:
        start = self._roster.index(holder) * RECORD_BYTES + SEALED_BYTES
        start += DIGEST_BYTES * (self._secret(owner) == FRESH_KEY)
        return self._taken[1][owner][start : start + DIGEST_BYTES]

    def _secret(self, owner: str) -> bytes:
        return SELF_MASK if owner in self._taken[2] else FRESH_KEY

    def total(self) -> Words:
        """Return the sum of the words of all whose words came, (V,).

        Raises:
            FederationError: the last round is open, or shares that do not fit together.
        """
        if self.round:
            raise FederationError(f"Expected all rounds to be over, got {self.round!r} open")
        holders = tuple(self._roster.index(name) + 1 for name in self._taken[-1])[: self._roster.needed]
        weighted = dict(zip(holders, shamir.weights(holders), strict=True))
        total_V = np.zeros(self._size, dtype=np.uint32)
        for name in self.included:
            total_V += np.frombuffer(self._taken[2][name], dtype=np.uint32)
        for owner in self._taken[1]:
            total_V -= self._masks_of(owner, self._join(owner, weighted))
        return total_V

    def _join(self, owner: str, weighted: Mapping[int, int]) -> bytes:
        at = self._roster.index(owner) * shamir.SHARE_BYTES
        listed = {
            self._roster.index(name) + 1: message[at : at + shamir.SHARE_BYTES]
            for name, message in self._taken[-1].items()
        }
        secret = shamir.join(listed, weighted)
        known = owner in self._taken[2] or (secret is not None and Identity(secret).public == self._taken[0][owner])
        if secret is None or not known:
            raise FederationError("Expected shares of one secret, got some that do not fit together", owner)
        return secret

    def _masks_of(self, owner: str, secret: bytes) -> Words:
        """Return the masks in the sum of a party: its own if it is left, otherwise those that others added for it."""
        if owner in self._taken[2]:
            return keystream(secret, self._size)
        fresh, total_V = Identity(secret), np.zeros(self._size, dtype=np.uint32)
        for other in self.included:
            total_V -= pair_mask(fresh, owner, other, self._taken[0][other], self._roster, self._session, self._size)
        return total_V
