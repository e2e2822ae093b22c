"""How long the body of a request may be: told by what it announces, and counted as it comes."""

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sweeper.errors import RefusalError
from sweeper.service.problems import id_of, problem


class BodyLimitMiddleware:
    """Refuses long bodies before anything parses them; ``most_below`` has stricter limits by how paths begin."""

    def __init__(self, app: ASGIApp, most: int, most_below: dict[str, int]) -> None:
        self._app, self._most, self._most_below = app, most, most_below

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through whose body is short enough, as far as it says."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = next((n for start, n in self._most_below.items() if scope["path"].startswith(start)), self._most)
        announced = Headers(scope=scope).get("content-length", "0")
        if not (announced.isascii() and announced.isdecimal() and len(announced) < 19 and int(announced) <= most):
            await problem(413, _too_long(most), id_of(Request(scope)), {"Connection": "close"})(scope, receive, send)
            return
        counted = 0

        async def count() -> Message:
            nonlocal counted
            message = await receive()
            counted += len(message.get("body", b""))
            if counted > most:
                raise RefusalError(_too_long(most), 413)
            return message

        await self._app(scope, count, send)


def _too_long(most: int) -> str:
    return f"Expected a body of at most {most} bytes"
