"""How tools reach a service: over the network, or in this process. Both send what any other client of it would send.

A tool has no rights of its own. Its calls pass the same check of tokens, the same limits and the same functions as
those of `sweeper.service.remote`, in the name of whoever called the tool.
"""

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import httpx2
from anyio import to_thread
from starlette.requests import Request
from starlette.types import ASGIApp

from sweeper.errors import SweeperError
from sweeper.service.client import Call, Connection, content_of, refusal

_PASSED_ON = ("authorization", "host")  # of who called the tool: their token, and the name that they used
_HERE = "http://127.0.0.1"


class Caller(Protocol):
    """Calls a service for one client."""

    async def read(self, call: Call) -> dict[str, Any]:
        """Return the JSON object that a call is answered with.

        Raises:
            SweeperError: as `sweeper.service.client.Connection.ask`.
        """


@dataclass(frozen=True, slots=True)
class RemoteCaller:
    """Calls a service of another process, with the token of its connection."""

    connection: Connection

    async def read(self, call: Call) -> dict[str, Any]:
        """As `Caller.read`."""
        return await to_thread.run_sync(self.connection.read, call)


@dataclass(frozen=True, slots=True)
class AppCaller:
    """Calls a service of this process.

    Attributes:
        app: the whole of it, with what checks every request.
        request: that called the tool, None where the client is the user of this machine who started this process.

    Guarantees:
        The service sees the token of the request and no other. A cookie is not passed on: a page that a browser has
        open can call no tool.
    """

    app: ASGIApp
    request: Request | None = None

    async def read(self, call: Call) -> dict[str, Any]:
        """As `Caller.read`."""
        asked = self.request
        headers = {} if asked is None else {name: asked.headers[name] for name in _PASSED_ON if name in asked.headers}
        headers |= {} if call.data is None else {"content-type": call.kind}
        headers |= {} if call.key is None else {"idempotency-key": call.key}
        client = ("127.0.0.1", 0) if asked is None or asked.client is None else (asked.client.host, asked.client.port)
        transport = httpx2.ASGITransport(self.app, raise_app_exceptions=False, client=client)
        query = {name: value for name, value in call.query.items() if value is not None}
        async with httpx2.AsyncClient(transport=transport, base_url=_HERE) as http:
            answer = await http.request(
                call.method, f"/api/v1{call.path}", params=query, content=call.data, headers=headers
            )
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            raise refusal(answer.status_code, answer.content, call)
        return content_of(answer.content)


def as_json(content: object) -> bytes:
    """Return the body of a call; characters that are none are escaped, and refused by the service.

    Raises:
        SweeperError: numbers that are too long to be written.
    """
    try:
        return json.dumps(content).encode()
    except (ValueError, RecursionError):
        raise SweeperError("Expected JSON of ordinary numbers and depth; simplify the arguments") from None
