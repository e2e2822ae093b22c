"""How much each client may ask for: a bucket of tokens for each, and a count of open streams."""

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sweeper.errors import RefusalError
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
