"""Noisy sums of counts over parties: one interface, three protocols.

Thesis "Enhancing differentially private machine learning", section 6.2.1: an operation UStat that publishes sums with
noise that it draws and keeps secret; what is computed from the sums inherits its attack model.

| | parties trust | noise in the sums | a party sends | stays online |
|---|---|---|---|---|
| `Curator` | the curator | once | M words | no |
| `Aggregation` | that at most c parties collude | n / (t - c) times | M words, and O(n) | five rounds |
| `FunctionSharing` | that the two servers do not collude | twice | two keys for each row | no |

Everybody is assumed to follow the protocol, and may be curious (honest but curious). A party that does not follow it
can falsify the sums at will, as it can by false rows, and learns nothing more by it. Noise is that of
`clipless.curves.release.Laplace` times so many independent copies, in variance.

Here the protocols run in one process; `sweeper.federated` runs them among processes.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from clipless.errors import FederationError
from clipless.federated.aggregation.party import AggregationParty, contribution
from clipless.federated.aggregation.roster import ROUNDS, Roster
from clipless.federated.aggregation.server import AggregationServer
from clipless.federated.channel import SESSION_BYTES, Channel
from clipless.federated.function_sharing import SERVERS, KeyServer, Upload, agreed_parties, combine, upload
from clipless.federated.primitives import Identity, from_words, to_words
from clipless.federated.query import Integers, PartyRows, Query, SharedLaplace


@dataclass(frozen=True, slots=True)
class Sums:
    """The released sums."""

    counts: NDArray[np.float64]  # (C, T) with noise, made to agree
    included: tuple[str, ...]  # the parties whose rows are in them
    mechanism: SharedLaplace  # the noise in them
    bits: int = 0  # what was sent, sealing included; 0 if it was not counted


class UStat(ABC):
    """A protocol for sums over parties."""

    @abstractmethod
    def release(self, query: Query, rows: Mapping[str, PartyRows]) -> Sums:
        """Release the sums of a public query over the rows of the parties that take part, once.

        Guarantees:
            Under the query's relation the sums are epsilon-DP, also towards those who the protocol says may know more.
        """


class Curator(UStat):
    """A third party to which everybody gives counts in the clear."""

    def release(self, query: Query, rows: Mapping[str, PartyRows]) -> Sums:
        """See `UStat.release`."""
        mechanism = query.noise_of(1, 1)
        query.check_rows(sum(map(len, rows.values())), mechanism)
        sent = {party: to_words(query.sums(query.counts(own))) for party, own in rows.items()}
        noise = to_words(query.noise(mechanism))
        counts = query.reconcile(from_words(sum(sent.values(), start=noise)))
        return Sums(counts, tuple(rows), mechanism, sum(8 * words.nbytes for words in sent.values()))


Leaves = Callable[[str, str], bool]


def nobody_leaves(round_: str, party: str) -> bool:
    """Return False: whether a party drops out before its message of a round."""
    del round_, party
    return False


@dataclass
class Aggregation(UStat):
    """Secure aggregation (Bonawitz et al., 2017).

    Guarantees:
        See `AggregationParty`. Each of the t or more parties whose words are summed adds noise of power 1 / (t - c),
        and at least t - c of them do not collude: the noise that a coalition does not know is enough for epsilon.
    """

    colluding: int = 0  # how many parties may collude with the server
    needed: int = 0  # how many must stay to the end; see `Roster`
    leaves: Leaves = nobody_leaves  # which parties drop out before which round, to simulate drop-outs
    _bits: int = field(default=0, init=False)

    def release(self, query: Query, rows: Mapping[str, PartyRows]) -> Sums:
        """See `UStat.release`."""
        self._bits, session, server_key = 0, os.urandom(SESSION_BYTES), Identity()
        identities = {party: Identity() for party in rows}
        keys = tuple(identity.public for identity in identities.values())
        roster = Roster(tuple(rows), keys, self.colluding, self.needed)
        query.check_rows(sum(map(len, rows.values())), query.noise_of(len(roster), roster.enough))
        ends = {
            party: (
                Channel.between(identity, party, "server", server_key.public, session),
                Channel.between(server_key, "server", party, identity.public, session),
            )
            for party, identity in identities.items()
        }
        parties = {
            party: AggregationParty(party, identities[party], roster, session, contribution(query, own, roster))
            for party, own in rows.items()
        }
        server = AggregationServer(roster, session, query.size)
        self._run(server, parties, ends)
        counts = query.reconcile(from_words(server.total()).reshape(query.groups, -1))
        mechanism = query.noise_of(len(server.included), roster.enough)
        return Sums(counts, server.included, mechanism, self._bits)

    def _run(
        self,
        server: AggregationServer,
        parties: Mapping[str, AggregationParty],
        ends: Mapping[str, tuple[Channel, Channel]],
    ) -> None:
        broadcast = dict.fromkeys(parties, b"")
        for round_ in ROUNDS:
            for party in sorted(server.expected, key=list(parties).index):
                if not self.leaves(round_, party):
                    message = answer(parties[party], round_, broadcast[party])
                    server.take(party, self._carry(round_, message, *ends[party]))
            replies = server.close()
            broadcast = {party: self._carry(round_, reply, *ends[party][::-1]) for party, reply in replies.items()}

    def _carry(self, kind: str, message: bytes, sender: Channel, receiver: Channel) -> bytes:
        sealed = sender.seal(kind, message)
        self._bits += 8 * len(sealed)
        return receiver.open(kind, sealed)


def answer(party: AggregationParty, round_: str, broadcast: bytes) -> bytes:
    """Return a party's message of a round, given the broadcast after the one before."""
    match round_:
        case "keys":
            return party.keys()
        case "shares":
            return party.shares(broadcast)
        case "words":
            return party.mask(broadcast)
        case "agreements":
            return party.agreements(broadcast)
        case "reveals":
            return party.reveals(broadcast)
    raise FederationError(f"Expected a round out of {', '.join(ROUNDS)}, got {round_!r}")


@dataclass
class FunctionSharing(UStat):
    """Function secret sharing of comparison functions between two servers.

    Guarantees:
        See `KeyServer`.
    """

    levels: int  # n, of a domain with 2^n thresholds
    # how many keys each party sends; by default as many as the largest has rows, which tells that number
    capacity: int = 0
    absent: Collection[str] = ()  # parties that send no keys, to simulate drop-outs

    def release(self, query: Query, rows: Mapping[str, PartyRows]) -> Sums:
        """See `UStat.release`."""
        capacity = self.capacity or max(map(len, rows.values()))
        form = Upload(self.levels, query.groups, tuple((party, capacity) for party in rows))
        servers = [KeyServer(number, form, query.epsilon) for number in range(SERVERS)]
        bits = 0
        for party, own in rows.items():
            if party not in self.absent:
                for server, content in zip(servers, upload(party, own, form), strict=True):
                    server.take(party, content)
                    bits += 8 * len(content)
        included = agreed_parties(servers[0].list_held(), servers[1].list_held())
        first, second = (server.evaluate(query, included) for server in servers)
        bits += SERVERS * 32 * len(query.thresholds) + 8 * (first.nbytes + second.nbytes)
        return Sums(query.reconcile(combine((first, second))), included, query.noise_of(SERVERS, 1), bits)


def exact(query: Query, rows: Mapping[str, PartyRows]) -> Integers:
    """Return the sums without noise, which hide nothing: to compare with."""
    empty = np.zeros((query.groups, len(query.thresholds)), dtype=np.int64)
    return sum((query.counts(own) for own in rows.values()), start=empty)
