"""What the servers of each protocol do with messages that were opened; nothing of HTTP.

A service runs in one event loop, and is given one message of a sender at a time.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from clipless.errors import FederationError
from clipless.federated.aggregation.roster import ROUNDS
from clipless.federated.aggregation.server import AggregationServer
from clipless.federated.function_sharing import KeyServer
from clipless.federated.primitives import Words, to_words
from clipless.federated.query import Query
from sweeper.federated.federation import ANALYST, Federation

READY, COUNTS, UPLOAD, HELD, EVALUATE, RESULT = "ready", "counts", "upload", "held", "evaluate", "result"


class ProtocolServer(ABC):
    """A server of a protocol.

    Attributes:
        refused: why messages of a party were not taken, by its name.

    A party asks whether it is `READY` to be taken before it pays for taking part.
    """

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.refused: dict[str, str] = {}
        self._joined: set[str] = set()  # parties of which it has something

    @abstractmethod
    async def answer(self, sender: str, kind: str, message: bytes) -> bytes:
        """Return the answer to a message.

        Raises:
            clipless.errors.FederationError: the message cannot be taken.
        """

    def _check(self, sender: str, kind: str, of_analyst: tuple[str, ...], of_party: tuple[str, ...]) -> None:
        if kind not in (of_analyst if sender == ANALYST else of_party):
            raise FederationError(f"Expected a message that it may send, got {kind!r}", sender)

    def _check_new(self, party: str) -> None:
        """Refuse a party that could not take part any more."""
        if party in self._joined or self._is_late:
            raise FederationError("Expected its counts once and before the result, got them again or late", party)

    @property
    def _is_late(self) -> bool:
        """Whether it takes no further party."""
        return False

    def _result(self, words: Words, included: tuple[str, ...]) -> bytes:
        content = {"words": words.tolist(), "included": list(included), "refused": self.refused}
        return json.dumps(content).encode()


class CuratorService(ProtocolServer):
    """Takes counts in the clear, and gives their sums with noise, once."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation)
        self._counts: dict[str, Words] = {}
        self._told: bytes | None = None
        self._all_there = asyncio.Event()

    async def answer(self, sender: str, kind: str, message: bytes) -> bytes:
        """See `ProtocolServer.answer`."""
        self._check(sender, kind, (RESULT,), (READY, COUNTS))
        if sender != ANALYST:
            self._check_new(sender)
            if kind == COUNTS:
                self._take(sender, message)
            return b""
        await _patience(self._all_there.wait(), self.federation.wait_seconds)
        self._told = self._told or self._release()
        return self._told

    def _take(self, party: str, message: bytes) -> None:
        size = sum(release.query.size for release in self.federation.releases)
        if len(message) != 4 * size:
            raise FederationError(f"Expected {size} counts, got {len(message)} bytes", party)
        self._counts[party] = np.frombuffer(message, dtype=np.uint32)
        self._joined.add(party)
        if len(self._counts) == len(self.federation.parties):
            self._all_there.set()

    @property
    def _is_late(self) -> bool:
        return self._told is not None

    def _release(self) -> bytes:
        queries = [release.query for release in self.federation.releases]
        for query in queries:
            query.check_rows(self.federation.rows_of(list(self._counts)), query.noise_of(1, 1))
        noise = np.concatenate([to_words(query.noise(query.noise_of(1, 1))).ravel() for query in queries])
        return self._result(sum(self._counts.values(), start=noise), tuple(self._counts))


