"""A server of a federation behind a socket: opens sealed messages, hands them to its service, seals the answers."""

import contextlib
import os
import socket
from collections import OrderedDict
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
from sweeper.federated.services import AggregationService, CuratorService, KeyService, ProtocolServer

_BYTES_PER_KEY = 2**10  # more than a row's keys of all curves have
_SLACK_BYTES = 2**20
_MOST_UNUSED = 100_000  # conversations in which nothing was opened yet


class Inbox:
    """The messages of one server.

    Guarantees:
        A message reaches the service only if its sender made it, for this server, since this process began, under the
        same federation, and once (`clipless.federated.channel`). Nobody without a key is remembered, but for a nonce.
    """

    def __init__(self, federation: Federation, name: str, identity: Identity) -> None:
        number = [server.name for server in federation.servers].index(federation.server(name).name)
        if federation.key_of(name) != identity.public:
            raise SweeperError(f"Expected the private key of {name!r}, got another one (--key)")
        self._process = os.urandom(SESSION_BYTES)
        self._federation, self._name, self._identity = federation, name, identity
        self._session = self._process + federation.digest
        self._service = _service(federation, number, self._session)
        self._begun: OrderedDict[bytes, None] = OrderedDict()  # nonces in whose conversation nothing was opened yet
        self._channels: dict[tuple[bytes, str], Channel] = {}  # by both ends' nonce and sender: never forgotten
        self.most_bytes = _SLACK_BYTES + _BYTES_PER_KEY * max(party.rows for party in federation.parties)

    def begin(self) -> bytes:
        """Return a fresh nonce for a conversation, and what stands for this process.

        Anybody may ask for one: where too many are unused, the oldest is dropped, and refused when it is used.
        """
        while len(self._begun) >= _MOST_UNUSED:
            self._begun.popitem(last=False)
        nonce = os.urandom(SESSION_BYTES)
        self._begun[nonce] = None
        return nonce + self._process

    def _open(self, nonce: bytes, sender: str, kind: str, sealed: bytes) -> tuple[Channel, bytes]:
        """Open a message; the first one of a conversation uses up this server's half of the nonce."""
        known, own = self._channels.get((nonce, sender)), nonce[:SESSION_BYTES]
        if known is None and (own not in self._begun or len(nonce) != 2 * SESSION_BYTES):
            raise FederationError("Expected a conversation that this server began, got another", sender)
        channel = known or self._channel(nonce, sender)
        message = channel.open(kind, sealed)
        if known is None:
            del self._begun[own]
            self._channels[nonce, sender] = channel
        return channel, message

    def _channel(self, nonce: bytes, sender: str) -> Channel:
        if sender != ANALYST:
            self._federation.party(sender)
        key = self._federation.key_of(sender)
        return Channel.between(self._identity, self._name, sender, key, nonce + self._session)

    async def answer(self, nonce: bytes, sender: str, kind: str, sealed: bytes) -> bytes:
        """Return the sealed answer to a sealed message.

        Args:
            nonce: of the conversation: what `begin` drew, then as many bytes that the sender drew.
            sender: its name.
            kind: of the message.
            sealed: the message.

        Raises:
            SweeperError: nobody of that name takes part.
            clipless.errors.FederationError: the message cannot be taken.
        """
        channel, message = self._open(nonce, sender, kind, sealed)
        try:
            return channel.seal(kind, await self._service.answer(sender, kind, message))
        except FederationError as error:
            if error.party == sender:
                self._service.refused[sender] = str(error)
            raise


def _service(federation: Federation, number: int, session: bytes) -> ProtocolServer:
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
        number = error.errno or 0
        why = os.strerror(number) if number > 0 else error.strerror  # which may name the address again
        raise SweeperError(
            f"Cannot listen on {host}, port {port}: {why or error} (url of server {name}); choose another port"
        ) from error
