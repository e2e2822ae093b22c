"""One end of the conversation of a party, or of the analyst, with a server: sealed messages by HTTP POST."""

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from urllib.parse import quote

from clipless.errors import FederationError
from clipless.federated.channel import SESSION_BYTES, Channel
from clipless.federated.primitives import Identity
from sweeper.errors import SweeperError
from sweeper.federated.federation import Federation
from sweeper.specification.addresses import NoRedirection

SESSION = "session"
CONTENT_TYPE = "application/octet-stream"
ROUNDS = 5  # a server waits at most once in each before it answers
_SLACK_SECONDS = 60.0
_MOST_BYTES = 2**31
_OPENER = urllib.request.build_opener(NoRedirection, urllib.request.ProxyHandler({}))


@dataclass
class Conversation:
    """A conversation.

    Guarantees:
        An answer is taken only if the server made it in this conversation, in answer to this end: nothing that was
        recorded of another one, with whatever process of the server, is an answer here.
    """

    url: str
    session: bytes  # of the server's process and of the federation
    _nonce: bytes  # of this conversation, the server's half first
    _channel: Channel
    _timeout: float
    bits: int = 0  # sent in both directions so far

    @classmethod
    def to(cls, federation: Federation, server: str, own: str, identity: Identity) -> "Conversation":
        """Begin a conversation with a server.

        Raises:
            SweeperError: it cannot be reached, or there is no such server.
        """
        url = str(federation.server(server).url).rstrip("/")
        timeout = ROUNDS * federation.wait_seconds + _SLACK_SECONDS
        drawn = _fetch(urllib.request.Request(f"{url}/{SESSION}"), server, timeout)
        if len(drawn) != 2 * SESSION_BYTES:
            raise SweeperError(f"Expected a server of this federation at {url}, got another answer")
        # what the server sends here could be a recording: this end's half of the nonce makes the keys fresh for it
        nonce = drawn[:SESSION_BYTES] + os.urandom(SESSION_BYTES)
        session = drawn[SESSION_BYTES:] + federation.digest
        channel = Channel.between(identity, own, server, federation.key_of(server), nonce + session)
        return cls(url, session, nonce, channel, timeout)

    def ask(self, kind: str, message: bytes = b"") -> bytes:
        """Send a message and return the answer.

        Raises:
            SweeperError: the server cannot be reached, or refuses it.
            clipless.errors.FederationError: the answer is not its own.
        """
        sealed = self._channel.seal(kind, message)
        address = f"{self.url}/{self._nonce.hex()}/{quote(self._channel.own, safe='')}/{kind}"
        headers = {"Content-Type": CONTENT_TYPE}
        request = urllib.request.Request(address, data=sealed, headers=headers, method="POST")
        answer = _fetch(request, self._channel.other, self._timeout)
        self.bits += 8 * (len(sealed) + len(answer))
        return self._channel.open(kind, answer)


def _fetch(request: urllib.request.Request, server: str, timeout: float) -> bytes:
    try:
        with _OPENER.open(request, timeout=timeout) as answer:
            found: bytes = answer.read(_MOST_BYTES)
            return found
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(error, server) from None
    except (OSError, HTTPException) as error:
        inner = getattr(error, "reason", error)
        reason = getattr(inner, "strerror", None) or type(inner).__name__
        raise SweeperError(f"Cannot reach the server {server!r} at {request.full_url}: {reason}") from None


def _refusal(error: urllib.error.HTTPError, server: str) -> Exception:
    try:
        detail = json.loads(error.read(10_000))["detail"]
    except (OSError, ValueError, KeyError, TypeError):
        return SweeperError(f"The server {server!r} answers {error.code}, not as one of a federation does")
    return FederationError(f"The server {server!r} refuses: {detail}")