class AggregationService(ProtocolServer):
    """Leads a secure aggregation: a party's message is answered when its round is over.

    A round is over when all have answered who are expected, or after ``wait_seconds``.
    """

    def __init__(self, federation: Federation, session: bytes) -> None:
        super().__init__(federation)
        queries = [release.query for release in federation.releases]
        roster = federation.roster
        for query in queries:
            query.check_rows(federation.rows_of(roster.names), query.noise_of(len(roster), roster.enough))
        self._server = AggregationServer(roster, session, sum(query.size for query in queries))
        self._over = {round_: asyncio.Event() for round_ in ROUNDS}
        self._told: dict[str, dict[str, bytes]] = {}
        self._trouble: FederationError | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def answer(self, sender: str, kind: str, message: bytes) -> bytes:
        """See `ProtocolServer.answer`."""
        self._check(sender, kind, (RESULT,), (READY, *ROUNDS))
        if kind == READY:
            self._check_new(sender)
            return b""
        if kind == RESULT:
            await self._over[ROUNDS[-1]].wait()
            self._raise_trouble()
            return self._result(self._server.total(), self._server.included)
        if kind != self._server.round:
            raise FederationError(f"Expected its message {kind!r} in its round, got it too late or too soon", sender)
        self._server.take(sender, message)
        self._joined.add(sender)
        if not self._server.waits:
            self._close(kind)
        elif self._timer is None:
            self._wait(kind)
        await self._over[kind].wait()
        self._raise_trouble()
        return self._told[kind].get(sender, b"")

    @property
    def _is_late(self) -> bool:
        return self._server.round != ROUNDS[0]

    def _wait(self, round_: str) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.federation.wait_seconds, self._close, round_)

    def _close(self, round_: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._told[round_] = self._server.close()
            if self._server.round:
                self._wait(self._server.round)
        except FederationError as error:
            self._trouble = error
            for over in self._over.values():
                over.set()
        self._over[round_].set()

    def _raise_trouble(self) -> None:
        if self._trouble is not None:
            raise FederationError("; ".join([str(self._trouble), *self.refused.values()]))


class KeyService(ProtocolServer):
    """Holds one key of every row, and evaluates what is asked for, with its noise, within the budget.

    A question that is asked again gets the same answer, which costs nothing more.
    """

    def __init__(self, federation: Federation, number: int) -> None:
        super().__init__(federation)
        self._forms = tuple(map(federation.form, federation.releases))
        self._servers = tuple(
            KeyServer(number, form, release.query.epsilon)
            for form, release in zip(self._forms, federation.releases, strict=True)
        )
        self._evaluating = asyncio.Lock()
        self._told: dict[bytes, bytes] = {}  # by question

    async def answer(self, sender: str, kind: str, message: bytes) -> bytes:
        """See `ProtocolServer.answer`."""
        self._check(sender, kind, (HELD, EVALUATE), (READY, UPLOAD))
        if sender != ANALYST:
            self._check_new(sender)
            if kind == UPLOAD:
                self._take(sender, message)
            return b""
        if kind == HELD:
            held = [{name: key.hex() for name, key in server.list_held().items()} for server in self._servers]
            return json.dumps({"held": held, "refused": self.refused}).encode()
        async with self._evaluating:
            if message not in self._told:
                self._told[message] = await asyncio.to_thread(self._evaluate, message)
            return self._told[message]

    @property
    def _is_late(self) -> bool:
        return any(server.evaluated for server in self._servers)  # a first answer may take long

    def _take(self, party: str, message: bytes) -> None:
        start = 0
        for form, server in zip(self._forms, self._servers, strict=True):
            end = start + form.upload_bytes(party)
            server.take(party, message[start:end])
            start = end
        if start != len(message):
            raise FederationError("Expected keys of every curve, got more", party)
        self._joined.add(party)

    def _evaluate(self, message: bytes) -> bytes:
        try:
            asked: dict[str, Any] = json.loads(message)
            release = self.federation.releases[asked["release"]]
            query = Query(tuple(asked["thresholds"]), release.query.groups, asked["epsilon"], release.query.relation)
            words = self._servers[asked["release"]].evaluate(query, tuple(asked["parties"]))
        except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
            raise FederationError("Expected a query, got something else", ANALYST) from None
        return bytes(words.tobytes())


async def _patience(waiting: Any, seconds: float) -> None:
    try:
        await asyncio.wait_for(waiting, seconds)
    except TimeoutError:
        return
