"""A party of a secure aggregation: five answers, each given once.

Shape letters: V words.
"""

import os
from enum import IntEnum
from hmac import compare_digest

import numpy as np

from clipless.errors import FederationError
from clipless.federated import shamir
from clipless.federated.aggregation.roster import (
    DIGEST_BYTES,
    FRESH_KEY,
    RECORD_BYTES,
    SEALED_BYTES,
    SELF_MASK,
    TAG_BYTES,
    Roster,
    bitmap_bytes,
    pieces,
    share_digest,
)
from clipless.federated.channel import agree
from clipless.federated.primitives import KEY_BYTES, Identity, Words, derive, keystream, seal, to_words, unseal
from clipless.federated.query import PartyRows, Query

SERVER = "server"


class PartyStage(IntEnum):
    """The last answer of a party."""

    NOTHING, KEYS, SHARES, WORDS, AGREEMENTS, REVEALS = range(6)


def contribution(query: Query, rows: PartyRows, roster: Roster) -> Words:
    """Return a party's words: its sums with its share of the noise, (V,)."""
    mechanism = query.noise_of(len(roster), roster.enough)
    return to_words(query.sums(query.counts(rows)) + query.noise(mechanism)).ravel()


class AggregationParty:
    """One party, for one aggregation.

    Args:
        name: its name in the roster.
        identity: its static key.
        roster: of all parties.
        session: bytes that belong to this aggregation alone.
        words_V: what it adds to the sums.

    Guarantees:
        A server that follows the protocol, and up to ``colluding`` parties, see of its words no more than what they are
        in the sum of ``needed`` parties or more. So does a server that says different things to different parties: a
        party reveals its shares only if ``needed`` parties, itself among them, were told of the same ones who are left.
        Two such lists would have 2 (t - c) honest parties or more behind them, of n - c, which 2 t > n + c rules out.
        Keys, shares, tags and masks of one run are of no use in another, even if the server uses its session again:
        masks are made of fresh keys, and shares and tags hold only among those who were told of the same fresh keys.
    """

    def __init__(self, name: str, identity: Identity, roster: Roster, session: bytes, words_V: Words) -> None:
        self.name, self._identity, self._roster, self._session = name, identity, roster, session
        self._own, self._words_V = roster.index(name), words_V
        self._fresh, self._self_mask = Identity(), os.urandom(KEY_BYTES)
        self._stage = PartyStage.NOTHING
        self._keys: dict[str, bytes] = {}
        self._listed_keys = b""
        self._left = b""
        self._held: dict[str, tuple[bytes, bytes]] = {}  # by owner, shares of its self mask and of its fresh key

    def keys(self) -> bytes:
        """Return its fresh public key."""
        self._enter(PartyStage.KEYS)
        return self._fresh.public

    def shares(self, keys: bytes) -> bytes:
        """Share its two secrets among those whose fresh keys are there.

        Raises:
            FederationError: fewer than are needed, or a list that is none.
        """
        self._enter(PartyStage.SHARES)
        listed = pieces(keys, KEY_BYTES, len(self._roster), SERVER, "keys")
        self._listed_keys = keys
        self._keys = {name: key for name, key in zip(self._roster.names, listed, strict=True) if any(key)}
        self._roster.check_remaining(frozenset(self._keys), "keys")
        if self._keys.get(self.name) != self._fresh.public:
            raise FederationError("Expected the key of this party among all, got another", SERVER)
        secrets = (self._self_mask, self._fresh.private)
        shared = [shamir.split(secret, self._roster.needed, len(self._roster)) for secret in secrets]
        self._held[self.name] = shared[0][self._own], shared[1][self._own]
        return b"".join(map(self._record, self._roster.names, *shared))

    def _record(self, holder: str, *shares: bytes) -> bytes:
        digests = self._digests(self.name, holder, shares)
        if holder == self.name or holder not in self._keys:
            return bytes(SEALED_BYTES) + digests
        return seal(self._share_key(self.name, holder), b"".join(shares), digests) + digests

    def _digests(self, owner: str, holder: str, shares: tuple[bytes, ...]) -> bytes:
        kinds = (SELF_MASK, FRESH_KEY)
        return b"".join(
            share_digest(self._session, owner, holder, kind, share) for kind, share in zip(kinds, shares, strict=True)
        )

    def _share_key(self, owner: str, holder: str) -> bytes:
        """The key for shares of an owner for a holder: of both static keys, and for these fresh keys of all alone."""
        other = holder if owner == self.name else owner
        secret = agree(self._identity, self._roster.keys[self._roster.index(other)], other)
        return derive(secret, b"shares", self._session, owner.encode(), holder.encode(), self._listed_keys)

    def mask(self, records: bytes) -> bytes:
        """Take the others' shares and return its words behind masks.

        Raises:
            FederationError: shares that their owner did not make, or that are not those it announced; fewer parties
                than are needed.
        """
        self._enter(PartyStage.WORDS)
        listed = pieces(records, RECORD_BYTES, len(self._roster), SERVER, "shares")
        for owner, record in zip(self._roster.names, listed, strict=True):
            if owner != self.name and any(record):
                self._hold(owner, record)
        self._roster.check_remaining(frozenset(self._held), "shares")
        masked_V = self._words_V + keystream(self._self_mask, len(self._words_V))
        for other in self._held:
            if other != self.name:
                masked_V += pair_mask(
                    self._fresh, self.name, other, self._keys[other], self._roster, self._session, len(masked_V)
                )
        return masked_V.tobytes()

    def _hold(self, owner: str, record: bytes) -> None:
        if owner not in self._keys:
            raise FederationError("Expected shares of those who sent a key, got those of another", owner)
        sealed, digests = record[:SEALED_BYTES], record[SEALED_BYTES:]
        content = unseal(self._share_key(owner, self.name), sealed, digests)
        if content is None or len(digests) != 2 * DIGEST_BYTES:
            raise FederationError("Expected its sealed shares, got some that it did not make", owner)
        shares = content[: shamir.SHARE_BYTES], content[shamir.SHARE_BYTES :]
        if self._digests(owner, self.name, shares) != digests:
            raise FederationError("Expected the shares that it announced, got others", owner)
        self._held[owner] = shares

    def agreements(self, left: bytes) -> bytes:
        """Tell each other party who is left.

        Raises:
            FederationError: fewer are left than are needed, this party is not, or somebody is who never shared.
        """
        self._enter(PartyStage.AGREEMENTS)
        names = listed_names(left, self._roster)
        if not {self.name} <= names <= frozenset(self._held):
            raise FederationError("Expected those who are left to have shared, this party among them", SERVER)
        self._roster.check_remaining(names, "words")
        self._left = left
        return b"".join(self._tag(self.name, other) for other in self._roster.names)

    def _tag(self, owner: str, holder: str) -> bytes:
        """Return a tag that only these two parties can make, in this run, for the list that this party received.

        The server chooses the session and may use it again; the fresh keys it cannot.
        """
        other = holder if owner == self.name else owner
        if other == self.name:
            return bytes(TAG_BYTES)
        secret = agree(self._identity, self._roster.keys[self._roster.index(other)], other)
        context = (b"agreement", self._session, owner.encode(), holder.encode(), self._listed_keys, self._left)
        return derive(secret, *context)[:TAG_BYTES]

    def reveals(self, tags: bytes) -> bytes:
        """Give one share of each party: of its self mask if it is left, of its fresh key if not.

        Raises:
            FederationError: fewer agree on who is left than are needed, or asked a second time.
        """
        self._enter(PartyStage.REVEALS)
        listed = pieces(tags, TAG_BYTES, len(self._roster), SERVER, "agreements")
        agree = sum(
            name == self.name or compare_digest(tag, self._tag(name, self.name))
            for name, tag in zip(self._roster.names, listed, strict=True)
        )
        if agree < self._roster.needed:
            raise FederationError(
                f"Expected {self._roster.needed} parties to agree on who is left, got {agree}", SERVER
            )
        names, empty = listed_names(self._left, self._roster), bytes(shamir.SHARE_BYTES)
        chosen = ((name, self._held.get(name, (empty, empty))) for name in self._roster.names)
        return b"".join(shares[0] if name in names else shares[1] for name, shares in chosen)

    def _enter(self, stage: PartyStage) -> None:
        if stage != self._stage + 1:
            raise FederationError(f"Expected each round once and in order, got {stage.name.lower()} again", SERVER)
        self._stage = stage


def pair_mask(
    fresh: Identity, own: str, other: str, other_key: bytes, roster: Roster, session: bytes, count: int
) -> Words:
    """Return the mask that one of two parties adds for the other: opposite words for the two of them."""
    first = roster.index(own) < roster.index(other)
    names = (own, other) if first else (other, own)
    seed = derive(agree(fresh, other_key, other), b"mask", session, *(name.encode() for name in names))
    mask_V = keystream(seed, count)
    return mask_V if first else -mask_V


def listed_names(bitmap: bytes, roster: Roster) -> frozenset[str]:
    """Return the names in a list of the parties that are left.

    Raises:
        FederationError: it has another length.
    """
    pieces(bitmap, bitmap_bytes(len(roster)), 1, SERVER, "a list of who is left")
    bits = np.unpackbits(np.frombuffer(bitmap, dtype=np.uint8))[: len(roster)]
    return frozenset(name for name, bit in zip(roster.names, bits, strict=True) if bit)
