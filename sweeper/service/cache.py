"""The cache of everything made of sweeps: each value is made once for each state of a sweep and shared by all requests.

Threads call `SharedCache.get`; the event loop awaits `SharedCache.get_async`, whose callers hold no thread while they
wait. Requests that come while a value is being made wait for that one instead of making it again.
"""

import asyncio
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    """A value that was made: the future holds it."""

    future: "Future[T]"
    version: Hashable
    made: float
    size: float


class SharedCache(Generic[T]):
    """Values by key, each for one version and for a time; safe to use from several threads.

    Args:
        limit: of the sizes of all values together; those not asked for longest are dropped first.
        size: of a value; by default ``limit`` counts values.
        clock: tells seconds.

    Guarantees:
        A value is made once for each version, however many callers ask for it at a time. An error in making it is
        raised to every caller that waits and is not kept. Making one value delays no other.
    """

    def __init__(
        self,
        limit: float = math.inf,
        size: Callable[[T], float] = lambda _: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit, self._size, self._clock = limit, size, clock
        self._kept: OrderedDict[Hashable, _Entry[T]] = OrderedDict()
        self._total = 0.0
        self._making: dict[Hashable, tuple[Hashable, Future[T]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds tasks weakly
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def total(self) -> float:
        """The sizes of all values together."""
        return self._total

    def peek(self, key: Hashable) -> T | None:
        """Return the value that is kept, of whichever version and age; None without one."""
        with self._lock:
            entry = self._kept.get(key)
        return None if entry is None else entry.future.result()

    def get(
        self, key: Hashable, make: Callable[[], T], version: Hashable = None, max_age_seconds: float = math.inf
    ) -> T:
        """Return the value of this version, making it in this thread unless another one does.

        Args:
            key: names the value.
            make: makes it; must not ask for the same key.
            version: of what it is made of; a value of another version is not returned.
            max_age_seconds: after which it is made anew although the version is the same.
        """
        future, is_first, _ = self._claim(key, version, max_age_seconds)
        if is_first:
            try:
                self._keep(key, version, future, make())
            except BaseException as error:
                self._give_up(key, future, error)
        return future.result()

    async def get_async(
        self,
        key: Hashable,
        make: Callable[[], Awaitable[T]],
        version: Hashable = None,
        max_age_seconds: float = math.inf,
        stale_seconds: float = 0.0,
    ) -> T:
        """Return the value of this version; the making continues even if every caller that waits is cancelled.

        A value of this version that is older than ``max_age_seconds``, but not ``stale_seconds`` old, is
        returned at once while the next one is made.
        """
        future, is_first, entry = self._claim(key, version, max_age_seconds)
        if is_first:
            task = asyncio.create_task(self._make(key, version, future, make))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if entry is not None and self._clock() - entry.made < stale_seconds:
            future = entry.future
        return future.result() if future.done() else await asyncio.wrap_future(future)

    def forget(self, key: Hashable) -> None:
        """Make the value anew next time, and keep nothing of a making that began before; for any thread."""
        with self._lock:
            self._making.pop(key, None)
            self._drop(key)

    def _claim(self, key: Hashable, version: Hashable, max_age: float) -> tuple["Future[T]", bool, _Entry[T] | None]:
        """Return the future of the value, whether the caller is to make it, and a value of this version if kept."""
        with self._lock:
            entry = self._kept.get(key)
            if entry is not None and entry.version != version:
                entry = None
            if entry is not None and self._clock() - entry.made < max_age:
                self._kept.move_to_end(key)
                return entry.future, False, entry
            known = self._making.get(key)
            if known is not None and known[0] == version:
                return known[1], False, entry
            future: Future[T] = Future()
            future.set_running_or_notify_cancel()  # from now on no caller that waits can cancel it
            self._making[key] = (version, future)
            return future, True, entry

    async def _make(
        self, key: Hashable, version: Hashable, future: "Future[T]", make: Callable[[], Awaitable[T]]
    ) -> None:
        try:
            self._keep(key, version, future, await make())
        except BaseException as error:
            self._give_up(key, future, error)
            if not isinstance(error, Exception):
                raise

    def _keep(self, key: Hashable, version: Hashable, future: "Future[T]", value: T) -> None:
        size = self._size(value)
        with self._lock:
            if self._is_current(key, future):  # not forgotten, nor overtaken by a newer version
                del self._making[key]
                self._drop(key)
                self._kept[key] = _Entry(future, version, self._clock(), size)
                self._total += size
                while self._kept and self._total > self._limit:
                    self._drop(next(iter(self._kept)))
        future.set_result(value)

    def _drop(self, key: Hashable) -> None:
        entry = self._kept.pop(key, None)
        if entry is not None:
            self._total -= entry.size

    def _give_up(self, key: Hashable, future: "Future[T]", error: BaseException) -> None:
        with self._lock:
            if self._is_current(key, future):
                del self._making[key]
        future.set_exception(error)

    def _is_current(self, key: Hashable, future: "Future[T]") -> bool:
        return self._making.get(key, (None, None))[1] is future
