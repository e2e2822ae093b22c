"""Two servers that hold a key each of every row's comparison function, and count without the parties.

A party sends keys once and may then go offline. The servers evaluate whatever thresholds are asked for, add noise, and
send one word for each sum; the two words sum to the count with both servers' noise.

Shape letters: R rows, K keys, C groups, T thresholds, M sums.
"""

from dataclasses import dataclass

import numpy as np

from clipless.errors import FederationError
from clipless.federated.comparison import ComparisonKeys, evaluate, from_bytes, key_bits, share, to_bytes
from clipless.federated.primitives import Words, digest, from_words, to_words
from clipless.federated.query import Integers, PartyRows, Query

SERVERS = 2
_WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class Upload:
    """The public form of the parties' messages."""

    levels: int  # n, of a domain with 2^n thresholds
    groups: int  # C, of rows
    # keys that each party sends, by name: how many rows it may have. Keys beyond its rows count nothing and look
    # like any others, so that nobody learns how many rows it has
    capacity: tuple[tuple[str, int], ...]

    def of(self, party: str) -> int:
        """Return how many keys a party sends.

        Raises:
            FederationError: there is no such party.
        """
        found = dict(self.capacity).get(party)
        if found is None:
            raise FederationError("Expected a party of the roster, got another", party)
        return found

    def upload_bytes(self, party: str) -> int:
        """Return how long a party's message to one server is.

        Raises:
            FederationError: there is no such party.
        """
        return self.of(party) * key_bits(self.levels, self.groups) // 8


def upload(party: str, rows: PartyRows, form: Upload) -> tuple[bytes, bytes]:
    """Return a party's messages to the two servers.

    Guarantees:
        What either server is sent is computationally independent of places, groups and number of the rows.

    Raises:
        FederationError: more rows than the party may have, or places or groups that there are none of.
    """
    capacity = form.of(party)
    if len(rows) > capacity:
        raise FederationError(f"Expected {capacity} rows at most, got more; declare more for all to see", party)
    if not ((rows.groups >= 0) & (rows.groups < form.groups)).all():
        raise FederationError(f"Expected groups below {form.groups}, got others", party)
    places_K = np.zeros(capacity, dtype=np.int64)
    betas_KC = np.zeros((capacity, form.groups), dtype=np.uint32)
    places_K[: len(rows)] = rows.places
    betas_KC[np.arange(len(rows)), rows.groups] = 1
    first, second = share(places_K, betas_KC, form.levels)
    return to_bytes(first).tobytes(), to_bytes(second).tobytes()


class KeyServer:
    """One of two servers.

    Args:
        number: 0 or 1.
        form: of uploads.
        epsilon: what all evaluations together may spend of the rows that sent keys.

    Guarantees:
        Under the relation of each query, whoever sees the sums and all that the other server has and any parties have,
        learns of a row of another party no more than epsilon-differential privacy allows (computationally), because
        this server's noise alone is that of `clipless.curves.release.Laplace`. Queries beyond ``epsilon`` in total are
        refused.
    """

    def __init__(self, number: int, form: Upload, epsilon: float) -> None:
        self.number, self.form = number, form
        self._epsilon, self._spent = epsilon, 0.0
        self._keys: dict[str, ComparisonKeys] = {}
        self.evaluated = False  # or is being evaluated: it takes no further keys

    def take(self, party: str, content: bytes) -> None:
        """Take a party's keys.

        Raises:
            FederationError: an unknown party, keys that are none, a second upload, or one after an evaluation.
        """
        capacity = self.form.of(party)
        if party in self._keys:
            raise FederationError("Expected its keys once, got them again", party)
        if self.evaluated:
            raise FederationError("Expected keys before the first evaluation, got some after it", party)
        try:
            keys = from_bytes(content, self.number, self.form.levels, self.form.groups)
        except FederationError as error:
            raise FederationError(str(error), party) from None
        if len(keys) != capacity:
            raise FederationError(f"Expected {capacity} keys, got {len(keys)}", party)
        self._keys[party] = keys

    def list_held(self) -> dict[str, bytes]:
        """Return the parties whose keys it has, each with a digest of the common part of both servers' keys."""
        return {
            party: digest(keys.corrections.tobytes(), keys.controls.tobytes(), keys.words.tobytes())
            for party, keys in self._keys.items()
        }

    def evaluate(self, query: Query, parties: tuple[str, ...]) -> Words:
        """Return its words of the sums over some parties, (C, M / C), with its noise.

        Raises:
            FederationError: the query would spend more than may be spent, or does not fit the keys; parties that sent
                none, or that are named twice, whose rows would count twice.
        """
        if len(set(parties)) < len(parties):
            raise FederationError(f"Expected each party once, got {', '.join(parties)}")
        for party in parties:
            if party not in self._keys:
                raise FederationError("Expected its keys, got none", party)
        if not parties or query.groups != self.form.groups or query.thresholds[-1] >= 2**self.form.levels:
            raise FederationError("Expected a query of these groups and this domain over some parties, got another")
        query.check_rows(sum(map(self.form.of, parties)), query.noise_of(SERVERS, 1))
        self._spend(query.epsilon)
        noise = to_words(query.noise(query.noise_of(1, 1)))
        thresholds_T = np.array(query.thresholds, dtype=np.int64)
        counts = sum(evaluate(self._keys[party], thresholds_T).T for party in parties)
        return to_words(query.sums(from_words(np.asarray(counts)))) + noise

    def _spend(self, epsilon: float) -> None:
        if not self._spent + epsilon <= self._epsilon:
            raise FederationError(
                f"Expected queries of epsilon {self._epsilon:g} in all, got {epsilon:g} beyond {self._spent:g}; "
                f"more need new keys of the parties"
            )
        self._spent, self.evaluated = self._spent + epsilon, True


def agreed_parties(first: dict[str, bytes], second: dict[str, bytes]) -> tuple[str, ...]:
    """Return the parties whose keys both servers hold, by the answers of `KeyServer.list_held`.

    Raises:
        FederationError: keys of a party that are not two halves of one upload.
    """
    both = [party for party in first if party in second]
    for party in both:
        if first[party] != second[party]:
            raise FederationError("Expected keys that belong together, got others on the two servers", party)
    return tuple(both)


def combine(words: tuple[Words, Words]) -> Integers:
    """Return the sums, noise included, from both servers' words."""
    return from_words(words[0] + words[1])


def communication_bits(keys: int, levels: int, query: Query) -> int:
    """Return the bits of keys to two servers, and of one query and its answers, without sealing and names."""
    threshold_bits = _WORD_BITS * len(query.thresholds)
    return SERVERS * (keys * key_bits(levels, query.groups) + threshold_bits + _WORD_BITS * query.size)
