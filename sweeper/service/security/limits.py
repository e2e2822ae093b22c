"""How much each client may ask for: a bucket of tokens for each, a count of open streams, and the length of a body."""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sweeper.errors import RefusalError
from sweeper.service.problems import id_of, problem
from sweeper.service.settings import Limits

KEPT_CLIENTS = 10_000


class RateLimiter:
    """Counts requests of each client."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = limits.requests_per_second, limits.burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str) -> None:
        """Take one request out of the client's bucket.

        Raises:
            RefusalError: it is empty.
        """
        if self._rate <= 0:
            return
        now = self._clock()
        level, seen = self._buckets.pop(client, (float(self._burst), now))
        level = min(float(self._burst), level + (now - seen) * self._rate)
        allowed = level >= 1.0
        self._buckets[client] = (level - 1.0 if allowed else level, now)
        if len(self._buckets) > KEPT_CLIENTS:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = str(max(1, math.ceil((1.0 - level) / self._rate)))
            raise RefusalError("Expected fewer requests at a time; try again later", 429, {"Retry-After": wait})


class StreamLimiter:
    """Counts open streams."""

    def __init__(self, limits: Limits) -> None:
        self._most, self._most_of_one = limits.streams, limits.streams_per_client
        self._open: Counter[str] = Counter()

    @property
    def open(self) -> int:
        """How many there are."""
        return self._open.total()

    @contextmanager
    def one(self, client: str) -> Iterator[None]:
        """Hold a stream open.

        Raises:
            RefusalError: there are too many already.
        """
        if self.open >= self._most or self._open[client] >= self._most_of_one:
            raise RefusalError(
                f"Expected at most {self._most_of_one} streams of one client and {self._most} of all; close another",
                429,
                {"Retry-After": "10"},
            )
        self._open[client] += 1
        try:
            yield
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]


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
