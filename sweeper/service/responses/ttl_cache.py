"""What is looked up at most so often, and once for all who ask at the same time."""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from anyio import to_thread

T = TypeVar("T")

PATIENCE = 4.0  # where the loop is busy, a look takes several rounds, each as long as all who ask


class TtlCache(Generic[T]):
    """Looks things up in a thread and keeps them for a moment; for one event loop.

    Args:
        look: is given the name of a thing.
        seconds: for which what it returned is kept; what it raised is not. Who asks later, but before `PATIENCE` times
            as many, is still told what is kept, while it is looked up anew.
        clock: returns seconds.
    """

    def __init__(self, look: Callable[[str], T], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._look, self._seconds, self._clock = look, seconds, clock
        self._kept: dict[str, tuple[float, T]] = {}
        self._looking: dict[str, asyncio.Task[T]] = {}

    async def get(self, name: str) -> T:
        """Return what is known of a thing, and raise what ``look`` raises."""
        kept = self._kept.get(name)
        age = math.inf if kept is None else self._clock() - kept[0]
        if kept is not None and age < self._seconds:
            return kept[1]
        looking = self._looking.get(name)
        if looking is None:
            looking = self._looking[name] = asyncio.create_task(self._found(name))
            looking.add_done_callback(_heard)
        return kept[1] if kept is not None and age < PATIENCE * self._seconds else await asyncio.shield(looking)

    def forget(self, name: str) -> None:
        """Look it up again next time, and keep nothing of a look that began before; may be called from any thread."""
        self._looking.pop(name, None)
        self._kept.pop(name, None)

    async def _found(self, name: str) -> T:
        try:
            found = await to_thread.run_sync(self._look, name)
            now = self._clock()
            for other in [key for key, kept in list(self._kept.items()) if now - kept[0] >= PATIENCE * self._seconds]:
                self._kept.pop(other, None)
            self._kept[name] = (now, found)
            if not self._is_current(name):
                self._kept.pop(name, None)
            return found
        finally:
            if self._is_current(name):
                self._looking.pop(name, None)  # it may be forgotten at this moment

    def _is_current(self, name: str) -> bool:
        return self._looking.get(name) is asyncio.current_task()


def _heard(looking: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody waits for; whoever asks next finds it anew."""
    if not looking.cancelled():
        looking.exception()
