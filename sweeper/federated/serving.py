"""A server of a federation behind a socket: opens sealed messages, hands them to its service, seals the answers."""

import contextlib
import os
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from clipless.errors import CliplessError, FederationError
from clipless.federated.channel import OVERHEAD_BYTES, SESSION_BYTES, Channel
from clipless.federated.primitives import Identity
from sweeper.errors import SweeperError
from sweeper.federated.connection import CONTENT_TYPE, SESSION
from sweeper.federated.federation import ANALYST, Federation
from sweeper.federated.services import AggregationService, CuratorService, KeyService, Service

_BYTES_PER_KEY = 2**10  # more than a row's keys of all curves have
_SLACK_BYTES = 2**20
_MOST_CONVERSATIONS = 100_000


class Inbox:
    """The messages of one server.

    Guarantees:
        A message reaches the service only if its sender made it, for this server, since this process began, under the
        same federation, and once (`clipless.federated.channel`).
    """

    def __init__(self, federation: Federation, name: str, identity: Identity) -> None:
        number = [server.name for server in federation.servers].index(federation.server(name).name)
        if federation.key_of(name) != identity.public:
            raise SweeperError(f"Expected the private key of {name!r}, got another one (--key)")
        self._process = os.urandom(SESSION_BYTES)
        self._federation, self._name, self._identity = federation, name, identity
        self._session = self._process + federation.digest
        self._service = _service(federation, number, self._session)
        self._conversations: dict[bytes, dict[str, Channel]] = {}  # by nonce: never forgotten, so that none is repeated
        self.most_bytes = _SLACK_BYTES + _BYTES_PER_KEY * max(party.rows for party in federation.parties)

    def begin(self) -> bytes:
        """Return a fresh nonce for a conversation, and what stands for this process.

        Raises:
            SweeperError: there were too many.
        """
        if len(self._conversations) >= _MOST_CONVERSATIONS:
            raise SweeperError(f"Expected at most {_MOST_CONVERSATIONS} conversations, got more; restart the server")
        nonce = os.urandom(SESSION_BYTES)
        self._conversations[nonce] = {}
        return nonce + self._process

    def _channel(self, nonce: bytes, sender: str) -> Channel:
        if nonce not in self._conversations:
            raise FederationError("Expected a conversation that this server began, got another", sender)
        channels = self._conversations[nonce]
        if sender not in channels:
            if sender != ANALYST:
                self._federation.party(sender)
            key, session = self._federation.key_of(sender), nonce + self._session
            channels[sender] = Channel.between(self._identity, self._name, sender, key, session)
        return channels[sender]

    async def answer(self, nonce: bytes, sender: str, kind: str, sealed: bytes) -> bytes:
        """Return the sealed answer to a sealed message.

        Raises:
            SweeperError: nobody of that name takes part.
            clipless.errors.FederationError: the message cannot be taken.
        """
        channel = self._channel(nonce, sender)
        try:
            message = channel.open(kind, sealed)
            return channel.seal(kind, await self._service.answer(sender, kind, message))
        except FederationError as error:
            if error.party == sender:
                self._service.refused[sender] = str(error)
            raise


def _service(federation: Federation, number: int, session: bytes) -> Service:
    match federation.protocol:
        case "curator":
            return CuratorService(federation)
        case "aggregation":
            return AggregationService(federation, session)
        case "function-sharing":
            return KeyService(federation, number)


def create_app(federation: Federation, name: str, identity: Identity) -> Starlette:
    """Return a server as an ASGI application.

    Raises:
        SweeperError: there is no such server, or it has another key.
        clipless.errors.CliplessError: a federation that cannot be run.
    """
    inbox = Inbox(federation, name, identity)

    async def session(_: Request) -> Response:
        return Response(inbox.begin(), media_type=CONTENT_TYPE)

    async def message(request: Request) -> Response:
        sender, kind = request.path_params["sender"], request.path_params["kind"]
        sealed = await _body(request, inbox.most_bytes)
        return Response(await inbox.answer(_nonce(request), sender, kind, sealed), media_type=CONTENT_TYPE)

    async def refused(_: Request, error: Exception) -> Response:
        return JSONResponse({"detail": " ".join(str(error).split())}, status_code=400)

    routes = [Route(f"/{SESSION}", session), Route("/{nonce}/{sender}/{kind}", message, methods=["POST"])]
    return Starlette(routes=routes, exception_handlers={SweeperError: refused, CliplessError: refused})


def _nonce(request: Request) -> bytes:
    try:
        return bytes.fromhex(request.path_params["nonce"])
    except ValueError:
        return b""


async def _body(request: Request, most: int) -> bytes:
    found = bytearray()
    with contextlib.suppress(ClientDisconnect):
        async for part in request.stream():
            found += part
            if len(found) > most + OVERHEAD_BYTES:
                raise FederationError("Expected a message of another length, got one that is far too long")
    return bytes(found)


def serve(federation: Federation, name: str, identity: Identity, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; ``announce`` is given the address once the socket listens.

    Raises:
        SweeperError: there is no such server, it has another key, or its address cannot be listened on.
    """
    app = create_app(federation, name, identity)
    listening = _listen(federation, name)
    host, port = listening.getsockname()[:2]
    announce(f"http://{host}:{port}")
    config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, proxy_headers=False, ws="none")
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listening])


def _listen(federation: Federation, name: str) -> socket.socket:
    parts = urlsplit(federation.server(name).url or "http://127.0.0.1:0")
    host, port = parts.hostname or "127.0.0.1", parts.port
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, 80 if port is None else port), family=family)
    except OSError as error:
        raise SweeperError(f"Cannot listen on {host}, port {port}: {error.strerror or error} (servers.url)") from error
